"""Public keys, wherever a provider takes them from: PEM, DER, raw hex or base64, a certificate, or a set of JSON web keys.

A private key is taken as well, for development: `hookonce send` signs with it, and its public half verifies.
Needs the extra `asymmetric`; nothing here is imported before such a key is met.
"""

from __future__ import annotations

import contextlib
import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from hookonce.errors import ConfigurationError

Asymmetric = Literal["ed25519", "ecdsa-sha1", "ecdsa-sha256", "rsa-sha1", "rsa-sha256"]
ASYMMETRIC = ("ed25519", "ecdsa-sha1", "ecdsa-sha256", "rsa-sha1", "rsa-sha256")

PRIVATE = (b"-----BEGIN PRIVATE KEY", b"-----BEGIN EC PRIVATE KEY", b"-----BEGIN RSA PRIVATE KEY")


def require() -> None:
    """Say what to install before the first request needs it."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "signatures with public keys need the package cryptography", do="pip install 'hookonce[asymmetric]'"
        ) from None


def is_private(value: bytes) -> bool:
    """Whether this is a key to sign with: somebody's own, so for development only."""
    return value.startswith(PRIVATE)


@lru_cache(maxsize=256)
def public_key(value: bytes) -> Any:
    """The public key that `value` says, in whatever form; ValueError if none can be found in it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.x509 import load_pem_x509_certificate

    value = value.strip()
    if is_private(value):
        return private_key(value).public_key()
    if value.startswith(b"-----BEGIN CERTIFICATE"):
        return load_pem_x509_certificate(value).public_key()
    if value.startswith(b"-----BEGIN"):
        return serialization.load_pem_public_key(value)
    raw = _raw(value.removeprefix(b"whpk_"))
    if len(raw) == 32:
        return Ed25519PublicKey.from_public_bytes(raw)
    return serialization.load_der_public_key(raw)


@lru_cache(maxsize=64)
def private_key(value: bytes) -> Any:
    """The private key in this PEM text."""
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(value.strip(), None)


def _raw(value: bytes) -> bytes:
    try:
        if len(value) == 64:
            return bytes.fromhex(value.decode("ascii"))
    except ValueError:
        pass
    try:
        return b64decode(b"".join(value.split()), validate=True)
    except Base64Error as error:
        raise ValueError("neither PEM nor hex nor base64") from error


def key_problem(value: bytes) -> str | None:
    """What is wrong with a public key that somebody configured, or None."""
    try:
        public_key(value)
    except Exception:
        return "is no public key: give it as PEM, or as the hex or base64 text that the provider shows"
    return None


def check(key: Any, algorithm: str, message: bytes, signature: bytes) -> bool:
    """Whether this key made this signature over this message. Never raises."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    digest = hashes.SHA1() if algorithm.endswith("sha1") else hashes.SHA256()  # noqa: S303 - what the sender uses
    try:
        if algorithm == "ed25519" and isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        elif algorithm.startswith("ecdsa") and isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, message, ec.ECDSA(digest))
        elif algorithm.startswith("rsa") and isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, message, padding.PKCS1v15(), digest)
        else:
            return False
    except (InvalidSignature, ValueError):
        return False
    return True


def sign(value: bytes, algorithm: str, message: bytes) -> bytes:
    """Sign as the provider would, with a private key of our own."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding

    sign_check(value)
    key = private_key(value)
    digest = hashes.SHA1() if algorithm.endswith("sha1") else hashes.SHA256()  # noqa: S303 - what the sender uses
    if algorithm == "ed25519":
        made: bytes = key.sign(message)
    elif algorithm.startswith("ecdsa"):
        made = key.sign(message, ec.ECDSA(digest))
    else:
        made = key.sign(message, padding.PKCS1v15(), digest)
    return made


def sign_check(value: bytes) -> None:
    """A ConfigurationError unless this is a key that can sign."""
    if not is_private(value):
        raise ConfigurationError(
            "only the provider has the private key: nobody else can sign for it",
            do="hookonce providers key NAME > dev.pem, and configure that for development",
        )


def new_private_key(algorithm: str) -> bytes:
    """A key for development, as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    require()
    made: Any
    match algorithm:
        case "ed25519":
            made = ed25519.Ed25519PrivateKey.generate()
        case "ecdsa-sha1" | "ecdsa-sha256" | "ES256":
            made = ec.generate_private_key(ec.SECP256R1())
        case "ES512":
            made = ec.generate_private_key(ec.SECP521R1())
        case _:
            made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem: bytes = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


@lru_cache(maxsize=64)
def key_set(text: bytes) -> Mapping[str, Any]:
    """A set of JSON web keys by their ids: `{"keys": [...]}`, one key alone, or a mapping of ids to PEM texts."""
    document = json.loads(text)
    if isinstance(document, dict) and "kty" in document:
        document = {"keys": [document]}
    if isinstance(document, dict) and isinstance(document.get("keys"), list):
        return dict(_readable(document["keys"]))
    if isinstance(document, dict):
        return {str(name): public_key(str(pem).encode()) for name, pem in document.items()}
    raise ValueError("no set of keys")


def _readable(entries: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Those that can be read: one key of a kind that we do not know must not take the others with it."""
    from jwt import PyJWK

    for entry in entries:
        if isinstance(entry, dict) and entry.get("kty") in ("RSA", "EC", "OKP"):
            with contextlib.suppress(Exception):
                yield str(entry.get("kid", "")), PyJWK(entry).key


def some_keys(text: bytes) -> None:
    """ValueError unless at least one key can be read in this set."""
    if not key_set(text):
        raise ValueError("no key in this set can be read")


def has_key(text: bytes, kid: str | None) -> bool:
    """Whether this set of keys has the key that a token names."""
    try:
        return key_of(text, kid) is not None
    except Exception:
        return False


def key_of(secret: bytes, kid: str | None) -> Any:
    """The key that a token names, out of what was configured: a set of keys, or a single one that serves any name."""
    if secret.lstrip().startswith(b"{"):
        keys = key_set(secret)
        if kid is not None and kid in keys:
            return keys[kid]
        return next(iter(keys.values())) if len(keys) == 1 and kid is None else None
    return public_key(secret)


__all__ = [
    "ASYMMETRIC",
    "Asymmetric",
    "check",
    "has_key",
    "is_private",
    "key_of",
    "key_problem",
    "key_set",
    "new_private_key",
    "private_key",
    "public_key",
    "require",
    "sign",
    "sign_check",
    "some_keys",
]
