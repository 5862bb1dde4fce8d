"""Atlassian Connect: a JSON web token whose `qsh` claim is a hash of method, path and query. The body is not covered."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_from_bytes, urlsplit

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery
from hookonce.schemes.jwt import JwtScheme
from hookonce.schemes.request import Request, fields

PLAIN = "-._~"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectScheme(JwtScheme):
    """`base_url` is the app's: its path is not part of what is hashed."""

    at: str = "header:Authorization"
    algorithms: tuple[str, ...] = ("HS256",)
    prefix: str | None = "JWT"
    requires: tuple[str, ...] = ("iss", "iat", "exp", "qsh")
    base_url: str | None = None

    def _check_claims(self, claims: Mapping[str, Any], request: Request) -> None:
        super(ConnectScheme, self)._check_claims(claims, request)
        found = claims["qsh"]
        given = found.encode("utf-8", "replace") if isinstance(found, str) else b""
        if not hmac.compare_digest(self._hash(request), given):
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the token is about another address")

    def claims_for(self, unsigned: Delivery, now: float, message_id: str) -> dict[str, Any]:
        claims = super(ConnectScheme, self).claims_for(unsigned, now, message_id)
        return {"iss": "development", **claims, "qsh": self._hash(Request(unsigned, self.url)).decode()}

    def _hash(self, request: Request) -> bytes:
        base = urlsplit(self.base_url or "").path
        canonical = canonical_request(request.delivery.method, request.public_path(), base)
        return hashlib.sha256(canonical).hexdigest().encode()

    def describe(self) -> Mapping[str, str]:
        told = super(ConnectScheme, self).describe()
        return {**told, "signed": "qsh = hex sha256 of METHOD&path&query, the query sorted; the body is not covered"}


def canonical_request(method: str, address: bytes, base: str = "") -> bytes:
    """Method, path below `base`, and the query in the order of its names, with the values of a name together."""
    path, _, query = address.partition(b"?")
    below = base.rstrip("/").encode()
    if below and (path == below or path.startswith(below + b"/")):
        path = path[len(below) :]
    path = b"/" + path.lstrip(b"/").rstrip(b"/").replace(b"&", b"%26")
    values: dict[bytes, list[bytes]] = {}
    for name, value in fields(query):
        if name != b"jwt":
            values.setdefault(_encoded(name), []).append(_encoded(value))
    listed = [name + b"=" + b",".join(sorted(values[name])) for name in sorted(values)]
    return b"&".join((method.upper().encode("latin-1", "replace"), path, b"&".join(listed)))


def _encoded(text: bytes) -> bytes:
    return quote_from_bytes(text, safe=PLAIN).encode()


__all__ = ["ConnectScheme", "canonical_request"]
