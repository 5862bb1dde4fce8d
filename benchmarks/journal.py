"""What benchmarks.apps.together wrote down: when handlers began, and when their events were committed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

LOOK_SECONDS = 0.02


def times(path: Path, what: str) -> dict[str, float]:
    """The first moment of this kind for each event."""
    found: dict[str, float] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            kind, name, at = [*line.split(), "", "", ""][:3]
            if kind == what and at:
                found.setdefault(name, float(at))
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True
