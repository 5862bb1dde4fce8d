"""End to end: from the moment an event is sent until its handler's transaction is committed, at low load."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from benchmarks import journal
from benchmarks.accept import PATH
from benchmarks.client import send_steadily
from benchmarks.databases import TITLES, Kind, Lab
from benchmarks.processes import Server
from benchmarks.report import Report, median, percentile
from benchmarks.settings import Settings

RATE = 50.0
WARM_SECONDS = 1.0
FINISH_SECONDS = 10.0


def run(settings: Settings, lab: Lab) -> Report:
    samples: list[Mapping[str, Any]] = []
    for number in range(settings.rounds):
        for kind in settings.kinds:
            sample = measure(kind, settings, lab)
            samples.append({"kind": kind, "round": number, **sample})
            settings.progress(
                f"end to end round {number + 1} {TITLES[kind]}:",
                f"commit p50 {sample['commit_p50_ms']:.1f} ms, p99 {sample['commit_p99_ms']:.1f} ms",
            )
    return _report(samples, settings)


def measure(kind: Kind, settings: Settings, lab: Lab) -> dict[str, Any]:
    database = lab.new(kind)
    path = lab.folder / f"journal-{database.url.rsplit('/', 1)[-1]}"
    environment = {"BENCH_DATABASE": database.url, "BENCH_JOURNAL": str(path)}
    with Server("benchmarks.apps.together:app", environment, lab.folder) as server:
        url = f"http://127.0.0.1:{server.port}{PATH}"
        warm = asyncio.run(send_steadily(url, "warm", rate=RATE, seconds=WARM_SECONDS))
        answers = asyncio.run(send_steadily(url, "event", rate=RATE, seconds=settings.seconds))
        total = len(answers.seconds) + len(warm.seconds)
        if not journal.wait_until(lambda: len(journal.times(path, "committed")) == total, FINISH_SECONDS):
            raise RuntimeError(f"not every event was handled:\n{server.log()}")
    committed = journal.times(path, "committed")
    if (effects := database.number("SELECT count(*) FROM effects")) != total:
        raise AssertionError(f"{effects} effects of {total} events")
    database.drop()
    to_commit = [committed[name] - at for name, at in answers.sent_at.items()]
    return {
        "events": len(to_commit),
        "answers": answers.status_text(),
        **{f"answer_{name}_ms": percentile(answers.seconds, part) * 1e3 for name, part in PARTS.items()},
        **{f"commit_{name}_ms": percentile(to_commit, part) * 1e3 for name, part in PARTS.items()},
    }


PARTS = {"p50": 0.50, "p99": 0.99}


def _report(samples: list[Mapping[str, Any]], settings: Settings) -> Report:
    report = Report(
        section="end_to_end",
        title=f"End to end: {RATE:g} events a second for {settings.seconds:g} s",
        columns=(
            *("database", "events a round", "until the answer: p50 ms", "p99 ms"),
            *("until the handler's commit: p50 ms", "p99 ms"),
        ),
        notes=[
            "The clock starts before the request is written. Medians of the rounds.",
            "The commit is taken from the worker's log line after it, so a thread switch is counted as well.",
        ],
        samples=samples,
    )
    for kind in settings.kinds:
        seen = [one for one in samples if one["kind"] == kind]
        fields = ("answer_p50_ms", "answer_p99_ms", "commit_p50_ms", "commit_p99_ms")
        values = {field: median([one[field] for one in seen]) for field in fields}
        report.rows.append((TITLES[kind], seen[0]["events"], *values.values()))
        report.data[TITLES[kind]] = values
    return report
