"""A request as schemes see it: headers, query, form and JSON, each read when it is asked for, and never twice.

A place in a request is written "header:X-Signature", "query:sig", "form:signature", "body:data.id" (JSON), or "part:t"
(a piece of a header that has several). Whatever is there twice counts as malformed: nobody knows which one was meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_to_bytes

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery
from hookonce.schemes.base import header_once

FIELDS_MAX = 2_000
PARTS_MAX = 32

Get = Callable[["Request"], bytes | None]
Pairs = list[tuple[bytes, bytes]]


class Request:
    """One delivery, and what has been read of it so far. `url` is the public one, as it was configured."""

    __slots__ = ("_document", "_form", "_query", "delivery", "parts", "url")

    def __init__(self, delivery: Delivery, url: str | None = None) -> None:
        self.delivery = delivery
        self.url = url
        self.parts: dict[bytes, bytes] = {}
        self._form: Pairs | None = None
        self._query: Pairs | None = None
        self._document: Any = None

    @property
    def body(self) -> bytes:
        return self.delivery.body

    def header(self, name: bytes) -> bytes | None:
        return header_once(self.delivery.headers, name)

    @property
    def form(self) -> Pairs:
        """The fields of a form body, percent-decoded, in their order."""
        if self._form is None:
            self._form = _read_fields(self.delivery.body)
        return self._form

    @property
    def query(self) -> Pairs:
        """The fields of the query, percent-decoded, in their order."""
        if self._query is None:
            self._query = _read_fields(self.delivery.query)
        return self._query

    @property
    def document(self) -> Any:
        """The body as JSON; a VerificationError where a signature should be inside it and it is none."""
        if self._document is None:
            try:
                self._document = json.loads(self.delivery.body)
            except (ValueError, RecursionError):
                raise VerificationError(
                    Reason.SIGNATURE_MISSING, "the signature is in the body, which is no JSON"
                ) from None
        return self._document

    def public_url(self) -> bytes:
        """The configured URL, with the query that came if none was configured: what the sender signed."""
        url = self.url or self.delivery.path
        if self.delivery.query and "?" not in url:
            return url.encode() + b"?" + self.delivery.query
        return url.encode()

    def public_path(self) -> bytes:
        """Path and query of the public URL."""
        url = self.public_url()
        scheme, separator, rest = url.partition(b"://")
        if not separator or not scheme.isalpha():
            return url
        _, slash, path = rest.partition(b"/")
        return slash + path if slash else b"/"


def _read_fields(text: bytes) -> Pairs:
    try:
        return fields(text)
    except ValueError:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"more than {FIELDS_MAX} fields") from None


def fields(text: bytes) -> Pairs:
    """A form or a query, as browsers write them. ValueError for too many: what is left out could be what was not signed."""
    if text.count(b"&") >= FIELDS_MAX:
        raise ValueError("too many fields")
    found = []
    for field in text.split(b"&"):
        if field:
            name, _, value = field.partition(b"=")
            found.append((_decoded(name), _decoded(value)))
    return found


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def only(pairs: Pairs, name: bytes) -> bytes | None:
    """The value of a field that must not be there twice."""
    values = [value for key, value in pairs if key == name]
    if len(values) > 1:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"the field {name.decode('latin-1')} is there twice")
    return values[0] if values else None


def walk(document: Any, path: tuple[str, ...]) -> Any:
    """What stands at this path of names and list positions, or None."""
    for name in path:
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and name.isdecimal() and int(name[:6]) < len(document):
            document = document[int(name[:6])]
        else:
            return None
    return document


def scalar(value: Any) -> bytes | None:
    """A JSON value as the text that senders sign; a fraction has no one text."""
    match value:
        case bool():
            return b"true" if value else b"false"
        case str():
            return value.encode("utf-8", "surrogatepass")
        case int():
            return str(value).encode()
        case _:
            return None


def place(text: str) -> Get:
    """Compile a place, as it is written in a declaration."""
    kind, _, rest = text.partition(":")
    if not rest:
        raise ConfigurationError(f"{text!r} is no place in a request", code="HO101")
    match kind:
        case "header":
            name = rest.lower().encode("ascii")
            return lambda request: request.header(name)
        case "part":
            name = rest.encode("ascii")
            return lambda request: request.parts.get(name)
        case "form":
            name = rest.encode()
            return lambda request: only(request.form, name)
        case "query":
            name = rest.encode()
            return lambda request: only(request.query, name)
        case "body":
            path = tuple(rest.split("."))
            return lambda request: scalar(walk(request.document, path))
        case _:
            raise ConfigurationError(f"{text!r} is no place in a request", code="HO101")


__all__ = ["FIELDS_MAX", "PARTS_MAX", "Get", "Pairs", "Request", "fields", "only", "place", "scalar", "walk"]
