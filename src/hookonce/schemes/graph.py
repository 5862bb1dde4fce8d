"""A token inside every item of a batch, as Microsoft Graph sends it: all of them must have it. The body is not covered."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, secret_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTokenScheme(Described):
    """The token stands in the member `token` of each item of the array `items`."""

    items: str
    token: str

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a batch whose every item has a token that is one of the active secrets."""
        usable = active(secrets, now)
        matched = [self._match(item, usable) for item in self._items(delivery.body)]
        if not matched:
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is nothing in {self.items}")
        first = matched[0]
        if first is None or None in matched:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, f"{self.token} is none of the active secrets")
        return Verified(secret_id(first), b"")

    def _items(self, body: bytes) -> list[Any]:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise VerificationError(
                Reason.SIGNATURE_MISSING, f"{self.token} is in the body, which is no JSON"
            ) from None
        items = document.get(self.items) if isinstance(document, dict) else None
        if not isinstance(items, list):
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no {self.items}")
        return items

    def _match(self, item: Any, secrets: Sequence[Secret]) -> bytes | None:
        given = item.get(self.token) if isinstance(item, dict) else None
        if not isinstance(given, str):
            raise VerificationError(Reason.SIGNATURE_MISSING, f"an item has no {self.token}")
        text = given.encode("utf-8", "surrogatepass")
        matched = None
        for secret in secrets:
            if hmac.compare_digest(secret.value, text) and secret.value:
                matched = secret.value
        return matched

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Nothing: the token is in the body. See `seal`."""
        del body, secret, now, message_id
        return []

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The batch with the token in every item."""
        del now, message_id
        document = json.loads(unsigned.body)
        for item in document[self.items]:
            item[self.token] = secret.value.decode("utf-8", "surrogatepass")
        return replace(unsigned, body=json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass"))

    @property
    def body_bound(self) -> bool:
        return False

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": f"body:{self.items}.*.{self.token} (fixed token)",
            "signed": "nothing",
            "timestamp": "none",
        }


__all__ = ["ItemTokenScheme"]
