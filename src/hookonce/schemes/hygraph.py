"""Hygraph: one header of three pieces, and a signature over a JSON text that holds the body, the environment and the time."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, check_tolerance, header_once, parse_timestamp, prove
from hookonce.schemes.hmac import encode_base64
from hookonce.schemes.signature import FUTURE_SECONDS, check_age

SIGNATURE = b"gcms-signature"
PIECES = frozenset({b"sign", b"env", b"t"})
PIECES_MAX = 16
ENVIRONMENT = b"master"


@dataclass(frozen=True, slots=True, kw_only=True)
class HygraphScheme(Described):
    """`sign=.., env=.., t=..`: HMAC-SHA256 (base64). As old as it likes, unless a `tolerance` is given."""

    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            check_tolerance(self.tolerance)

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept what an active secret signed: body, environment and time, written as Hygraph writes them."""
        value = header_once(delivery.headers, SIGNATURE)
        if value is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no {SIGNATURE.decode()} header")
        pieces = _pieces(value)
        moment = parse_timestamp(pieces[b"t"])
        signed = canonical(delivery.body, pieces[b"env"], moment)
        matched, digest = prove(signed, [pieces[b"sign"]], active(secrets, now), "sha256", encode_base64)
        check_age(moment / 1000, now, self.tolerance, FUTURE_SECONDS)
        return Verified(matched, digest, moment / 1000)

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """The header with which Hygraph would send this body from its first environment."""
        del message_id
        moment = int(now * 1000)
        signature = encode_base64(hmac.digest(secret.value, canonical(body, ENVIRONMENT, moment), "sha256"))
        return [(SIGNATURE, b"sign=%b, env=%b, t=%d" % (signature, ENVIRONMENT, moment))]

    def describe(self) -> Mapping[str, str]:
        past = "any age" if self.tolerance is None else f"at most {self.tolerance:g} s old"
        return {
            "signature": f"header:{SIGNATURE.decode()}, sign= (HMAC-SHA256, base64)",
            "signed": "JSON of the body (as text), the environment and the time",
            "timestamp": f"part:t (ms), {past}, at most {FUTURE_SECONDS:g} s ahead",
        }


def canonical(body: bytes, environment: bytes, moment: int) -> bytes:
    """What is signed: compact JSON, nothing escaped but what has to be, names in this order."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise VerificationError(
            Reason.SIGNATURE_MALFORMED, "the body is no text, so it cannot have been signed"
        ) from None
    document = {"Body": text, "EnvironmentName": environment.decode("latin-1"), "TimeStamp": moment}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _pieces(value: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for entry in value.split(b",", PIECES_MAX):
        name, _, piece = entry.strip().partition(b"=")
        if name in found:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "a piece of the signature is there twice")
        found[name] = piece
    if not found.keys() >= PIECES:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "sign, env or t is missing in the signature")
    return found


__all__ = ["HygraphScheme", "canonical"]
