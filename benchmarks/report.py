"""Results as people and programs read them: one markdown table and one JSON file a section."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Report:
    """One section's results. `data` is what the plot is drawn from, `samples` every single measurement."""

    section: str
    title: str
    columns: Sequence[str]
    rows: list[Sequence[object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    samples: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Goal:
    """What was promised and what was seen."""

    what: str
    wanted: float
    seen: float
    at_least: bool = True
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.seen >= self.wanted if self.at_least else self.seen <= self.wanted

    def line(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{'met' if self.met else 'MISSED'}: {self.what}: {self.seen:.2f}{self.unit} ({sign} {self.wanted:g}{self.unit})"


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def spread(values: Sequence[float]) -> str:
    """A median with the smallest and the largest value."""
    return f"{median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})"


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of each round: what the machine does to both in a round cancels out."""
    return median([one / other for one, other in zip(mine, theirs, strict=True) if other])


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


def markdown(report: Report, machine: Mapping[str, str]) -> str:
    lines = [f"# {report.title}", "", _table(report.columns, report.rows), ""]
    lines += [f"- {goal.line()}" for goal in report.goals]
    lines += [f"- {note}" for note in report.notes]
    lines += ["", "| run | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in machine.items()), ""]
    return "\n".join(lines)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.2f}"  # not a number
    return str(value)


def write(report: Report, machine: Mapping[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(report, machine)
    print(f"\n{text}", flush=True)
    (folder / f"{report.section}.md").write_text(text, encoding="utf-8")
    kept = {
        "machine": dict(machine),
        "goals": [{**vars(goal), "met": goal.met} for goal in report.goals],
        "data": report.data,
        "samples": report.samples,
    }
    (folder / f"{report.section}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
