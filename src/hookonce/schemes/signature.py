"""Declared schemes: where signatures stand, what they cover, how they are made. Most providers are one such declaration."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, urlsafe_b64decode
from binascii import Error as BinasciiError
from binascii import unhexlify
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from secrets import token_bytes, token_urlsafe
from string import Formatter
from typing import Literal
from unicodedata import normalize

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes import keys
from hookonce.schemes.base import (
    TOLERANCE_SECONDS,
    Described,
    active,
    check_count,
    check_tolerance,
    parse_timestamp,
    prove,
    secret_id,
    with_headers,
)
from hookonce.schemes.hmac import ENCODERS
from hookonce.schemes.request import PARTS_MAX, Get, Request, place
from hookonce.schemes.standard_webhooks import decode_key

FUTURE_SECONDS = 300.0
"""How far ahead a sender's clock may be. Their own libraries often look back only."""

Unit = Literal["s", "ms", "iso", "s-or-ms"]
Digest = Literal["sha1", "sha256", "sha512", "plain-sha1", "plain-sha256", "plain-sha512"] | keys.Asymmetric
Encoding = Literal["hex", "HEX", "base64", "base64url"]


@dataclass(frozen=True, slots=True)
class Stamp:
    """When it was signed: where that stands, in which unit, and how old it may be (None: as old as it likes).

    `zone` is for senders whose ISO times have none: they are UTC.
    """

    at: str
    unit: Unit = "s"
    past: float | None = TOLERANCE_SECONDS
    future: float = FUTURE_SECONDS
    zone: bool = True
    signed: bool = True


@dataclass(frozen=True, slots=True)
class Pieces:
    """A header of several pieces: "t=1,v1=ab,v1=cd". `key` names those that are signatures; the others are `part:`s.

    `groups` separates complete sets, each with a time of its own.
    """

    key: str
    sep: str = ","
    equals: str = "="
    groups: str | None = None


def read_moment(text: bytes, unit: Unit, *, zone: bool = True) -> float:
    """Seconds since 1970. Digits only: signs, fractions and spaces would let bytes move between the parts signed."""
    if unit == "iso":
        try:
            moment = datetime.fromisoformat(text.decode("ascii"))
        except ValueError:
            raise VerificationError(Reason.TIMESTAMP_MALFORMED, "the timestamp is no ISO 8601 time") from None
        if moment.tzinfo is None:
            if zone:
                raise VerificationError(Reason.TIMESTAMP_MALFORMED, "the timestamp has no time zone")
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    number = parse_timestamp(text)
    if unit == "ms" or (unit == "s-or-ms" and number > 100_000_000_000):
        return number / 1000
    return float(number)


def write_moment(now: float, unit: Unit) -> bytes:
    """A time as senders write it."""
    match unit:
        case "ms":
            return str(int(now * 1000)).encode()
        case "iso":
            return datetime.fromtimestamp(int(now), UTC).isoformat().replace("+00:00", "Z").encode()
        case _:
            return str(int(now)).encode()


def check_age(signed_at: float, now: float, past: float | None, future: float) -> None:
    """Refuse what was signed too long ago or too far ahead; exactly the limit is still fine."""
    if past is not None and now - signed_at > past:
        raise VerificationError(Reason.TOO_OLD, f"signed more than {past:g} s ago")
    if signed_at - now > future:
        raise VerificationError(Reason.IN_THE_FUTURE, f"signed more than {future:g} s in the future")


# -- keys -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _from_base64(value: bytes) -> bytes:
    text = value.rstrip(b"=")
    try:
        return b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except BinasciiError:
        return b""


@lru_cache(maxsize=256)
def _from_hex(value: bytes) -> bytes:
    try:
        return unhexlify(value)
    except BinasciiError:
        return b""


def _sha1(value: bytes) -> bytes:
    return hashlib.sha1(value, usedforsecurity=False).digest()


def _nfkd(value: bytes) -> bytes:
    return normalize("NFKD", value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


KEYS: Mapping[str, Callable[[bytes], bytes]] = {
    "base64": _from_base64,
    "hex": _from_hex,
    "whsec": decode_key,
    "sha1": _sha1,
    "nfkd": _nfkd,
}
"""How the text that a provider shows becomes the key; "utf8" is the text itself."""

KEY_PROBLEMS = {
    "base64": "is not base64: copy all of it, as the provider shows it",
    "hex": "is not hex: copy all of it, as the provider shows it",
    "whsec": 'is not "whsec_" and base64: copy all of it, as the provider shows it',
}


def decode_signature(text: bytes, encoding: str) -> bytes:
    """The bytes of a signature that is not compared as text. Strict: one spelling each."""
    try:
        match encoding:
            case "hex" | "HEX":
                return unhexlify(text)
            case "base64url":
                return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
            case _:
                return b64decode(text, validate=True)
    except (BinasciiError, ValueError):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"the signature is no {encoding}") from None


def encode_upper_hex(digest: bytes) -> bytes:
    """As Authorize.Net writes it."""
    return digest.hex().upper().encode()


# -- what is signed ---------------------------------------------------------------------------------------------------

Signed = bytes | Iterable[bytes]
"""What was signed; several, the likeliest first, where senders do not agree among themselves on how to write it."""

Fill = Callable[[Request, bytes, bytes], Signed]
"""From a request, its timestamp and a secret to the bytes that were signed."""


def _sorted_form(request: Request) -> bytes:
    """All fields in the order of their names, each name with each of its values once, nothing between them."""
    return b"".join([name + value for name, value in sorted(set(request.form))])


_WHOLE: Mapping[str, Get] = {
    "body": lambda request: request.delivery.body,
    "method": lambda request: request.delivery.method.encode("latin-1"),
    "url": Request.public_url,
    "path": Request.public_path,
    "sorted_form": _sorted_form,
    "md5b64": lambda request: ENCODERS["base64"](hashlib.md5(request.body, usedforsecurity=False).digest()),
}


def compile_signed(template: str) -> Fill:
    """A template such as "v0:{ts}:{body}" or "{header:X-Id}.{body}"; braces that stand for themselves are doubled."""
    steps: list[bytes | Get | str] = []
    for literal, name, argument, _ in Formatter().parse(template):
        if literal:
            steps.append(literal.encode())
        if name is None:
            continue
        if argument:
            steps.append(place(f"{name}:{argument}"))
        elif name in ("ts", "secret"):
            steps.append(name)
        elif name in _WHOLE:
            steps.append(_WHOLE[name])
        else:
            raise ConfigurationError(f"{template!r} names {{{name}}}, which is not a part that can be signed")
    if steps == [_WHOLE["body"]]:
        return lambda request, _, __: request.delivery.body
    if len(steps) == 3 and steps[0] == "ts" and isinstance(steps[1], bytes) and steps[2] is _WHOLE["body"]:
        between = steps[1]
        return lambda request, ts, _: ts + between + request.delivery.body

    def fill(request: Request, ts: bytes, secret: bytes) -> bytes:
        return b"".join([_step(step, request, ts, secret) for step in steps])

    return fill


def json_behind(template: str) -> Callable[[Request, bytes], Signed]:
    """A template in which nothing but digits and signs separate a time from the body: then the body has to be JSON.

    Otherwise the end of the time could become the beginning of another body, under the same signature.
    """
    fill = compile_signed(template)

    def signed(request: Request, ts: bytes) -> Signed:
        if not request.body.lstrip().startswith((b"{", b"[")):
            raise VerificationError(
                Reason.SIGNATURE_MALFORMED, "the body is no JSON: part of it may belong to the time"
            )
        return fill(request, ts, b"")

    signed.__doc__ = template
    return signed


def _first(signed: Signed) -> bytes:
    return signed if isinstance(signed, bytes) else next(iter(signed))


def seam_of(template: str) -> Literal["", "first", "last"]:
    """Which end of the body touches the time, if one does."""
    if "{ts}{body}" in template:
        return "first"
    return "last" if "{body}{ts}" in template else ""


def _step(step: bytes | Get | str, request: Request, ts: bytes, secret: bytes) -> bytes:
    if isinstance(step, bytes):
        return step
    if isinstance(step, str):
        return ts if step == "ts" else secret
    found = step(request)
    if found is None:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "a part of the request that is signed is missing")
    return found


@dataclass(frozen=True, slots=True)
class Signatures:
    """One set of signatures as it came, and the pieces beside them."""

    texts: Sequence[bytes]
    parts: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureScheme(Described):
    """One or several signatures over a template.

    `signature` is a place, or several of which any may hold one. `prefix` stands before each; entries of a list
    (`separator`) without it are left alone. `signed` may be a function for what no template can say.
    `requires` are headers that must have these very values.
    """

    signature: str | tuple[str, ...]
    prefix: str = ""
    separator: str | None = None
    pieces: Pieces | None = None
    digest: Digest = "sha256"
    encoding: Encoding = "hex"
    key: str | Callable[[bytes], bytes] = "utf8"
    signed: str | Callable[[Request, bytes], Signed] = "{body}"
    stamp: Stamp | None = None
    tolerance: float | None = None
    requires: tuple[tuple[str, str], ...] = ()
    url: str | None = None
    _places: tuple[Get, ...] = field(init=False, repr=False, compare=False)
    _stamp: Get | None = field(init=False, repr=False, compare=False)
    _fill: Fill = field(init=False, repr=False, compare=False)
    _key: Callable[[bytes], bytes] | None = field(init=False, repr=False, compare=False)
    _encode: Callable[[bytes], bytes] = field(init=False, repr=False, compare=False)
    _seam: Literal["", "first", "last"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            check_tolerance(self.tolerance)
            if self.stamp is None or not self.stamp.signed:
                raise ConfigurationError("this sender signs no time: a tolerance would bound nothing", code="HO101")
        named = (self.signature,) if isinstance(self.signature, str) else self.signature
        keep = object.__setattr__
        keep(self, "_places", tuple(map(place, named)))
        keep(self, "_stamp", place(self.stamp.at) if self.stamp else None)
        signed = self.signed
        keep(
            self,
            "_fill",
            compile_signed(signed) if isinstance(signed, str) else lambda request, ts, _: signed(request, ts),
        )
        keep(self, "_seam", seam_of(signed) if isinstance(signed, str) else "")
        keep(self, "_key", self.key if callable(self.key) else KEYS.get(self.key))
        keep(self, "_encode", encode_upper_hex if self.encoding == "HEX" else ENCODERS[self.encoding])

    # -- verify -------------------------------------------------------------------------------------------------------

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a signature that any active secret made over the template, filled in from these very bytes."""
        request = Request(delivery, self.url)
        for name, value in self.requires:
            if request.header(name.lower().encode()) != value.encode():
                raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{name} is not {value!r}")
        usable = active(secrets, now)
        refused = None
        for one in self._candidates(request):
            request.parts = dict(one.parts)
            try:
                return self._verify(request, one.texts, usable, now)
            except VerificationError as error:
                refused = error
        raise refused or VerificationError(Reason.SIGNATURE_MISSING, f"there is no signature in {self.signature}")

    def _verify(self, request: Request, texts: Sequence[bytes], secrets: Sequence[Secret], now: float) -> Verified:
        ts, signed_at = self._moment(request)
        self._check_seam(request.body)
        matched, digest = self._prove(request, ts, texts, secrets)
        if signed_at is not None and self.stamp is not None and self.stamp.signed:
            past = self.stamp.past if self.tolerance is None else self.tolerance
            check_age(signed_at, now, past, self.stamp.future)
        return Verified(matched, digest, signed_at)

    def _check_seam(self, body: bytes) -> None:
        """Where nothing stands between time and body, a digit could move from one into the other."""
        if self._seam and (body[:1] if self._seam == "first" else body[-1:]).isdigit():
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the body begins or ends with a digit of the time")

    def _moment(self, request: Request) -> tuple[bytes, float | None]:
        if self._stamp is None or self.stamp is None:
            return b"", None
        ts = self._stamp(request)
        if ts is None:
            raise VerificationError(Reason.TIMESTAMP_MISSING, f"there is no timestamp in {self.stamp.at}")
        return ts, read_moment(ts, self.stamp.unit, zone=self.stamp.zone)

    def _prove(
        self, request: Request, ts: bytes, texts: Sequence[bytes], secrets: Sequence[Secret]
    ) -> tuple[str, bytes]:
        if self.digest.startswith("plain-"):
            return self._prove_plain(request, ts, texts, secrets)
        signed = self._fill(request, ts, b"")
        if isinstance(signed, bytes):
            return self._prove_one(signed, texts, secrets)
        refused = VerificationError(Reason.SIGNATURE_MALFORMED, "there is nothing that could have been signed")
        for one in signed:
            try:
                return self._prove_one(one, texts, secrets)
            except VerificationError as error:
                refused = error
        raise refused

    def _prove_one(self, signed: bytes, texts: Sequence[bytes], secrets: Sequence[Secret]) -> tuple[str, bytes]:
        if self.digest in keys.ASYMMETRIC:
            return self._prove_public(signed, texts, secrets)
        return prove(signed, texts, secrets, self.digest, self._encode, self._key)

    def _prove_plain(
        self, request: Request, ts: bytes, texts: Sequence[bytes], secrets: Sequence[Secret]
    ) -> tuple[str, bytes]:
        matched = None
        for secret in secrets:
            signed = self._fill(request, ts, secret.value)
            digest = hashlib.new(self.digest[6:], _first(signed)).digest()
            expected = self._encode(digest)
            for text in texts:
                if hmac.compare_digest(expected, text) and secret.value:
                    matched = matched or (secret_id(secret.value), digest)
        if matched is None:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "no active secret made this signature")
        return matched

    def _prove_public(self, signed: bytes, texts: Sequence[bytes], secrets: Sequence[Secret]) -> tuple[str, bytes]:
        for text in texts:
            signature = decode_signature(text, self.encoding)
            for secret in secrets:
                if keys.check(keys.public_key(secret.value), self.digest, signed, signature):
                    # Not the signature: it can be written in several ways, and must not serve as an identity.
                    return secret_id(secret.value), hashlib.sha256(signed).digest()
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "no configured key made this signature")

    def _candidates(self, request: Request) -> Iterator[Signatures]:
        texts: list[bytes] = []
        for get in self._places:
            value = get(request)
            if value is None:
                continue
            if self.pieces is not None:
                groups = [value] if self.pieces.groups is None else value.split(self.pieces.groups.encode())
                check_count(groups)
                for group in groups:
                    yield self._read_pieces(group, self.pieces)
            else:
                texts += self._read_list(value)
        if texts:
            check_count(texts)
            yield Signatures(texts)

    def _read_list(self, value: bytes) -> list[bytes]:
        prefix = self.prefix.encode()
        if self.separator is None:
            entries = [value]
        else:
            entries = [entry.strip() for entry in value.split(self.separator.encode(), PARTS_MAX)]
        found = [entry[len(prefix) :] for entry in entries if entry.startswith(prefix)]
        if not found:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the signature does not start as it should")
        return found

    def _read_pieces(self, value: bytes, pieces: Pieces) -> Signatures:
        key, equals = pieces.key.encode(), pieces.equals.encode()
        texts: list[bytes] = []
        parts: dict[bytes, bytes] = {}
        for entry in value.split(pieces.sep.encode(), PARTS_MAX):
            name, separator, item = entry.strip().partition(equals)
            if name == key:
                texts.append(item)
            elif separator:
                if name in parts:
                    raise VerificationError(Reason.SIGNATURE_MALFORMED, "a piece of the signature is there twice")
                parts[name] = item
        if not texts:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, f"there is no {pieces.key} in the signature")
        check_count(texts)
        return Signatures(texts, parts)

    # -- sign ---------------------------------------------------------------------------------------------------------

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """The headers with which a genuine sender would send this body."""
        return list(self.seal(Delivery("", [], body), secret, now, message_id).headers)

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The request with its signature. A signed header that nobody has set carries the id of the message."""
        named = {name for name, _ in unsigned.headers}
        added = [(name.lower().encode(), value.encode()) for name, value in self.requires]
        added += [(name, message_id.encode("latin-1")) for name in self._signed_headers() if name not in named]
        ts = b"" if self.stamp is None else write_moment(now, self.stamp.unit)
        parts: dict[bytes, bytes] = {}
        if self.stamp is not None and self._stamp is not None:
            kind, _, where = self.stamp.at.partition(":")
            if kind == "header":
                added.append((where.lower().encode(), ts))
            elif kind == "part":
                parts[where.encode()] = ts
            else:
                ts = self._stamp(Request(unsigned, self.url)) or ts
        stamped = replace(unsigned, headers=with_headers(unsigned.headers, added))
        request = Request(stamped, self.url)
        request.parts = parts
        signed = self._fill(request, ts, secret.value)
        text = self._make(_first(signed), secret)
        where = (self.signature if isinstance(self.signature, str) else self.signature[0]).partition(":")[2]
        return replace(
            stamped, headers=with_headers(stamped.headers, [(where.lower().encode(), self._write(text, parts))])
        )

    def _make(self, message: bytes, secret: Secret) -> bytes:
        if self.digest in keys.ASYMMETRIC:
            return self._encode(keys.sign(secret.value, self.digest, message))
        if self.digest.startswith("plain-"):
            return self._encode(hashlib.new(self.digest[6:], message).digest())
        key = secret.value if self._key is None else self._key(secret.value)
        return self._encode(hmac.digest(key, message, self.digest))

    def _write(self, text: bytes, parts: Mapping[bytes, bytes]) -> bytes:
        if self.pieces is None:
            return self.prefix.encode() + text
        equals = self.pieces.equals.encode()
        listed = [*parts.items(), (self.pieces.key.encode(), text)]
        return self.pieces.sep.encode().join([name + equals + value for name, value in listed])

    def _signed_headers(self) -> list[bytes]:
        if not isinstance(self.signed, str):
            return []
        stamp = self.stamp.at.partition(":")[2].lower() if self.stamp else ""
        names = [argument for _, name, argument, _ in Formatter().parse(self.signed) if name == "header" and argument]
        return [name.lower().encode() for name in names if name.lower() != stamp]

    # -- tell ---------------------------------------------------------------------------------------------------------

    def new_secret(self) -> bytes:
        if self.digest in keys.ASYMMETRIC:
            return keys.new_private_key(self.digest).strip()
        match self.key:
            case "hex":
                return token_bytes(32).hex().encode()
            case "base64":
                return ENCODERS["base64"](token_bytes(32))
            case "whsec":
                return b"whsec_" + ENCODERS["base64"](token_bytes(32))
            case _:
                return token_urlsafe(24).encode()

    def require(self) -> None:
        if self.digest in keys.ASYMMETRIC:
            keys.require()

    @property
    def body_bound(self) -> bool:
        """Whether the signature covers the body."""
        return not isinstance(self.signed, str) or "{body}" in self.signed

    def covers_header(self, name: str) -> bool:
        """Whether the signature covers this header: what is read from others could be anything."""
        return name.lower().encode() in self._signed_headers()

    def secret_problem(self, value: bytes) -> str | None:
        """What is wrong with a configured secret, or None."""
        if self.digest in keys.ASYMMETRIC:
            return keys.key_problem(value)
        if isinstance(self.key, str) and self._key is not None and not self._key(value):
            return KEY_PROBLEMS.get(self.key, "cannot be turned into a key")
        return None

    def describe(self) -> Mapping[str, str]:
        """For `hookonce providers show`."""
        where = self.signature if isinstance(self.signature, str) else " | ".join(self.signature)
        kind = {"plain": "hash with the secret inside"}.get(self.digest.partition("-")[0], "")
        name = self.digest if self.digest in keys.ASYMMETRIC else f"HMAC-{self.digest.upper()}"
        stamp = self.stamp
        return {
            "signature": f"{where} ({kind or name}, {self.encoding}{f', after {self.prefix!r}' if self.prefix else ''})",
            "signed": self.signed
            if isinstance(self.signed, str)
            else (self.signed.__doc__ or "").strip().split("\n")[0],
            "timestamp": "none" if stamp is None else f"{stamp.at} ({stamp.unit}), {_age(stamp, self.tolerance)}",
        }


def _age(stamp: Stamp, tolerance: float | None) -> str:
    past = stamp.past if tolerance is None else tolerance
    back = "any age" if past is None else f"at most {past:g} s old"
    return f"{back}, at most {stamp.future:g} s ahead" if stamp.signed else "not signed, not checked"


__all__ = [
    "FUTURE_SECONDS",
    "Pieces",
    "SignatureScheme",
    "Stamp",
    "check_age",
    "compile_signed",
    "decode_signature",
    "json_behind",
    "read_moment",
    "write_moment",
]
