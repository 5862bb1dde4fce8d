"""Plivo: the public URL, its parameters in the order of their names, and a nonce; one version signs no parameters at all."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Literal

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described, active, check_count, prove, with_headers
from hookonce.schemes.hmac import encode_base64
from hookonce.schemes.request import PARTS_MAX, Request, fields

Version = Literal["v3", "v2"]
VERSIONS = ("v3", "v2")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlivoScheme(Described):
    """HMAC-SHA256 with the auth token as text. `version` "v2" covers the URL and the nonce, and not the body."""

    version: Version = "v3"
    url: str | None = None

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise ConfigurationError(f'the signature is "v3" or "v2", not {self.version!r}', code="HO101")

    @property
    def _header(self) -> bytes:
        return b"x-plivo-signature-" + self.version.encode()

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept any of the signatures that an active secret made; there is one for each account it concerns."""
        request = Request(delivery, self.url)
        value, nonce = request.header(self._header), request.header(self._header + b"-nonce")
        if value is None:
            raise VerificationError(Reason.SIGNATURE_MISSING, f"there is no {self._header.decode()} header")
        # A full stop separates it from what stands before: within it, bytes could move from the one to the other.
        if not nonce or b"." in nonce:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "there is no nonce, or none that can be one")
        texts = [text.strip() for text in value.split(b",", PARTS_MAX)]
        check_count(texts)
        return Verified(*prove(self._signed(request, nonce), texts, active(secrets, now), "sha256", encode_base64))

    def _signed(self, request: Request, nonce: bytes) -> bytes:
        bare, _, query = request.public_url().partition(b"#")[0].partition(b"?")
        if self.version == "v2":
            return bare + nonce
        asked = b"&".join([name + b"=" + value for name, value in sorted(fields(query))])
        posted = b"".join([name + value for name, value in sorted(request.form)])
        # The question mark stands before parameters of either kind, the full stop only between the two.
        mark = b"?" if asked or posted else b""
        between = b"." if asked and posted else b""
        return bare + mark + asked + between + posted + b"." + nonce

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """The headers with which Plivo would send this form."""
        return list(self.seal(Delivery("", [], body), secret, now, message_id).headers)

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The request as Plivo would send it. The nonce is made from the time: samples must come out the same again."""
        del message_id
        nonce = str(int(now * 1_000_000)).encode()
        digest = hmac.digest(secret.value, self._signed(Request(unsigned, self.url), nonce), "sha256")
        added = [(self._header, encode_base64(digest)), (self._header + b"-nonce", nonce)]
        return replace(unsigned, headers=with_headers(unsigned.headers, added))

    def new_secret(self) -> bytes:
        return token_hex(20).encode()

    @property
    def body_bound(self) -> bool:
        return self.version == "v3"

    def covers_header(self, name: str) -> bool:
        return name.lower().encode() == self._header + b"-nonce"

    def describe(self) -> Mapping[str, str]:
        template = (
            "{url without query}{nonce}" if self.version == "v2" else "{url with sorted query}.{sorted_form}.{nonce}"
        )
        return {
            "signature": f"header:X-Plivo-Signature-{self.version.upper()} (HMAC-SHA256, base64, one for each account)",
            "signed": template,
            "timestamp": "none",
        }


__all__ = ["VERSIONS", "PlivoScheme", "Version"]
