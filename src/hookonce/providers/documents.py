"""Bodies that are not one JSON document: forms, JSON inside forms, tokens, and batches that are taken apart."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass
from typing import Any

from hookonce.model import Delivery
from hookonce.providers.locate import Document
from hookonce.schemes.request import fields, walk

Json = Any


def _form(delivery: Delivery) -> dict[str, str]:
    """A form, by the names of its fields; of two the last counts, as with browsers."""
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in fields(delivery.body)}


def _form_or_json(delivery: Delivery) -> Json:
    """A form where the content type says so (with `payload` as JSON, where it has one), otherwise JSON."""
    kind = next((value for name, value in delivery.headers if name == b"content-type"), b"")
    if not kind.startswith(b"application/x-www-form-urlencoded"):
        return read_json(delivery.body)
    found: dict[str, Json] = dict(_form(delivery))
    if "payload" in found:
        inner = read_json(found["payload"].encode())
        return inner if isinstance(inner, dict) else found
    return found


form: Document = _form
form_or_json: Document = _form_or_json


def segment(text: bytes) -> Json:
    """A part of a token, as JSON."""
    return json.loads(urlsafe_b64decode(text + b"=" * (-len(text) % 4)))


def read_json(text: bytes) -> Json:
    """JSON as it is read everywhere here: numbers of any length do no harm."""
    return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= 600 else digits


_scan = json.JSONDecoder(parse_int=_integer).raw_decode
_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class JsonBatch:
    """The events of a batch: the items of the array at this path, or of a body that is an array, each as its own bytes."""

    path: str = ""

    def __call__(self, delivery: Delivery) -> tuple[list[bytes], Json]:
        return split_text(delivery.body.decode("utf-8-sig"), tuple(self.path.split(".")) if self.path else ())


@dataclass(frozen=True, slots=True)
class FormBatch:
    """The events of a batch that stands as a JSON array in a field of a form."""

    field: str

    def __call__(self, delivery: Delivery) -> tuple[list[bytes], Json]:
        found = _form(delivery)
        if self.field not in found:
            raise ValueError("the field of the events is not there")
        return split_text(found[self.field], ())


def split_lines(delivery: Delivery) -> tuple[list[bytes], Json]:
    """The events of a batch with one JSON document a line."""
    lines = [line for line in delivery.body.splitlines() if line.strip()]
    for line in lines:
        read_json(line)
    return lines, None


def split_text(text: str, names: tuple[str, ...]) -> tuple[list[bytes], Json]:
    """Cut the items of an array out of the text around them. ValueError when there is no such array."""
    document = read_json(text.encode())
    if type(walk(document, names)) is not list:
        raise ValueError(f"there is no list at {'.'.join(names)!r}")
    position = _skip(text, 0)
    for name in names:
        position = _member(text, position, name)
    return list(_items(text, position)), document


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _member(text: str, position: int, wanted: str) -> int:
    """Where the value of this member of an object begins. Of two the last counts, as for the parser."""
    found = -1
    position = _skip(text, position + 1)
    while text[position] != "}":
        name, position = _scan(text, position)
        position = _skip(text, _skip(text, position) + 1)
        if name == wanted:
            found = position
        _, position = _scan(text, position)
        position = _skip(text, position)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return found


def _items(text: str, position: int) -> list[bytes]:
    items = []
    position = _skip(text, position + 1)
    while text[position] != "]":
        _, end = _scan(text, position)
        items.append(text[position:end].encode("utf-8", "surrogatepass"))
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return items


__all__ = [
    "FormBatch",
    "JsonBatch",
    "form",
    "form_or_json",
    "read_json",
    "segment",
    "split_lines",
    "split_text",
]
