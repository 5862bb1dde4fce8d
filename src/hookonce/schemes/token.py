"""Senders that sign nothing: a fixed token, a password, or a secret in the URL says who they are. The body is not covered."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_urlsafe
from urllib.parse import quote_from_bytes

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, secret_id
from hookonce.schemes.request import Get, Request, place


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScheme(Described):
    """A token at one of these places, as it is, after a `prefix` such as "Bearer ", or as HTTP Basic ("user:password")."""

    at: str | tuple[str, ...]
    prefix: str = ""
    basic: bool = False
    _places: tuple[Get, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", tuple(map(place, self._named())))

    def _named(self) -> tuple[str, ...]:
        return (self.at,) if isinstance(self.at, str) else self.at

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a token that is one of the active secrets."""
        request = Request(delivery)
        given = [value for get in self._places if (value := get(request)) is not None]
        if not given:
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no {' or '.join(self._named())}")
        matched = None
        for secret in active(secrets, now):
            expected = self._written(secret.value)
            for value in given:
                if hmac.compare_digest(expected, value) and secret.value:
                    matched = matched or secret.value
        if matched is None:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the token is none of the active secrets")
        return Verified(secret_id(matched), b"")

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Show the token where the sender shows it. One in the URL is part of the URL."""
        del body, now, message_id
        kind, _, where = self._named()[0].partition(":")
        return [(where.lower().encode(), self._written(secret.value))] if kind == "header" else []

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        kind, _, where = self._named()[0].partition(":")
        if kind != "query":
            return super(TokenScheme, self).seal(unsigned, secret, now, message_id)
        field = f"{where}={quote_from_bytes(secret.value, safe='')}".encode()
        return replace(unsigned, query=b"&".join(part for part in (unsigned.query, field) if part))

    def _written(self, value: bytes) -> bytes:
        return b"Basic " + b64encode(value) if self.basic else self.prefix.encode() + value

    def new_secret(self) -> bytes:
        text = token_urlsafe(24)
        return f"hookonce:{text}".encode() if self.basic else text.encode()

    @property
    def body_bound(self) -> bool:
        return False

    def covers_header(self, name: str) -> bool:
        del name
        return False

    def secret_problem(self, value: bytes) -> str | None:
        return 'is not "user:password"' if self.basic and b":" not in value else None

    def describe(self) -> Mapping[str, str]:
        kind = "user and password (HTTP Basic)" if self.basic else "fixed token"
        return {"signature": f"{' | '.join(self._named())} ({kind})", "signed": "nothing", "timestamp": "none"}


__all__ = ["TokenScheme"]
