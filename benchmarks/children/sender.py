"""Accepts events without HTTP, from many tasks at once: what growth measures of accept."""

from __future__ import annotations

import asyncio
import time

import uvloop

from benchmarks import events
from benchmarks.children import gate
from hookonce import Inbox
from hookonce.providers import Stripe

TASKS = 64


async def send(inbox: Inbox, prefix: str, count: int) -> None:
    prepared = [
        (body, events.headers(body)) for body in (events.body(events.event_id(prefix, n)) for n in range(count))
    ]
    warm = [events.body(events.event_id(f"{prefix}w", n)) for n in range(TASKS)]
    await asyncio.gather(*(inbox.accept("stripe", body, events.headers(body)) for body in warm))
    began = gate.wait_for_go()
    used = time.process_time()

    async def some() -> None:
        while prepared:
            body, headers = prepared.pop()
            await inbox.accept("stripe", body, headers)

    await asyncio.gather(*(some() for _ in range(TASKS)))
    gate.tell(began=began, ended=time.monotonic(), handled=count, cpu_seconds=time.process_time() - used)
    await inbox.close()


def main() -> None:
    given = gate.options()
    inbox = Inbox(given["database"])
    inbox.source(Stripe(events.SECRET))
    uvloop.run(send(inbox, given["prefix"], given["count"]))


main()
