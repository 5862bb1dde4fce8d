"""Standard Webhooks: id, timestamp and `v1,<base64>` in three headers, HMAC-SHA256 over `{id}.{timestamp}.{body}`."""

from __future__ import annotations

import hmac
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from secrets import token_bytes
from typing import Literal

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import (
    TOLERANCE_SECONDS,
    Described,
    Headers,
    active,
    check_count,
    check_tolerance,
    check_window,
    header_once,
    parse_timestamp,
    prove,
)

SECRET_PREFIX = b"whsec_"
ASYMMETRIC_PREFIXES = (b"whpk_", b"whsk_")

KeyForm = Literal["base64", "raw", "prefixed"]
"""How the secret's text becomes the key: base64 with or without "whsec_", the text itself, or base64 only behind "whsec_"."""


@dataclass(frozen=True, slots=True)
class Family:
    """The three headers, as the specification names them, or as Svix did before there was one."""

    id: bytes
    timestamp: bytes
    signature: bytes


WEBHOOK = Family(b"webhook-id", b"webhook-timestamp", b"webhook-signature")
SVIX = Family(b"svix-id", b"svix-timestamp", b"svix-signature")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooksScheme(Described):
    """Both header families; `key="raw"` is for senders that use the secret's text itself as the key."""

    tolerance: float = TOLERANCE_SECONDS
    key: KeyForm = "base64"
    families: tuple[Family, ...] = (WEBHOOK, SVIX)

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        if self.key not in ("base64", "raw", "prefixed"):
            raise ConfigurationError(f'key is "base64", "raw" or "prefixed", not {self.key!r}', code="HO101")

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept any `v1` that any active secret made over this id, this timestamp and these very bytes."""
        message_id, timestamp, signatures = _parts(delivery.headers, self.families)
        signed_at = parse_timestamp(timestamp)
        signed = b".".join((message_id, timestamp, delivery.body))
        matched, digest = prove(signed, signatures, active(secrets, now), "sha256", encode_base64, self._key)
        check_window(signed_at, now, self.tolerance)
        return Verified(matched, digest, float(signed_at))

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Sign as the specification says, in its own header family."""
        timestamp = str(int(now)).encode()
        identity = message_id.encode("latin-1")
        digest = hmac.digest(self._key(secret.value), b".".join((identity, timestamp, body)), "sha256")
        signature = b"v1," + encode_base64(digest)
        family = self.families[0]
        return [(family.id, identity), (family.timestamp, timestamp), (family.signature, signature)]

    def _key(self, value: bytes) -> bytes:
        if self.key == "raw" or (self.key == "prefixed" and not value.startswith(SECRET_PREFIX)):
            return value
        return decode_key(value)

    def new_secret(self) -> bytes:
        return SECRET_PREFIX + encode_base64(token_bytes(32))

    def covers_header(self, name: str) -> bool:
        return name.lower().encode() in [family.id for family in self.families]

    def secret_problem(self, value: bytes) -> str | None:
        if value.startswith(ASYMMETRIC_PREFIXES):
            return 'is an asymmetric key ("whpk_" or "whsk_"), which is not supported: use the "whsec_" one'
        if not self._key(value):
            return (
                'is not "whsec_" and base64: copy all of it, or say key="raw" if the sender signs with the text itself'
            )
        return None

    def describe(self) -> Mapping[str, str]:
        names = " | ".join(f"header:{family.signature.decode()}" for family in self.families)
        return {
            "signature": f"{names}, each v1, (HMAC-SHA256, base64)",
            "signed": "{id}.{timestamp}.{body}",
            "timestamp": f"header:{self.families[0].timestamp.decode()} (s), at most {self.tolerance:g} s old or ahead",
        }


def _parts(headers: Headers, families: tuple[Family, ...]) -> tuple[bytes, bytes, list[bytes]]:
    """Id, timestamp and every `v1` signature of one family."""
    family = _family(headers, families)
    message_id = header_once(headers, family.id)
    timestamp = header_once(headers, family.timestamp)
    value = header_once(headers, family.signature)
    if value is None:
        raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no {family.signature.decode()} header")
    if not message_id:
        raise VerificationError(Reason.ID_MISSING, "there is no webhook-id")
    if timestamp is None:
        raise VerificationError(Reason.TIMESTAMP_MISSING, "there is no webhook-timestamp header")
    # The specification forbids it: with a full stop in the id, bytes could move from the body into the id.
    if b"." in message_id:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the webhook-id contains a full stop")
    return message_id, timestamp, _signatures(value)


def _family(headers: Headers, families: tuple[Family, ...]) -> Family:
    """Any header of the first decides: an unsigned webhook-id beside signed svix-* headers must never become the id."""
    first = families[0]
    for name, _ in headers:
        if name in (first.id, first.signature):
            return first
    return families[-1]


def _signatures(value: bytes) -> list[bytes]:
    """Every `v1` in the space separated list; `v1a` and versions to come are left alone."""
    signatures = [entry[3:] for entry in value.split(b" ") if entry[:3] == b"v1,"]
    if not signatures:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "webhook-signature has no v1 signature")
    check_count(signatures)
    return signatures


def encode_base64(digest: bytes) -> bytes:
    """Canonical base64: comparing the text refuses the other spellings that a lenient decoder would take."""
    return b2a_base64(digest, newline=False)


@lru_cache(maxsize=256)
def decode_key(value: bytes) -> bytes:
    """The key inside `whsec_<base64>` (prefix and padding optional), or nothing if that is not what it is."""
    text = value.removeprefix(SECRET_PREFIX).rstrip(b"=")
    try:
        return a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
    except Base64Error:
        return b""


__all__ = ["SVIX", "WEBHOOK", "Family", "KeyForm", "StandardWebhooksScheme", "decode_key", "encode_base64"]
