"""Providers: who sends, how they sign, and where they say what. Declare one as an endpoint."""

from __future__ import annotations

from hookonce.providers.base import Endpoint, Profile, Provider
from hookonce.providers.catalogue import PROVIDERS, GitHub, Hmac, StandardWebhooks, Stripe

__all__ = ["PROVIDERS", "Endpoint", "GitHub", "Hmac", "Profile", "Provider", "StandardWebhooks", "Stripe"]
