"""Braintree's scheme: a form of `bt_signature` (pairs of public key and HMAC-SHA1) and `bt_payload` (XML in base64)."""

from __future__ import annotations

import hmac
import re
import time
from base64 import b64decode, encodebytes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, check_count, encode_hex, prove
from hookonce.schemes.request import FIELDS_MAX, Request, fields, only
from hookonce.schemes.signature import KEYS

SIGNATURE, PAYLOAD = b"bt_signature", b"bt_payload"
PAYLOAD_BYTES_MIN = 64
CHALLENGE = re.compile(rb"[a-f0-9]{20,32}")
BASE64 = re.compile(rb"[A-Za-z0-9+/=\r\n]+")

_key = KEYS["sha1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BraintreeScheme(Described):
    """The secret is the private key; `public_key` tells which pair of the signature is ours."""

    public_key: str = ""

    def require(self) -> None:
        if not self.public_key or not self.public_key.isascii() or set(self.public_key) & set("|&"):
            raise ConfigurationError(
                "Braintree's signatures name the public key they belong to", code="HO101", do='say public_key="..."'
            )

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a payload that an active private key signed, under our public key's name."""
        request = Request(delivery)
        if delivery.body.count(b"&") >= FIELDS_MAX:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the form has too many fields")
        signature, payload = only(request.form, SIGNATURE), only(request.form, PAYLOAD)
        if signature is None or payload is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, "there is no bt_signature with a bt_payload")
        if len(payload) < PAYLOAD_BYTES_MIN or BASE64.fullmatch(payload) is None:
            # The answer to a challenge is signed with the same key: nothing that short may pass for an event.
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "bt_payload is no base64, or too short")
        texts = self._ours(signature)
        usable = active(secrets, now)
        try:
            matched, digest = prove(payload, texts, usable, "sha1", encode_hex, _key)
        except VerificationError:
            # The line break that ends the payload is signed, and may have been lost on the way.
            matched, digest = prove(payload + b"\n", texts, usable, "sha1", encode_hex, _key)
        return Verified(matched, digest)

    def _ours(self, signature: bytes) -> list[bytes]:
        pairs = [pair.partition(b"|") for pair in signature.split(b"&", 32)]
        texts = [text for name, _, text in pairs if hmac.compare_digest(name, self.public_key.encode())]
        if not texts:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "no signature belongs to our public key")
        check_count(texts)
        return texts

    def answer(self, challenge: bytes, secrets: Sequence[Secret]) -> bytes | None:
        """What the control panel wants to hear before it saves the address. Only challenges are ever signed for others."""
        usable = active(secrets, time.time())
        if CHALLENGE.fullmatch(challenge) is None or not usable:
            return None
        return self._signature(challenge, usable[0])

    def _signature(self, text: bytes, secret: Secret) -> bytes:
        return self.public_key.encode() + b"|" + encode_hex(hmac.digest(_key(secret.value), text, "sha1"))

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Nothing: the signature is inside the body, see `seal`."""
        return []

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The form as Braintree sends it; of other fields (kind, timestamp, ...) the payload is made first."""
        given = dict(fields(unsigned.body))
        payload = given.get(PAYLOAD) or encodebytes(write_notification(given))
        body = urlencode([(SIGNATURE, self._signature(payload, secret)), (PAYLOAD, payload)])
        return replace(unsigned, body=body.encode())

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "form:bt_signature, public key|signature (HMAC-SHA1, hex)",
            "signed": "{form:bt_payload}, with the SHA-1 of the private key as the key",
            "timestamp": "none",
        }


def notification(delivery: Delivery) -> dict[str, Any]:
    """What the XML in a form says: kind, timestamp, and the name and id of its subject. ValueError if nothing."""
    payload = dict(fields(delivery.body)).get(PAYLOAD, b"")
    text = b64decode(payload).decode()
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("XML with declarations of its own")
    try:
        root = ET.fromstring(text)  # noqa: S314 - no declarations, so nothing to expand; and it was signed
    except ET.ParseError as error:
        raise ValueError("no XML") from error
    subject = root.find("subject/*")
    return {
        "kind": root.findtext("kind"),
        "timestamp": root.findtext("timestamp"),
        "merchant": root.findtext("source-merchant-id"),
        "subject": None if subject is None else subject.tag,
        "subject_id": None if subject is None else subject.findtext("id"),
    }


def write_notification(given: Mapping[bytes, bytes]) -> bytes:
    """A notification of our own making, for development."""
    kind, moment, name, identity = (
        escape(given.get(field, b"").decode()) for field in (b"kind", b"timestamp", b"subject", b"subject_id")
    )
    name = name if name.replace("-", "").isalpha() else "subscription"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<notification><timestamp type="datetime">{moment}</timestamp>'
        f"<kind>{kind}</kind><subject><{name}><id>{identity}</id></{name}></subject></notification>"
    ).encode()


__all__ = ["BraintreeScheme", "notification", "write_notification"]
