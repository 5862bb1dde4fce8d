"""eBay: a header of base64, in it JSON with the signature, the name of the key, and how both are to be used."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes import keys
from hookonce.schemes.base import Described, active, header_once, secret_id

HEADER = b"x-ebay-signature"
HEADER_BYTES_MAX = 4096
DIGESTS = {"SHA1": "ecdsa-sha1", "SHA256": "ecdsa-sha256"}
"""eBay announces the hash with each signature; it has been SHA-1."""

_ONE_LINE = re.compile(rb"(-----BEGIN PUBLIC KEY-----)\s*([A-Za-z0-9+/=]+)\s*(-----END PUBLIC KEY-----)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class EbayScheme(Described):
    """The keys are fetched from eBay by whoever has its credentials, and configured: one, or several by their ids."""

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a signature over these very bytes by the key that it names."""
        kid, algorithm, signature = _read(header_once(delivery.headers, HEADER))
        for secret in active(secrets, now):
            key = _key_in(secret.value, kid)
            if key is not None and keys.check(key, algorithm, delivery.body, signature):
                # Not the signature: it can be written in several ways, and must not serve as an identity.
                return Verified(secret_id(secret.value), hashlib.sha256(delivery.body).digest())
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "no configured key made this signature")

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """As eBay would, with a private key of our own."""
        signature = b64encode(keys.sign(secret.value, DIGESTS["SHA1"], body)).decode()
        said = {"alg": "ecdsa", "kid": "development", "signature": signature, "digest": "SHA1"}
        return [(HEADER, b64encode(json.dumps(said).encode()))]

    def new_secret(self) -> bytes:
        return keys.new_private_key("ecdsa-sha1").strip()

    def require(self) -> None:
        keys.require()

    def secret_problem(self, value: bytes) -> str | None:
        if not value.lstrip().startswith(b"{"):
            return keys.key_problem(_lines(value))
        try:
            return None if _all_keys(value) else "holds no key"
        except Exception:
            return "holds no public keys by their ids"

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "header:X-EBAY-SIGNATURE (base64 JSON; ECDSA with the hash that it names, base64)",
            "signed": "{body}",
            "timestamp": "none",
        }


def _read(value: bytes | None) -> tuple[str, str, bytes]:
    """The key's id, the algorithm and the signature."""
    if not value:
        raise VerificationError(Reason.SIGNATURE_MISSING, "there is no X-EBAY-SIGNATURE header")
    try:
        if len(value) > HEADER_BYTES_MAX:
            raise ValueError("too long")
        said = json.loads(b64decode(value, validate=True))
        kid, kind, signature = said["kid"], said["alg"].lower(), b64decode(said["signature"], validate=True)
        algorithm = DIGESTS[said.get("digest", "SHA1").upper()]
        if not isinstance(kid, str) or kind != "ecdsa":
            raise ValueError("not as eBay signs")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the signature does not say how it was made") from None
    return kid, algorithm, signature


def _key_in(value: bytes, kid: str) -> Any:
    """The key of this id; a single key that was configured without one serves any."""
    try:
        if value.lstrip().startswith(b"{"):
            return _all_keys(value).get(kid)
        return keys.public_key(_lines(value))
    except Exception:
        return None


def _all_keys(text: bytes) -> Mapping[str, Any]:
    document = json.loads(text)
    if "keys" in document or "kty" in document:
        return keys.key_set(text)
    return {kid: keys.public_key(_lines(str(pem).encode())) for kid, pem in document.items()}


def _lines(value: bytes) -> bytes:
    """What eBay's API gives is PEM on one line, which is none."""
    return _ONE_LINE.sub(rb"\1\n\2\n\3\n", value)


__all__ = ["EbayScheme"]
