"""Dropbox Sign: JSON in a part of a multipart body, and a hash over the time and the type of the event alone."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, encode_hex, parse_timestamp, prove, with_headers
from hookonce.schemes.signature import FUTURE_SECONDS, check_age

PARTS_MAX = 16
PART_HEAD_BYTES_MAX = 4096

_BOUNDARY = re.compile(rb"[!-~](?:[ -~]{0,68}[!-~])?")
_TYPE = re.compile(r"[a-z][a-z0-9_]{0,99}")  # never a digit first: that could have moved over from the time
_OWN_BOUNDARY = b"------------------------hookonce"


def json_part(delivery: Delivery) -> bytes:
    """The part of the body that is called "json", of which there must be one. ValueError for anything else."""
    boundary = _boundary(delivery)
    # The first delimiter may stand at the very beginning; all others follow a line end.
    before, *chunks = (b"\r\n" + delivery.body).split(b"\r\n--" + boundary, PARTS_MAX + 2)
    if before or len(chunks) < 2 or len(chunks) > PARTS_MAX + 1 or chunks[-1].strip(b"\r\n") != b"--":
        raise ValueError("the body is not of as many parts as it should be")
    found = []
    for chunk in chunks[:-1]:
        head, separator, content = chunk.partition(b"\r\n\r\n")
        if not separator or not head.startswith(b"\r\n") or len(head) > PART_HEAD_BYTES_MAX:
            raise ValueError("a part of the body has no head")
        if _name(head[2:]) == b"json":
            found.append(content)
    if len(found) != 1:
        raise ValueError("there is not one part called json")
    return found[0]


def _boundary(delivery: Delivery) -> bytes:
    values = [value for name, value in delivery.headers if name == b"content-type"]
    kind, *parameters = values[0].split(b";") if len(values) == 1 else (b"",)
    found = _parameter(parameters, b"boundary")
    if kind.strip().lower() != b"multipart/form-data" or found is None or _BOUNDARY.fullmatch(found) is None:
        raise ValueError("the body is not multipart/form-data")
    return found


def _name(head: bytes) -> bytes | None:
    for line in head.split(b"\r\n"):
        field, _, value = line.partition(b":")
        if field.strip().lower() == b"content-disposition":
            kind, *parameters = value.split(b";")
            return _parameter(parameters, b"name") if kind.strip().lower() == b"form-data" else None
    return None


def _parameter(parameters: Sequence[bytes], wanted: bytes) -> bytes | None:
    """A parameter that is there once. One that holds a semicolon is none: nobody here needs it."""
    pairs = [parameter.strip().partition(b"=") for parameter in parameters]
    found = [value for name, _, value in pairs if name.lower() == wanted]
    if len(found) != 1:
        return None
    quoted = len(found[0]) >= 2 and found[0].startswith(b'"') and found[0].endswith(b'"')
    return found[0][1:-1] if quoted else found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropboxSignScheme(Described):
    """The key is the API key. What else the event says is not covered."""

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a hash that any active secret made over this time and this type."""
        time, kind, given = _event(delivery)
        signed_at = parse_timestamp(time)
        matched, digest = prove(time + kind, [given], active(secrets, now), "sha256", encode_hex)
        check_age(signed_at, now, None, FUTURE_SECONDS)
        return Verified(matched, digest, float(signed_at))

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Nothing of it is in a header."""
        del body, secret, now, message_id
        return []

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The JSON of the body with its hash, as the one part of a form."""
        document: Any = json.loads(unsigned.body)
        event = document["event"]
        event["event_time"] = str(int(now))
        signed = f"{event['event_time']}{event['event_type']}".encode()
        event["event_hash"] = hmac.digest(secret.value, signed, "sha256").hex()
        text = json.dumps(document, separators=(",", ":")).encode()
        head = b'Content-Disposition: form-data; name="json"'
        body = b"--%b\r\n%b\r\n\r\n%b\r\n--%b--\r\n" % (_OWN_BOUNDARY, head, text, _OWN_BOUNDARY)
        kind = (b"content-type", b"multipart/form-data; boundary=" + _OWN_BOUNDARY)
        return replace(unsigned, body=body, headers=with_headers(unsigned.headers, [kind]))

    @property
    def body_bound(self) -> bool:
        return False

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "event.event_hash in the part json (HMAC-SHA256, hex)",
            "signed": "{event_time}{event_type} only: the rest of the body is not covered",
            "timestamp": f"event.event_time (s), any age, at most {FUTURE_SECONDS:g} s ahead",
        }


def _event(delivery: Delivery) -> tuple[bytes, bytes, bytes]:
    """Time, type and hash, as they were hashed."""
    try:
        document = json.loads(json_part(delivery))
    except (ValueError, RecursionError):
        raise VerificationError(Reason.SIGNATURE_MISSING, "there is no part json, or it is no JSON") from None
    event = document.get("event") if isinstance(document, dict) else None
    found = [
        event.get(name) if isinstance(event, dict) else None for name in ("event_time", "event_type", "event_hash")
    ]
    time, kind, given = (str(value) if type(value) is int else value for value in found)
    if not isinstance(given, str):
        raise VerificationError(Reason.SIGNATURE_MISSING, "there is no event_hash")
    if not isinstance(time, str) or not isinstance(kind, str) or _TYPE.fullmatch(kind) is None:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the event has no time, or no type that could be signed")
    return time.encode("utf-8", "replace"), kind.encode(), given.encode("utf-8", "replace")


__all__ = ["DropboxSignScheme", "json_part"]
