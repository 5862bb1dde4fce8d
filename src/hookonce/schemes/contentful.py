"""Contentful: a request written out line by line, with the headers that one of its headers lists, and signed as a whole."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from urllib.parse import quote

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import (
    Described,
    Headers,
    active,
    check_tolerance,
    encode_hex,
    header_once,
    parse_timestamp,
    prove,
    with_headers,
)
from hookonce.schemes.signature import FUTURE_SECONDS, check_age

SIGNATURE = b"x-contentful-signature"
TIMESTAMP = b"x-contentful-timestamp"
SIGNED_HEADERS = b"x-contentful-signed-headers"
ALWAYS_SIGNED = frozenset({TIMESTAMP, SIGNED_HEADERS})

PAST_SECONDS = 30.0
NAMES_MAX = 64
SECRET_LENGTH = 64

KEPT_IN_FIELD = "!~*'()"
KEPT_IN_URL = ";,/?:@&=+$#" + KEPT_IN_FIELD
"""What JavaScript leaves as it is when it escapes a field of a query, and a whole URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentfulScheme(Described):
    """HMAC-SHA256 (hex) over method, escaped path, listed headers and body. `url` is for a path that a proxy changes."""

    tolerance: float = PAST_SECONDS
    url: str | None = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept what an active secret signed, with every header that is listed there exactly once."""
        headers = delivery.headers
        signature = header_once(headers, SIGNATURE)
        if signature is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no {SIGNATURE.decode()} header")
        timestamp = header_once(headers, TIMESTAMP)
        if timestamp is None:
            raise VerificationError(Reason.TIMESTAMP_MISSING, f"there is no {TIMESTAMP.decode()} header")
        signed_at = parse_timestamp(timestamp) / 1000
        signed = self._canonical(delivery, _listed(headers))
        matched, digest = prove(signed, [signature], active(secrets, now), "sha256", encode_hex)
        check_age(signed_at, now, self.tolerance, FUTURE_SECONDS)
        return Verified(matched, digest, signed_at)

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """The headers with which Contentful would send this body."""
        return list(self.seal(Delivery("", [], body), secret, now, message_id).headers)

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The request with its signature over Contentful's own headers."""
        del message_id
        own = {name for name, _ in unsigned.headers if name.startswith(b"x-contentful-")} - {SIGNATURE}
        names = sorted(own | ALWAYS_SIGNED)
        added = [(TIMESTAMP, str(int(now * 1000)).encode()), (SIGNED_HEADERS, b",".join(names))]
        stamped = replace(unsigned, headers=with_headers(unsigned.headers, added))
        signature = encode_hex(hmac.digest(secret.value, self._canonical(stamped, names), "sha256"))
        return replace(stamped, headers=with_headers(stamped.headers, [(SIGNATURE, signature)]))

    def _canonical(self, delivery: Delivery, names: Sequence[bytes]) -> bytes:
        listed = b";".join([name + b":" + _value(delivery.headers, name, names) for name in names])
        return b"\n".join((delivery.method.encode("utf-8", "replace"), self._path(delivery), listed, delivery.body))

    def _path(self, delivery: Delivery) -> bytes:
        """Path and query, escaped once more: a query twice, once as if it were a field, once as a part of the URL."""
        where, _, query = (self.url or delivery.path).partition("?")
        if "://" in where:
            where = "/" + where.partition("://")[2].partition("/")[2]
        query = (query or delivery.query.decode("latin-1")).partition("?")[0]
        if query:
            where += "?" + quote(query, safe=KEPT_IN_FIELD, errors="replace")
        return quote(where, safe=KEPT_IN_URL, errors="replace").encode()

    def new_secret(self) -> bytes:
        return token_hex(SECRET_LENGTH // 2).encode()

    def secret_problem(self, value: bytes) -> str | None:
        if len(value) == SECRET_LENGTH:
            return None
        return f"has {len(value)} characters, and a signing secret of Contentful has {SECRET_LENGTH}: copy all of it"

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": f"header:{SIGNATURE.decode()} (HMAC-SHA256, hex)",
            "signed": f"method, path, the headers that {SIGNED_HEADERS.decode()} lists, and the body",
            "timestamp": f"header:{TIMESTAMP.decode()} (ms), at most {self.tolerance:g} s old, "
            f"at most {FUTURE_SECONDS:g} s ahead",
        }


def _listed(headers: Headers) -> list[bytes]:
    """The names of the headers that are signed, in the order in which they are."""
    value = header_once(headers, SIGNED_HEADERS)
    if value is None:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"there is no {SIGNED_HEADERS.decode()} header")
    names = [name.strip().lower() for name in value.split(b",", NAMES_MAX)]
    if len(names) > NAMES_MAX or len(set(names)) != len(names):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the list of signed headers is too long, or repeats itself")
    if not set(names) >= ALWAYS_SIGNED:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the time and the list of signed headers have to be signed")
    return sorted(names)


def _value(headers: Headers, name: bytes, names: Sequence[bytes]) -> bytes:
    if name == SIGNED_HEADERS:
        return b",".join(names)
    value = header_once(headers, name)
    if value is None:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "a header that is listed as signed is missing")
    return value.decode("latin-1").strip().encode()


__all__ = ["ContentfulScheme"]
