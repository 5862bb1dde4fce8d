"""Twilio: the public URL and the sorted fields of a form are signed; of a JSON body its hash, which stands in the URL."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, prove, with_headers
from hookonce.schemes.hmac import encode_base64
from hookonce.schemes.request import PARTS_MAX, Request

SIGNATURE = b"x-twilio-signature"
SETTINGS = b"x-twilio-webhooks-signature-settings"
BODY_HASH = b"bodySHA256"
ALGORITHMS = {b"HMAC_SHA1": "sha1", b"HMAC_SHA256": "sha256"}
PORTS = {b"https": b":443", b"http": b":80"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TwilioScheme(Described):
    """HMAC-SHA1, or HMAC-SHA256 where the request announces a shared key. The key is the token or shared key as text."""

    url: str | None = None

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a signature over the public URL, written with or without its port, and over the body."""
        request = Request(delivery, self.url)
        signature = request.header(SIGNATURE)
        if signature is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, "there is no X-Twilio-Signature header")
        algorithm = _algorithm(request.header(SETTINGS))
        bare, query = _address(request)
        signed = _rest(request, query)
        usable = active(secrets, now)
        first, second = _with_and_without_port(bare)
        try:
            return Verified(*prove(first + signed, (signature,), usable, algorithm, encode_base64))
        except VerificationError:
            return Verified(*prove(second + signed, (signature,), usable, algorithm, encode_base64))

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """The headers with which Twilio would send this form."""
        return list(self.seal(Delivery("", [], body), secret, now, message_id).headers)

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The request as Twilio would send it; a JSON body gets its hash into the query."""
        del now, message_id
        if any(name == b"content-type" and b"json" in value for name, value in unsigned.headers):
            announced = BODY_HASH + b"=" + hashlib.sha256(unsigned.body).hexdigest().encode()
            unsigned = replace(unsigned, query=b"&".join(part for part in (unsigned.query, announced) if part))
        request = Request(unsigned, self.url)
        bare, query = _address(request)
        digest = hmac.digest(secret.value, bare + _rest(request, query), "sha1")
        return replace(unsigned, headers=with_headers(unsigned.headers, [(SIGNATURE, encode_base64(digest))]))

    def new_secret(self) -> bytes:
        return token_hex(16).encode()

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "header:X-Twilio-Signature (HMAC-SHA1, or HMAC-SHA256 where it is announced, base64)",
            "signed": "{url}{sorted_form}; of JSON {url}, which holds the sha256 of the body",
            "timestamp": "none",
        }


def _algorithm(settings: bytes | None) -> str:
    """SHA-1, unless the request says that a shared key signed with another one."""
    if settings is None:
        return "sha1"
    for part in settings.split(b",", PARTS_MAX):
        name, _, value = part.strip().partition(b"=")
        if name == b"algorithm" and value in ALGORITHMS:
            return ALGORITHMS[value]
    raise VerificationError(Reason.SIGNATURE_MALFORMED, "the signature is made with an algorithm that we do not know")


def _address(request: Request) -> tuple[bytes, bytes]:
    """The public URL without its query, and its query.

    A configured query is taken at its word, but for the hash that Twilio appends: with any query that comes, fields of
    a form could be moved into it.
    """
    bare, _, said = (request.url or request.delivery.path).encode().partition(b"#")[0].partition(b"?")
    came = request.delivery.query
    if said and not came.startswith(said + b"&" + BODY_HASH + b"="):
        return bare, said
    return bare, came


def _rest(request: Request, query: bytes) -> bytes:
    """What is signed after the address: the query, and the fields of a form unless the query vouches for the body."""
    written = b"?" + query if query else b""
    before, _, last = query.rpartition(b"&")
    name, _, announced = last.partition(b"=")
    if name != BODY_HASH:
        return written + sorted_fields(request)
    if before and before != (request.url or "").encode().partition(b"#")[0].partition(b"?")[2]:
        # The text of a message, moved from a signed form into the query, must not vouch for a body.
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the query holds more than is configured")
    expected = hashlib.sha256(request.body).hexdigest().encode()
    if not hmac.compare_digest(expected, announced.lower()):
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "the URL announces another body")
    return written


def sorted_fields(request: Request) -> bytes:
    """The fields of a form in the order of their names, each name with each of its values once, nothing between them."""
    return b"".join([name + value for name, value in sorted(set(request.form))])


def _with_and_without_port(bare: bytes) -> tuple[bytes, bytes]:
    """The address as it is configured, and with the default port put in or the port left out."""
    scheme, separator, rest = bare.partition(b"://")
    host, slash, path = rest.partition(b"/")
    name, colon, port = host.rpartition(b":")
    other = name if colon and port.isdigit() else host + PORTS.get(scheme.lower(), b"")
    return bare, scheme + separator + other + slash + path


__all__ = ["TwilioScheme", "sorted_fields"]
