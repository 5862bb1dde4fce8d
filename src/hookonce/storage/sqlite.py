"""SQLite: one file, one writer at a time, accepts before everything else.

Durable settings are applied to every connection and read back. Across processes the writer's turn is a lock on
`<file>.lock`; below the SQLite versions that are free of the WAL-reset bug this lock is what keeps the file whole,
because it also covers every checkpoint (guarded mode).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from hookonce.errors import (
    ConfigurationError,
    DiskFailure,
    HandlerMisuse,
    HandlerTimeout,
    RowRefused,
    SchemaError,
    StorageError,
    Unavailable,
)
from hookonce.storage.backend import Hands
from hookonce.storage.operation import Operation, Rows, Statement, Step
from hookonce.storage.statements import Dialect, load

T = TypeVar("T")
log = logging.getLogger("hookonce.storage")

BUSY_SECONDS = 5.0
WAL_BYTES_CHECKPOINT = 4 << 20
WAL_BYTES_WARNED = 256 << 20
BALLAST_BYTES = 1 << 20
NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "virtiofs", "fuse", "afs", "ceph", "glusterfs", "lustre")

# Our own transaction words carry a mark, so that a statement cached for us is never found by a handler's COMMIT.
BEGIN = "BEGIN IMMEDIATE /* hookonce */"
BEGIN_READ = "BEGIN /* hookonce */"
COMMIT = "COMMIT /* hookonce */"
ROLLBACK = "ROLLBACK /* hookonce */"

Connection = Any
"""A connection of `sqlite3` or of a drop-in for it; which one is known at run time only."""


def choose_module(name: str | None = None) -> Any:
    """The SQLite library of this process: the newer `pysqlite3` where it is installed, else the standard one."""
    for candidate in (name,) if name else ("pysqlite3", "sqlite3"):
        try:
            return importlib.import_module(f"{candidate}.dbapi2")
        except ImportError:
            continue
    raise ConfigurationError(f"there is no SQLite library named {name}")


def free_of_wal_reset(version: tuple[int, ...]) -> bool:
    """Whether this SQLite has the fix for the WAL-reset bug (in 3.51.3, and in 3.50.7 and 3.44.6 of the older lines)."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0)


def file_system_of(path: Path, mounts: str | None = None) -> str:
    """The type of the file system under `path`, as the kernel's mount table has it; empty where there is none."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        inside = str(path) == point or str(path).startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def refuse_network_file_system(path: Path, *, allowed: bool = False, mounts: str | None = None) -> None:
    """WAL needs memory shared between processes and locks that hold: no network file system has both."""
    kind = file_system_of(path, mounts)
    if not allowed and kind.startswith(NETWORK_FILE_SYSTEMS):
        raise ConfigurationError(
            f"{path} lies on a {kind} file system, where SQLite can lose what was committed",
            code="HO118",
            do="put the file on a local disk, or use PostgreSQL; to override: ?network_file_system=allowed",
        )


class WriterTurn:
    """Who may write next. In this process urgent ones go first; among processes a file lock decides."""

    _known: ClassVar[weakref.WeakValueDictionary[str, WriterTurn]] = weakref.WeakValueDictionary()
    _known_lock = threading.Lock()

    @classmethod
    def of(cls, path: Path) -> WriterTurn:
        """The turn of a file; everybody in this process who writes to it gets the same one."""
        with cls._known_lock:
            name = f"{os.getpid()}:{path}"
            turn = cls._known.get(name)
            if turn is None:
                turn = cls._known[name] = cls(path)
            return turn

    def __init__(self, path: Path) -> None:
        self._condition = threading.Condition()
        self._held = False
        self._urgent = 0
        self._path = path
        self._opened: int | None = None

    @contextlib.contextmanager
    def __call__(self, *, urgent: bool = False, within: float = BUSY_SECONDS) -> Iterator[None]:
        self.acquire(urgent=urgent, within=within)
        try:
            yield
        finally:
            self.release()

    def acquire(self, *, urgent: bool = False, within: float = BUSY_SECONDS) -> None:
        deadline = time.monotonic() + within
        with self._condition:
            self._urgent += urgent
            try:
                free = self._condition.wait_for(lambda: not self._held and (urgent or not self._urgent), within)
            finally:
                self._urgent -= urgent
            if not free:
                self._condition.notify_all()
                raise Unavailable(f"another writer of this process held the database for {within:g} s")
            self._held = True
        try:
            self._lock_file(deadline)
        except BaseException:
            self._let_go()
            raise

    @property
    def _file(self) -> int:
        """Opened by the first who writes: a command that only looks leaves no file behind."""
        if self._opened is None:
            self._opened = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            weakref.finalize(self, os.close, self._opened)
        return self._opened

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._let_go()

    def _let_go(self) -> None:
        with self._condition:
            self._held = False
            self._condition.notify_all()

    def _lock_file(self, deadline: float) -> None:
        pause = 0.0005
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable("another process held the database for too long") from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.01)


class SqliteFile:
    """One database file as this process sees it: how to open it, whose turn it is, what to do when the disk is full."""

    def __init__(self, path: Path, *, module: Any = None, connect: Callable[[], Connection] | None = None) -> None:
        self.path = path
        self.module = module or choose_module()
        self._connect = connect
        self._turn = (os.getpid(), WriterTurn.of(path))
        self.guarded = not free_of_wal_reset(self.module.sqlite_version_info)
        self.blocks = load("sqlite", "named")
        self._ballast = Path(f"{path}.ballast")
        self._was_full = False
        self._wal_warned = False

    @property
    def turn(self) -> WriterTurn:
        """Of this process: after a fork the parent's lock would be shared, and keep nobody out."""
        process = os.getpid()
        if self._turn[0] != process:
            self._turn = (process, WriterTurn.of(self.path))
        return self._turn[1]

    def open(self, within: float = BUSY_SECONDS, *, factory: Any = None) -> Connection:
        """A connection in production settings, read back: a setting that did not take is an error."""
        with self.turn(within=within):
            self._make_private()
            conn = (
                self._connect()
                if self._connect
                else self.module.connect(
                    str(self.path),
                    timeout=BUSY_SECONDS,
                    isolation_level=None,
                    check_same_thread=False,
                    factory=factory or self.module.Connection,
                )
            )
            try:
                conn.isolation_level = None
                self._settle_pragmas(conn)
            except BaseException:
                conn.close()
                raise
            self._keep_ballast()
        return conn

    def _make_private(self) -> None:
        """A new file is for its owner only: it will hold what senders say about people. The log beside it follows."""
        if self._connect is None:
            with contextlib.suppress(OSError):
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def _settle_pragmas(self, conn: Connection) -> None:
        wanted = {"journal_mode": "wal", "synchronous": 2, "journal_size_limit": 64 << 20}
        wanted["wal_autocheckpoint"] = 0 if self.guarded else 1000
        for name, value in wanted.items():
            conn.execute(f"PRAGMA {name} = {value}")
            seen = conn.execute(f"PRAGMA {name}").fetchone()[0]
            if seen != value:
                raise ConfigurationError(
                    f"{self.path}: SQLite answered {name} = {seen}, not {value}",
                    code="HO118",
                    do="put the file on a local disk that supports shared memory",
                )

    def checkpoint_if_large(self, conn: Connection) -> None:
        """In guarded mode checkpoints are ours, inside the turn. In any mode it is told what keeps the log from ending."""
        with contextlib.suppress(OSError):
            size = Path(f"{self.path}-wal").stat().st_size
            if self.guarded and size > WAL_BYTES_CHECKPOINT:
                self._checkpoint(conn)
            if size > WAL_BYTES_WARNED and not self._wal_warned:
                log.warning(
                    "%s-wal has %d MB: somebody reads for so long that it cannot be emptied", self.path.name, size >> 20
                )
            self._wal_warned = size > WAL_BYTES_WARNED

    def _checkpoint(self, conn: Connection) -> None:
        """As far as readers let it, without waiting for them: whoever waits here keeps every other writer waiting."""
        with contextlib.suppress(self.module.OperationalError):
            patience = conn.execute("PRAGMA busy_timeout").fetchone()[0]
            conn.execute("PRAGMA busy_timeout = 0")
            try:
                conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                conn.execute(f"PRAGMA busy_timeout = {patience}")

    def make_room(self, conn: Connection) -> None:
        """After the disk was full: what the write-ahead log holds goes where it belongs, and the log's space is free."""
        if self._was_full:
            self._was_full = False
            self._checkpoint(conn)

    def _keep_ballast(self) -> None:
        """A little space held back, to be let go when the disk is full: without any, not even DELETE works."""
        with contextlib.suppress(OSError):
            if not self._ballast.exists():
                space = os.statvfs(self.path.parent)
                if space.f_bavail * space.f_frsize > 8 * BALLAST_BYTES:
                    self._ballast.write_bytes(bytes(BALLAST_BYTES))

    def drop_ballast(self) -> None:
        with contextlib.suppress(OSError):
            self._ballast.unlink()
            log.error("the disk is full: %s let go; free some space", self._ballast.name)

    def translate(self, error: BaseException, *, ours: bool = True) -> BaseException:
        """A driver's error as one of ours. `ours`: the statement was ours, so a refused row is a refused row."""
        module = self.module
        if not isinstance(error, (module.Error, module.Warning)):
            return error
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        text = str(error)
        if code in (module.SQLITE_BUSY, module.SQLITE_LOCKED):
            return Unavailable(f"the database is busy: {text}")
        if code == module.SQLITE_FULL:
            self._was_full = True
            self.drop_ballast()
            return Unavailable("the disk is full", do="free some space; nothing that was acknowledged is lost")
        if code == module.SQLITE_IOERR:
            return DiskFailure(f"the disk failed under {self.path}: {text}")
        if code in (module.SQLITE_READONLY, module.SQLITE_CANTOPEN, module.SQLITE_PERM):
            return Unavailable(f"{self.path} cannot be written: {text}")
        if code in (module.SQLITE_CORRUPT, module.SQLITE_NOTADB):
            return StorageError(f"{self.path} is damaged: {text}", do="stop; restore the last backup")
        if "no such table: hookonce_" in text:
            return SchemaError(f"{self.path}: {text}", do="hookonce migrate")
        if code == module.SQLITE_INTERRUPT:
            return HandlerTimeout("the handler ran longer than its time limit; its statement was interrupted")
        if code == module.SQLITE_AUTH:
            return HandlerMisuse(
                "the handler tried to end the transaction that it was given, or to attach another file",
                do="leave the transaction alone: it is committed for you, together with the mark",
            )
        return RowRefused(f"SQLite refused it: {text}") if ours else error

    def execute(self, conn: Connection, step: Step) -> Rows:
        block = self.blocks[step.name]
        if isinstance(step, Statement):
            rows: Rows = conn.execute(block.text, step.values).fetchall()
            return rows
        found: list[Any] = []
        names = [name for name, _ in block.columns]
        for row in step.rows:
            found += conn.execute(block.text, {**step.values, **dict(zip(names, row, strict=True))}).fetchall()
        return found


class SqliteBackend:
    """The Backend of a SQLite file. Blocking calls run in two threads: one that only accepts, one for the rest."""

    dialect: Dialect = "sqlite"
    bodies_apart = True
    groups_max = 1
    handler_seconds = 2.0
    lanes_max = 1

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.where = f"SQLite {file.path}"
        self.hands = Hands(frozenset({"conn"}), frozenset({"sync"}), "a SQLite connection blocks")
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._connections: dict[str, Connection] = {}
        self._pid = os.getpid()

    async def run(
        self, operation: Operation[T], *, within: float | None = None, urgent: bool = False, single: bool = False
    ) -> T:
        call = partial(self._transaction, operation, "accept" if urgent else "work", within or BUSY_SECONDS)
        return await self._in_thread("accept" if urgent else "work", call)

    async def read(self, operation: Operation[T]) -> T:
        return await self._in_thread("read", partial(self._reading, operation))

    async def script(self, text: str) -> None:
        await self._in_thread("work", partial(self._script, text))

    async def _in_thread(self, name: str, call: Callable[[], T]) -> T:
        if os.getpid() != self._pid:  # after a fork: what the parent opened is the parent's
            self._pid, self._threads, self._connections = os.getpid(), {}, {}
        if name not in self._threads:
            self._threads[name] = ThreadPoolExecutor(1, thread_name_prefix=f"hookonce-sqlite-{name}")
        return await asyncio.get_running_loop().run_in_executor(self._threads[name], call)

    def _connection(self, name: str, within: float = BUSY_SECONDS) -> Connection:
        if name not in self._connections:
            self._connections[name] = self.file.open(within)
        return self._connections[name]

    def _transaction(self, operation: Operation[T], name: str, within: float) -> T:
        file = self.file
        try:
            conn = self._connection(name, within)
            with file.turn(urgent=name == "accept", within=within):
                file.make_room(conn)
                conn.execute(BEGIN)
                try:
                    result = drive(operation, partial(file.execute, conn))
                    conn.execute(COMMIT)
                except BaseException:
                    self._abandon(name)
                    raise
                file.checkpoint_if_large(conn)
            return result
        except Exception as error:
            _raise_translated(file.translate(error), error)

    def _reading(self, operation: Operation[T]) -> T:
        file = self.file
        try:
            conn = self._connection("read")
            conn.execute(BEGIN_READ)
            try:
                return drive(operation, partial(file.execute, conn))
            finally:
                conn.execute(ROLLBACK)
        except Exception as error:
            _raise_translated(file.translate(error), error)

    def _script(self, text: str) -> None:
        file = self.file
        try:
            conn = self._connection("work")
            with file.turn():
                conn.executescript(f"{BEGIN};\n{text}\n;{COMMIT};")
        except Exception as error:
            self._abandon("work")
            _raise_translated(file.translate(error), error)

    def _abandon(self, name: str) -> None:
        """After any doubt the connection is closed, never used again."""
        conn = self._connections.pop(name, None)
        if conn is not None:
            with contextlib.suppress(Exception):
                conn.close()

    def lane(self) -> Any:
        from hookonce.storage.sqlitelane import SqliteLane

        return SqliteLane(self.file)

    async def async_lane(self) -> Any:
        raise ConfigurationError("a SQLite connection blocks: write the handler as def", code="HO109")

    async def facts(self) -> Mapping[str, str]:
        module = self.file.module
        mode = "guarded (older than the fix for the WAL-reset bug)" if self.file.guarded else "normal"
        library = f"{module.__name__} {module.sqlite_version}"
        integrity = await self._in_thread("read", self._quick_check)
        return {"database": self.where, "library": library, "mode": mode, "integrity": integrity}

    def _quick_check(self) -> str:
        """What SQLite itself says about the file: the question to ask after a disk has failed."""
        try:
            return str(self._connection("read").execute("PRAGMA quick_check(1)").fetchone()[0])
        except Exception as error:
            _raise_translated(self.file.translate(error), error)

    async def close(self) -> None:
        for name, thread in list(self._threads.items()):
            await asyncio.get_running_loop().run_in_executor(thread, self._abandon, name)
            thread.shutdown(wait=True)
        self._threads.clear()


def drive(operation: Operation[T], execute: Callable[[Step], Rows]) -> T:
    """Walk through an operation on a blocking connection."""
    try:
        step = next(operation)
        while True:
            step = operation.send(execute(step))
    except StopIteration as end:
        result: T = end.value
        return result


def _raise_translated(translated: BaseException, error: Exception) -> NoReturn:
    if translated is error:
        raise error
    raise translated from error
