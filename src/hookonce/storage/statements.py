"""The SQL of one dialect: named blocks from its .sql files, in the placeholder style of a driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Dialect = Literal["postgres", "sqlite"]
Style = Literal["named", "pyformat", "numeric_dollar", "qmark"]

_BLOCK = re.compile(r"^-- name: (\w+)[ ]*$", re.MULTILINE)
_COLUMNS = re.compile(r"^-- columns: (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"(?<![:\w]):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """One statement: its text, the order of its placeholders, and for a block of many rows its columns."""

    name: str
    text: str
    placeholders: tuple[str, ...]
    columns: tuple[tuple[str, str], ...] = ()

    def positional(self, values: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(values[name] for name in self.placeholders)


@cache
def load(dialect: Dialect, style: Style) -> Mapping[str, Block]:
    """Every block of a dialect by name. A name that stands twice is a mistake of ours and raises."""
    blocks: dict[str, Block] = {}
    folder = files("hookonce.storage") / "sql" / dialect
    for path in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if path.name.endswith(".sql") and path.name != "schema.sql":
            for block in _parse(path.read_text(encoding="utf-8"), style):
                if block.name in blocks:
                    raise ValueError(f"{dialect}: the statement {block.name} stands twice")
                blocks[block.name] = block
    return blocks


def _parse(text: str, style: Style) -> list[Block]:
    parts = _BLOCK.split(text)[1:]
    return [_block(name, body, style) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def _block(name: str, body: str, style: Style) -> Block:
    listed = _COLUMNS.search(body)
    columns: tuple[tuple[str, str], ...] = ()
    if listed is not None:
        columns = tuple(_column(entry) for entry in listed[1].split(","))
    text = _COMMENT.sub("", body).strip().rstrip(";")
    order: list[str] = []

    def placeholder(match: re.Match[str]) -> str:
        key = match[1]
        match style:
            case "named":
                return f":{key}"
            case "pyformat":
                return f"%({key})s"
            case "numeric_dollar":
                if key not in order:
                    order.append(key)
                return f"${order.index(key) + 1}"
            case "qmark":
                order.append(key)
                return "?"

    return Block(name, _PLACEHOLDER.sub(placeholder, text), tuple(order), columns)


def _column(entry: str) -> tuple[str, str]:
    name, _, kind = entry.strip().partition(" ")
    return name, kind
