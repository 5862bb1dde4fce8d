"""Adobe I/O Events: two RSA signatures over the body, with public keys that Adobe shows at one pinned host.

Adobe signs for all its customers with the same keys: `client_id` says which of them is meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes import keys
from hookonce.schemes.base import header_once
from hookonce.schemes.remote import Published
from hookonce.schemes.signature import SignatureScheme

HOST = "https://static.adobeioevents.com"
PATH = re.compile(r"/[a-z0-9]{1,20}/keys/pub-key-[A-Za-z0-9_-]{1,64}\.pem")
PATHS_AT = (b"x-adobe-public-key1-path", b"x-adobe-public-key2-path")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdobeScheme(SignatureScheme):
    """`offline`: public keys were configured, and nothing is fetched."""

    client_id: str | None = None
    offline: bool = False
    published: Published = field(default_factory=lambda: Published(readable=keys.public_key), compare=False, repr=False)

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept either signature, if the event is for our client."""
        found = [self.published.get(url) for url in self._addresses(delivery)]
        shown = [Secret(value=key) for key in found if key is not None and keys.key_problem(key) is None]
        verified = super(AdobeScheme, self).verify(delivery, [*secrets, *shown], now)
        if self.client_id is not None and _recipient(delivery.body) != self.client_id:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the event is for another client")
        return verified

    def prepare(self, delivery: Delivery) -> Callable[[], None] | None:
        """How to fetch the keys that the request names. Only if it says that it is for our client."""
        try:
            if self.client_id is None or _recipient(delivery.body) != self.client_id:
                return None
            needs = [self.published.need(url) for url in self._addresses(delivery)]
        except VerificationError:
            return None
        wanted = [need for need in needs if need is not None]
        return partial(_all, wanted) if wanted else None

    def _addresses(self, delivery: Delivery) -> list[str]:
        if self.offline:
            return []
        values = [header_once(delivery.headers, name) for name in PATHS_AT]
        paths = [value.decode("latin-1") for value in values if value is not None]
        return [HOST + path for path in paths if PATH.fullmatch(path)]


def _all(needs: Sequence[Callable[[], None]]) -> None:
    for need in needs:
        need()


def _recipient(body: bytes) -> str | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = document.get("recipient_client_id") if isinstance(document, dict) else None
    return found if isinstance(found, str) else None


__all__ = ["AdobeScheme"]
