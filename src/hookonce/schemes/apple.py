"""Apple's App Store: the payload is a JSON web signature with its certificates, up to a root that is pinned.

Revocation is not asked for: that would need a request to Apple for each notification.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes import jwt, keys
from hookonce.schemes.base import Described, active, secret_id
from hookonce.schemes.signature import FUTURE_SECONDS, check_age

LEAF_MARKER = "1.2.840.113635.100.6.11.1"
INTERMEDIATE_MARKER = "1.2.840.113635.100.6.2.1"
TOKEN_BYTES_MAX = 256 * 1024
CERTIFICATE_CHARACTERS_MAX = 8 * 1024

ABOUT = ("data", "summary", "externalPurchaseToken", "appData")
"""Where a notification says which app it is about; each has one of them."""

NESTED = {"transaction": "signedTransactionInfo", "renewal": "signedRenewalInfo"}
"""Tokens inside the payload, and what they are called here once they are read."""

# What stands outside the token nobody signed: so nothing may, but for blanks inside and a line end behind.
_BODY = re.compile(rb'\{\s*"signedPayload"\s*:\s*"([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)"\s*\}[\r\n]*')


def signed_payload(body: bytes) -> bytes:
    """The token in this body; ValueError where it is not just that."""
    found = _BODY.fullmatch(body)
    if found is None or len(body) > TOKEN_BYTES_MAX:
        raise ValueError("this is not a signedPayload and nothing else")
    return found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppleScheme(Described):
    """Certificates that lead to the pinned `root`, and the app and the environment that were declared.

    A private key as secret, for development, is the key of a root of our own.
    """

    bundle_id: str = ""
    environment: str = "Production"
    app_apple_id: str | None = None
    root: bytes | None = None

    # -- verify -------------------------------------------------------------------------------------------------------

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a notification for this app, signed by who has a certificate of Apple's for it."""
        try:
            token = signed_payload(delivery.body)
        except ValueError as error:
            there = b'"signedPayload"' in delivery.body
            reason = Reason.SIGNATURE_MALFORMED if there else Reason.SIGNATURE_MISSING
            raise VerificationError(reason, str(error)) from None
        header = jwt.read_header(token)
        if header.get("alg") != "ES256":
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "it is signed in another way than it should be")
        chain = _certificates(header.get("x5c"))
        claims = jwt.read_token(token, chain[0].public_key(), "ES256")
        if claims is None:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the certificate's key did not make this signature")
        signed_at = _signed_at(claims)
        matched = self._anchor(chain, active(secrets, now), datetime.fromtimestamp(signed_at, UTC))
        self._check_app(claims)
        check_age(signed_at, now, None, FUTURE_SECONDS)
        return Verified(matched, hashlib.sha256(token.rpartition(b".")[0]).digest(), signed_at)

    def _anchor(self, chain: Sequence[Any], secrets: Sequence[Secret], moment: datetime) -> str:
        """Which root of ours the certificates lead to. The one that came along as the last proves nothing."""
        leaf, intermediate, claimed = chain
        known = [secret.value for secret in secrets] + ([] if self.root is None else [self.root])
        for value in known:
            root = _root(value, claimed)
            if root is not None and _leads(leaf, intermediate, root, moment):
                return secret_id(value)
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "the certificates do not lead to the root that is pinned")

    def _check_app(self, claims: Mapping[str, Any]) -> None:
        about: Any = next((claims[name] for name in ABOUT if isinstance(claims.get(name), dict)), {})
        environment = about.get("environment")
        if environment is None and isinstance(about.get("externalPurchaseId"), str):
            environment = "Sandbox" if about["externalPurchaseId"].startswith("SANDBOX") else "Production"
        if about.get("bundleId") != self.bundle_id:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the notification is about another app")
        if environment != self.environment:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the notification is of another environment")
        wanted = self.app_apple_id
        if wanted is not None and environment == "Production" and str(about.get("appAppleId")) != wanted:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the notification has another appAppleId")

    # -- sign ---------------------------------------------------------------------------------------------------------

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Nothing of it is in a header."""
        del body, secret, now, message_id
        return []

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The notification that the body says, for this app, in a token by a chain of throw-away certificates."""
        keys.sign_check(secret.value)
        key, chain = _own_chain(secret.value)
        claims: Any = json.loads(unsigned.body)
        claims["signedDate"] = int(now * 1000)
        about = claims.setdefault("data", {})
        about.update(bundleId=self.bundle_id, environment=self.environment)
        if self.app_apple_id is not None:
            about["appAppleId"] = int(self.app_apple_id)
        header = {"x5c": list(chain)}
        for name, nested in NESTED.items():
            if name in about:
                about[nested] = jwt.write_token(about.pop(name), key, "ES256", header).decode()
        token = jwt.write_token(claims, key, "ES256", header)
        return replace(unsigned, body=b'{"signedPayload":"' + token + b'"}')

    # -- tell ---------------------------------------------------------------------------------------------------------

    def new_secret(self) -> bytes:
        return keys.new_private_key("ES256").strip()

    def require(self) -> None:
        jwt.require()
        keys.require()

    def secret_problem(self, value: bytes) -> str | None:
        """A root certificate, or a private key for development."""
        try:
            if keys.is_private(value):
                keys.private_key(value)
            else:
                _certificate(value)
        except Exception:
            return "is no certificate: give Apple's root as PEM, or as base64 of its DER"
        return None

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "body:signedPayload (JSON web signature, ES256, three certificates up to a pinned root)",
            "signed": "the whole notification, in signedPayload",
            "timestamp": f"signedDate (ms), any age, at most {FUTURE_SECONDS:g} s ahead",
        }


def _certificates(listed: object) -> list[Any]:
    from cryptography.x509 import load_der_x509_certificate

    if not isinstance(listed, list) or len(listed) != 3:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "there are not three certificates")
    try:
        if any(len(text) > CERTIFICATE_CHARACTERS_MAX for text in listed):
            raise ValueError("too long")
        return [load_der_x509_certificate(b64decode(text, validate=True)) for text in listed]
    except Exception:  # the library names what is wrong with a certificate in many ways
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "a certificate cannot be read") from None


@lru_cache(maxsize=16)
def _certificate(value: bytes) -> Any:
    """A certificate as people keep it; ValueError if it is none."""
    from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate

    if value.lstrip().startswith(b"-----BEGIN CERTIFICATE"):
        return load_pem_x509_certificate(value.strip())
    return load_der_x509_certificate(b64decode(b"".join(value.split()), validate=True))


def _root(value: bytes, claimed: Any) -> Any:
    """The root that was pinned; for a key of our own, the root that came along, if it is a certificate for that key."""
    try:
        if not keys.is_private(value):
            return _certificate(value)
        return claimed if claimed.public_key() == keys.private_key(value).public_key() else None
    except Exception:  # keys of kinds that cannot be compared are different keys
        return None


def _signed_at(claims: Mapping[str, Any]) -> float:
    date = claims.get("signedDate")
    if type(date) is not int or not 0 <= date < 10**14:
        raise VerificationError(Reason.TIMESTAMP_MALFORMED, "the notification has no signedDate")
    return date / 1000


def _leads(leaf: Any, intermediate: Any, root: Any, moment: datetime) -> bool:
    """Each certificate issued by the next, valid when it was used, and of the kind that Apple makes for this."""
    try:
        leaf.verify_directly_issued_by(intermediate)
        intermediate.verify_directly_issued_by(root)
        return (
            all(one.not_valid_before_utc <= moment <= one.not_valid_after_utc for one in (leaf, intermediate, root))
            and _may_issue(intermediate)
            and _may_issue(root)
            and _marked(leaf, LEAF_MARKER)
            and _marked(intermediate, INTERMEDIATE_MARKER)
        )
    except Exception:  # a wrong signature, another issuer, an extension that cannot be read
        return False


def _may_issue(certificate: Any) -> bool:
    from cryptography import x509

    if not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
        return False
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign)
    except x509.ExtensionNotFound:
        return True


def _marked(certificate: Any, oid: str) -> bool:
    return any(extension.oid.dotted_string == oid for extension in certificate.extensions)


@lru_cache(maxsize=8)
def _own_chain(root_pem: bytes) -> tuple[Any, tuple[str, str, str]]:
    """A key, and certificates for it up to a root whose key this is: as Apple's, and worth nothing."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    top: Any = keys.private_key(root_pem)
    middle, bottom = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    made = (
        _issued("leaf", bottom, "intermediate", middle, LEAF_MARKER, ca=False),
        _issued("intermediate", middle, "root", top, INTERMEDIATE_MARKER, ca=True),
        _issued("root", top, "root", top, None, ca=True),
    )
    leaf, intermediate, root = (b64encode(one.public_bytes(Encoding.DER)).decode() for one in made)
    return bottom, (leaf, intermediate, root)


def _issued(subject: str, key: Any, issuer: str, issuer_key: Any, marker: str | None, *, ca: bool) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"hookonce development {name}")])

    builder = (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if marker is not None:
        builder = builder.add_extension(
            x509.UnrecognizedExtension(x509.ObjectIdentifier(marker), b"\x05\x00"), critical=False
        )
    return builder.sign(issuer_key, hashes.SHA256())


__all__ = ["NESTED", "AppleScheme", "signed_payload"]
