"""What operation does to a system in use: rolling restarts, storms of one event, senders that leave, full disks, clocks."""

import asyncio
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.arena import Arena, sqlite_arena
from tests.scenarios.checker import healed
from tests.scenarios.processes import Role, Shop, free_port, until
from tests.scenarios.sender import Mix, make_event, request_bytes

SLEEP_SECONDS = float(os.environ.get("HOOKONCE_SLEEP_SECONDS", "8"))
COPIES = 1_000


def test_rolling_restart(arena: Arena) -> None:
    """One process after the other ends on SIGTERM and is replaced, under load: nothing is lost, no crash is counted."""
    ports = [free_port() for _ in range(2)]
    team: list[tuple[Role, int]] = [("receiver", ports[0]), ("receiver", ports[1]), ("worker", 0), ("worker", 0)]
    # The lease of production: with a shorter one a machine that stalls for a second looks like a death.
    running = [arena.shop(role, port=port, lease=10.0) for role, port in team]
    sender = arena.sender(ports=ports, seed=21, rate=300.0, mix=Mix(slow=0.05))
    for number in (*range(4), *range(4)):
        sender.acknowledge(100)
        role, port = team[number]
        running[number].terminate()
        running[number] = arena.shop(role, port=port, lease=10.0)
    sender.finish()
    report = arena.check()
    assert report.crashes == 0
    assert not set(report.statuses) - {200, 202, 401, 0}, report.statuses
    for process in running:
        process.terminate()


def test_a_thousand_copies_while_the_handler_runs(arena: Arena) -> None:
    """A storm of one event does not wait for the handler that works on it: all are answered yes, it runs once."""
    arena.shop("receiver")
    event = make_event(1, "payout.paid", seed=22, extra={"seconds": SLEEP_SECONDS})
    sender = arena.send(event)
    arena.shop("worker")
    until(lambda: arena.states() == {"processing": 1}, 10.0, "the handler runs")
    until(lambda: arena.is_sqlite or sleeping(arena), 10.0, "its transaction is open")
    if arena.is_sqlite:
        # One writer: the handler has to be over first. Limits on the handler's time are what bounds the wait.
        until(lambda: healed(arena.url), SLEEP_SECONDS + 20.0, "it is processed")
    began = time.monotonic()
    sender.tally.seconds.clear()
    sender.add(*[event] * COPIES)
    sender.finish()
    stormed = time.monotonic() - began
    if not arena.is_sqlite:
        assert arena.states() == {"processing": 1}, f"the storm took {stormed:.1f} s, longer than the handler"
    cuts = statistics.quantiles(sender.tally.seconds, n=100)
    print(f"\n{COPIES} copies in {stormed:.2f} s: p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms")
    assert cuts[98] < 1.0
    report = arena.check()
    assert (report.processed, report.duplicates) == (1, COPIES)
    assert (report.statuses[202], report.statuses[200], report.statuses[503]) == (1, COPIES, 0)


def sleeping(arena: Arena) -> bool:
    """Whether a handler's transaction is open, as the server sees it."""
    return bool(arena.one("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"))


def test_copies_arrive_while_a_short_handler_runs_on_sqlite(tmp_path: Path) -> None:
    """On SQLite a storm waits for the handler that writes, and no longer: all are answered yes within their budget."""
    with sqlite_arena(tmp_path) as arena:
        arena.shop("both")
        event = make_event(1, "payout.paid", seed=23, extra={"seconds": 1.5})
        sender = arena.send(event)
        until(lambda: arena.states() == {"processing": 1}, 10.0, "the handler runs")
        sender.add(*[event] * COPIES)
        sender.finish()
        report = arena.check()
        assert (report.processed, report.duplicates) == (1, COPIES)
        assert (report.statuses[202], report.statuses[200], report.statuses[503]) == (1, COPIES, 0)
        print(f"\nslowest answer {sender.tally.slowest_seconds:.2f} s")


def test_the_sender_leaves_at_once(arena: Arena) -> None:
    """An event whose sender hangs up without waiting for the answer is stored, once, and processed."""
    arena.shop("both")
    events = [make_event(number, "invoice.paid", seed=24) for number in range(100)]

    async def send_and_leave() -> None:
        for number, event in enumerate(events):
            _, writer = await asyncio.open_connection("127.0.0.1", arena.port)
            writer.write(request_bytes(event))
            await writer.drain()
            if number % 2:
                writer.transport.abort()
            else:
                writer.close()

    asyncio.run(send_and_leave())
    until(
        lambda: (arena.one("SELECT count(*) FROM hookonce_receipt") >= len(events) // 2) and healed(arena.url),
        20.0,
        lambda: f"what was sent is stored: {arena.states()}",
    )
    stored = {identity for (identity,) in arena.rows("SELECT event_id FROM hookonce_receipt")}
    # Closed in order: the whole request arrives. Aborted: the kernel may throw away what was not read yet.
    assert {event.id for event in events[::2]} <= stored
    arena.send(*events)
    report = arena.check()
    assert report.processed == len(events)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.fail(f"this scenario mounts a small file system and needs root: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=20)


def test_the_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    """Without space the answer is 503 and nothing breaks; with space again everything goes on by itself."""
    arena = Arena(f"sqlite:///{small_disk / 'shop.db'}", tmp_path)
    try:
        filler = small_disk / "filler"
        filler.write_bytes(bytes(8 << 20))
        process = arena.shop("both")
        sender = arena.sender(seed=25, rate=400.0, extra={"padding": "x" * 30_000})
        until(lambda: sender.tally.statuses[503] > 50, 60.0, lambda: f"the disk is full: {sender.tally.statuses}")
        sender.pause()
        assert process.alive, process.tail()
        before = len(sender.tally.acknowledged)
        filler.unlink()
        until(lambda: not sender.outstanding, 30.0, "what was refused is accepted")
        sender.finish()
        report = arena.check()
        assert report.acknowledged > before
        assert process.alive, process.tail()
        counted = process.terminate()
        print(f"\n{sender.tally.statuses}, {report}, {counted}")
    finally:
        arena.close()


LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
)


@pytest.fixture(scope="session")
def faketime(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that lies about the time: installed, named by HOOKONCE_LIBFAKETIME, or unpacked from Debian's package."""
    for path in (os.environ.get("HOOKONCE_LIBFAKETIME", ""), *LIBRARIES):
        if path and Path(path).exists():
            return path
    folder = tmp_path_factory.mktemp("faketime")
    if shutil.which("apt-get") and shutil.which("dpkg"):
        subprocess.run(["apt-get", "download", "libfaketime"], cwd=folder, capture_output=True, timeout=60, check=False)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True, timeout=60)
    for found in folder.rglob("libfaketime.so.1"):
        return str(found)
    pytest.fail("this scenario needs libfaketime: apt-get install libfaketime, or set HOOKONCE_LIBFAKETIME to its .so")


def test_workers_whose_clocks_are_wrong(on_postgres: Arena, faketime: str) -> None:
    """Ten minutes ahead, ten minutes behind: the database's clock decides, so nobody takes a living worker's events."""
    arena = on_postgres
    receiver = arena.shop("receiver")

    def skewed(offset: str) -> Shop:
        lie = {"LD_PRELOAD": faketime, "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        return arena.shop("worker", environment=lie, lease=10.0)

    workers = [skewed("+10m"), skewed("-10m"), arena.shop("worker", lease=10.0)]
    sender = arena.sender(seed=26, rate=300.0, mix=Mix(slow=0.3), extra={"seconds": 0.05})
    sender.acknowledge(500)
    sender.finish()
    report = arena.check()
    assert report.crashes == 0
    counts = [worker.terminate() for worker in workers]
    print(f"\n{counts}")
    assert all(sum(counted.values()) > 0 for counted in counts), counts
    assert not any(name.endswith("lost") for counted in counts for name in counted), counts
    receiver.terminate()
