"""Stripe's scheme: `Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>]`, HMAC-SHA256 over `{t}.{body}`."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import (
    TOLERANCE_SECONDS,
    Described,
    active,
    check_count,
    check_tolerance,
    check_window,
    encode_hex,
    header_once,
    parse_timestamp,
    prove,
)

HEADER = b"stripe-signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeScheme(Described):
    """The whole secret string, `whsec_` included, is the key. Unlike Stripe's own libraries, we look ahead as well."""

    tolerance: float = TOLERANCE_SECONDS

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept any `v1` that any active secret made over these very bytes, inside the window."""
        value = header_once(delivery.headers, HEADER)
        if value is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, "there is no Stripe-Signature header")
        timestamp, signatures = _parts(value)
        signed_at = parse_timestamp(timestamp)
        matched, digest = prove(
            timestamp + b"." + delivery.body, signatures, active(secrets, now), "sha256", encode_hex
        )
        check_window(signed_at, now, self.tolerance)
        return Verified(matched, digest, float(signed_at))

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Sign as Stripe does; the message id is in Stripe's body, not in a header."""
        del message_id
        timestamp = str(int(now)).encode()
        digest = hmac.digest(secret.value, timestamp + b"." + body, "sha256")
        return [(HEADER, b"t=" + timestamp + b",v1=" + encode_hex(digest))]

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "header:Stripe-Signature, each v1= (HMAC-SHA256, hex)",
            "signed": "{t}.{body}",
            "timestamp": f"t= (s), at most {self.tolerance:g} s old or ahead",
        }


def _parts(value: bytes) -> tuple[bytes, list[bytes]]:
    """The timestamp and every `v1`; other schemes, `v0` among them, are none of our business."""
    timestamp = None
    signatures = []
    for part in value.split(b","):
        name, _, item = part.partition(b"=")
        if name == b"v1":
            signatures.append(item)
        elif name == b"t":
            if timestamp is not None:
                raise VerificationError(Reason.SIGNATURE_MALFORMED, "Stripe-Signature has two timestamps")
            timestamp = item
    if timestamp is None:
        raise VerificationError(Reason.TIMESTAMP_MISSING, "Stripe-Signature has no timestamp")
    if not signatures:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "Stripe-Signature has no v1 signature")
    check_count(signatures)
    return timestamp, signatures


__all__ = ["HEADER", "StripeScheme"]
