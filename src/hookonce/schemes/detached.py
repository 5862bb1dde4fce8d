"""Signatures that stand apart from what they cover: a JSON web signature in a header, its payload left out.

TrueLayer builds the payload out of the request; Saleor's is the body as it is. Keys are published, or configured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes import jwt, keys
from hookonce.schemes.base import Described, active, secret_id, with_headers
from hookonce.schemes.remote import Published
from hookonce.schemes.request import Request
from hookonce.schemes.signature import FUTURE_SECONDS, check_age, read_moment, write_moment

SIGNATURE_BYTES_MAX = 16 * 1024
SIGNED_HEADERS_MAX = 16

_BASE64URL = re.compile(rb"[A-Za-z0-9_-]+")

Protected = Mapping[str, Any]
"""What the signature says of itself: its algorithm, its key, and what else was signed. It is signed as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedScheme(Described):
    """`header` holds `<protected>..<signature>`. Subclasses say what that must claim, and what was signed."""

    header: str
    algorithm: Literal["ES512", "RS256"]
    keys_at: str | None = None
    published: Published = field(default_factory=lambda: Published(readable=keys.some_keys), compare=False, repr=False)

    # -- what a sender decides ----------------------------------------------------------------------------------------

    def check_protected(self, protected: Protected) -> None:
        """Refuse what the sender would never write."""
        raise NotImplementedError

    def payloads(self, protected: Protected, request: Request) -> Sequence[bytes]:
        """What was signed, as it stands behind the protected part; several where it may be written in several ways."""
        raise NotImplementedError

    def signed_at(self, protected: Protected, request: Request) -> float | None:
        """When it was signed, where that is covered."""
        del protected, request
        return None

    # -- verify -------------------------------------------------------------------------------------------------------

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a signature that a configured or a published key made over what this request says."""
        request = Request(delivery, self._url())
        text, signature = self._parts(request)
        protected = self._protected(text)
        inputs = [text + b"." + payload for payload in self.payloads(protected, request)]
        kept = None if self.keys_at is None else self.published.get(self.keys_at)
        usable = active(secrets, now) + ([] if kept is None else [Secret(value=kept, label="published")])
        matched, signed = self._prove(inputs, signature, usable, protected.get("kid"))
        moment = self.signed_at(protected, request)
        if moment is not None:
            check_age(moment, now, None, FUTURE_SECONDS)
        # Not the signature: it can be written in several ways, and must not serve as an identity.
        return Verified(matched, hashlib.sha256(signed).digest(), moment)

    def prepare(self, delivery: Delivery) -> Callable[[], None] | None:
        """How to fetch the key that this signature names, if it is not here yet. Our own name none."""
        if self.keys_at is None:
            return None
        try:
            kid = self._protected(self._parts(Request(delivery))[0]).get("kid")
        except VerificationError:
            return None
        if not isinstance(kid, str):
            return None
        kept = self.published.get(self.keys_at)
        return self.published.need(self.keys_at, again=kept is None or not _has(kept, kid))

    def _url(self) -> str | None:
        return None

    def _parts(self, request: Request) -> tuple[bytes, bytes]:
        value = request.header(self.header.lower().encode())
        if not value:
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no {self.header} header")
        protected, middle, signature = value.partition(b"..")
        if not middle or len(value) > SIGNATURE_BYTES_MAX:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "this is no detached signature")
        return protected, _decoded(signature)

    def _protected(self, text: bytes) -> Protected:
        try:
            protected = json.loads(_decoded(text))
        except (ValueError, RecursionError):
            protected = None
        if not isinstance(protected, dict):
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the signature does not say how it was made")
        if protected.get("alg") != self.algorithm:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "it is signed in another way than it should be")
        self.check_protected(protected)
        return protected

    def _prove(
        self, inputs: Sequence[bytes], signature: bytes, secrets: Sequence[Secret], kid: object
    ) -> tuple[str, bytes]:
        for secret in secrets:
            key = _key_in(secret.value, kid if isinstance(kid, str) else None)
            for signed in inputs:
                if key is not None and _check(key, self.algorithm, signed, signature):
                    return secret_id(secret.value), signed
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "no configured key made this signature")

    # -- sign ---------------------------------------------------------------------------------------------------------

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        return list(self.seal(Delivery("", [], body), secret, now, message_id).headers)

    def sealed(self, unsigned: Delivery, secret: Secret, protected: Protected) -> Delivery:
        """The request with a signature over it. It names no key: then any configured one may be meant."""
        from jwt.algorithms import get_default_algorithms

        keys.sign_check(secret.value)
        text = _encoded(json.dumps({"alg": self.algorithm, **protected}, separators=(",", ":")).encode())
        signed = text + b"." + self.payloads(protected, Request(unsigned, self._url()))[0]
        algorithm: Any = get_default_algorithms()[self.algorithm]
        value = text + b".." + _encoded(algorithm.sign(signed, keys.private_key(secret.value)))
        return replace(unsigned, headers=with_headers(unsigned.headers, [(self.header.lower().encode(), value)]))

    # -- tell ---------------------------------------------------------------------------------------------------------

    def new_secret(self) -> bytes:
        return keys.new_private_key(self.algorithm).strip()

    def require(self) -> None:
        jwt.require()
        keys.require()

    def secret_problem(self, value: bytes) -> str | None:
        if not value.lstrip().startswith(b"{"):
            return keys.key_problem(value)
        try:
            return None if _keys_by_id(value) else "holds no key that can be read"
        except Exception:
            return "is no set of keys (JWKS)"

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": f"header:{self.header} (detached JSON web signature, {self.algorithm})",
            "signed": "{body}",
            "timestamp": "none",
        }


TRUELAYER_TIME = "X-TL-Webhook-Timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueLayerScheme(DetachedScheme):
    """Method, path, the headers that the signature names, and the body, put together and encoded."""

    header: str = "Tl-Signature"
    algorithm: Literal["ES512", "RS256"] = "ES512"
    url: str | None = None

    def check_protected(self, protected: Protected) -> None:
        if protected.get("tl_version") != "2" or "crit" in protected or protected.get("b64", True) is not True:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "this is another kind of signature than version 2")
        address = protected.get("jku")
        if address is not None and self.keys_at is not None and address != self.keys_at:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the signature names keys at another address than ours")

    def payloads(self, protected: Protected, request: Request) -> Sequence[bytes]:
        """The sender signs the path with or without the slash at its end, whatever the URL has."""
        lines = b"".join(
            [name.encode("latin-1") + b": " + value + b"\n" for name, value in _signed(protected, request)]
        )
        method = request.delivery.method.encode("latin-1")
        return [_encoded(method + b" " + path + b"\n" + lines + request.body) for path in _paths(request.public_path())]

    def signed_at(self, protected: Protected, request: Request) -> float | None:
        for name, value in _signed(protected, request):
            if name.lower() == TRUELAYER_TIME.lower():
                return read_moment(value, "iso")
        return None

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        stamp = (TRUELAYER_TIME.lower().encode(), write_moment(now, "iso"))
        stamped = replace(unsigned, headers=with_headers(unsigned.headers, [stamp]))
        return self.sealed(stamped, secret, {"tl_version": "2", "tl_headers": TRUELAYER_TIME})

    def _url(self) -> str | None:
        return self.url

    def describe(self) -> Mapping[str, str]:
        ahead = f"any age, at most {FUTURE_SECONDS:g} s ahead"
        return {
            **DetachedScheme.describe(self),
            "signed": "method, path, the headers that the signature names, {body}",
            "timestamp": f"header:{TRUELAYER_TIME} (iso), where it is signed: {ahead}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SaleorScheme(DetachedScheme):
    """The body as it is, not encoded. Whether the header lists that as critical depends on the shop's version."""

    header: str = "Saleor-Signature"
    algorithm: Literal["ES512", "RS256"] = "RS256"

    def check_protected(self, protected: Protected) -> None:
        if protected.get("b64") is not False or protected.get("crit", ["b64"]) != ["b64"]:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "this signature is not over the body as it is")

    def payloads(self, protected: Protected, request: Request) -> Sequence[bytes]:
        del protected
        return [request.body]

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        return self.sealed(unsigned, secret, {"b64": False, "crit": ["b64"]})


def _signed(protected: Protected, request: Request) -> list[tuple[str, bytes]]:
    """The headers that the signature names, in its order and its spelling; each must be there, once."""
    named = protected.get("tl_headers", "")
    names = [name for name in named.split(",") if name] if isinstance(named, str) else []
    if not isinstance(named, str) or not named.isascii() or len(names) > SIGNED_HEADERS_MAX:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the signature does not say which headers it covers")
    found = []
    for name in names:
        value = request.header(name.strip().lower().encode("ascii"))
        if value is None:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "a header that is signed is missing")
        found.append((name, value))
    return found


def _paths(target: bytes) -> list[bytes]:
    path = target.partition(b"?")[0]
    return [path, path[:-1] if path.endswith(b"/") and len(path) > 1 else path + b"/"]


def _key_in(value: bytes, kid: str | None) -> Any:
    try:
        if not value.lstrip().startswith(b"{"):
            return keys.public_key(value)
        found = _keys_by_id(value)
        return next(iter(found.values())) if kid is None and len(found) == 1 else found.get(str(kid))
    except Exception:  # somebody else's document
        return None


@lru_cache(maxsize=64)
def _keys_by_id(text: bytes) -> Mapping[str, Any]:
    """The keys of a set that can be read: it may hold kinds that we do not know, and those are not the ones we need."""
    from jwt import PyJWK

    document = json.loads(text)
    listed = document.get("keys", [document])
    found: dict[str, Any] = {}
    for entry in listed:
        with contextlib.suppress(Exception):
            found[str(entry.get("kid", ""))] = PyJWK(_padded(entry)).key
    return found


def _padded(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Some write the coordinates of a point without the zeros that they begin with."""
    size = _COORDINATE_BYTES.get(entry.get("crv", ""), 0)
    pad = {
        name: _encoded(_decoded(entry[name].encode()).rjust(size, b"\0")).decode()
        for name in ("x", "y")
        if name in entry
    }
    return {**entry, **pad}


_COORDINATE_BYTES = {"P-256": 32, "P-384": 48, "P-521": 66}


def _has(kept: bytes, kid: str) -> bool:
    return _key_in(kept, kid) is not None


def _check(key: Any, algorithm: str, message: bytes, signature: bytes) -> bool:
    """Whether this key made this signature. The key must be of the algorithm's own kind, and its curve."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from jwt.algorithms import get_default_algorithms

    if algorithm == "RS256":
        fits = isinstance(key, rsa.RSAPublicKey)
    else:
        fits = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP521R1)
    verifier: Any = get_default_algorithms()[algorithm]
    return fits and bool(verifier.verify(message, key, signature))


def _encoded(text: bytes) -> bytes:
    return urlsafe_b64encode(text).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    if _BASE64URL.fullmatch(text) is None or len(text) % 4 == 1:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the signature is no base64url")
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))


__all__ = ["DetachedScheme", "SaleorScheme", "TrueLayerScheme"]
