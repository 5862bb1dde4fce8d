"""Recurly's scheme: `recurly-signature: <milliseconds>,<hex>[,<hex>]`, HMAC-SHA256 over `{ms}.{body}`. The place in the list counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hookonce.schemes.base import check_count
from hookonce.schemes.request import PARTS_MAX, Request
from hookonce.schemes.signature import Signatures, SignatureScheme

HEADER = b"recurly-signature"
TIME = b"t"


class RecurlyScheme(SignatureScheme):
    """As declared with `stamp=Stamp("part:t", "ms")`: the first entry is the time, the others are signatures."""

    __slots__ = ()

    def _candidates(self, request: Request) -> Iterator[Signatures]:
        value = request.header(HEADER)
        if value is not None:
            time, *texts = [entry.strip() for entry in value.split(b",", PARTS_MAX)]
            check_count(texts)
            yield Signatures(texts, {TIME: time})

    def _write(self, text: bytes, parts: Mapping[bytes, bytes]) -> bytes:
        return parts[TIME] + b"," + text


__all__ = ["RecurlyScheme"]
