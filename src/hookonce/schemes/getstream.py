"""Stream: bodies may come compressed, and what is signed is what was there before."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, encode_hex, header_once, prove, with_headers
from hookonce.schemes.inflate import inflate

SIGNATURE = b"x-signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamScheme(Described):
    """HMAC-SHA256, hex, over the body as it was before it was compressed."""

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a signature that an active secret made. Nothing is inflated for a request without one."""
        signature = header_once(delivery.headers, SIGNATURE)
        if signature is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, "there is no X-Signature header")
        try:
            body = inflated(delivery)
        except ValueError as error:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, str(error)) from None
        return Verified(*prove(body, (signature,), active(secrets, now), "sha256", encode_hex))

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        del now, message_id
        return [(SIGNATURE, encode_hex(hmac.digest(secret.value, body, "sha256")))]

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The request with its signature; one that says gzip has to be compressed already."""
        added = self.sign(inflated(unsigned), secret, now, message_id)
        return replace(unsigned, headers=with_headers(unsigned.headers, added))

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "header:X-Signature (HMAC-SHA256, hex)",
            "signed": "{body}, uncompressed",
            "timestamp": "none",
        }


def inflated(delivery: Delivery) -> bytes:
    """The body as it was written. ValueError where it cannot be had."""
    if not any(name == b"content-encoding" and value.lower() == b"gzip" for name, value in delivery.headers):
        return delivery.body
    return inflate(delivery.body)


__all__ = ["StreamScheme", "inflated"]
