"""SIGTERM and SIGINT: the first asks to finish, a second one leaves at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType

SAME_SECONDS = 0.5
"""Signals this close together are one wish: a terminal, a supervisor and a process group often say it twice."""


class Signals:
    """Handlers of our own from the first moment: as process 1 there are no defaults, and a signal would be lost.

    Leaving at once is safe: what was acknowledged is committed, what was not is rolled back and comes again.
    """

    def __init__(self) -> None:
        self.killed: set[int] = set()
        """Children that are not left behind."""
        self._first = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._hear)

    @property
    def heard(self) -> bool:
        return bool(self._first)

    def attach(self, stop: asyncio.Event) -> None:
        """From now on a signal sets `stop`, of the running loop; one that came before sets it now."""
        self._loop, self._stop = asyncio.get_running_loop(), stop
        if self._first:
            stop.set()

    def detach(self) -> None:
        self._loop = self._stop = None

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if not self._first:
            self._first = now
            if self._loop is not None and self._stop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        elif now - self._first > SAME_SECONDS:
            for child in self.killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            leave(0, f"hookonce: second {signal.Signals(number).name}: leaving at once")


def leave(code: int, why: str = "") -> None:
    """End this process now, whatever its threads are doing."""
    if why:
        os.write(2, f"{why}\n".encode())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):
            continue  # a signal may interrupt the very write that holds the stream
    os._exit(code)
