"""How a child talks to its parent: options in, "ready" out, "go" in, one result out."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def options() -> dict[str, Any]:
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


def wait_for_go() -> float:
    """Say that everything is imported and built; return the moment of the start (the same clock in all processes)."""
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        raise SystemExit(1)
    return time.monotonic()


def tell(**result: Any) -> None:
    print(json.dumps(result), flush=True)
