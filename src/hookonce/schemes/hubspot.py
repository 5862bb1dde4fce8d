"""HubSpot: hashes with the secret in front (v1, v2), and a URL of which some escapes are undone before it is signed (v3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.request import Request
from hookonce.schemes.signature import SignatureScheme

UNESCAPED = b":/?@!$'()*,;"
_ESCAPES = re.compile(b"|".join([b"%%%02X" % character for character in UNESCAPED]), re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFirstScheme(SignatureScheme):
    """A plain hash of the secret and what follows it, for bodies that are text.

    Whoever has seen such a hash can extend what was hashed, without the secret, but only behind a padding that is
    not UTF-8. So a body that is not UTF-8 is refused, and a query or path that is not printable ASCII.
    """

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        verified = SignatureScheme.verify(self, delivery, secrets, now)
        if not all(32 < byte < 127 for byte in delivery.query) or not delivery.path.isprintable():
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the address is no text")
        try:
            delivery.body.decode()
        except UnicodeDecodeError:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the body is no text") from None
        return verified


def request_line_first(request: Request, ts: bytes) -> bytes:
    """{method}{url}{body}{ts}, with some characters of the URL unescaped."""
    url = _ESCAPES.sub(lambda found: bytes([int(found[0][1:], 16)]), request.public_url())
    return request.delivery.method.encode("latin-1", "replace") + url + request.body + ts


__all__ = ["SecretFirstScheme", "request_line_first"]
