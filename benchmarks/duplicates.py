"""Duplicates: copies of one event, sent while its handler sleeps inside its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import events, journal
from benchmarks.accept import PATH
from benchmarks.client import Answers, send_copies
from benchmarks.databases import TITLES, Kind, Lab
from benchmarks.processes import Server
from benchmarks.report import Goal, Report, median, percentile
from benchmarks.settings import Settings

CONNECTIONS = 64
BEGIN_SECONDS = 10.0
P99_GOAL_MS = 50.0


@dataclass(frozen=True)
class Case:
    """A database, and the handler's time limit: None is the default of that database."""

    kind: Kind
    timeout: float | None
    name: str


def cases(settings: Settings) -> Iterator[Case]:
    for kind in settings.kinds:
        yield Case(kind, settings.sleep + 30.0, f"{TITLES[kind]}, handler may sleep")
        if kind == "sqlite":
            yield Case(kind, None, f"{TITLES[kind]}, default time limit of handlers")


def run(settings: Settings, lab: Lab) -> Report:
    samples: list[Mapping[str, Any]] = []
    for number in range(settings.rounds):
        for case in cases(settings):
            sample = measure(case, settings, lab)
            samples.append({"case": case.name, "round": number, **sample})
            settings.progress(
                f"duplicates round {number + 1} {case.name}: {sample['statuses']}, p99 {sample['p99_ms']:.1f} ms"
            )
    return _report(samples, settings)


def measure(case: Case, settings: Settings, lab: Lab) -> dict[str, Any]:
    """The first copy starts the handler; the others arrive while it sleeps."""
    database = lab.new(case.kind)
    path = lab.folder / f"journal-{database.url.rsplit('/', 1)[-1]}"
    environment = {
        "BENCH_DATABASE": database.url,
        "BENCH_JOURNAL": str(path),
        "BENCH_SLEEP": str(settings.sleep),
        "BENCH_TIMEOUT": str(case.timeout or 0),
    }
    name = events.event_id("duplicate", 1)
    with Server("benchmarks.apps.together:app", environment, lab.folder) as server:
        url = f"http://127.0.0.1:{server.port}{PATH}"
        first = asyncio.run(send_copies(url, name, count=1, connections=1))
        if not journal.wait_until(lambda: name in journal.times(path, "began"), BEGIN_SECONDS):
            raise RuntimeError(f"the handler did not begin:\n{server.log()}")
        answers = asyncio.run(send_copies(url, name, count=settings.copies, connections=CONNECTIONS))
        asleep = name not in journal.times(path, "committed")
        if case.timeout:
            journal.wait_until(lambda: name in journal.times(path, "committed"), settings.sleep + 10.0)
    effects = database.number("SELECT count(*) FROM effects")
    recorded = database.number("SELECT count(*) FROM hookonce_delivery WHERE verdict = 'duplicate'")
    database.drop()
    _check(case, first, answers, effects=effects, recorded=recorded)
    return {
        "statuses": answers.status_text(),
        "p50_ms": percentile(answers.seconds, 0.50) * 1e3,
        "p99_ms": percentile(answers.seconds, 0.99) * 1e3,
        "max_ms": max(answers.seconds) * 1e3,
        "effects": effects,
        "recorded": recorded,
        "asleep": asleep,
    }


def _check(case: Case, first: Answers, answers: Answers, *, effects: int, recorded: int) -> None:
    if first.good != 1:
        raise AssertionError(f"{case.name}: the first copy was answered {first.status_text()}")
    if effects > 1 or (case.timeout and effects != 1):
        raise AssertionError(f"{case.name}: {effects} effects of one event")
    if recorded < answers.good:
        raise AssertionError(f"{case.name}: {answers.good} copies were answered with 2xx, {recorded} are recorded")


def _report(samples: list[Mapping[str, Any]], settings: Settings) -> Report:
    report = Report(
        section="duplicates",
        title=f"Duplicates: {settings.copies:,} copies of an event whose handler sleeps {settings.sleep:g} s",
        columns=(
            *("case", "answers", "p50 ms", "p99 ms", "slowest ms", "effects", "duplicates recorded"),
            "handler slept until the last answer",
        ),
        notes=[
            f"{CONNECTIONS} connections at once; receiver and worker in one process. p50, p99: medians of the rounds.",
            "On SQLite a handler's transaction is the only writer: whoever sleeps in it holds up every accept.",
        ],
        samples=samples,
    )
    for case in cases(settings):
        seen = [one for one in samples if one["case"] == case.name]
        p50, p99, slowest = (median([one[field] for one in seen]) for field in ("p50_ms", "p99_ms", "max_ms"))
        last = seen[-1]
        report.rows.append(
            (
                *(case.name, last["statuses"], p50, p99, slowest, last["effects"], last["recorded"]),
                "yes" if all(one["asleep"] for one in seen) else "no",
            )
        )
        report.data[case.name] = {"p50_ms": p50, "p99_ms": p99}
        if case.kind == "postgres":
            report.goals.append(Goal(f"{case.name}: p99", P99_GOAL_MS, p99, at_least=False, unit=" ms"))
    return report
