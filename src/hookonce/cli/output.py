"""What people and programs read: data on stdout, everything else on stderr, foreign text always escaped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from hookonce.cli.errors import FAILURES
from hookonce.cli.options import Options
from hookonce.telemetry import safe

CELL_CHARS_MAX = 64
"""Longer texts are cut in tables: one id of 500 characters would push every other column out of sight."""

COLORS = {"processed": "green", "failed": "red", "retrying": "yellow", "waiting": "yellow", "discarded": "bright_black"}


class Output:
    """One command's output."""

    def __init__(self, options: Options) -> None:
        self.json = options.json
        self.quiet = options.quiet
        self._plain = options.no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"

    def data(self, text: str = "") -> None:
        click.echo(text, color=False if self._plain else None)

    def record(self, value: Mapping[str, Any]) -> None:
        """One JSON object on one line."""
        click.echo(json.dumps(value, default=_jsonable))

    def say(self, text: str = "") -> None:
        """For people only: nothing a program would want."""
        if not self.quiet:
            click.echo(text, err=True, color=False if self._plain else None)

    def warn(self, text: str) -> None:
        click.echo(f"warning: {text}", err=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        shown = [[_cell(value) for value in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(heads, *shown, strict=True)]
        self.data(click.style(_padded(heads, widths), bold=True))
        for row in shown:
            line = _padded(row, widths)
            state = next((cell for cell in row if cell in COLORS), None)
            self.data(line.replace(state, click.style(state, fg=COLORS[state]), 1) if state else line)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before many rows change. Without a terminal nobody can answer, so it stops."""
        if yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.UsageError(
                f"{question} There is no terminal to ask on: add --yes, or look first with --dry-run."
            )
        if not click.confirm(question, err=True):
            self.say("nothing was changed")
            raise click.exceptions.Exit(FAILURES)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case datetime():
            return moment(value)
        case _:
            text = safe(value)
            return text if len(text) <= CELL_CHARS_MAX else f"{text[: CELL_CHARS_MAX - 3]}..."


def _jsonable(value: object) -> object:
    return utc_text(value) if isinstance(value, datetime) else str(value)


def utc_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(value: datetime | None) -> str:
    """A time as people read it, always UTC."""
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def span(seconds: float) -> str:
    """A duration as people read it."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
