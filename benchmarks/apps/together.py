"""Hookonce as `hookonce run` has it: receiver and worker in one process, the worker in a thread with its own loop.

Environment: BENCH_DATABASE, BENCH_SLEEP (seconds the handler sleeps), BENCH_TIMEOUT (its time limit; 0: the default),
BENCH_JOURNAL (a file: one line when a handler begins, one when its event is committed).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import events
from benchmarks.apps.lifespan import lifespan
from benchmarks.apps.receiver import BOUNDS
from hookonce import Event, Inbox
from hookonce.providers import Stripe

URL = os.environ["BENCH_DATABASE"]
SLEEP = float(os.environ.get("BENCH_SLEEP", "0"))
TIMEOUT = float(os.environ.get("BENCH_TIMEOUT", "0")) or None
INSERT = (
    "INSERT INTO effects (event_id, amount) VALUES (%s, %s)"
    if URL.startswith("postgres")
    else "INSERT INTO effects (event_id, amount) VALUES (?, ?)"
)

journal = Path(os.environ["BENCH_JOURNAL"]).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until the end
inbox = Inbox(URL, bounds=BOUNDS)
stripe = inbox.source(Stripe(events.SECRET))


@stripe.on("invoice.paid", timeout=TIMEOUT)
def handle(event: Event, conn: Any) -> None:
    journal.write(f"began {event.id} {time.time():.6f}\n")
    if SLEEP:
        time.sleep(SLEEP)
    conn.execute(INSERT, (event.id, event["data.object.amount_due"]))


class Commits(logging.Handler):
    """Hears of every event after its COMMIT: the worker logs it then, and not before."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "hookonce", {})
        if fields.get("state") == "processed":
            journal.write(f"committed {fields['event_id']} {time.time():.6f}\n")


def listen() -> None:
    log = logging.getLogger("hookonce.work")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(Commits())
    problems = logging.StreamHandler()
    problems.setLevel(logging.WARNING)
    log.addHandler(problems)


class WorkerThread:
    """The worker's loop in its thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    async def _run(self) -> None:
        await inbox.worker().run(self._stop, grace_seconds=1.0)

    async def start(self) -> None:
        listen()
        self._thread.start()

    async def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, 5.0)


_worker = WorkerThread()
_receiver = inbox.asgi()


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send, start=_worker.start, stop=_worker.stop)
    else:
        await _receiver(scope, receive, send)
