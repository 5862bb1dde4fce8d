"""Mercado Pago's scheme: HMAC-SHA256 over the object's id in the query, the request's id and the time. The body is not signed."""

from __future__ import annotations

from hookonce.errors import Reason, VerificationError
from hookonce.schemes.request import Request, only
from hookonce.schemes.signature import SignatureScheme, Signed

REQUEST_ID = b"x-request-id"
OBJECT_ID = b"data.id"


class MercadoPagoScheme(SignatureScheme):
    """As declared, with `signed=manifest`."""

    __slots__ = ()

    @property
    def body_bound(self) -> bool:
        return False

    def _signed_headers(self) -> list[bytes]:
        return [REQUEST_ID]


def manifest(request: Request, ts: bytes) -> Signed:
    """id:{query:data.id};request-id:{header:x-request-id};ts:{ts}; - without the parts that are not there."""
    identity, request_id = only(request.query, OBJECT_ID), request.header(REQUEST_ID)
    if not identity and not request_id:
        raise VerificationError(
            Reason.SIGNATURE_MALFORMED, "neither data.id nor x-request-id is there: only a time is signed"
        )
    if b";" in (identity or b"") + (request_id or b""):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "a part that is signed contains a semicolon")
    # The object's id is signed in lower case; on the way some of them are in capitals.
    spellings = dict.fromkeys([(identity or b"").lower(), identity or b""])
    return tuple([_written(spelling, request_id or b"", ts) for spelling in spellings])


def _written(identity: bytes, request_id: bytes, ts: bytes) -> bytes:
    parts = ((b"id:", identity), (b"request-id:", request_id), (b"ts:", ts))
    return b"".join([name + value + b";" for name, value in parts if value])


__all__ = ["MercadoPagoScheme", "manifest"]
