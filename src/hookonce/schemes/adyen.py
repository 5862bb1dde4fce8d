"""Adyen's scheme for payments: every item of a notification carries a signature over eight of its own fields."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_bytes
from typing import Any

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, prove
from hookonce.schemes.hmac import encode_base64
from hookonce.schemes.request import Request, scalar, walk
from hookonce.schemes.signature import KEY_PROBLEMS, KEYS

ITEMS_MAX = 1_000
FREE_TEXT = ("merchantReference",)
"""The merchant's own words. Fields are joined by colons, so that only one of them may hold any."""

SIGNED = (
    ("pspReference",),
    ("originalReference",),
    ("merchantAccountCode",),
    FREE_TEXT,
    ("amount", "value"),
    ("amount", "currency"),
    ("eventCode",),
    ("success",),
)

_key = KEYS["hex"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdyenScheme(Described):
    """Of an item that nobody signed, the whole request is refused: its neighbours prove nothing about it."""

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a notification each of whose items was signed with an active key, old or new."""
        usable = active(secrets, now)
        matched, together = "", hashlib.sha256()
        for item in items_of(Request(delivery).document):
            signature = walk(item, ("additionalData", "hmacSignature"))
            if not isinstance(signature, str):
                raise VerificationError(Reason.SIGNATURE_MISSING, "an item has no hmacSignature")
            text = signature.encode("utf-8", "surrogatepass")
            found, digest = prove(signed_fields(item), [text], usable, "sha256", encode_base64, _key)
            matched = matched or found
            together.update(digest)
        return Verified(matched, together.digest())

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Nothing: the signatures are inside the body, see `seal`."""
        return []

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The request with a signature in every item."""
        document = Request(unsigned).document
        for item in items_of(document):
            digest = hmac.digest(_key(secret.value), signed_fields(item), "sha256")
            item.setdefault("additionalData", {})["hmacSignature"] = encode_base64(digest).decode()
        return replace(unsigned, body=json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())

    def new_secret(self) -> bytes:
        return token_bytes(32).hex().upper().encode()

    def secret_problem(self, value: bytes) -> str | None:
        return None if _key(value) else KEY_PROBLEMS["hex"]

    @property
    def body_bound(self) -> bool:
        """Eight fields of each item are; the rest of the body is not."""
        return False

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "body:notificationItems, in each additionalData.hmacSignature (HMAC-SHA256, base64)",
            "signed": ":".join("{" + ".".join(path) + "}" for path in SIGNED),
            "timestamp": "none",
        }


def items_of(document: Any) -> list[dict[str, Any]]:
    """What was notified of."""
    listed = walk(document, ("notificationItems",))
    if not isinstance(listed, list) or not 0 < len(listed) <= ITEMS_MAX:
        raise VerificationError(Reason.SIGNATURE_MISSING, "there are no notificationItems, or too many")
    items = [walk(entry, ("NotificationRequestItem",)) for entry in listed]
    if not all(isinstance(item, dict) for item in items):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "an item is no NotificationRequestItem")
    return items


def signed_fields(item: dict[str, Any]) -> bytes:
    """The eight fields with colons between them; one that is not there is empty."""
    parts = []
    for path in SIGNED:
        value = walk(item, path)
        part = b"" if value is None else scalar(value)
        if part is None:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{'.'.join(path)} is neither text nor a whole number")
        if b":" in part and path != FREE_TEXT:
            # With colons elsewhere, text could move from one field into the next under the same signature.
            raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{'.'.join(path)} contains a colon")
        parts.append(part)
    return b":".join(parts)


__all__ = ["AdyenScheme", "items_of", "signed_fields"]
