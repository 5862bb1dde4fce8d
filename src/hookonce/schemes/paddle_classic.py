"""Paddle Classic's scheme: RSA with SHA-1 over the sorted fields of the form, written as PHP writes an array."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret
from hookonce.schemes.request import FIELDS_MAX, Request
from hookonce.schemes.signature import SignatureScheme

FIELD = b"p_signature"


class PaddleClassicScheme(SignatureScheme):
    """As declared, with `signed=sorted_fields`; the signature is a field of the form itself."""

    __slots__ = ()

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The form with its signature as the last field."""
        request = Request(unsigned)
        fields = [(name, value) for name, value in request.form if name != FIELD]
        text = self._make(sorted_fields(request, b""), secret)
        return replace(unsigned, body=urlencode([*fields, (FIELD, text)]).encode())


def sorted_fields(request: Request, ts: bytes) -> bytes:
    """All fields but p_signature, by name, as PHP serialises an array of strings."""
    del ts
    if request.body.count(b"&") >= FIELDS_MAX:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the form has too many fields")
    fields = [(name, value) for name, value in request.form if name != FIELD]
    if len({name for name, _ in fields}) < len(fields):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "a field of the form is there twice")
    written = b"".join([_string(name) + _string(value) for name, value in sorted(fields)])
    return b"a:%d:{%b}" % (len(fields), written)


def _string(value: bytes) -> bytes:
    return b's:%d:"%b";' % (len(value), value)


__all__ = ["PaddleClassicScheme", "sorted_fields"]
