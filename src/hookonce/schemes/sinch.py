"""Sinch: what its calls and verifications sign, method, type and path included, and a nonce that must stay what it is."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_bytes

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, check_tolerance, header_once, prove, with_headers
from hookonce.schemes.hmac import encode_base64
from hookonce.schemes.request import Request
from hookonce.schemes.signature import (
    FUTURE_SECONDS,
    KEY_PROBLEMS,
    KEYS,
    SignatureScheme,
    check_age,
    read_moment,
    write_moment,
)

WORDS = (b"application", b"service")
TIMESTAMP = b"x-timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinchServiceScheme(Described):
    """`Authorization: Application <key>:<signature>`, HMAC-SHA256 with the base64-decoded secret.

    The key that the header names is not looked at: the secret proves more. `url` is for where a proxy changes the path.
    """

    url: str | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            check_tolerance(self.tolerance)

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a signature over method, body, type, time and path; whether the path has the query is not told."""
        request = Request(delivery, self.url)
        signature = _signature(request)
        timestamp = request.header(TIMESTAMP)
        if timestamp is None:
            raise VerificationError(Reason.TIMESTAMP_MISSING, "there is no x-timestamp header")
        signed_at = read_moment(timestamp, "iso")
        head, path = _head(request, timestamp), request.public_path()
        usable = active(secrets, now)
        try:
            proof = prove(head + path.partition(b"?")[0], (signature,), usable, "sha256", encode_base64, KEYS["base64"])
        except VerificationError:
            proof = prove(head + path, (signature,), usable, "sha256", encode_base64, KEYS["base64"])
        check_age(signed_at, now, self.tolerance, FUTURE_SECONDS)
        return Verified(*proof, signed_at)

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """The headers with which Sinch would send this body to the path `/`."""
        return list(self.seal(Delivery("", [], body, "/"), secret, now, message_id).headers)

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        del message_id
        timestamp = write_moment(now, "iso")
        request = Request(unsigned, self.url)
        signed = _head(request, timestamp) + request.public_path().partition(b"?")[0]
        digest = hmac.digest(KEYS["base64"](secret.value), signed, "sha256")
        proof = b"Service development:" + encode_base64(digest)
        added = [(TIMESTAMP, timestamp), (b"authorization", proof)]
        return replace(unsigned, headers=with_headers(unsigned.headers, added))

    def new_secret(self) -> bytes:
        return encode_base64(token_bytes(32))

    def covers_header(self, name: str) -> bool:
        return name.lower().encode() in (TIMESTAMP, b"content-type")

    def secret_problem(self, value: bytes) -> str | None:
        return None if KEYS["base64"](value) else KEY_PROBLEMS["base64"]

    def describe(self) -> Mapping[str, str]:
        back = "any age" if self.tolerance is None else f"at most {self.tolerance:g} s old"
        return {
            "signature": "header:Authorization, after the key (HMAC-SHA256, base64)",
            "signed": r"{method}\n{md5b64}\n{header:Content-Type}\nx-timestamp:{ts}\n{path}",
            "timestamp": f"header:x-timestamp (iso), {back}, at most {FUTURE_SECONDS:g} s ahead",
        }


def _signature(request: Request) -> bytes:
    value = request.header(b"authorization")
    if value is None:
        raise VerificationError(Reason.SIGNATURE_MISSING, "there is no Authorization header")
    word, _, rest = value.partition(b" ")
    _, colon, signature = rest.strip().rpartition(b":")
    if word.lower() not in WORDS or not colon:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "Authorization is no signature of Sinch")
    return signature


def _head(request: Request, timestamp: bytes) -> bytes:
    """All that is signed before the path, a line each."""
    digest = hashlib.md5(request.body, usedforsecurity=False).digest()
    lines = [
        request.delivery.method.encode("latin-1"),
        encode_base64(digest) if request.body else b"",
        request.header(b"content-type") or b"",
        b"x-timestamp:" + timestamp,
    ]
    return b"".join([line + b"\n" for line in lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class NonceScheme(SignatureScheme):
    """A declared scheme whose template sets a nonce off by full stops: with one inside it, bytes of the body could be it."""

    nonce: str

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """As declared, once the nonce is known to be in one piece."""
        nonce = header_once(delivery.headers, self.nonce.lower().encode())
        if nonce is not None and b"." in nonce:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the nonce has a full stop in it")
        return SignatureScheme.verify(self, delivery, secrets, now)


__all__ = ["NonceScheme", "SinchServiceScheme"]
