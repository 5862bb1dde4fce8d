"""Drain: events a second off a backlog, one business write each, beside a loop that takes one event at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import profiling
from benchmarks.databases import TITLES, Database, Kind, Lab, Sqlite, copy_backlog_to_hand, load_backlog
from benchmarks.processes import Child, run_children
from benchmarks.report import Goal, Report, median, ratio, spread
from benchmarks.settings import Settings

BY_HAND = "by hand: claim one, write, mark, commit"
DEFAULT = "hookonce, default settings"
BATCH = "hookonce, batch=100 handler"
ONE_COMMIT_EACH = "hookonce, group=1"
PROFILE_TIMES = 3


@dataclass(frozen=True)
class Case:
    """One way to work: which handler, which settings, how many processes."""

    name: str
    handler: str = "sync"
    settings: tuple[tuple[str, int], ...] = ()
    processes: int = 1
    by_hand: bool = False
    kinds: tuple[Kind, ...] = ("postgres", "sqlite")


CASES = (
    Case(BY_HAND, by_hand=True),
    Case(DEFAULT),
    Case("hookonce, concurrency=1", settings=(("concurrency", 1),), kinds=("postgres",)),
    Case("hookonce, concurrency=4", settings=(("concurrency", 4),), kinds=("postgres",)),
    Case(ONE_COMMIT_EACH, settings=(("group", 1),)),
    Case("hookonce, group=1, concurrency=1", settings=(("group", 1), ("concurrency", 1)), kinds=("postgres",)),
    Case("hookonce, group=1, concurrency=4", settings=(("group", 1), ("concurrency", 4)), kinds=("postgres",)),
    Case("hookonce, async handler", handler="async", kinds=("postgres",)),
    Case(BATCH, handler="batch"),
    Case(f"{BY_HAND}, 2 processes", by_hand=True, processes=2, kinds=("postgres",)),
    Case("hookonce, default settings, 2 processes", processes=2),
)


def run(settings: Settings, lab: Lab) -> Report:
    samples: list[Mapping[str, Any]] = []
    originals = {kind: backlog(lab, kind, settings.backlog) for kind in settings.kinds}
    for number in range(settings.rounds):
        for kind, case in _cases(settings):
            sample = measure(case, lab, originals[kind], settings.backlog)
            samples.append({"kind": kind, "case": case.name, "round": number, **sample})
            settings.progress(
                f"drain round {number + 1} {TITLES[kind]} {case.name}: {sample['rate']:,.0f}/s, cpu {sample['cpu']:.2f}"
            )
    if settings.profile:
        for kind, original in originals.items():
            profile(kind, settings, lab, original)
    return _report(samples, settings)


def _cases(settings: Settings) -> Iterator[tuple[Kind, Case]]:
    for kind in settings.kinds:
        for case in CASES:
            if kind in case.kinds:
                yield kind, case


def backlog(lab: Lab, kind: Kind, count: int) -> Database:
    """A database that every run gets a copy of: the events waiting for us, and for the comparison."""
    original = lab.new(kind)
    load_backlog(original, count, "backlog")
    copy_backlog_to_hand(original)
    original.settle()
    return original


def children(case: Case, database: Database) -> list[Child]:
    options = {"database": database.url, "handler": case.handler, "settings": dict(case.settings)}
    return [Child("claim_one" if case.by_hand else "worker", options) for _ in range(case.processes)]


def measure(case: Case, lab: Lab, original: Database, count: int) -> dict[str, Any]:
    """Work off a fresh copy, and count what was written: every event once."""
    database = _copy(lab, original)
    try:
        seen = run_children(children(case, database))
        check(database, count)
    finally:
        database.drop()
    seconds = max(one["ended"] for one in seen) - min(one["began"] for one in seen)
    cpu = sum(one["cpu_seconds"] for one in seen)
    return {"rate": count / seconds, "seconds": seconds, "cpu": cpu / seconds, "cpu_us": cpu / count * 1e6}


def _copy(lab: Lab, original: Database) -> Database:
    database = lab.copy(original)
    if not isinstance(database, Sqlite):
        database.settle()
    return database


def check(database: Database, count: int) -> None:
    """The effects are exactly the events."""
    written, distinct = database.query("SELECT count(*), count(DISTINCT event_id) FROM effects")[0]
    if (written, distinct) != (count, count):
        raise AssertionError(f"{count} events, but {written} effects of {distinct} events")


def profile(kind: Kind, settings: Settings, lab: Lab, original: Database) -> None:
    """Look at a worker with default settings, and at one with a transaction an event."""
    for name, options in (("default", {}), ("group1", {"group": 1})):
        for suffix in ("svg", "raw"):
            database = _copy(lab, original)
            child = Child("worker", {"database": database.url, "handler": "sync", "settings": options})
            try:
                child.wait_ready()
                target = settings.output / f"profile-drain-{name}-{kind}.{suffix}"
                recording = profiling.Recording(child.pid, _expected_seconds(settings), target)
                child.go()
                child.result()
                recording.wait()
            finally:
                child.kill()
                database.drop()
        profiling.show(f"drain, {TITLES[kind]}, {name}", target)


def _expected_seconds(settings: Settings) -> float:
    """Longer than any drain takes: py-spy ends with the process it looks at."""
    return 30.0 + settings.backlog / 500


def _report(samples: list[Mapping[str, Any]], settings: Settings) -> Report:
    report = Report(
        section="drain",
        title=f"Drain: events a second off a backlog of {settings.backlog:,}",
        columns=(
            *("database", "case", "events/s: median (min-max)", "times by hand", "worker CPU (cores)"),
            "worker CPU us an event",
        ),
        notes=[
            "Every run began with a copy of the same backlog and ended with exactly one effect for each event.",
            "The promise is for one commit each: that is group=1. With default settings quick events share commits.",
        ],
        samples=samples,
    )

    def values(kind: Kind, name: str, field: str = "rate") -> list[float]:
        return [one[field] for one in samples if (one["kind"], one["case"]) == (kind, name)]

    for kind, case in _cases(settings):
        rates = values(kind, case.name)
        times = ratio(rates, values(kind, BY_HAND))
        cpu = median(values(kind, case.name, "cpu"))
        report.rows.append(
            (TITLES[kind], case.name, spread(rates), times, cpu, f"{median(values(kind, case.name, 'cpu_us')):.0f}")
        )
        report.data[f"{kind}|{case.name}"] = {"rate": median(rates), "times": times}
    if "postgres" in settings.kinds:
        report.goals = [
            Goal(f"PostgreSQL, {name}: times by hand", wanted, report.data[f"postgres|{name}"]["times"])
            for name, wanted in ((ONE_COMMIT_EACH, 2.5), (DEFAULT, 2.5), (BATCH, 15.0))
        ]
    return report
