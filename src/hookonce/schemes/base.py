"""What every scheme shares: the protocol, strict header reading, the time window, and the comparison of digests."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from secrets import token_urlsafe
from typing import Protocol, cast

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified

Headers = Sequence[tuple[bytes, bytes]]

TOLERANCE_SECONDS = 300.0
SIGNATURES_MAX = 8
SECRETS_MAX = 4
TIMESTAMP_DIGITS_MAX = 16


class Scheme(Protocol):
    """One way of signing requests. Both directions live together, so that tests send what production accepts."""

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Say which secret signed these bytes, or raise VerificationError: nothing else, whatever the bytes."""
        ...

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Give the request headers with which a genuine sender would send this body."""
        ...


class Described:
    """What a scheme can tell of itself. A scheme of a user's own needs none of it."""

    __slots__ = ()

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """A whole request as the sender would send it: for schemes whose signature is not in a header alone."""
        return _with_signature(cast("Scheme", self), unsigned, secret, now, message_id)

    def new_secret(self) -> bytes:
        """A secret of the form that this scheme takes, for development."""
        return token_urlsafe(24).encode()

    def require(self) -> None:
        """Say what to install, when an endpoint is declared rather than at its first request."""

    @property
    def body_bound(self) -> bool:
        """Whether the signature covers the body."""
        return True

    @property
    def body_firm(self) -> bool:
        """Whether nobody could make another body that goes with the same signature."""
        return self.body_bound

    def covers_header(self, name: str) -> bool:
        """Whether the signature covers this header: what is read from others could be anything."""
        del name
        return False

    def secret_problem(self, value: bytes) -> str | None:
        """What is wrong with a configured secret, or None."""
        del value
        return None

    def describe(self) -> Mapping[str, str]:
        """The signature, what it covers, and its timestamp, in words."""
        return {}


def with_headers(headers: Headers, added: Headers) -> list[tuple[bytes, bytes]]:
    """Headers with others put in, or in the place of those of the same name."""
    names = {name for name, _ in added}
    return [*(pair for pair in headers if pair[0] not in names), *added]


def sealed(scheme: Scheme, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
    """A whole request as its sender would send it, by any scheme: a user's own may know headers only."""
    if isinstance(scheme, Described):
        return scheme.seal(unsigned, secret, now, message_id)
    return _with_signature(scheme, unsigned, secret, now, message_id)


def _with_signature(scheme: Scheme, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
    headers = scheme.sign(unsigned.body, secret, now, message_id)
    return replace(unsigned, headers=with_headers(unsigned.headers, headers))


def header_once(headers: Headers, name: bytes) -> bytes | None:
    """Find a header by its lower-case name; two of them would let the sender choose which one we read."""
    found = None
    for key, value in headers:
        if key == name:
            if found is not None:
                raise VerificationError(Reason.SIGNATURE_MALFORMED, f"the header {name.decode()} is there twice")
            found = value
    return found


def parse_timestamp(digits: bytes) -> int:
    """Read ASCII digits only: signs, fractions and spaces would let bytes move between the parts signed together."""
    if not digits.isdigit() or len(digits) > TIMESTAMP_DIGITS_MAX:
        raise VerificationError(Reason.TIMESTAMP_MALFORMED, "the timestamp is not a plain number")
    return int(digits)


def check_window(signed_at: float, now: float, tolerance: float) -> None:
    """Refuse what was signed too long ago or too far ahead; exactly the tolerance is still fine."""
    if now - signed_at > tolerance:
        raise VerificationError(Reason.TOO_OLD, f"signed more than {tolerance:g} s ago")
    if signed_at - now > tolerance:
        raise VerificationError(Reason.IN_THE_FUTURE, f"signed more than {tolerance:g} s in the future")


def check_tolerance(tolerance: object) -> None:
    """Refuse a tolerance that would switch the window off, or accept nothing at all."""
    if not isinstance(tolerance, bool) and isinstance(tolerance, int | float) and isfinite(tolerance) and tolerance > 0:
        return
    raise ConfigurationError(f"tolerance is {tolerance!r}: give a positive number of seconds", code="HO101")


def check_count(signatures: Sequence[bytes]) -> None:
    """Bound the comparisons that one request can ask for."""
    if len(signatures) > SIGNATURES_MAX:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"more than {SIGNATURES_MAX} signatures in one request")


def active(secrets: Sequence[Secret], now: float) -> list[Secret]:
    """Pick the secrets to try: those still valid, and of those not more than the bound."""
    valid = [s for s in secrets if s.not_after is None or s.not_after.timestamp() > now]
    return valid[:SECRETS_MAX]


@lru_cache(maxsize=256)
def secret_id(value: bytes) -> str:
    """Remember each secret's fingerprint, which costs as much as the rest of a verification."""
    return Secret(value=value).id


def prove(
    signed: bytes,
    signatures: Sequence[bytes],
    secrets: Sequence[Secret],
    algorithm: str,
    encode: Callable[[bytes], bytes],
    key_of: Callable[[bytes], bytes] | None = None,
) -> tuple[str, bytes]:
    """Find the secret that made one of the signatures: its fingerprint and the digest.

    Every secret is tried against every signature, found or not, so that the time tells nothing.
    """
    matched = None
    for secret in secrets:
        key = secret.value if key_of is None else key_of(secret.value)
        if not key:  # anybody can sign with an empty key
            continue
        digest = hmac.digest(key, signed, algorithm)
        expected = encode(digest)
        for signature in signatures:
            if hmac.compare_digest(expected, signature) and matched is None:
                matched = (secret.value, digest)
    if matched is None:
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "no active secret made this signature")
    return secret_id(matched[0]), matched[1]


def encode_hex(digest: bytes) -> bytes:
    """Lower-case hex, as the senders write it."""
    return digest.hex().encode()


__all__ = [
    "SECRETS_MAX",
    "SIGNATURES_MAX",
    "TIMESTAMP_DIGITS_MAX",
    "TOLERANCE_SECONDS",
    "Described",
    "Headers",
    "Scheme",
    "active",
    "check_count",
    "check_tolerance",
    "check_window",
    "encode_hex",
    "header_once",
    "parse_timestamp",
    "prove",
    "sealed",
    "secret_id",
    "with_headers",
]
