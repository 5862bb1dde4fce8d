"""PayPal's scheme: RSA over `{transmission id}|{time}|{webhook id}|{CRC-32 of the body}`, with a certificate that a header names.

Whoever could choose the certificate could sign anything. So it is fetched from PayPal's own hosts only, and a chain has
to lead from it to a trusted root, under the name that PayPal signs with.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes import keys
from hookonce.schemes.base import Described, header_once, with_headers
from hookonce.schemes.remote import Published
from hookonce.schemes.request import Request
from hookonce.schemes.signature import SignatureScheme, Stamp

ADDRESS, TRANSMISSION = b"paypal-cert-url", b"paypal-transmission-id"
SIGNED_HEADERS = frozenset({"paypal-transmission-id", "paypal-transmission-time"})
ADDRESS_BYTES_MAX = 500
SUBJECT = re.compile(r"messageverificationcerts(\.[a-z0-9-]+)*\.paypal\.com")
CHECKED_FOR_SECONDS = 3_600
"""How long a certificate that was checked counts as checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaypalScheme(Described):
    """`certs` holds certificates by their addresses, for places without a network; `ca` is a root instead of the system's.

    With a certificate or a key among the secrets, only that one counts, and nothing is fetched (`fetch`).
    """

    webhook_id: str = ""
    certs: Mapping[str, str] = field(default_factory=dict)
    ca: str | None = None
    fetch: bool = True
    tolerance: float | None = None
    published: Published = field(default_factory=lambda: Published(readable=keys.public_key), compare=False, repr=False)
    _inner: SignatureScheme = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inner = SignatureScheme(
            signature="header:PAYPAL-TRANSMISSION-SIG",
            digest="rsa-sha256",
            encoding="base64",
            signed=self._signed,
            stamp=Stamp("header:PAYPAL-TRANSMISSION-TIME", "iso", past=None),
            tolerance=self.tolerance,
            requires=(("PAYPAL-AUTH-ALGO", "SHA256withRSA"),),
        )
        object.__setattr__(self, "_inner", inner)

    def require(self) -> None:
        """Find out at the start what could never be verified."""
        self._inner.require()
        problems = []
        if not self.webhook_id or "|" in self.webhook_id or not self.webhook_id.isascii():
            problems.append("PayPal signs the id of the webhook: say webhook_id, as its developer site shows it")
        problems += [f"certs: {url!r} is no address of PayPal's" for url in self.certs if not is_trusted(url)]
        if self.ca is not None and not read_certificates(self.ca.encode()):
            problems.append("ca holds no certificate: give a root as PEM")
        if self.fetch and self.ca is None and not system_roots():
            problems.append(
                "PayPal's certificate cannot be checked: no trusted roots were found here, say ca or a secret"
            )
        if problems:
            raise ConfigurationError(problems, code="HO101")

    # -- verify -------------------------------------------------------------------------------------------------------

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept what the certificate's key signed for our webhook's id."""
        return self._inner.verify(delivery, secrets or [self._certificate(delivery, now)], now)

    def _certificate(self, delivery: Delivery, now: float) -> Secret:
        address = _address(delivery)
        kept = self.certs.get(address)
        document = self.published.get(address) if kept is None else kept.encode()
        ca = None if self.ca is None else self.ca.encode()
        found = None if document is None else checked(document, ca, int(now // CHECKED_FOR_SECONDS))
        if found is None:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the certificate it names is not here, or not PayPal's")
        return Secret(value=found, label="published")

    def prepare(self, delivery: Delivery) -> Callable[[], None] | None:
        """How to fetch the certificate that this request names, if it is not here yet."""
        try:
            address = _address(delivery)
        except VerificationError:
            return None
        return None if not self.fetch or address in self.certs else self.published.need(address)

    def _signed(self, request: Request, ts: bytes) -> bytes:
        """Transmission id, time, webhook id, and the CRC-32 of the body as a decimal number, with bars between them."""
        identity = request.header(TRANSMISSION)
        if not identity or b"|" in identity:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "there is no PAYPAL-TRANSMISSION-ID, or it has a bar")
        return b"|".join((identity, ts, self.webhook_id.encode(), b"%d" % zlib.crc32(request.body)))

    # -- sign ---------------------------------------------------------------------------------------------------------

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        return list(self.seal(Delivery("", [], body), secret, now, message_id).headers)

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The request as PayPal would send it, with a private key of ours."""
        added = [(TRANSMISSION, message_id.encode("latin-1")), (ADDRESS, b"https://api.paypal.com/certs/development")]
        started = replace(unsigned, headers=with_headers(unsigned.headers, added))
        return self._inner.seal(started, secret, now, message_id)

    # -- tell ---------------------------------------------------------------------------------------------------------

    def new_secret(self) -> bytes:
        return self._inner.new_secret()

    def secret_problem(self, value: bytes) -> str | None:
        return self._inner.secret_problem(value)

    def covers_header(self, name: str) -> bool:
        return name.lower() in SIGNED_HEADERS

    @property
    def body_firm(self) -> bool:
        """A CRC-32 is easily met by another body: under another id it is a replay."""
        return False

    def describe(self) -> Mapping[str, str]:
        return self._inner.describe()


# -- certificates -----------------------------------------------------------------------------------------------------


def _address(delivery: Delivery) -> str:
    value = header_once(delivery.headers, ADDRESS)
    if value is None:
        raise VerificationError(Reason.SIGNATURE_MISSING, "there is no PAYPAL-CERT-URL")
    address = value.decode("latin-1")
    if not is_trusted(address):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "PAYPAL-CERT-URL is no address of PayPal's")
    return address


def is_trusted(address: str) -> bool:
    """Whether this is an address at PayPal, with nothing in it that two readers could take for different hosts."""
    if len(address) > ADDRESS_BYTES_MAX or not re.fullmatch(r"https://[A-Za-z0-9.-]+/[A-Za-z0-9/._~%-]*", address):
        return False
    host = (urlsplit(address).hostname or "").lower()
    return host == "paypal.com" or host.endswith(".paypal.com")


@lru_cache(maxsize=64)
def checked(document: bytes, ca: bytes | None, period: int) -> bytes | None:
    """The first certificate of a PEM text, if a chain leads from it to a root and it has PayPal's name; otherwise None."""
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import DNSName
    from cryptography.x509.verification import PolicyBuilder, Store
    from cryptography.x509.verification import VerificationError as Refused

    chain = read_certificates(document)
    roots = system_roots() if ca is None else tuple(read_certificates(ca))
    moment = datetime.fromtimestamp(period * CHECKED_FOR_SECONDS + CHECKED_FOR_SECONDS // 2, UTC)
    if not chain or not roots:
        return None
    for name in names_of(chain[0]):
        try:
            policy = PolicyBuilder().store(Store(list(roots))).time(moment)
            policy.build_server_verifier(DNSName(name)).verify(chain[0], chain[1:])
        except (Refused, ValueError):
            continue
        pem: bytes = chain[0].public_bytes(Encoding.PEM)
        return pem
    return None


def names_of(certificate: Any) -> list[str]:
    """The names in a certificate that PayPal signs webhooks under, live or in its sandbox."""
    from cryptography.x509 import DNSName, ExtensionNotFound, SubjectAlternativeName

    try:
        named = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except (ExtensionNotFound, ValueError):
        return []
    return [name for name in named.get_values_for_type(DNSName) if SUBJECT.fullmatch(name)]


def read_certificates(pem: bytes) -> list[Any]:
    """The certificates in a PEM text; one that cannot be read does not spoil the others."""
    from cryptography.x509 import load_pem_x509_certificate

    found = []
    for block in re.findall(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", pem):
        try:
            found.append(load_pem_x509_certificate(block))
        except ValueError:
            continue
    return found


@lru_cache(maxsize=1)
def system_roots() -> tuple[Any, ...]:
    """The roots that this machine trusts: those that the ssl module loads, or the files in the folder that it looks into."""
    texts = [
        ssl.DER_cert_to_PEM_cert(der).encode() for der in ssl.create_default_context().get_ca_certs(binary_form=True)
    ]
    folder = ssl.get_default_verify_paths().capath
    if not texts and folder is not None:
        for file in sorted(Path(folder).glob("*.[0-9]")):
            with contextlib.suppress(OSError):
                texts.append(file.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old roots with odd numbers: which ones are trusted is not for us to say
        return tuple(certificate for text in texts for certificate in read_certificates(text))


__all__ = ["PaypalScheme", "checked", "is_trusted", "names_of", "read_certificates", "system_roots"]
