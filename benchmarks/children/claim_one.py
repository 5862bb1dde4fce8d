"""The comparison's worker: claim one, write, mark, commit, and the next. Blocking, one event at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import psycopg

from benchmarks.children import gate
from benchmarks.hand_sqlite import open_sqlite

# Only the index of what is pending has this order, so that no planner reads past what is done.
CLAIM = "SELECT id, event_id, body FROM hand_receipt WHERE status = 0 ORDER BY received_at, id LIMIT 1"


def postgres(url: str) -> Callable[[], bool]:
    conn = psycopg.connect(url)
    claim = CLAIM + " FOR UPDATE SKIP LOCKED"
    write = "INSERT INTO effects (event_id, amount) VALUES (%s, %s)"
    mark = "UPDATE hand_receipt SET status = 1, processed_at = now() WHERE id = %s"

    def one() -> bool:
        row = conn.execute(claim).fetchone()
        if row is not None:
            amount = json.loads(row[2])["data"]["object"]["amount_due"]
            conn.execute(write, (row[1], amount))
            conn.execute(mark, (row[0],))
        conn.commit()
        return row is not None

    return one


def sqlite(path: str) -> Callable[[], bool]:
    conn = open_sqlite(path)
    claim = CLAIM
    write = "INSERT INTO effects (event_id, amount) VALUES (?, ?)"
    mark = "UPDATE hand_receipt SET status = 1, processed_at = unixepoch('subsec') WHERE id = ?"

    def one() -> bool:
        conn.execute("BEGIN IMMEDIATE")
        row = conn.execute(claim).fetchone()
        if row is not None:
            amount = json.loads(row[2])["data"]["object"]["amount_due"]
            conn.execute(write, (row[1], amount))
            conn.execute(mark, (row[0],))
        conn.execute("COMMIT")
        return row is not None

    return one


def main() -> None:
    url = gate.options()["database"]
    one = postgres(url) if url.startswith("postgres") else sqlite(url.removeprefix("sqlite:///"))
    began = gate.wait_for_go()
    used = time.process_time()
    handled = 0
    while one():
        handled += 1
    gate.tell(began=began, ended=time.monotonic(), handled=handled, cpu_seconds=time.process_time() - used)


main()
