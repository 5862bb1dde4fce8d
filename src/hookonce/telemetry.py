"""Everything observable, by name: counters, and log lines with fields that are safe to print."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from hookonce.model import Claim

accept_log = logging.getLogger("hookonce.accept")
verify_log = logging.getLogger("hookonce.verify")
explain_log = logging.getLogger("hookonce.explain")
work_log = logging.getLogger("hookonce.work")

FIELDS = ("source", "event_id", "type", "object_id", "receipt_id", "state", "correlation_id")
"""What every line about an event carries. Never the payload, never a secret."""


class Counters:
    """Plain counts since the process started. One dict update an event, read by /metrics and by tests."""

    def __init__(self) -> None:
        self.received: Counter[tuple[str, str]] = Counter()
        self.handled: Counter[tuple[str, str]] = Counter()
        self.untested: Counter[str] = Counter()
        """Events of an API version that the handlers were not tested with."""

    def lines(self) -> list[str]:
        """The counts in the text form that Prometheus reads."""
        lines = ["# TYPE hookonce_received_total counter"]
        lines += [
            f'hookonce_received_total{{source="{s}",outcome="{o}"}} {n}' for (s, o), n in sorted(self.received.items())
        ]
        lines += ["# TYPE hookonce_handled_total counter"]
        lines += [
            f'hookonce_handled_total{{source="{s}",outcome="{o}"}} {n}' for (s, o), n in sorted(self.handled.items())
        ]
        lines += ["# TYPE hookonce_untested_version_total counter"]
        lines += [f'hookonce_untested_version_total{{source="{s}"}} {n}' for s, n in sorted(self.untested.items())]
        return lines


def safe(value: object) -> str:
    """Foreign text for a log line: one line, printable, bounded, no escape sequence reaches a terminal."""
    text = str(value)
    if text.isascii() and text.isprintable() and len(text) <= 200:
        return text
    return text[:200].encode("unicode_escape", "backslashreplace").decode("ascii")


def log_event(logger: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """One line about one event. `fields` become attributes of the record; what is None is left out."""
    if logger.isEnabledFor(level):
        shown = {name: safe(value) for name, value in fields.items() if value is not None}
        line = " ".join(f"{name}={value}" for name, value in shown.items())
        logger.log(level, "%s %s", message, line, extra={"hookonce": shown})


def claim_fields(claim: Claim) -> dict[str, Any]:
    return {
        "source": claim.source,
        "event_id": claim.event_id,
        "type": claim.type,
        "object_id": claim.object_id,
        "receipt_id": claim.id,
        "correlation_id": claim.correlation_id,
    }
