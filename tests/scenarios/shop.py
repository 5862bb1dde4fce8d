"""A shop that books what it hears of: the system under test, as real processes.

    python -m tests.scenarios.shop receiver|worker|both --database URL --port N

Every event moves money between two of 50 accounts (their sum never changes), writes one ledger row and adds one to a
total. Nothing in its tables forbids to book an event twice: if it ever happens, it is seen. Failpoints are armed from
HOOKONCE_FAILPOINTS; `--broken` takes one safeguard away, for the proof that the checker sees what follows.
"""

import argparse
import asyncio
import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from hookonce import Bounds, Event, Inbox, WorkerSettings
from hookonce.failpoints import arm_from_environment
from hookonce.providers import GitHub, Stripe
from hookonce.storage.migrate import migrate
from tests.scenarios import broken

STRIPE_SECRET = "whsec_the_till_of_the_shop"
GITHUB_SECRET = "the-ledger-of-the-shop"
ACCOUNTS = 50
OPENING_BALANCE = 1_000
POISON_ATTEMPTS = 2
SLEEPER_SECONDS = 60.0

TABLES = (
    "CREATE TABLE shop_account (id integer PRIMARY KEY, balance bigint NOT NULL)",
    "CREATE TABLE shop_total (id integer PRIMARY KEY, events bigint NOT NULL)",
    # No constraint on event_id: a doubled effect must be able to happen.
    "CREATE TABLE shop_ledger (event_id text, generation integer NOT NULL, attempt integer NOT NULL, pid integer)",
    "INSERT INTO shop_total (id, events) VALUES (1, 0)",
    f"INSERT INTO shop_account (id, balance) VALUES {', '.join(f'({n}, {OPENING_BALANCE})' for n in range(ACCOUNTS))}",
)


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def prepare(url: str) -> None:
    """Make the tables: the inbox's, and the shop's beside them."""

    async def make() -> None:
        inbox = Inbox(url)

        async def steps(backend: Any) -> None:
            await migrate(backend)
            await backend.script(";\n".join(TABLES))

        await inbox.with_backend(steps)

    asyncio.run(make())


# -- what the handlers do -------------------------------------------------------------------------------------------


def entries(event: Event, mark: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The statements that book one event, with the driver's placeholder."""
    move = event["move"]
    amounts = {move["from"]: -move["amount"], move["to"]: move["amount"]}
    for account in sorted(amounts):
        yield (
            f"UPDATE shop_account SET balance = balance + {mark} WHERE id = {mark}",
            (amounts[account], account),
        )
    yield (
        f"INSERT INTO shop_ledger (event_id, generation, attempt, pid) VALUES ({mark}, {mark}, {mark}, {mark})",
        (event.id, event.generation, event.attempt, os.getpid()),
    )
    yield "UPDATE shop_total SET events = events + 1", ()


def book(event: Event, conn: Any) -> None:
    for text, values in entries(event, "%s" if hasattr(conn, "pgconn") else "?"):
        conn.execute(text, values)


async def book_async(event: Event, conn: Any) -> None:
    for text, values in entries(event, "%s"):
        await conn.execute(text, values)


def fail_once(event: Event, conn: Any) -> None:
    book(event, conn)
    if event.attempt == 1:
        raise RuntimeError("the printer is out of paper")


def poison(event: Event, conn: Any) -> None:
    book(event, conn)
    raise ValueError("nothing can be done with this event")


def slow(event: Event, conn: Any) -> None:
    """Slow before it writes, so that it holds its own row and nobody's account. Slow once, if its event says so."""
    if event.attempt == 1 or not event.get("slow_once"):
        select.select([], [], [], event.get("seconds", 0.03))  # time.sleep() fails under libfaketime
    book(event, conn)


def kill(event: Event, conn: Any) -> None:
    """Take the process away, until somebody has repaired the handler."""
    book(event, conn)
    if os.environ.get("SHOP_KILLER") != "repaired":
        os.kill(os.getpid(), signal.SIGKILL)


def book_many(events: Sequence[Event], conn: Any) -> None:
    for event in events:
        book(event, conn)


def build(url: str, *, worker: WorkerSettings | None = None) -> Inbox:
    """The inbox with its sources and handlers."""
    inbox = Inbox(url, worker=worker, bounds=Bounds(address_rate=0.0, source_rate=0.0))
    stripe = inbox.source(Stripe(secret=STRIPE_SECRET))
    github = inbox.source(GitHub(secret=GITHUB_SECRET))
    stripe.on("invoice.paid", "charge.*")(book)
    stripe.on("checkout.session.completed", batch=8)(book_many)
    stripe.on("payout.created", backoff=0.05)(fail_once)
    stripe.on("payout.paid", timeout=SLEEPER_SECONDS)(slow)
    stripe.on("shop.poison", unknown_ok=True, attempts=POISON_ATTEMPTS, backoff=0.05)(poison)
    stripe.on("shop.killer", unknown_ok=True)(kill)
    github.on("push")(book)
    github.on("issues.opened", backoff=0.05)(fail_once)
    github.on("pull_request.opened")(book if is_sqlite(url) else book_async)
    return inbox


# -- the process ----------------------------------------------------------------------------------------------------


class Server(uvicorn.Server):
    """uvicorn as a library: it says when it listens, and leaves the signals to us."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._listening()


async def run(inbox: Inbox, role: str, port: int, grace: float) -> None:
    """Serve and work until SIGTERM, then end cleanly."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    parts: list[asyncio.Future[None]] = []
    server: Server | None = None
    if role in {"receiver", "both"}:
        listening = asyncio.Event()
        config = uvicorn.Config(
            inbox.asgi("/webhooks"),
            host="127.0.0.1",
            port=port,
            http="httptools",
            loop="none",
            lifespan="off",
            access_log=False,
            log_level="warning",
            timeout_graceful_shutdown=int(grace),
        )
        server = Server(config, listening.set)
        parts.append(asyncio.ensure_future(server.serve()))
        await listening.wait()
    if role in {"worker", "both"}:
        parts.append(asyncio.ensure_future(inbox.worker().run(stop, grace_seconds=grace)))
    print("ready", flush=True)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({stopping, *parts}, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    if server is not None:
        server.should_exit = True
    await asyncio.gather(*parts)
    await inbox.close()
    print(json.dumps({"handled": {f"{s} {o}": n for (s, o), n in inbox.counters.handled.items()}}), flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.scenarios.shop")
    parser.add_argument("role", choices=("receiver", "worker", "both"))
    parser.add_argument("--database", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--crashes-max", type=int, default=3)
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--broken", default="", choices=("", *broken.BUILDS))
    parser.add_argument("--standby", action="store_true", help="wait for a line on the standard input, then begin")
    options = parser.parse_args(arguments)
    if options.broken:
        broken.BUILDS[options.broken]()
    settings = WorkerSettings(
        concurrency=options.concurrency, lease_seconds=options.lease, crashes_max=options.crashes_max
    )
    inbox = build(options.database, worker=settings)
    if options.standby and not sys.stdin.readline():
        return
    arm_from_environment()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(inbox, options.role, options.port, options.grace))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(sys.argv[1:])
