"""Senders that prove themselves with a JSON web token: its signature, its claims, and what of the request they bind."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_urlsafe
from typing import Any, Literal

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes import keys
from hookonce.schemes.base import Described, active, secret_id, with_headers
from hookonce.schemes.remote import Published
from hookonce.schemes.request import Get, Request, place
from hookonce.schemes.signature import FUTURE_SECONDS

Hashed = Literal["hex", "base64", "base64url"]
TOKEN_BYTES_MAX = 64 * 1024


def require() -> None:
    """Say what to install before the first request needs it."""
    try:
        import jwt  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "signatures with JSON web tokens need the package PyJWT", do="pip install 'hookonce[asymmetric]'"
        ) from None


@dataclass(frozen=True, slots=True)
class Bound:
    """A claim that holds a hash of the request: of its body, or of the public URL."""

    claim: str
    encoding: Hashed = "hex"
    of: Literal["body", "url"] = "body"
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtScheme(Described):
    """A token at a place ("header:Authorization", "body" for a body that is one), signed with one of `algorithms`.

    `claims` must have these very values; "{url}" stands for the public URL. `leeway` is for clocks that differ, `age`
    bounds how old `iat` may be. `requires` must be there.
    """

    at: str
    algorithms: tuple[str, ...]
    prefix: str | None = None
    claims: Mapping[str, str | bool | tuple[str, ...]] = field(default_factory=dict)
    bound: tuple[Bound, ...] = ()
    requires: tuple[str, ...] = ()
    leeway: float = 60.0
    age: float | None = None
    url: str | None = None
    key: Callable[[bytes], bytes] | None = None
    keys_at: str | None = None
    published: Published = field(default_factory=lambda: Published(readable=keys.some_keys), compare=False, repr=False)
    _place: Get = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        get = (lambda request: request.body) if self.at == "body" else place(self.at)
        object.__setattr__(self, "_place", get)

    # -- verify -------------------------------------------------------------------------------------------------------

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a token that an active key made, whose claims fit this request and this moment."""
        request = Request(delivery, self.url)
        token = self._token(request)
        matched, claims = self.open(token, active(secrets, now))
        self._check_claims(claims, request)
        for bound in self.bound:
            _check_bound(bound, claims, request)
        signed_at = self._check_times(claims, now)
        return Verified(matched, hashlib.sha256(token.rpartition(b".")[0]).digest(), signed_at)

    def _token(self, request: Request) -> bytes:
        value = self._place(request)
        if value is None or not value.strip():
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no token in {self.at}")
        if self.prefix is not None:
            scheme, _, value = value.partition(b" ")
            if scheme.lower() != self.prefix.lower().encode():
                raise VerificationError(Reason.SIGNATURE_MALFORMED, f"the token does not follow {self.prefix!r}")
        if self.at != "body":  # of a body that is a token every byte counts
            value = value.strip()
        if len(value) > TOKEN_BYTES_MAX:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the token is too long")
        return value

    def prepare(self, delivery: Delivery) -> Callable[[], None] | None:
        """How to fetch the key that this token names, if it is not here yet."""
        if self.keys_at is None:
            return None
        try:
            header = read_header(self._token(Request(delivery, self.url)))
        except VerificationError:
            return None
        kid = header.get("kid")
        kept = self.published.get(self.keys_at)
        known = kept is not None and keys.has_key(kept, kid if isinstance(kid, str) else None)
        return self.published.need(self.keys_at, again=not known)

    def open(self, token: bytes, secrets: Sequence[Secret]) -> tuple[str, Mapping[str, Any]]:
        """Who signed the token, and what it claims. Only algorithms that the declaration names are ever tried."""
        kept = None if self.keys_at is None else self.published.get(self.keys_at)
        if kept is not None:
            secrets = [*secrets, Secret(value=kept, label="published")]
        header = read_header(token)
        algorithm = header.get("alg")
        if algorithm not in self.algorithms:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the token is signed in another way than it should be")
        kid = header.get("kid")
        for secret in secrets:
            key = self._key_for(secret.value, str(algorithm), kid if isinstance(kid, str) else None)
            claims = None if key is None else read_token(token, key, str(algorithm))
            if claims is not None:
                return secret_id(secret.value), claims
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "no configured key made this token")

    def _key_for(self, value: bytes, algorithm: str, kid: str | None) -> Any:
        if not algorithm.startswith("HS"):
            try:
                return keys.key_of(value, kid)
            except Exception:
                return None
        return (value if self.key is None else self.key(value)) or None

    def _check_claims(self, claims: Mapping[str, Any], request: Request) -> None:
        for name in self.requires:
            if name not in claims:
                raise VerificationError(Reason.SIGNATURE_MALFORMED, f"the token has no {name}")
        for name, wanted in self.claims.items():
            expected = request.public_url().decode("latin-1") if wanted == "{url}" else wanted
            found = claims.get(name)
            if isinstance(expected, tuple):
                fits = isinstance(found, str) and found in expected
            elif isinstance(found, list):
                fits = expected in found
            else:
                fits = type(found) is type(expected) and found == expected
            if not fits:
                raise VerificationError(Reason.SIGNATURE_MISMATCH, f"the token's {name} is not what it should be")

    def _check_times(self, claims: Mapping[str, Any], now: float) -> float | None:
        expires, begins, issued = (_number(claims, name) for name in ("exp", "nbf", "iat"))
        if expires is not None and now >= expires + self.leeway:
            raise VerificationError(Reason.TOO_OLD, "the token has expired")
        if begins is not None and now < begins - self.leeway:
            raise VerificationError(Reason.IN_THE_FUTURE, "the token is not valid yet")
        if issued is not None and issued - now > max(self.leeway, FUTURE_SECONDS):
            raise VerificationError(Reason.IN_THE_FUTURE, "the token was issued in the future")
        if self.age is not None:
            if issued is None:
                raise VerificationError(Reason.TIMESTAMP_MISSING, "the token does not say when it was issued")
            if now - issued > self.age:
                raise VerificationError(Reason.TOO_OLD, f"the token is older than {self.age:g} s")
        return issued

    # -- sign ---------------------------------------------------------------------------------------------------------

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        return list(self.seal(Delivery("", [], body), secret, now, message_id).headers)

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The request with a token as the sender would make it; where the body is the token, its claims were the body."""
        if self.at == "body":
            claims = {**self.claims_for(unsigned, now, message_id), **_claims_in(unsigned.body)}
            return replace(unsigned, body=self.token(claims, secret))
        token = self.token(self.claims_for(unsigned, now, message_id), secret)
        value = token if self.prefix is None else self.prefix.encode() + b" " + token
        name = self.at.partition(":")[2].lower().encode()
        return replace(unsigned, headers=with_headers(unsigned.headers, [(name, value)]))

    def claims_for(self, unsigned: Delivery, now: float, message_id: str) -> dict[str, Any]:
        """Claims that fit this request and this moment."""
        request = Request(unsigned, self.url)
        claims: dict[str, Any] = {"iat": int(now), "nbf": int(now), "exp": int(now) + 300, "jti": message_id}
        for name, value in self.claims.items():
            text = request.public_url().decode("latin-1") if value == "{url}" else value
            claims[name] = text[0] if isinstance(text, tuple) else text
        for bound in self.bound:
            claims[bound.claim] = _hash(bound, request)
        return claims

    def token(self, claims: Mapping[str, Any], secret: Secret) -> bytes:
        """A token over these claims."""
        algorithm = self.algorithms[0]
        if algorithm.startswith("HS"):
            key: Any = secret.value if self.key is None else self.key(secret.value)
        else:
            keys.sign_check(secret.value)
            key = keys.private_key(secret.value)
        return write_token(claims, key, algorithm)

    # -- tell ---------------------------------------------------------------------------------------------------------

    def new_secret(self) -> bytes:
        if self.algorithms[0].startswith("HS"):
            return token_urlsafe(48).encode()
        return keys.new_private_key(self.algorithms[0]).strip()

    def require(self) -> None:
        require()
        if any(not name.startswith("HS") for name in self.algorithms):
            keys.require()

    @property
    def body_bound(self) -> bool:
        return self.at == "body" or any(bound.of == "body" for bound in self.bound)

    def covers_header(self, name: str) -> bool:
        del name
        return False

    def secret_problem(self, value: bytes) -> str | None:
        if all(name.startswith("HS") for name in self.algorithms):
            return None
        if value.lstrip().startswith(b"{"):
            try:
                return None if keys.key_set(value) else "holds no key"
            except Exception:
                return "is no set of keys (JWKS)"
        return keys.key_problem(value)

    def describe(self) -> Mapping[str, str]:
        bound = ", ".join(f"{one.claim} = {one.encoding} sha256 of the {one.of}" for one in self.bound)
        return {
            "signature": f"{self.at} (JSON web token, {'/'.join(self.algorithms)})",
            "signed": bound
            or ("the body is the token" if self.at == "body" else "the token only: the body is not covered"),
            "timestamp": "exp, nbf" + (f", iat at most {self.age:g} s ago" if self.age else ""),
        }


def read_header(token: bytes) -> Mapping[str, Any]:
    """A token's header, believed by nobody yet."""
    from jwt import InvalidTokenError, get_unverified_header

    try:
        return get_unverified_header(token)
    except (InvalidTokenError, ValueError, RecursionError):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "this is no token") from None


def read_token(token: bytes, key: Any, algorithm: str) -> Mapping[str, Any] | None:
    """The claims, if this key signed them in this way. Times and names are checked by whoever asks, on their clock."""
    import json
    import warnings

    from jwt import InvalidKeyError, InvalidTokenError, PyJWS

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of short keys: which key it is was the provider's choice
            payload = PyJWS().decode(token, key, algorithms=[algorithm])
        claims = json.loads(payload)
    except (InvalidTokenError, InvalidKeyError, ValueError, TypeError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def write_token(claims: Mapping[str, Any], key: Any, algorithm: str, headers: dict[str, Any] | None = None) -> bytes:
    """A token, as compact text."""
    import json
    import warnings

    from jwt import PyJWS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text: str = PyJWS().encode(
            json.dumps(claims, separators=(",", ":")).encode(), key, algorithm=algorithm, headers=headers
        )
    return text.encode()


def _claims_in(body: bytes) -> Mapping[str, Any]:
    import json

    claims = json.loads(body)
    return claims if isinstance(claims, dict) else {}


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise VerificationError(Reason.TIMESTAMP_MALFORMED, f"the token's {name} is no number")
    return float(value)


def _hash(bound: Bound, request: Request) -> str:
    digest = hashlib.sha256(request.body if bound.of == "body" else request.public_url()).digest()
    match bound.encoding:
        case "hex":
            return digest.hex()
        case "base64":
            return b64encode(digest).decode()
        case _:
            return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _check_bound(bound: Bound, claims: Mapping[str, Any], request: Request) -> None:
    found = claims.get(bound.claim)
    if found is None and not bound.required:
        return
    expected = _hash(bound, request)
    text = found.rstrip("=") if isinstance(found, str) and bound.encoding == "base64url" else found
    if not isinstance(text, str) or not hmac.compare_digest(expected.encode(), text.encode("utf-8", "replace")):
        raise VerificationError(Reason.SIGNATURE_MISMATCH, f"the token is about another {bound.of}")


__all__ = ["Bound", "JwtScheme", "read_header", "read_token", "require", "write_token"]
