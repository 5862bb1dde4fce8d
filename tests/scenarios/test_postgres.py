"""PostgreSQL taken away: connections cut around COMMIT, the server crashed under load, the server frozen."""

import os
import signal
import time
from pathlib import Path

from tests.scenarios.arena import Arena
from tests.scenarios.processes import until
from tests.scenarios.proxy import Proxy
from tests.scenarios.sender import make_event
from tests.servers.postgres import PostgresServer

CUTS = int(os.environ.get("HOOKONCE_CUTS", "300"))
CRASHES = 5
ANSWER_SECONDS = 6.0


def through(proxy: Proxy, arena: Arena) -> str:
    """The database's address by way of the proxy."""
    address, _, name = arena.url.rpartition("/")
    return f"{address.rpartition(':')[0]}:{proxy.port}/{name}?sslmode=disable&gssencmode=disable"


def test_accept_is_cut(on_postgres: Arena, postgres: PostgresServer) -> None:
    """Connections cut before, during and after the accept: answered 503 or the truth, nothing lost, nothing twice."""
    arena = on_postgres
    with Proxy(postgres.port) as proxy:
        arena.shop("receiver", url=through(proxy, arena))
        arena.shop("worker", lease=10.0)
        sender = arena.sender(seed=31, rate=500.0)
        proxy.cut({"accept": 0.5, "duplicate": 0.3}, most=CUTS)
        until(lambda: proxy.done, 60.0, lambda: f"the cuts are made: {proxy.cuts} {sender.tally.statuses}")
        sender.finish()
        report = arena.check()
        print(f"\n{dict(proxy.cuts)}, answers {dict(report.statuses)}: {report}")
        assert report.crashes == 0
        assert not set(report.statuses) - {200, 202, 401, 503, 0}, report.statuses


def test_work_is_cut(on_postgres: Arena, postgres: PostgresServer) -> None:
    """Connections cut around every statement of the work, COMMIT most of all: each event is booked once, none fails."""
    arena = on_postgres
    with Proxy(postgres.port) as proxy:
        arena.shop("receiver")
        worker = arena.shop("worker", url=through(proxy, arena), lease=2.0)
        sender = arena.sender(seed=32, rate=150.0)
        share = {"commit": 0.3, "mark": 0.1, "lock": 0.05, "settle": 0.1, "claim": 0.05, "suspect": 0.02}
        proxy.cut(share, most=CUTS // 2)
        until(lambda: proxy.done, 60.0, lambda: f"the cuts are made: {proxy.cuts}")
        sender.finish()
        report = arena.check()
        print(f"\n{dict(proxy.cuts)}: {report}, crashes {report.crashes}")
        worker.terminate()


def test_the_answer_to_a_claim_is_lost(on_postgres: Arena, postgres: PostgresServer) -> None:
    """A worker that never heard the answer to its claims did not die: however often it happens, the event is processed."""
    arena = on_postgres
    with Proxy(postgres.port) as proxy:
        arena.shop("receiver")
        arena.send(*[make_event(number, "invoice.paid", seed=33) for number in range(5)])
        proxy.cut({"claim": 1.0}, most=1, moments=("after",))
        arena.shop("worker", url=through(proxy, arena), lease=2.0)
        for statement in ("suspect", "claim", "suspect", "claim", "suspect"):
            until(lambda: proxy.done, 10.0, lambda: f"the answer is lost: {proxy.cuts}")
            proxy.cut({statement: 1.0}, most=1, moments=("after",))
        report = arena.check()
        print(f"\n{dict(proxy.cuts)}: {report}, crashes {report.crashes}")
        assert proxy.done
        assert report.crashes == 0


def test_the_server_crashes(on_own_postgres: tuple[Arena, PostgresServer]) -> None:
    """Stopped at once, five times, under load: nothing acknowledged is lost, and no event fails because of it."""
    arena, server = on_own_postgres
    receiver = arena.shop("receiver")
    worker = arena.shop("worker")
    sender = arena.sender(seed=34, rate=300.0)
    for _ in range(CRASHES):
        sender.acknowledge(100)
        server.stop_immediate()
        refused = sender.tally.statuses[503]
        until(lambda: sender.tally.statuses[503] > refused, 20.0, "the answer is 503")  # noqa: B023
        server.start()
    sender.finish()
    report = arena.check()
    print(f"\n{CRASHES} crashes, answers {dict(report.statuses)}: {report}, crashes counted {report.crashes}")
    assert receiver.alive and worker.alive
    receiver.terminate()
    worker.terminate()


def test_the_server_freezes(on_own_postgres: tuple[Arena, PostgresServer]) -> None:
    """A server that is there and does not answer: every accept is answered 503 within 6 s, and all is well afterwards."""
    arena, server = on_own_postgres
    receiver = arena.shop("receiver")
    worker = arena.shop("worker")
    sender = arena.sender(seed=35, rate=100.0, connections=40)
    sender.acknowledge(100)
    frozen = family(server.pid)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        until(lambda: sender.tally.statuses[503] >= 60, 40.0, lambda: f"accepts are refused: {sender.tally.statuses}")
        seconds = time.monotonic() - began
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    slowest = sender.tally.slowest_seconds
    sender.finish()
    report = arena.check()
    print(
        f"\nfrozen for {seconds:.1f} s, slowest answer {slowest:.2f} s, {dict(report.statuses)}: {report}, {report.crashes}"
    )
    assert slowest < ANSWER_SECONDS
    receiver.terminate()
    worker.terminate()


def family(pid: int) -> list[int]:
    """A process and its children, children first."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [*(int(child) for child in children), pid]
