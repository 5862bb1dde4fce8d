"""Counters of several processes, summed: whichever child answers /metrics answers for all of them.

Each child writes its counts to a file of its own once a second. The files of children that have died stay, so that no
sum ever goes down; what a killed child counted in its last second is missing from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

WRITE_SECONDS = 1.0


class Counted:
    """This process's counts among those of its siblings."""

    def __init__(self, folder: Path, own: Callable[[], Sequence[str]]) -> None:
        self._folder = folder
        self._own = own
        self._file = folder / f"{os.getpid()}-{time.time_ns()}.txt"

    def lines(self) -> list[str]:
        """The counts of all."""
        others = [file.read_text() for file in sorted(self._folder.glob("*.txt")) if file != self._file]
        return summed([*(text.splitlines() for text in others), self._own()])

    def write(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text("\n".join(self._own()))
        new.replace(self._file)

    async def write_for_ever(self) -> None:
        """Once a second, and once more at the end."""
        try:
            while True:
                await asyncio.sleep(WRITE_SECONDS)
                with contextlib.suppress(OSError):  # a full disk must not end a child; the next second tries again
                    self.write()
        finally:
            with contextlib.suppress(OSError):
                self.write()


def summed(parts: Iterable[Sequence[str]]) -> list[str]:
    """Lines in Prometheus' text form, with equal names and labels added up."""
    types: dict[str, str] = {}
    values: Counter[str] = Counter()
    for line in chain.from_iterable(parts):
        if line.startswith("# TYPE "):
            types[line.split()[2]] = line
        elif line and not line.startswith("#"):
            name, _, number = line.rpartition(" ")
            values[name] += int(number)
    found = []
    for metric, line in types.items():
        found.append(line)
        found += [f"{name} {count}" for name, count in sorted(values.items()) if name.partition("{")[0] == metric]
    return found
