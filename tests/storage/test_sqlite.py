"""What only SQLite can do to us: settings that do not take, one writer, full disks, killed writers, wrong file systems."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookonce.clock import SystemClock
from hookonce.errors import ConfigurationError, StorageError, Unavailable
from hookonce.flow.accept import Acceptor
from hookonce.model import Verdict
from hookonce.storage.connect import backend_factory
from hookonce.storage.migrate import migrate
from hookonce.storage.operation import Operation, Rows, Statement
from hookonce.storage.sqlite import (
    BEGIN,
    COMMIT,
    WAL_BYTES_CHECKPOINT,
    SqliteBackend,
    SqliteFile,
    WriterTurn,
    choose_module,
    file_system_of,
    free_of_wal_reset,
    refuse_network_file_system,
)
from hookonce.storage.statements import load
from tests.storage.world import WAIT_SECONDS, arrival, in_thread

REPOSITORY = Path(__file__).parents[2]
LIBRARIES = ("sqlite3", "pysqlite3")


@pytest.mark.parametrize("library", LIBRARIES)
def test_settings_are_read_back(fresh_sqlite: Path, library: str) -> None:
    """WAL and FULL on every connection, and checkpoints are ours where the library has the WAL-reset bug."""
    file = SqliteFile(fresh_sqlite, module=choose_module(library))
    conn = file.open()
    seen = {
        name: conn.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "wal_autocheckpoint")
    }
    conn.close()
    assert seen == {"journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0 if file.guarded else 1000}
    assert file.guarded == (not free_of_wal_reset(file.module.sqlite_version_info))


def test_a_setting_that_does_not_take_is_an_error(fresh_sqlite: Path) -> None:
    """A library that answers otherwise than asked is not written with."""
    module = choose_module("sqlite3")

    class Stubborn(module.Connection):  # type: ignore[misc,name-defined]
        """Keeps synchronous at NORMAL, as some builds and wrappers do."""

        def execute(self, text: str, *rest: Any) -> Any:
            return super().execute(text.replace("synchronous = 2", "synchronous = 1"), *rest)

    file = SqliteFile(fresh_sqlite, module=module, connect=lambda: module.connect(fresh_sqlite, factory=Stubborn))
    with pytest.raises(ConfigurationError, match="synchronous"):
        file.open()


@pytest.mark.parametrize(
    ("version", "fixed"),
    [
        ((3, 7, 0), False), ((3, 40, 1), False), ((3, 44, 5), False), ((3, 44, 6), True), ((3, 44, 9), True),
        ((3, 45, 0), False), ((3, 50, 6), False), ((3, 50, 7), True), ((3, 51, 0), False), ((3, 51, 2), False),
        ((3, 51, 3), True), ((3, 52, 0), True), ((3, 53, 4), True), ((4, 0, 0), True),
    ],
)  # fmt: skip
def test_which_versions_are_free_of_the_wal_reset_bug(version: tuple[int, ...], fixed: bool) -> None:
    """Fixed in 3.51.3, and in 3.50.7 and 3.44.6 of the older lines (F49)."""
    assert free_of_wal_reset(version) is fixed


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /srv/data rw,relatime - nfs4 server:/export rw
31 22 0:41 / /srv/data/local rw,relatime - xfs /dev/sdb1 rw
32 22 0:42 / /mnt/with\\040blank rw - fuse.sshfs host: rw
33 22 0:43 / /srv/share rw - cifs //host/share rw
34 22 0:44 / /srv/vm rw - virtiofs tag rw
35 22 0:45 / /srv/nine rw - 9p tag rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "refused"),
    [
        ("/var/lib/app", "ext4", False), ("/srv/data", "nfs4", True), ("/srv/data/deep/er", "nfs4", True),
        ("/srv/data/local/x", "xfs", False), ("/srv/database", "ext4", False), ("/mnt/with blank/x", "fuse.sshfs", True),
        ("/srv/share/x", "cifs", True), ("/srv/vm", "virtiofs", True), ("/srv/nine", "9p", True),
    ],
)  # fmt: skip
def test_network_file_systems_are_refused(path: str, kind: str, refused: bool) -> None:
    """By the mount table; the mount that is nearest decides (F54)."""
    assert file_system_of(Path(path), MOUNTS) == kind
    if refused:
        with pytest.raises(ConfigurationError) as caught:
            refuse_network_file_system(Path(path), mounts=MOUNTS)
        assert caught.value.code == "HO118"
    refuse_network_file_system(Path(path), mounts=MOUNTS, allowed=True)


async def test_another_library_does_not_open_the_inboxs_file(fresh_sqlite: Path, tmp_path: Path) -> None:
    """With pysqlite3 at work sqlite3 is refused on this file by any name of it, on no other, and not for ever (F57)."""
    (tmp_path / "link.db").symlink_to(fresh_sqlite)
    factory = backend_factory(f"sqlite:///{fresh_sqlite}")
    names = (str(fresh_sqlite), fresh_sqlite, bytes(fresh_sqlite), f"file:{fresh_sqlite}?mode=ro", tmp_path / "link.db")
    for name in (*names, os.path.relpath(fresh_sqlite)):
        with pytest.raises(ConfigurationError, match="HO130"):
            sqlite3.connect(name, uri=True)
    acceptor = Acceptor(factory(), SystemClock())
    assert (await acceptor.submit(arrival(1))).verdict is Verdict.ACCEPTED
    await acceptor.close()
    sqlite3.connect(tmp_path / "other.db").close()
    sqlite3.connect(":memory:").close()
    del factory, acceptor
    gc.collect()
    with contextlib.closing(sqlite3.connect(fresh_sqlite)) as conn:
        assert conn.execute("SELECT count(*) FROM hookonce_receipt").fetchall() == [(1,)]


SHARED = """
import asyncio, os, signal, sqlite3, sys
from hookonce.clock import SystemClock
from hookonce.errors import ConfigurationError
from hookonce.flow.accept import Acceptor
from hookonce.storage.connect import backend_factory
from tests.storage.world import arrival

def look():
    try:
        conn = sqlite3.connect(sys.argv[1])
        conn.execute("SELECT count(*) FROM hookonce_receipt").fetchall()
        conn.close()
    except ConfigurationError:
        pass

async def main():
    own = lambda: sqlite3.connect(sys.argv[1], check_same_thread=False)
    factory = backend_factory(own if sys.argv[2] == "own" else f"sqlite:///{sys.argv[1]}")
    acceptor = Acceptor(factory(), SystemClock())
    for number in range(20):
        print((await acceptor.submit(arrival(number))).verdict.value, flush=True)
        look()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("connections", ["url", "own"])
def test_an_application_that_looks_loses_nothing(fresh_sqlite: Path, connections: str) -> None:
    """The application opens the file beside a working inbox, and is killed: whatever was acknowledged is there."""
    command = [sys.executable, "-c", SHARED, str(fresh_sqlite), connections]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["accepted"] * 20, done.stderr
    with contextlib.closing(sqlite3.connect(fresh_sqlite)) as conn:
        assert conn.execute("SELECT count(*) FROM hookonce_receipt").fetchall() == [(20,)]


def test_a_database_in_memory_is_refused() -> None:
    """It would forget what was accepted."""
    for given in ("sqlite:///:memory:", "sqlite://", lambda: choose_module("sqlite3").connect(":memory:")):
        with pytest.raises(ConfigurationError):
            backend_factory(given)


# -- the turn ---------------------------------------------------------------------------------------------------


def test_accepts_go_before_work(tmp_path: Path) -> None:
    """Whoever holds the turn, an accept that waits gets it before work that waited longer."""
    turn = WriterTurn.of(tmp_path / "x.db")
    order: list[str] = []
    turn.acquire()

    def want(name: str, urgent: bool) -> None:
        with turn(urgent=urgent):
            order.append(name)

    threads = [threading.Thread(target=want, args=(f"work{n}", False)) for n in range(3)]
    threads.append(threading.Thread(target=want, args=("accept", True)))
    for thread in threads:
        thread.start()
    while not turn._urgent or len(turn._condition._waiters) < 4:  # type: ignore[attr-defined]
        threading.Event().wait(0.001)
    turn.release()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert order[0] == "accept"
    assert len(order) == 4


def test_the_turn_is_kept_among_processes(tmp_path: Path) -> None:
    """Another process waits, gives up after its time, and gets the turn when it is free."""
    turn = WriterTurn.of(tmp_path / "x.db")
    text = (
        "import sys; from pathlib import Path; from hookonce.storage.sqlite import WriterTurn\n"
        "from hookonce.errors import Unavailable\n"
        "turn = WriterTurn.of(Path(sys.argv[1]))\n"
        "try: turn.acquire(within=0.1); print('got it')\n"
        "except Unavailable: print('waited')\n"
    )
    ask = [sys.executable, "-c", text, str(tmp_path / "x.db")]
    with turn():
        assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == "waited\n"
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == "got it\n"


def test_the_turn_is_not_inherited(tmp_path: Path) -> None:
    """A child that was forked while its parent held the turn has to wait for it like everybody else."""
    file = SqliteFile(tmp_path / "x.db", module=choose_module("sqlite3"))
    with file.turn():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                file.turn.acquire(within=0.1)
            except Unavailable:
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("library", LIBRARIES)
async def test_nobody_sees_busy(fresh_sqlite: Path, library: str) -> None:
    """Four backends write at once: each waits for its turn, none fails."""
    backends = [SqliteBackend(SqliteFile(fresh_sqlite, module=choose_module(library))) for _ in range(4)]
    acceptors = [Acceptor(backend, SystemClock()) for backend in backends]
    stored = await asyncio.gather(*[a.submit(arrival(100 * n + m)) for n, a in enumerate(acceptors) for m in range(50)])
    assert [one.verdict for one in stored] == [Verdict.ACCEPTED] * 200
    for backend in backends:
        await backend.close()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_step_that_only_reads_at_first_can_write(fresh_sqlite: Path, library: str) -> None:
    """It has the write lock from its beginning: nobody who knows nothing of our turns can write in between (F51)."""
    module = choose_module(library)
    backend = SqliteBackend(SqliteFile(fresh_sqlite, module=module))
    stranger = module.connect(fresh_sqlite, isolation_level=None, timeout=0, check_same_thread=False)

    def reads_then_writes() -> Operation[Rows]:
        yield Statement("receipt_standing", {"id": 1})
        with pytest.raises(module.OperationalError, match="locked"):
            stranger.execute("DELETE FROM hookonce_body")
        return (yield Statement("receipt_discard", {"id": 1, "from_state": "received"}))

    assert await backend.run(reads_then_writes()) == []
    stranger.execute("DELETE FROM hookonce_body")
    stranger.close()
    await backend.close()


def test_the_claim_reads_the_due_index(fresh_sqlite: Path) -> None:
    """With 20,000 processed receipts the claim searches the index of what is due, by time."""
    conn = SqliteFile(fresh_sqlite, module=choose_module("sqlite3")).open()
    conn.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000) INSERT INTO hookonce_receipt (key,"
        " source, body_digest, secret_id, correlation_id, address, received_at, state, due_at) SELECT randomblob(32), 's',"
        " x'', 'x', 'c', 'a', n, CASE WHEN n % 1000 THEN 'processed' ELSE 'received' END, n FROM n"
    )
    values = {"now": None, "limit": 10, "claim_id": "x", "lease_seconds": 10, "crashes_max": 3, "error": "x"}
    for analyzed in (False, True):
        if analyzed:
            conn.execute("ANALYZE")
        for name in ("receipt_claim", "receipt_claim_suspect"):
            plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {load('sqlite', 'named')[name].text}", values)]
            assert any(
                "USING INDEX hookonce_receipt_due" in line or "USING COVERING INDEX hookonce_receipt_due" in line
                for line in plan
            ), plan
            assert not any(line.startswith("SCAN hookonce_receipt") and "INDEX" not in line for line in plan), plan
    conn.close()


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_long_reader_makes_no_writer_wait(fresh_sqlite: Path, library: str) -> None:
    """Somebody reads for ever while the log grows beyond its bound: nobody waits for him, and afterwards it is emptied."""
    module = choose_module(library)
    file = SqliteFile(fresh_sqlite, module=module)
    file.guarded = True  # where checkpoints are ours
    reader = module.connect(fresh_sqlite, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM hookonce_receipt").fetchall()

    def write() -> int:
        conn = file.open()
        conn.execute(f"PRAGMA busy_timeout = {1000 * 10 * int(WAIT_SECONDS)}")  # one wait for the reader is too long
        for _ in range(6):
            with file.turn():
                conn.execute(BEGIN)
                conn.execute("INSERT INTO hookonce_body VALUES (abs(random()), zeroblob(1000000), x'')")
                conn.execute(COMMIT)
                file.checkpoint_if_large(conn)
        before = log.stat().st_size
        reader.execute("COMMIT")
        with file.turn():
            file.checkpoint_if_large(conn)
        assert conn.execute("PRAGMA busy_timeout").fetchone() == (1000 * 10 * int(WAIT_SECONDS),)
        conn.close()
        return before

    log = Path(f"{fresh_sqlite}-wal")
    keeper = module.connect(fresh_sqlite)  # the log stays when the writer leaves
    keeper.execute("SELECT count(*) FROM hookonce_receipt").fetchall()
    assert await in_thread(write) > WAL_BYTES_CHECKPOINT
    assert log.stat().st_size == 0
    keeper.close()
    reader.close()


def test_a_log_that_is_never_emptied_is_told(
    fresh_sqlite: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is large, once, and again when it was small in between (F53)."""
    monkeypatch.setattr("hookonce.storage.sqlite.WAL_BYTES_WARNED", 4096)
    file = SqliteFile(fresh_sqlite, module=choose_module("sqlite3"))
    file.guarded = False
    conn = file.open()

    def write() -> None:
        conn.execute("INSERT INTO hookonce_body VALUES (abs(random()), zeroblob(10000), x'')")
        file.checkpoint_if_large(conn)

    write()
    write()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [f"{fresh_sqlite.name}-wal has 0 MB"]
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    file.checkpoint_if_large(conn)
    write()
    assert len(caplog.records) == 2
    conn.close()


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """It holds what senders say about people: whatever the umask, neither the group nor others can read it."""
    old = os.umask(0)
    try:
        file = SqliteFile(tmp_path / "x.db", module=choose_module("sqlite3"))
        conn = file.open()
        conn.execute("CREATE TABLE t (a)")
        modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir() if path.suffix != ".ballast"}
        conn.close()
    finally:
        os.umask(old)
    assert modes == {"x.db": 0, "x.db-wal": 0, "x.db-shm": 0, "x.db.lock": 0}


async def test_damage_is_found_by_asking(fresh_sqlite: Path) -> None:
    """After a disk has failed `hookonce check` asks SQLite about the whole file, not only about what it happens to read."""
    module = choose_module("sqlite3")
    conn = module.connect(fresh_sqlite, isolation_level=None)
    conn.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 200)"
        " INSERT INTO hookonce_body SELECT n, zeroblob(3000), x'' FROM n"
    )
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    conn.close()
    backend = SqliteBackend(SqliteFile(fresh_sqlite, module=module))
    assert (await backend.facts())["integrity"] == "ok"
    await backend.close()
    size = fresh_sqlite.stat().st_size
    with fresh_sqlite.open("r+b") as raw:  # nobody has it open: no lock is lost
        raw.seek(size - 4096 * 20)
        raw.write(b"\xff" * 4096)
    backend = SqliteBackend(SqliteFile(fresh_sqlite, module=module))
    assert (await backend.facts())["integrity"] != "ok"
    await backend.close()


# -- disks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "hookonce-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk needs the right to mount: {mounted.stderr.strip()}")
    yield folder
    # Lazily: after a failure connections to files on it may still be open.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_full_disk_is_an_outage_and_nothing_more(small_disk: Path, library: str) -> None:
    """Twenty times: fill the disk, be told so, make room, go on. Whatever was acknowledged is there."""
    path = small_disk / "x.db"
    filler = small_disk / "filler"
    module = choose_module(library)
    backend = SqliteBackend(SqliteFile(path, module=module))
    await migrate(backend)
    acceptor = Acceptor(backend, SystemClock())
    number = 0
    for _ in range(20):
        acknowledged: list[int] = []
        _fill(filler)
        with pytest.raises(StorageError, match="full"):
            await _accept_until_refused(acceptor, number, acknowledged)
        number += len(acknowledged) + 1
        filler.unlink()
        number += 1
        acknowledged.append((await acceptor.submit(arrival(number))).receipt_id)
        conn = module.connect(path, isolation_level=None)
        there = {receipt_id for (receipt_id,) in conn.execute("SELECT receipt_id FROM hookonce_body")}
        with backend.file.turn():
            conn.execute("DELETE FROM hookonce_receipt")  # as retention does: the next round begins with the same room
            conn.execute("DELETE FROM hookonce_body")
        conn.close()
        assert set(acknowledged) <= there
    await acceptor.close()
    conn = module.connect(path)
    assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    conn.close()


async def _accept_until_refused(acceptor: Acceptor, after: int, acknowledged: list[int]) -> None:
    for number in range(after + 1, after + 1_000):
        acknowledged.append((await acceptor.submit(arrival(number, body=b"x" * 3000))).receipt_id)


def _fill(filler: Path) -> None:
    """Take all the room but a little."""
    with filler.open("wb", buffering=0) as out:
        with contextlib.suppress(OSError):
            while True:
                out.write(bytes(4096))
        out.truncate(max(0, out.tell() - 40_000))


WRITER = """
import asyncio, sys
from pathlib import Path
from hookonce.clock import SystemClock
from hookonce.flow.accept import Acceptor
from hookonce.storage.sqlite import SqliteBackend, SqliteFile, choose_module
from tests.storage.world import arrival

async def main():
    file = SqliteFile(Path(sys.argv[1]), module=choose_module("sqlite3"))
    assert file.guarded
    acceptor = Acceptor(SqliteBackend(file), SystemClock())
    first = int(sys.argv[2]) * 1_000_000
    for group in range(10_000):
        numbers = range(first + group * 20, first + group * 20 + 20)
        await asyncio.gather(*[acceptor.submit(arrival(number, body=b"x" * 2000)) for number in numbers])
        print(*numbers, flush=True)

asyncio.run(main())
"""


def test_acknowledged_rows_survive_killed_writers(fresh_sqlite: Path) -> None:
    """Four processes write in guarded mode and are killed one after another: what they acknowledged is there."""
    module = choose_module("sqlite3")
    if not SqliteFile(fresh_sqlite, module=module).guarded:
        module = None  # a fixed library has no guarded mode; the rest of the promise is the same
    text = WRITER if module else WRITER.replace("    assert file.guarded\n", "")
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", text, str(fresh_sqlite), str(number)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(4)
    ]
    acknowledged: list[int] = []
    try:
        for child in children:  # each is killed in the middle of its writing, while the others go on
            assert child.stdout is not None
            for _ in range(25):
                acknowledged += [int(word) for word in child.stdout.readline().split()]
            child.kill()
            acknowledged += [
                int(w)
                for line in child.stdout.read().splitlines(keepends=True)
                if line.endswith("\n")
                for w in line.split()
            ]
    finally:
        for child in children:
            child.kill()
            child.wait(WAIT_SECONDS)
            assert child.stdout is not None
            child.stdout.close()
    conn = choose_module("sqlite3").connect(fresh_sqlite)
    assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    there = {bytes(key) for (key,) in conn.execute("SELECT key FROM hookonce_receipt")}
    bodies = conn.execute(
        "SELECT count(*) FROM hookonce_receipt WHERE id NOT IN (SELECT receipt_id FROM hookonce_body)"
    ).fetchone()
    conn.close()
    assert len(acknowledged) >= 4 * 25 * 20
    assert [number for number in acknowledged if arrival(number).key not in there] == []
    assert bodies == (0,)
