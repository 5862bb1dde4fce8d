"""What people and programs read: data on stdout, everything else on stderr, foreign text always escaped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from hookonce.cli.options import Options
from hookonce.errors import (
    Busy,
    ConfigurationError,
    Conflict,
    HookonceError,
    NotFound,
    Refused,
    SchemaError,
    StorageError,
    Unavailable,
)
from hookonce.telemetry import safe

DONE, FAILURES, USAGE = 0, 1, 2
UNREACHABLE, BUG, TRY_AGAIN, REFUSED, CONFIGURATION, INTERRUPTED = 69, 70, 75, 77, 78, 130

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
        if not sys.stdin.isatty():
            raise click.UsageError(f"{question} There is no terminal to ask on: add --yes, or look first with --dry-run.")
        click.confirm(question, abort=True, err=True)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case datetime():
            return moment(value)
        case _:
            return safe(value)


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


# -- errors -----------------------------------------------------------------------------------------------------------


def exit_code(error: BaseException) -> int:
    """Which exit code says what happened; see `hookonce --help`."""
    match error:
        case ConfigurationError() | SchemaError():
            return CONFIGURATION
        case Refused():
            return REFUSED
        case NotFound():
            return FAILURES
        case Conflict() | Busy():
            return TRY_AGAIN
        case Unavailable() | StorageError():
            return UNREACHABLE
        case _:
            return BUG


def error_record(error: HookonceError) -> dict[str, Any]:
    problems = problems_of(error)
    message = problems[0] if len(problems) == 1 else f"{len(problems)} problems"
    inner: dict[str, Any] = {"code": error.code, "message": message, "do": error.do}
    if len(problems) > 1:
        inner["problems"] = problems
    return {"error": inner}


def error_text(error: HookonceError) -> str:
    problems = problems_of(error)
    lines = [f"{error.code} {problems[0]}"] if len(problems) == 1 else [f"{error.code} {len(problems)} problems:"]
    if len(problems) > 1:
        lines += [f"  {problem}" for problem in problems]
    if error.likely:
        lines.append(f"  likely     {error.likely}")
    if error.do:
        lines.append(f"  do         {error.do}")
    return "\n".join(lines)


def problems_of(error: HookonceError) -> list[str]:
    """Everything that an error lists, one line each."""
    if not isinstance(error, ConfigurationError) or not error.problems:
        return [_lined(error.seen)]
    return list(_flat(error))


def _flat(error: ConfigurationError) -> Iterator[str]:
    for problem in error.problems:
        if isinstance(problem, ConfigurationError):
            yield from _flat(problem)
        else:
            yield _lined(problem.seen if isinstance(problem, HookonceError) else problem)


def _lined(text: str) -> str:
    """Foreign text in an error must not move the cursor."""
    return "\n".join("".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in text.split("\n"))
