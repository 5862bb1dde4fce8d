"""The end check: what was acknowledged against what is in the database. It believes nobody, and knows no hookonce code.

Reads the sender's log and the tables, and reports every event that was lost, doubled, missing or half done.
"""

import contextlib
import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from pysqlite3 import dbapi2 as sqlite3

from tests.scenarios.shop import ACCOUNTS, OPENING_BALANCE, POISON_ATTEMPTS, is_sqlite

OPEN = frozenset({"received", "processing", "retrying", "waiting"})
ENDED = frozenset({"processed", "failed", "discarded"})
SHOWN_MAX = 8


class Database:
    """A connection of our own to the database under test."""

    def __init__(self, url: str) -> None:
        self._sqlite = is_sqlite(url)
        self._conn: Any = (
            # Read only: a connection that cannot checkpoint cannot disturb what it watches. Not with the standard
            # library's module: an inbox in this process is on the file with this one (HO130).
            sqlite3.connect(
                f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True, timeout=10.0, isolation_level=None
            )
            if self._sqlite
            else psycopg.connect(url, autocommit=True, connect_timeout=10)
        )

    def rows(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query; placeholders are question marks."""
        return list(self._conn.execute(text if self._sqlite else text.replace("?", "%s"), values).fetchall())

    def one(self, text: str, *values: object) -> Any:
        return self.rows(text, *values)[0][0]

    def whole(self) -> str:
        """What the database says about its own files; empty if it does not."""
        return str(self.one("PRAGMA integrity_check")) if self._sqlite else ""

    def close(self) -> None:
        self._conn.close()


@contextlib.contextmanager
def database(url: str) -> Iterator[Database]:
    opened = Database(url)
    try:
        yield opened
    finally:
        opened.close()


@dataclass(slots=True)
class _Known:
    """What the sender's log says about one event."""

    source: str = ""
    kind: str = "plain"
    sha: str = ""
    acknowledged: bool = False
    sent: bool = False
    said_yes: int = 0
    forged: bool = False


@dataclass(slots=True)
class Report:
    """What the check found."""

    deliveries: int = 0
    events: int = 0
    acknowledged: int = 0
    processed: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    crashes: int = 0
    duplicates: int = 0
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.missing or self.wrong)

    def __str__(self) -> str:
        line = (
            f"deliveries {self.deliveries}, events {self.events}, acknowledged {self.acknowledged}, "
            f"processed {self.processed}, lost {len(self.lost)}, doubled {len(self.doubled)}, "
            f"missing {len(self.missing)}, otherwise wrong {len(self.wrong)}"
        )
        found = [
            f"\n  {what}" for group in (self.lost, self.doubled, self.missing, self.wrong) for what in group[:SHOWN_MAX]
        ]
        return line + "".join(found)


def healed(url: str) -> bool:
    """Whether nothing is under way any more."""
    with database(url) as db:
        return (
            db.one("SELECT count(*) FROM hookonce_receipt WHERE state NOT IN ('processed', 'failed', 'discarded')") == 0
        )


def check(url: str, log: Path, *, killers: Sequence[str] = (), healed_within: float = 60.0) -> Report:
    """Wait until nothing is under way, then compare. `killers`: events that may end as a crash loop."""
    deadline = time.monotonic() + healed_within
    while not healed(url) and time.monotonic() < deadline:
        time.sleep(0.02)
    report = Report()
    known = _read_log(log, report)
    with database(url) as db:
        _check_receipts(db, known, report, frozenset(killers))
        _check_arithmetic(db, report)
        if db.whole() not in {"", "ok"}:
            report.wrong.append("the database file is damaged")
    return report


def _read_log(path: Path, report: Report) -> dict[str, _Known]:
    known: dict[str, _Known] = defaultdict(_Known)
    intents: dict[int, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "status" not in entry:
            intents[entry["n"]] = entry
            report.deliveries += 1
            event = known[entry["id"]]
            event.source, event.kind = entry["source"], entry["kind"]
            if entry["copy"] in {"first", "duplicate"}:
                event.sent, event.sha = True, entry["sha"]
            if entry["copy"] in {"forged", "renamed"}:
                event.forged = True
            continue
        status, intent = entry["status"], intents[entry["n"]]
        report.statuses[status] += 1
        if 200 <= status < 300:
            event = known[intent["event"]]
            event.said_yes += 1
            if intent["copy"] in {"first", "duplicate"}:
                event.acknowledged = True
            if intent["copy"] == "forged":
                report.wrong.append(f"{intent['id']} was forged and answered {status}")
    report.events = sum(1 for event in known.values() if event.sent)
    report.acknowledged = sum(1 for event in known.values() if event.acknowledged)
    return known


def _check_receipts(db: Database, known: dict[str, _Known], report: Report, killers: frozenset[str]) -> None:
    rows = db.rows(
        "SELECT r.id, r.event_id, r.source, r.state, r.result, r.attempts, r.crashes, r.token, r.generation, b.raw"
        " FROM hookonce_receipt AS r LEFT JOIN hookonce_body AS b ON b.receipt_id = r.id"
    )
    booked: Counter[tuple[str, int]] = Counter()
    for event_id, generation, count in db.rows(
        "SELECT event_id, generation, count(*) FROM shop_ledger GROUP BY event_id, generation"
    ):
        booked[event_id, generation] += count
    repeats = dict(db.rows("SELECT receipt_id, count(*) FROM hookonce_delivery GROUP BY receipt_id"))
    report.duplicates = sum(repeats.values())
    states: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for receipt_id, event_id, source, state, result, attempts, crashes, token, generation, raw in rows:
        states[state] += 1
        seen[event_id] += 1
        report.crashes += crashes
        event = known.get(event_id)
        name = f"{event_id} ({state}{f', {result}' if result else ''}, attempts {attempts}, crashes {crashes})"
        if event is None or not event.sent:
            report.wrong.append(f"{name}: stored, but never sent as an authentic event")
            continue
        if source != event.source or raw is None or hashlib.sha256(bytes(raw)).hexdigest() != event.sha:
            report.wrong.append(f"{name}: the stored bytes are not those that were sent")
        times = booked.pop((event_id, generation), 0)
        if times > 1:
            report.doubled.append(f"{name}: booked {times} times in generation {generation}")
        match state:
            case "processed":
                report.processed += 1
                if times == 0:
                    report.missing.append(f"{name}: marked as processed, never booked")
                if event.kind == "poison":
                    report.wrong.append(f"{name}: poison cannot be processed")
            case "failed":
                expected = (event.kind == "poison" and result == "gave_up") or event_id in killers
                if times:
                    report.wrong.append(f"{name}: booked, but not marked")
                if not expected:
                    report.missing.append(f"{name}: nothing is wrong with this event")
                # A crash may have used up an attempt, never more than there are.
                allowed = range(POISON_ATTEMPTS, POISON_ATTEMPTS + crashes + 1)
                if event.kind == "poison" and result == "gave_up" and attempts not in allowed:
                    report.wrong.append(f"{name}: {POISON_ATTEMPTS} attempts are allowed")
            case "discarded":
                pass
            case _:
                report.missing.append(f"{name}: still under way")
        if not 0 <= crashes <= attempts <= token:
            report.wrong.append(f"{name}: the counters cannot be right, token {token}")
        if event.said_yes > 1 + repeats.get(receipt_id, 0):
            report.wrong.append(
                f"{name}: {event.said_yes} times yes, {repeats.get(receipt_id, 0)} repeats written down"
            )
    for event_id, count in seen.items():
        if count > 1:
            report.doubled.append(f"{event_id}: {count} receipts for one event")
    for (event_id, generation), count in booked.items():
        event = known.get(event_id)
        if event is None or not event.sent:
            report.wrong.append(f"{event_id}: booked {count} times, never sent as an authentic event")
        elif not seen[event_id]:
            report.wrong.append(f"{event_id}: booked {count} times, no receipt")
        elif count > 1:
            report.doubled.append(f"{event_id}: booked {count} times in generation {generation}")
    report.lost += [event_id for event_id, event in known.items() if event.acknowledged and not seen[event_id]]
    if sum(states.values()) != sum(count for state, count in states.items() if state in OPEN | ENDED):
        report.wrong.append(f"receipts in no known state: {states}")
    bodies = db.one("SELECT count(*) FROM hookonce_body")
    if bodies != len(rows):
        report.wrong.append(f"{len(rows)} receipts, {bodies} bodies")


def _check_arithmetic(db: Database, report: Report) -> None:
    ledger = db.rows("SELECT event_id, count(*) FROM shop_ledger GROUP BY event_id")
    times = dict(ledger)
    generations = db.one("SELECT count(*) FROM (SELECT DISTINCT event_id, generation FROM shop_ledger) AS g")
    total = db.one("SELECT events FROM shop_total")
    if total != generations:
        report.doubled.append(f"the total counts {total} events, {generations} distinct ones were booked")
    balances = [OPENING_BALANCE] * ACCOUNTS
    for event_id, raw in db.rows(
        "SELECT r.event_id, b.raw FROM hookonce_receipt AS r JOIN hookonce_body AS b ON b.receipt_id = r.id"
    ):
        move = json.loads(bytes(raw))["move"]
        balances[move["from"]] -= move["amount"] * times.get(event_id, 0)
        balances[move["to"]] += move["amount"] * times.get(event_id, 0)
    found = [balance for (balance,) in db.rows("SELECT balance FROM shop_account ORDER BY id")]
    if sum(found) != ACCOUNTS * OPENING_BALANCE:
        report.wrong.append(f"the accounts hold {sum(found)}, they held {ACCOUNTS * OPENING_BALANCE}")
    if found != balances and not report.doubled:
        report.wrong.append("the accounts are not what the ledger makes of them")
