"""Mailgun: timestamp, token and signature stand in the body, and sign each other: what else is in it, nobody vouches for."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from urllib.parse import urlencode

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, check_tolerance, encode_hex, parse_timestamp, prove
from hookonce.schemes.request import Get, Request, place
from hookonce.schemes.signature import FUTURE_SECONDS, check_age

NAMES = ("timestamp", "token", "signature")
IN_JSON: tuple[Get, ...] = tuple(place(f"body:signature.{name}") for name in NAMES)
IN_FORM: tuple[Get, ...] = tuple(place(f"form:{name}") for name in NAMES)
FORM = b"application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class MailgunScheme(Described):
    """HMAC-SHA256 over `{timestamp}{token}`. The window is all that bounds what a proof that was seen once can be used for."""

    tolerance: float = 900.0

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a proof that an active secret made, and that is not old."""
        request = Request(delivery)
        timestamp, token, signature = (get(request) for get in (IN_FORM if _is_form(delivery) else IN_JSON))
        if signature is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, "there is no signature in the body")
        if timestamp is None:
            raise VerificationError(Reason.TIMESTAMP_MISSING, "there is no timestamp in the body")
        if not token:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "there is no token in the body")
        signed_at = float(parse_timestamp(timestamp))
        proof = prove(timestamp + token, (signature,), active(secrets, now), "sha256", encode_hex)
        # Both ways: a digit that moves between the two makes another time.
        check_age(signed_at, now, self.tolerance, FUTURE_SECONDS)
        return Verified(*proof, signed_at)

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Nothing: the proof is not in a header."""
        del body, secret, now, message_id
        return []

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        timestamp = str(int(now))
        token = hashlib.sha256(f"{message_id} {timestamp}".encode()).hexdigest()[:50]
        digest = hmac.digest(secret.value, (timestamp + token).encode(), "sha256")
        proof = dict(zip(NAMES, (timestamp, token, digest.hex()), strict=True))
        if _is_form(unsigned):
            return replace(
                unsigned, body=b"&".join(part for part in (unsigned.body, urlencode(proof).encode()) if part)
            )
        document = {**json.loads(unsigned.body), "signature": proof}
        return replace(unsigned, body=json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())

    def new_secret(self) -> bytes:
        return token_hex(16).encode()

    @property
    def body_bound(self) -> bool:
        return False

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "body:signature.signature | form:signature (HMAC-SHA256, hex)",
            "signed": "{timestamp}{token}: the event is not covered",
            "timestamp": f"body:signature.timestamp (s), at most {self.tolerance:g} s old, at most {FUTURE_SECONDS:g} s ahead",
        }


def _is_form(delivery: Delivery) -> bool:
    return any(name == b"content-type" and value.startswith(FORM) for name, value in delivery.headers)


__all__ = ["MailgunScheme"]
