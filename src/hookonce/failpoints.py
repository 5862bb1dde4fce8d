"""Named points between any two steps at which a test can make the process die, stop, fail or lose its connection.

Not armed, a point costs one look-up in an empty dict. Armed by HOOKONCE_FAILPOINTS, for example

    HOOKONCE_FAILPOINTS="settle.before_mark=kill@2;accept.after_commit=raise"

where `@2` means: the second time this process passes it (default: the first), and `@2+` every time from then on.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

POINTS = (
    "receive.after_verify",
    "accept.before_insert",
    "accept.after_insert",
    "accept.before_deliveries",
    "accept.after_deliveries",
    "accept.before_answer",
    "claim.before_claim",
    "claim.after_claim",
    "handle.before_begin",
    "handle.after_lock",
    "handle.before_handler",
    "handle.after_handler",
    "settle.before_mark",
    "settle.before_commit",
    "settle.after_commit",
    "settle.before_failure",
    "settle.after_failure",
    "claim.before_release",
)
"""Every point there is, in the order in which an event meets them."""

EXIT_CODE = 86


class FailpointHit(Exception):
    """What `raise` raises: an error nobody expects."""


@dataclass(slots=True)
class _Armed:
    action: Callable[[], None]
    occurrence: int = 1
    onwards: bool = False
    seen: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def hit(self) -> None:
        with self.lock:
            self.seen += 1
            due = self.seen >= self.occurrence if self.onwards else self.seen == self.occurrence
        if due:
            self.action()


_armed: dict[str, _Armed] = {}


def fp(name: str) -> None:
    """Pass the point `name`."""
    if _armed and name in _armed:
        _armed[name].hit()


@contextmanager
def armed(name: str, action: Callable[[], None], *, occurrence: int = 1, onwards: bool = False) -> Iterator[None]:
    """Arm one point inside this process, for a test."""
    _check(name)
    _armed[name] = _Armed(action, occurrence, onwards)
    try:
        yield
    finally:
        del _armed[name]


def arm_from_environment(text: str | None = None) -> None:
    """Arm what HOOKONCE_FAILPOINTS asks for. Called once, by the command line."""
    text = os.environ.get("HOOKONCE_FAILPOINTS", "") if text is None else text
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, _, what = entry.partition("=")
        action, _, nth = what.partition("@")
        _check(name)
        _armed[name] = _Armed(_ACTIONS[action], int(nth.rstrip("+") or 1), nth.endswith("+"))


def _check(name: str) -> None:
    if name not in POINTS:
        raise ValueError(f"there is no failpoint {name!r}; there are: {', '.join(POINTS)}")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    # Sent to this thread: sent to the process, another thread may take it and this one run on past the point.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _exit() -> None:
    os._exit(EXIT_CODE)


def _raise() -> None:
    raise FailpointHit("a failpoint was armed here")


_ACTIONS: dict[str, Callable[[], None]] = {"kill": _kill, "stop": _stop, "exit": _exit, "raise": _raise}
