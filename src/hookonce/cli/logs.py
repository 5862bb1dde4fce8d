"""Logs on stderr: one line a record, for people or as JSON. Times are UTC; foreign text never reaches a terminal raw."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Literal

from hookonce.telemetry import safe

Format = Literal["auto", "console", "json"]


def set_up(level: str = "info", form: Format = "auto") -> None:
    """Send every record of the process to stderr, in one form."""
    if form == "auto":
        form = "console" if sys.stderr.isatty() else "json"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Console())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("hookonce").setLevel(level.upper())
    logging.captureWarnings(capture=True)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What is known about the event: escaped already by whoever logged it."""
    found = getattr(record, "hookonce", None)
    return found if isinstance(found, dict) else {}


def message(record: logging.LogRecord) -> str:
    """The words without the fields."""
    if fields(record) and isinstance(record.args, tuple) and record.args:
        return str(record.args[0])
    text = "; ".join(part.strip() for part in record.getMessage().splitlines())
    return text if text.isascii() and text.isprintable() else safe(text)


def time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Console(logging.Formatter):
    """`12:04:07.120Z info  accept  accepted source=stripe event_id=evt_1 ...`."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("hookonce.")
        known = " ".join(f"{key}={value}" for key, value in fields(record).items())
        line = f"{time_of(record)[11:]} {record.levelname.lower():7} {name:8} {message(record)} {known}".rstrip()
        return line + "".join(f"\n  {safe(part)}" for part in _traceback(record).splitlines())


class Json(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message(record),
            **fields(record),
        }
        if found := _traceback(record):
            line["exception"] = found
        return json.dumps(line)


def _traceback(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return "".join(traceback.format_exception(*record.exc_info)).rstrip()
