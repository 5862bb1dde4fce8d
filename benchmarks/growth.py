"""Growth: what accepting and working cost when many processed receipts are stored already."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from benchmarks.databases import TITLES, Database, Kind, Lab, Sqlite, load_backlog
from benchmarks.drain import check
from benchmarks.processes import Child, run_children
from benchmarks.report import Goal, Report, median, ratio, spread
from benchmarks.settings import Settings

STEPS = ("accept", "drain")

# Columns that differ from the sample receipt; every other column is copied from it, whatever the schema has.
POSTGRES_COLUMNS = {
    "key": "sha256(convert_to('stored ' || g, 'UTF8'))",
    "event_id": "'evt_stored_' || g",
    "body_digest": "sha256(convert_to('body ' || g, 'UTF8'))",
    "correlation_id": "'stored' || g",
    "received_at": "now() - interval '30 days' + g * interval '1 ms'",
    "due_at": "now() - interval '30 days' + g * interval '1 ms'",
    "processed_at": "now() - interval '30 days' + g * interval '2 ms'",
}
SQLITE_COLUMNS = {
    "key": "randomblob(32)",
    "event_id": "'evt_stored_' || g",
    "body_digest": "randomblob(32)",
    "correlation_id": "'stored' || g",
    "received_at": "unixepoch('subsec') - 2592000 + g * 0.001",
    "due_at": "unixepoch('subsec') - 2592000 + g * 0.001",
    "processed_at": "unixepoch('subsec') - 2592000 + g * 0.002",
}
POSTGRES_NAMES = (
    "SELECT column_name FROM information_schema.columns WHERE table_name = 'hookonce_receipt' ORDER BY ordinal_position"
)
SQLITE_NAMES = "SELECT name FROM pragma_table_info('hookonce_receipt') ORDER BY cid"


class Stored:
    """A database that holds so many processed receipts, and is brought back to that after every round."""

    def __init__(self, lab: Lab, kind: Kind, size: int) -> None:
        self.size = size
        self.database = lab.new(kind)
        load_backlog(self.database, 1, "sample")
        run_children([worker(self.database)])
        self.database.query("DELETE FROM effects")
        _fill(self.database, size - 1)
        self._last = self.database.number("SELECT max(id) FROM hookonce_receipt")
        self.database.settle()

    def clean(self) -> None:
        self.database.query(f"DELETE FROM hookonce_receipt WHERE id > {self._last}")
        self.database.query(f"DELETE FROM hookonce_body WHERE receipt_id > {self._last}")
        self.database.query("DELETE FROM effects")
        self.database.settle()
        if (seen := self.database.number("SELECT count(*) FROM hookonce_receipt")) != self.size:
            raise AssertionError(f"{seen} receipts are stored, not {self.size}")


def worker(database: Database) -> Child:
    return Child("worker", {"database": database.url, "handler": "sync", "settings": {}})


def _fill(database: Database, count: int) -> None:
    """Copy the one receipt that hookonce wrote and processed itself, as often as asked."""
    sqlite = isinstance(database, Sqlite)
    names = [name for (name,) in database.query(SQLITE_NAMES if sqlite else POSTGRES_NAMES) if name != "id"]
    changed = SQLITE_COLUMNS if sqlite else POSTGRES_COLUMNS
    values = [changed.get(name, f"r.{name}") for name in names]
    numbers = (
        f"WITH RECURSIVE n (g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM n WHERE g < {count})"
        if sqlite
        else f"WITH n AS (SELECT g FROM generate_series(1, {count}) AS g)"
    )
    receipts = (
        f"{numbers} INSERT INTO hookonce_receipt ({', '.join(names)})"
        f" SELECT {', '.join(values)} FROM hookonce_receipt AS r CROSS JOIN n WHERE r.event_id NOT LIKE 'evt_stored%'"
    )
    # Text is put in front of the body, so that every row is compressed and stored by itself.
    raw = "CAST(r.event_id || b.raw AS BLOB)" if sqlite else "convert_to(r.event_id, 'UTF8') || b.raw"
    bodies = (
        f"INSERT INTO hookonce_body (receipt_id, raw, headers) SELECT r.id, {raw}, b.headers FROM hookonce_receipt AS r"
        " CROSS JOIN (SELECT raw, headers FROM hookonce_body LIMIT 1) AS b WHERE r.event_id LIKE 'evt_stored%'"
    )
    if isinstance(database, Sqlite):
        with database.connection() as conn:
            conn.execute("PRAGMA cache_size = -1000000")
            conn.execute(receipts)
            conn.execute(bodies)
    else:
        database.query(receipts)
        database.query(bodies)


def run(settings: Settings, lab: Lab) -> Report:
    samples: list[Mapping[str, Any]] = []
    prefixes = itertools.count(1)
    for kind in settings.kinds:
        stored = []
        for size in settings.sizes:
            stored.append(Stored(lab, kind, size))
            settings.progress(f"growth: {TITLES[kind]} holds {size:,} receipts")
        for number in range(settings.rounds):
            # Forth and back, so that no size is always measured later than another.
            for one in stored if number % 2 == 0 else reversed(stored):
                rates = measure(one.database, settings.growth_events, f"growth{next(prefixes)}")
                one.clean()
                samples.append({"kind": kind, "size": one.size, "round": number, **rates})
                settings.progress(f"growth round {number + 1} {TITLES[kind]} {one.size:,}: {rates}")
        for one in stored:
            one.database.drop()
    return _report(samples, settings)


def measure(database: Database, count: int, prefix: str) -> dict[str, float]:
    """Accept so many events, then work them off."""
    sent = run_children([Child("sender", {"database": database.url, "prefix": prefix, "count": count})])[0]
    waiting = database.number("SELECT count(*) FROM hookonce_receipt WHERE state = 'received'")
    worked = run_children([worker(database)])[0]
    check(database, waiting)
    return {
        "accept": count / (sent["ended"] - sent["began"]),
        "drain": waiting / (worked["ended"] - worked["began"]),
    }


def _report(samples: list[Mapping[str, Any]], settings: Settings) -> Report:
    smallest, largest = min(settings.sizes), max(settings.sizes)
    report = Report(
        section="growth",
        title=f"Growth: rates with receipts stored already, {settings.growth_events:,} events a measurement",
        columns=("database", "step", "stored receipts", "events/s: median (min-max)", f"of the rate at {smallest:,}"),
        notes=["Accept is measured without HTTP (64 tasks), so that the database's share shows."],
        samples=samples,
    )

    def rates(kind: Kind, size: int, step: str) -> list[float]:
        found = [one for one in samples if (one["kind"], one["size"]) == (kind, size)]
        return [one[step] for one in sorted(found, key=lambda one: one["round"])]

    for kind, step, size in itertools.product(settings.kinds, STEPS, settings.sizes):
        of_smallest = ratio(rates(kind, size, step), rates(kind, smallest, step))
        report.rows.append((TITLES[kind], step, f"{size:,}", spread(rates(kind, size, step)), of_smallest))
        report.data[f"{kind}|{step}|{size}"] = {
            "rate": median(rates(kind, size, step)),
            "of_smallest": of_smallest,
        }
    report.goals = [
        Goal(
            f"{TITLES[kind]}, {step} at {largest:,} of {smallest:,}",
            0.90,
            report.data[f"{kind}|{step}|{largest}"]["of_smallest"],
        )
        for kind, step in itertools.product(settings.kinds, STEPS)
    ]
    return report
