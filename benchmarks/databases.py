"""The databases of a run: a private PostgreSQL server and SQLite files, with our tables and the comparison's."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from benchmarks import events
from hookonce.inbox import Inbox
from hookonce.providers import Stripe
from hookonce.storage.migrate import migrate
from hookonce.storage.sqlite import SqliteFile
from tests.servers.postgres import PostgresServer

Kind = Literal["postgres", "sqlite"]
KINDS: tuple[Kind, ...] = ("postgres", "sqlite")
TITLES: dict[Kind, str] = {"postgres": "PostgreSQL", "sqlite": "SQLite"}

# Durable as in production. The sizes keep checkpoints out of a measurement; all that is compared has the same ones.
SETTINGS = {
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "min_wal_size": "1GB",
    "checkpoint_timeout": "30min",
}

OUR_TABLES = ("hookonce_receipt", "hookonce_body", "hookonce_delivery", "hookonce_attempt")

# `effects` is the business table of every handler, `hand_receipt` the table of the hand-written comparison.
POSTGRES_TABLES = """
CREATE TABLE effects (event_id text NOT NULL, amount bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE hand_receipt (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, source text NOT NULL, event_id text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(), body bytea NOT NULL, status smallint NOT NULL DEFAULT 0,
    processed_at timestamptz, UNIQUE (source, event_id));
CREATE INDEX hand_receipt_pending ON hand_receipt (received_at, id) WHERE status = 0;
"""
SQLITE_TABLES = """
CREATE TABLE effects (event_id TEXT NOT NULL, amount INTEGER NOT NULL, at REAL NOT NULL DEFAULT (unixepoch('subsec')));
CREATE TABLE hand_receipt (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, event_id TEXT NOT NULL,
    received_at REAL NOT NULL DEFAULT (unixepoch('subsec')), body BLOB NOT NULL, status INTEGER NOT NULL DEFAULT 0,
    processed_at REAL, UNIQUE (source, event_id));
CREATE INDEX hand_receipt_pending ON hand_receipt (received_at, id) WHERE status = 0;
"""


class Database(ABC):
    """One database with both sets of tables."""

    kind: Kind
    url: str
    pids: Sequence[int] = ()

    @property
    def title(self) -> str:
        return TITLES[self.kind]

    @abstractmethod
    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement, committed, and return its rows."""

    @abstractmethod
    def tables(self) -> None:
        """Make the tables that are not hookonce's."""

    @abstractmethod
    def settle(self) -> None:
        """Leave nothing to be cleaned up or written back while the next measurement runs."""

    @abstractmethod
    def drop(self) -> None: ...

    def number(self, statement: str) -> int:
        return int(self.query(statement)[0][0] or 0)

    def setup(self) -> None:
        async def apply() -> None:
            await Inbox(self.url).with_backend(migrate)

        asyncio.run(apply())
        self.tables()


class Postgres(Database):
    """A database of the private server."""

    kind: Kind = "postgres"

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.dsn(name)
        self.pids = (server.pid,)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, dbname=self.name)

    def tables(self) -> None:
        self.query(POSTGRES_TABLES)

    def empty(self) -> None:
        self.query(f"TRUNCATE effects, hand_receipt, {', '.join(OUR_TABLES)} RESTART IDENTITY")
        self.query("CHECKPOINT")

    def settle(self) -> None:
        self.query("VACUUM (ANALYZE)")
        self.query("CHECKPOINT")

    def drop(self) -> None:
        self.server.drop_database(self.name)


class Sqlite(Database):
    """A SQLite file."""

    kind: Kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """Same library and same settings as hookonce's own connections."""
        conn = SqliteFile(self.path).open()
        try:
            yield conn
        finally:
            conn.close()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connection() as conn:
            return list(conn.execute(statement).fetchall())

    def tables(self) -> None:
        with self.connection() as conn:
            conn.executescript(SQLITE_TABLES)

    def settle(self) -> None:
        with self.connection() as conn:
            conn.execute("ANALYZE")
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def drop(self) -> None:
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink()


class Lab:
    """A folder, and a PostgreSQL server once it is asked for; everything is gone at the end."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hookonce-bench-", dir="/var/tmp"))
        self._server: PostgresServer | None = None
        self._names = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def server(self) -> PostgresServer:
        if self._server is None:
            self._server = PostgresServer(fsync=True, settings=SETTINGS)
            self._server.start()
        return self._server

    def postgres_version(self) -> str | None:
        """The version and the settings that matter; None if there was no need for a server."""
        if self._server is None:
            return None
        shown = {
            name: self._server.execute(f"SHOW {name}")[0][0]
            for name in ("server_version", "fsync", "full_page_writes", *SETTINGS)
        }
        return ", ".join([shown.pop("server_version"), *(f"{name} = {value}" for name, value in shown.items())])

    def new(self, kind: Kind) -> Database:
        """A fresh database with all tables, empty."""
        name = f"bench_{next(self._names)}"
        database = (
            Postgres(self.server, self.server.create_database(name))
            if kind == "postgres"
            else Sqlite(self.folder / f"{name}.db")
        )
        database.setup()
        return database

    def copy(self, original: Database) -> Database:
        """A second database with the same content, byte for byte; nobody may be connected to the first."""
        name = f"bench_{next(self._names)}"
        if isinstance(original, Postgres):
            self.server.create_database(name, template=original.name)
            copied: Database = Postgres(self.server, name)
        else:
            assert isinstance(original, Sqlite)
            with original.connection() as conn:
                conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            copied = Sqlite(self.folder / f"{name}.db")
            shutil.copyfile(original.path, copied.path)
        return copied


def load_backlog(database: Database, count: int, prefix: str) -> None:
    """Let the inbox accept so many events: through its own door, several hundred to a commit."""

    async def fill() -> None:
        inbox = Inbox(database.url)
        inbox.source(Stripe(events.SECRET))
        for start in range(0, count, 500):
            bodies = [events.body(events.event_id(prefix, n)) for n in range(start, min(start + 500, count))]
            await asyncio.gather(*(inbox.accept("stripe", body, events.headers(body)) for body in bodies))
        await inbox.close()

    asyncio.run(fill())


def copy_backlog_to_hand(database: Database) -> None:
    """Give the hand-written comparison the same events."""
    database.query(
        "INSERT INTO hand_receipt (source, event_id, body)"
        " SELECT r.source, r.event_id, b.raw FROM hookonce_receipt AS r JOIN hookonce_body AS b ON b.receipt_id = r.id"
        " ORDER BY r.id"
    )
