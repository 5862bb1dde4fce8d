"""What a storage operation is: a generator that yields statements and receives their rows.

Operations decide; short runners (sqlite, postgres, sqlalchemy) talk to the driver. So every operation is written once,
for sync and async, for both databases, and knows neither.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Row = Sequence[Any]
Rows = Sequence[Row]
Value = bytes | str | int | float | None

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named block of our .sql files, with its values."""

    name: str
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Many:
    """One named block for many rows, in their order: arrays on PostgreSQL, one execution a row on SQLite.

    `rows` are tuples in the order of the block's columns; `values` are the same for all.
    """

    name: str
    rows: Sequence[Sequence[Value]]
    values: Mapping[str, Value] = field(default_factory=dict)


Step = Statement | Many
Operation = Generator[Step, Rows, T]
"""A single-step operation commits with its statement; one of several steps is run in one transaction."""
