"""One worker process of hookonce on a backlog: until nothing was handled for a while."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import uvloop

from benchmarks import events
from benchmarks.children import gate
from hookonce import Event, Inbox, WorkerSettings
from hookonce.providers import Stripe
from hookonce.registry import Source

QUIET_SECONDS = 1.5
LOOK_SECONDS = 0.005


def register(source: Source, handler: str, *, postgres: bool) -> None:
    """One business write for each event; what it writes is read from the event's body."""
    mark = "%s" if postgres else "?"
    insert = f"INSERT INTO effects (event_id, amount) VALUES ({mark}, {mark})"
    insert_many = "INSERT INTO effects (event_id, amount) SELECT * FROM unnest(%s::text[], %s::bigint[])"

    def sync(event: Event, conn: Any) -> None:
        conn.execute(insert, (event.id, event["data.object.amount_due"]))

    async def coroutine(event: Event, conn: Any) -> None:
        await conn.execute(insert, (event.id, event["data.object.amount_due"]))

    def batch(events: list[Event], conn: Any) -> None:
        rows = [(event.id, event["data.object.amount_due"]) for event in events]
        if postgres:
            conn.execute(insert_many, [list(column) for column in zip(*rows, strict=True)])
        else:
            conn.executemany(insert, rows)

    if handler == "batch":
        source.on("invoice.paid", batch=100)(batch)
    else:
        source.on("invoice.paid")({"sync": sync, "async": coroutine}[handler])


async def work(inbox: Inbox) -> None:
    began = gate.wait_for_go()
    stop = asyncio.Event()
    running = asyncio.ensure_future(inbox.worker().run(stop))
    handled, changed, used = 0, began, time.process_time()
    first = used
    while time.monotonic() - changed < QUIET_SECONDS and not running.done():
        await asyncio.sleep(LOOK_SECONDS)
        if (now := sum(inbox.counters.handled.values())) != handled:
            handled, changed, used = now, time.monotonic(), time.process_time()
    stop.set()
    await running
    gate.tell(
        began=began,
        ended=changed,
        handled=handled,
        cpu_seconds=used - first,
        results={result: count for (_, result), count in inbox.counters.handled.items()},
    )


def main() -> None:
    given = gate.options()
    inbox = Inbox(given["database"], worker=WorkerSettings(**given["settings"]))
    register(inbox.source(Stripe(events.SECRET)), given["handler"], postgres=given["database"].startswith("postgres"))
    uvloop.run(work(inbox))


main()
