"""The generic HMAC scheme: which header, which digest, and which parts of the request are signed, as one template."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import new as new_hash
from string import Formatter, ascii_letters, digits
from typing import Final, Literal

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import (
    TOLERANCE_SECONDS,
    Described,
    Headers,
    active,
    check_tolerance,
    check_window,
    encode_hex,
    header_once,
    parse_timestamp,
    prove,
)

Algorithm = Literal["sha1", "sha256", "sha512"]
Encoding = Literal["hex", "base64", "base64url"]
Unit = Literal["s", "ms"]

ALGORITHMS = ("sha1", "sha256", "sha512")
UNITS: Mapping[str, int] = {"s": 1, "ms": 1000}
TOKEN_CHARACTERS = frozenset(ascii_letters + digits + "!#$%&'*+-.^_`|~")


class Part(Enum):
    """The place of the body in a template."""

    BODY = "body"


BODY: Final = Part.BODY


@dataclass(frozen=True, slots=True)
class Named:
    """The place of a header's value in a template."""

    header: bytes


Template = tuple[bytes | Named | Literal[Part.BODY], ...]


def encode_base64(digest: bytes) -> bytes:
    """Base64 with padding."""
    return b2a_base64(digest, newline=False)


def encode_base64url(digest: bytes) -> bytes:
    """URL-safe base64, without padding, as senders that choose it write it."""
    return urlsafe_b64encode(digest).rstrip(b"=")


ENCODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "hex": encode_hex,
    "base64": encode_base64,
    "base64url": encode_base64url,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacScheme(Described):
    """One signature in one header, over a template such as "{body}" or "{header:X-Acme-Timestamp}.{body}".

    Placeholders: `{body}` (exactly once), `{header:Name}`, and `{timestamp}` for the timestamp header.
    """

    header: str
    algorithm: Algorithm = "sha256"
    encoding: Encoding = "hex"
    prefix: str = ""
    signed: str = "{body}"
    timestamp_header: str | None = None
    timestamp_unit: Unit = "s"
    tolerance: float = TOLERANCE_SECONDS
    _header: bytes = field(init=False, repr=False, compare=False)
    _prefix: bytes = field(init=False, repr=False, compare=False)
    _template: Template = field(init=False, repr=False, compare=False)
    _timestamp: bytes | None = field(init=False, repr=False, compare=False)
    _encode: Callable[[bytes], bytes] = field(init=False, repr=False, compare=False)
    _length: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        _check_choice("algorithm", self.algorithm, ALGORITHMS)
        _check_choice("encoding", self.encoding, ENCODERS)
        _check_choice("timestamp_unit", self.timestamp_unit, UNITS)
        timestamp = None if self.timestamp_header is None else header_name(self.timestamp_header)
        encode = ENCODERS[self.encoding]
        _check_prefix(self.prefix)
        keep = object.__setattr__
        keep(self, "_header", header_name(self.header))
        keep(self, "_prefix", self.prefix.encode())
        keep(self, "_template", compile_template(self.signed, timestamp))
        keep(self, "_timestamp", timestamp)
        keep(self, "_encode", encode)
        keep(self, "_length", len(encode(new_hash(self.algorithm).digest())))

    @property
    def signed_headers(self) -> frozenset[bytes]:
        """The headers that the signature covers: what is read from others could be anything."""
        return frozenset(part.header for part in self._template if isinstance(part, Named))

    def covers_header(self, name: str) -> bool:
        return header_name(name) in self.signed_headers

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": f"header:{self.header} (HMAC-{self.algorithm.upper()}, {self.encoding})",
            "signed": self.signed,
            "timestamp": "none" if self.timestamp_header is None else f"header:{self.timestamp_header}",
        }

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a signature that any active secret made over the template, filled in from these very bytes."""
        signature = self._signature(delivery.headers)
        signed_at = self._signed_at(delivery.headers)
        signed = self._fill(delivery.body, lambda name: _signed_header(delivery.headers, name))
        matched, digest = prove(signed, (signature,), active(secrets, now), self.algorithm, self._encode)
        if signed_at is not None:
            check_window(signed_at, now, self.tolerance)
        return Verified(matched, digest, signed_at)

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Sign as the sender would: the timestamp header says now, any other signed header carries the message id."""
        values = dict.fromkeys(self.signed_headers, message_id.encode("latin-1"))
        if self._timestamp is not None:
            values[self._timestamp] = str(int(now * UNITS[self.timestamp_unit])).encode()
        digest = hmac.digest(secret.value, self._fill(body, values.__getitem__), self.algorithm)
        return [*sorted(values.items()), (self._header, self._prefix + self._encode(digest))]

    def _signature(self, headers: Headers) -> bytes:
        value = header_once(headers, self._header)
        if value is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no {self.header} header")
        if not value.startswith(self._prefix):
            raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{self.header} does not start as it should")
        signature = value[len(self._prefix) :]
        # Both spellings are in use, and they say the same digest.
        if self.encoding == "hex":
            signature = signature.lower()
        elif self.encoding == "base64url":
            signature = signature.rstrip(b"=")
        if len(signature) != self._length:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{self.header} is no {self.algorithm} {self.encoding}")
        return signature

    def _signed_at(self, headers: Headers) -> float | None:
        if self._timestamp is None:
            return None
        value = header_once(headers, self._timestamp)
        if value is None:
            raise VerificationError(Reason.TIMESTAMP_MISSING, f"there is no {self.timestamp_header} header")
        return parse_timestamp(value) / UNITS[self.timestamp_unit]

    def _fill(self, body: bytes, value_of: Callable[[bytes], bytes]) -> bytes:
        if len(self._template) == 1:
            return body
        return b"".join([self._part(part, body, value_of) for part in self._template])

    @staticmethod
    def _part(part: bytes | Named | Literal[Part.BODY], body: bytes, value_of: Callable[[bytes], bytes]) -> bytes:
        if part is BODY:
            return body
        return value_of(part.header) if isinstance(part, Named) else part


def _signed_header(headers: Headers, name: bytes) -> bytes:
    value = header_once(headers, name)
    if value is None:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"the signed header {name.decode()} is missing")
    return value


def compile_template(template: str, timestamp: bytes | None) -> Template:
    """Read the template once, refusing whatever would leave the body or the timestamp unsigned."""
    parts = tuple(_read_template(template, timestamp))
    if parts.count(BODY) != 1:
        raise ConfigurationError(
            f"{template!r} must name {{body}} exactly once: else the body is not signed", code="HO101"
        )
    if timestamp is not None and Named(timestamp) not in parts:
        name = timestamp.decode()
        do = f'put "{{header:{name}}}" into the signed template if the sender signs it, or do without its timestamp'
        raise ConfigurationError(
            f"the timestamp header {name} is not part of {template!r}: anybody could change it", code="HO101", do=do
        )
    return parts


def _read_template(template: str, timestamp: bytes | None) -> list[bytes | Named | Literal[Part.BODY]]:
    parts: list[bytes | Named | Literal[Part.BODY]] = []
    try:
        pieces = list(Formatter().parse(template))
    except ValueError as error:
        raise ConfigurationError(f"the signed template {template!r} cannot be read: {error}", code="HO101") from error
    for literal, name, argument, conversion in pieces:
        if literal:
            parts.append(literal.encode())
        if name is not None:
            parts.append(_placeholder(template, name, argument or "", conversion, timestamp))
    return parts


def _placeholder(
    template: str, name: str, argument: str, conversion: str | None, timestamp: bytes | None
) -> Named | Literal[Part.BODY]:
    match (name, argument, conversion):
        case ("body", "", None):
            return BODY
        case ("timestamp", "", None) if timestamp is not None:
            return Named(timestamp)
        case ("header", str(argument), None) if argument:
            return Named(header_name(argument))
    raise ConfigurationError(
        f"{template!r} names {{{name}}}, which is not a part that can be signed",
        code="HO101",
        do="use {body}, {header:Name}, or {timestamp} together with timestamp_header",
    )


def header_name(name: str) -> bytes:
    """A header's name as it appears in a delivery: lower case, and possible at all."""
    if not name or not TOKEN_CHARACTERS.issuperset(name):
        raise ConfigurationError(f"{name!r} cannot be a header's name", code="HO101")
    return name.lower().encode()


def _check_prefix(prefix: str) -> None:
    if not prefix.isascii():
        raise ConfigurationError("a signature's prefix can hold ASCII characters only", code="HO101")


def _check_choice(what: str, value: str, choices: Sequence[str] | Mapping[str, object]) -> None:
    if value not in choices:
        raise ConfigurationError(f"{what} is one of {', '.join(choices)}, not {value!r}", code="HO101")


__all__ = ["Algorithm", "Encoding", "HmacScheme", "Unit", "compile_template", "header_name"]
