"""What the tests of the core share: a database, an inbox on it, and a sender who signs."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from hookonce import Bounds, Inbox, Stored, WorkerSettings
from hookonce.clock import SetClock
from hookonce.flow.claim import claim_due
from hookonce.model import Claim
from hookonce.providers import Endpoint, GitHub, Hmac, StandardWebhooks, Stripe
from hookonce.storage.backend import Backend
from hookonce.storage.connect import backend_factory
from hookonce.storage.migrate import migrate
from hookonce.storage.sqlite import choose_module
from hookonce.worker.loop import Worker
from tests.servers.postgres import PostgresServer

SECRET = "whsec_" + "QUJD" * 8
OTHER_SECRET = "whsec_" + "REVG" * 8
PLAIN_SECRET = "a secret of the tests"
WAIT_SECONDS = 15.0

TABLES = """
CREATE TABLE effect (note text NOT NULL);
CREATE TABLE thing (id integer PRIMARY KEY, value integer NOT NULL);
INSERT INTO thing (id, value) VALUES (1, 0), (2, 0);
"""


async def until(condition: Callable[[], Any], *, seconds: float = WAIT_SECONDS, what: str = "") -> Any:
    """Wait for a condition, within a bound."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s: {what or condition}"
        await asyncio.sleep(0.005)
    return found


def acme(secret: Any = SECRET, **settings: Any) -> StandardWebhooks:
    """A source with a signed id."""
    return StandardWebhooks(secret, name="acme", **settings)


def bare(**settings: Any) -> Hmac:
    """A source that signs its id and takes any body, JSON or not."""
    given = {"name": "bare", "header": "X-Sig", "event_id": "header:X-Id", "signed": "{header:X-Id}.{body}"}
    return Hmac(PLAIN_SECRET, **{**given, **settings})


def github() -> GitHub:
    return GitHub(PLAIN_SECRET)


def stripe() -> Stripe:
    return Stripe("whsec_tests")


def signed(endpoint: Endpoint, body: bytes, event_id: str, now: float, *, secret: int = 0) -> list[tuple[bytes, bytes]]:
    """The headers with which a genuine sender would send this body."""
    headers = endpoint.provider.scheme.sign(body, endpoint.secrets[secret], now, event_id)
    if endpoint.provider.name == "github":
        headers = [*headers, (b"x-github-delivery", event_id.encode("latin-1")), (b"x-github-event", b"push")]
    return headers


def as_text(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in headers}


@dataclass
class Place:
    """A migrated database of one test's own."""

    dialect: str
    where: str
    inboxes: list[Inbox] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.where}" if self.dialect == "sqlite" else self.where

    def inbox(
        self,
        *endpoints: Endpoint,
        clock: SetClock | None = None,
        bounds: Bounds | None = None,
        worker: WorkerSettings | None = None,
    ) -> Inbox:
        inbox = Inbox(self.url, clock=clock, bounds=bounds, worker=worker)
        for endpoint in endpoints:
            inbox.source(endpoint)
        self.inboxes.append(inbox)
        return inbox

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run one statement on a connection apart from everything else."""
        if self.dialect == "postgres":
            with psycopg.connect(self.where, autocommit=True) as conn:
                cursor = conn.execute(text.encode())
                return cursor.fetchall() if cursor.description else []
        # The same library as the backend: two copies of SQLite in one process drop each other's file locks.
        conn = choose_module().connect(self.where, isolation_level=None, timeout=5)
        try:
            return conn.execute(text).fetchall()
        finally:
            conn.close()

    def count(self, table: str) -> int:
        return int(self.sql(f"SELECT count(*) FROM hookonce_{table}")[0][0])

    def effects(self) -> list[str]:
        return [note for (note,) in self.sql("SELECT note FROM effect ORDER BY note")]

    def states(self) -> list[str]:
        return [state for (state,) in self.sql("SELECT state FROM hookonce_receipt ORDER BY id")]

    def receipt(self, columns: str, event_id: str = "evt_1") -> tuple[Any, ...]:
        return self.sql(f"SELECT {columns} FROM hookonce_receipt WHERE event_id = '{event_id}'")[0]

    def verdicts(self) -> list[str]:
        return [verdict for (verdict,) in self.sql("SELECT verdict FROM hookonce_delivery ORDER BY id")]

    def bodies(self) -> list[bytes]:
        return [bytes(raw) for (raw,) in self.sql("SELECT raw FROM hookonce_body ORDER BY receipt_id")]

    async def close(self) -> None:
        for inbox in self.inboxes:
            await inbox.close()


def in_background(inbox: Inbox) -> None:
    """End what a WSGI door has opened: the acceptor of the background loop, and the loop."""
    loop = inbox._background
    if loop is not None:
        asyncio.run_coroutine_threadsafe(inbox.close(), loop).result(WAIT_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        while loop.is_running():
            time.sleep(0.001)
        loop.close()
        inbox._background = None


@dataclass
class Box:
    """An inbox with one source that signs its ids, a clock that stands still, and a sender."""

    place: Place
    clock: SetClock
    inbox: Inbox
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    backends: list[Backend] = field(default_factory=list)

    @property
    def source(self) -> Any:
        return self.inbox.registry.sources["acme"]

    @property
    def dialect(self) -> str:
        return self.place.dialect

    def headers(self, body: bytes, event_id: str, *, secret: int = 0) -> dict[str, str]:
        return as_text(signed(self.source.endpoint, body, event_id, self.clock.time(), secret=secret))

    async def send(self, event_id: str = "evt_1", type: str = "thing.happened", **data: Any) -> Stored:
        body = json.dumps({"type": type, "data": {"id": f"obj_{event_id}", **data}}).encode()
        return await self.inbox.accept("acme", body, self.headers(body, event_id))

    async def send_many(self, count: int, type: str = "thing.happened") -> list[str]:
        names = [f"evt_{next(self.numbers)}" for _ in range(count)]
        for name in names:  # one after the other: their receipts are in this order
            await self.send(name, type)
        return names

    def backend(self) -> Backend:
        """A backend of the test's own, closed at its end."""
        self.backends.append(self.inbox._factory())
        return self.backends[-1]

    def worker(self, *, backend: Any = None, **settings: Any) -> Worker:
        inbox = self.inbox
        return Worker(backend or self.backend(), inbox.registry, self.clock, inbox.counters, WorkerSettings(**settings))

    async def drain(self, **settings: Any) -> Worker:
        worker = self.worker(**settings)
        await asyncio.wait_for(worker.drain(), WAIT_SECONDS)
        return worker

    async def grouped(self, names: int = 32, **settings: Any) -> Worker:
        """Drain with a worker that takes every handler for quick, so that all that is due shares transactions."""
        worker = self.worker(concurrency=1, group=names, **settings)
        for handler in self.source.handlers:
            worker._pace[handler.name] = 0.0001
        await asyncio.wait_for(worker.drain(), WAIT_SECONDS)
        return worker

    async def claim(self, limit: int = 10, *, lease: float = 10.0) -> list[Claim]:
        """Take a turn and never come back, as a worker that dies does."""
        operation = claim_due(limit=limit, lease_seconds=lease, now=self.clock.override)
        return await self.backend().run(operation, single=True)

    async def close(self) -> None:
        for backend in self.backends:
            await backend.close()


def wrote(conn: Any, note: str) -> None:
    """What the handlers of the tests do."""
    conn.execute(f"INSERT INTO effect (note) VALUES ('{note}')")


def _migrated(backend: Backend) -> None:
    async def run() -> None:
        await migrate(backend)
        await backend.script(TABLES)
        await backend.close()

    # In a thread: the fixture that asks for it may be running on a loop already.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run()).result()


_templates: dict[Any, str] = {}
_templates_lock = threading.Lock()


def sqlite_place(folder: Path, template_folder: Path) -> Place:
    """A copy of a migrated file."""
    template = template_folder / "core_template.db"
    with _templates_lock:
        if template not in _templates:
            _migrated(backend_factory(f"sqlite:///{template}")())
            _templates[template] = str(template)
    shutil.copy(template, folder / "hookonce.db")
    return Place("sqlite", str(folder / "hookonce.db"))


def postgres_place(server: PostgresServer) -> tuple[Place, str]:
    """A copy of a migrated database, and its name."""
    server.start()
    with _templates_lock:
        if server not in _templates:
            name = server.create_database()
            _migrated(backend_factory(server.dsn(name))())
            _templates[server] = name
    name = server.create_database(template=_templates[server])
    return Place("postgres", server.dsn(name)), name


Headers = Mapping[str, str]
