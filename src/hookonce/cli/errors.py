"""How errors reach people and programs: one text, one record, one exit code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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

DONE, FAILURES, USAGE = 0, 1, 2
UNREACHABLE, BUG, TRY_AGAIN, REFUSED, CONFIGURATION, INTERRUPTED = 69, 70, 75, 77, 78, 130


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
