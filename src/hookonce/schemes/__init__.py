"""Signature schemes: pure functions over the received bytes, which answer Verified or raise VerificationError."""

from __future__ import annotations

from hookonce.schemes.base import Scheme
from hookonce.schemes.hmac import HmacScheme
from hookonce.schemes.standard_webhooks import StandardWebhooksScheme
from hookonce.schemes.stripe import StripeScheme

__all__ = ["HmacScheme", "Scheme", "StandardWebhooksScheme", "StripeScheme"]
