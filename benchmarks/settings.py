"""What a run was asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.databases import Kind


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command line, with defaults filled in."""

    kinds: Sequence[Kind]
    connections: Sequence[int]
    rounds: int
    seconds: float
    warm_seconds: float
    backlog: int
    sizes: Sequence[int]
    growth_events: int
    sleep: float
    copies: int
    profile: bool
    output: Path

    def progress(self, *parts: object) -> None:
        print("#", *parts, flush=True)
