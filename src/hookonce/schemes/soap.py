"""SOAP messages as Salesforce sends them: a token in the URL, and up to a hundred notifications in one envelope."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from xml.parsers.expat import ExpatError, ParserCreate
from xml.sax.saxutils import escape, quoteattr

from hookonce.model import Delivery, Secret
from hookonce.schemes.base import with_headers
from hookonce.schemes.token import TokenScheme

DEPTH_MAX = 32
AROUND_BYTES_MAX = 64 * 1024
NOTIFICATIONS_MAX = 100
MESSAGE = ("Envelope", "Body", "notifications")
NOTIFICATION = (*MESSAGE, "Notification")


@dataclass(frozen=True, slots=True, kw_only=True)
class SoapTokenScheme(TokenScheme):
    """A token, and a body that is written as SOAP from the names and values of a sample."""

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        if unsigned.body.lstrip()[:1] == b"{":
            headers = with_headers(unsigned.headers, [(b"content-type", b"text/xml; charset=utf-8")])
            unsigned = replace(unsigned, body=write_message(json.loads(unsigned.body)), headers=headers)
        return super(SoapTokenScheme, self).seal(unsigned, secret, now, message_id)


class _Reader:
    """Elements as names and values, without their namespaces, and where the notifications stand."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.marks: list[tuple[int, int]] = []
        self._names: list[str] = []
        self._open: list[dict[str, Any]] = [self.tree]
        self._text: list[str] = []
        self._began = 0
        self._parser = ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text.append
        self._parser.StartDoctypeDeclHandler = self._refuse

    def read(self, body: bytes) -> None:
        try:
            self._parser.Parse(body, True)
        except ExpatError as error:
            raise ValueError("this is no XML") from error

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if len(self._names) >= DEPTH_MAX:
            raise ValueError("the XML is too deep")
        self._names.append(_local(name))
        found = {f"@{_local(key)}": _local(value) for key, value in attributes.items() if _local(key) == "type"}
        self._open.append(found)
        self._text.clear()
        if tuple(self._names) == NOTIFICATION:
            self._began = self._parser.CurrentByteIndex

    def _end(self, _: str) -> None:
        inner = self._open.pop()
        text = "".join(self._text)
        self._text.clear()
        self._open[-1][self._names[-1]] = inner or text
        if tuple(self._names) == NOTIFICATION:
            self.marks.append((self._began, self._parser.CurrentByteIndex))
        self._names.pop()

    def _refuse(self, *_: object) -> None:
        raise ValueError("the XML has a document type")


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def read_message(delivery: Delivery) -> Mapping[str, Any]:
    """The `notifications` element; of several notifications the last, but see `split_message`."""
    reader = _Reader()
    reader.read(delivery.body)
    found: Any = reader.tree
    for name in MESSAGE:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, dict):
        return found
    raise ValueError("there are no notifications")


def split_message(delivery: Delivery) -> tuple[list[bytes], None]:
    """Each notification as a message of its own: in the same envelope, as if it had come alone."""
    body = delivery.body
    reader = _Reader()
    reader.read(body)
    if not reader.marks:
        raise ValueError("there are no notifications")
    if len(reader.marks) > NOTIFICATIONS_MAX:
        raise ValueError("more notifications than are sent at once")
    pieces = [(start, body.index(b">", end) + 1) for start, end in reader.marks]
    before, after = body[: pieces[0][0]], body[pieces[-1][1] :]
    if len(before) + len(after) > AROUND_BYTES_MAX:
        raise ValueError("the envelope is too large")
    return [before + body[start:end] + after for start, end in pieces], None


def write_message(document: Mapping[str, Any]) -> bytes:
    """A message with these names and values."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"'
        ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:sf="urn:sobject.enterprise.soap.sforce.com">'
        '<soapenv:Body><notifications xmlns="http://soap.sforce.com/2005/09/outbound">'
        f"{_written(document)}</notifications></soapenv:Body></soapenv:Envelope>"
    ).encode()


def _written(value: object) -> str:
    if not isinstance(value, Mapping):
        return escape(str(value))
    return "".join([_element(name, inner) for name, inner in value.items() if not name.startswith("@")])


def _element(name: str, value: object) -> str:
    kind = value.get("@type") if isinstance(value, Mapping) else None
    attribute = "" if kind is None else f" xsi:type={quoteattr(f'sf:{kind}')}"
    return f"<{name}{attribute}>{_written(value)}</{name}>"


__all__ = ["SoapTokenScheme", "read_message", "split_message", "write_message"]
