"""Klaviyo: the body and then the time are signed, with nothing between them, and the time is written as in HTTP."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, check_tolerance, encode_hex, header_once, prove
from hookonce.schemes.signature import FUTURE_SECONDS, check_age, read_moment

SIGNATURE = b"klaviyo-signature"
TIMESTAMP = b"klaviyo-timestamp"
DIGITS = (10, 13)
"""Of seconds, and of milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KlaviyoScheme(Described):
    """HMAC-SHA256 over `{body}{timestamp}`. Times in seconds, milliseconds and ISO 8601 are read as well."""

    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            check_tolerance(self.tolerance)

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a signature that an active secret made over these very bytes and this time."""
        signature, timestamp = header_once(delivery.headers, SIGNATURE), header_once(delivery.headers, TIMESTAMP)
        if signature is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, "there is no Klaviyo-Signature header")
        if timestamp is None:
            raise VerificationError(Reason.TIMESTAMP_MISSING, "there is no Klaviyo-Timestamp header")
        signed_at = _moment(timestamp)
        if not delivery.body.endswith((b"}", b"]")):
            # Nothing stands between body and time: digits could move from one into the other.
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the body does not end as JSON does")
        proof = prove(delivery.body + timestamp, (signature,), active(secrets, now), "sha256", encode_hex)
        check_age(signed_at, now, self.tolerance, FUTURE_SECONDS)
        return Verified(*proof, signed_at)

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        del message_id
        timestamp = format_datetime(datetime.fromtimestamp(int(now), UTC), usegmt=True).encode()
        digest = hmac.digest(secret.value, body + timestamp, "sha256")
        return [(TIMESTAMP, timestamp), (SIGNATURE, encode_hex(digest))]

    def secret_problem(self, value: bytes) -> str | None:
        return "is shorter than 16 characters, and Klaviyo's are not" if len(value) < 16 else None

    def describe(self) -> Mapping[str, str]:
        back = "any age" if self.tolerance is None else f"at most {self.tolerance:g} s old"
        return {
            "signature": "header:Klaviyo-Signature (HMAC-SHA256, hex)",
            "signed": "{body}{ts}",
            "timestamp": f"header:Klaviyo-Timestamp (HTTP date), {back}, at most {FUTURE_SECONDS:g} s ahead",
        }


def _moment(text: bytes) -> float:
    """Seconds since 1970. Each form has one length and one spelling: nothing can move between the body and the time."""
    if text.isdigit():
        if len(text) not in DIGITS:
            raise VerificationError(Reason.TIMESTAMP_MALFORMED, "the timestamp has a strange number of digits")
        return read_moment(text, "s-or-ms")
    if not text.endswith(b" GMT"):
        return read_moment(text, "iso", zone=False)
    try:
        written = text.decode("ascii")
        moment = parsedate_to_datetime(written)
        if format_datetime(moment, usegmt=True) == written:
            return moment.timestamp()
    except (ValueError, TypeError, LookupError, OverflowError):
        pass
    raise VerificationError(Reason.TIMESTAMP_MALFORMED, "the timestamp is no date as HTTP writes it")


__all__ = ["KlaviyoScheme"]
