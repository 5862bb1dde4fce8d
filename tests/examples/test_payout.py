"""The payout that was charged twice, and the order that was paid: the naive handler, and ours, under the same timeline."""

import shutil
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import REPOSITORY, Shell

PAYOUT = REPOSITORY / "examples" / "payout"
HALF_PERCENT_CENTS = 5_000


@pytest.fixture(params=["sqlite", "postgres"])
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """A copy of the sample application on each database."""
    shutil.copytree(PAYOUT, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.db*", "__pycache__"))
    shell = Shell(tmp_path, {"HOOKONCE_SERVER__LISTEN": "127.0.0.1:0"})
    if request.param == "postgres":
        shell.environment["HOOKONCE_DATABASE"] = request.getfixturevalue("pg_dsn")
        shell("migrate")
    return shell


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's modules, importable as they are from its own folder."""
    monkeypatch.syspath_prepend(str(PAYOUT))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in ("naive", "payout_app"):
            del sys.modules[name]


def books(shell: Shell) -> dict[str, str]:
    """What the application prints about itself."""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-m", "payout_app"],
        cwd=shell.folder,
        env=shell.environ(),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_naive_charges_a_hundred(modules, tmp_path):
    """The duplicate comes while the first attempt asks the bank: both have looked before either acts."""
    import naive

    both_asked = threading.Barrier(2)
    event = {"id": "evt_payout_10000", "data": {"object": {"id": "po_10000", "amount": 1_000_000}}}

    def deliver() -> None:
        conn = sqlite3.connect(tmp_path / "naive.db", timeout=30)
        naive.charge_fee(conn, event, lambda: both_asked.wait(30) and None)
        conn.close()

    with sqlite3.connect(tmp_path / "naive.db") as conn:
        conn.execute(naive.TABLE)
    threads = [threading.Thread(target=deliver) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    with sqlite3.connect(tmp_path / "naive.db") as conn:
        assert naive.charged_cents(conn) == 2 * HALF_PERCENT_CENTS


def test_naive_charges_fifty_when_nothing_overlaps(modules, tmp_path):
    """One after the other it is right, which is why nobody saw it before."""
    import naive

    event = {"data": {"object": {"id": "po_10000", "amount": 1_000_000}}}
    with sqlite3.connect(tmp_path / "naive.db") as conn:
        conn.execute(naive.TABLE)
        naive.charge_fee(conn, event, lambda: None)
        naive.charge_fee(conn, event, lambda: None)
        assert naive.charged_cents(conn) == HALF_PERCENT_CENTS


def test_ours_charges_fifty_when_the_duplicate_comes_into_a_slow_first_attempt(example):
    """The same timeline: the first attempt takes 1.5 s, the duplicate comes after one."""
    example.environment["PAYOUT_SLOW_SECONDS"] = "1.5"
    with example.running("run") as server:
        seen = server.send(
            "stripe", "payout.paid", "--body", "payout.json", "--copies", "2", "--concurrent", "2", "--delay", "1s"
        )
        assert (seen["accepted"], seen["duplicates"]) == (1, 1)
        [receipt] = server.settled(1)
    assert (receipt["state"], receipt["attempts"]) == ("processed", 1)
    told = books(example)
    assert (told["fee of po_10000"], told["balance of fees"]) == ("50.00", "50.00")


def test_ten_concurrent_posts_are_one_fee(example):
    """Ten deliveries at once, and a second event for the same payout: one fee of 50."""
    with example.running("run") as server:
        seen = server.send("stripe", "payout.paid", "--body", "payout.json", "--copies", "10", "--concurrent", "10")
        assert (seen["accepted"], seen["duplicates"]) == (1, 9)
        body = (example.folder / "payout.json").read_text().replace("evt_payout_10000", "evt_payout_again")
        (example.folder / "again.json").write_text(body)
        assert server.send("stripe", "payout.paid", "--body", "again.json")["accepted"] == 1
        server.settled(2)
    told = books(example)
    assert [name for name in told if name.startswith("fee of")] == ["fee of po_10000"]
    assert (told["fee of po_10000"], told["balance of fees"]) == ("50.00", "50.00")


def test_an_order_is_paid_once_and_keeps_its_first_time(example):
    """Event, order, paid, balance: a second event for the order and a replay change neither time nor balance."""
    with example.running("run") as server:
        server.send("shop", "order.paid", "--body", "order.json", "--id", "msg_1", "--copies", "5", "--concurrent", "5")
        [first] = server.settled(1)
        later = (example.folder / "order.json").read_text().replace("2026-01-05", "2026-01-06")
        (example.folder / "later.json").write_text(later)
        server.send("shop", "order.paid", "--body", "later.json", "--id", "msg_2")
        server.settled(2)
        example("replay", str(first["id"]), "--yes", "--reason", "to be sure")
        newest, oldest = server.settled(2)
        assert (newest["state"], oldest["state"], oldest["generation"]) == ("processed", "processed", 1)
    told = books(example)
    assert told["order order_1"] == "42.50, paid 2026-01-05T12:00:00Z"
    assert told["balance of sales"] == "42.50"


def test_a_kill_between_the_write_and_the_commit_charges_once(example):
    """The process dies with the fee written and not committed; the next one charges it, once."""
    example.environment["HOOKONCE_FAILPOINTS"] = "settle.before_commit=kill"
    example.environment["HOOKONCE_WORKER__LEASE_SECONDS"] = "1s"
    with example.running("run") as server:
        server.send("stripe", "payout.paid", "--body", "payout.json")
        server.process.wait(30)
    del example.environment["HOOKONCE_FAILPOINTS"]
    with example.running("run") as server:
        [receipt] = server.settled(1)
    assert (receipt["state"], receipt["crashes"]) == ("processed", 1)
    assert books(example)["balance of fees"] == "50.00"


def test_the_fee_is_counted_in_whole_cents(modules):
    """Half a cent is rounded up, and no floating point is near the money."""
    import payout_app

    amounts = (1_000_000, 0, 100, 99, 1, 333, 900_719_925_474_099_301)
    assert [payout_app.fee_cents(amount) for amount in amounts] == [5_000, 0, 1, 0, 0, 2, 4_503_599_627_370_497]


def test_the_development_secrets_are_refused_in_production(example):
    """What stands in the sample file must not be used anywhere else."""
    example.environment["HOOKONCE_ENVIRONMENT"] = "production"
    refused = example("run", code=78).stderr
    assert refused.count("a secret stands in the file itself") == 2
    assert "development_only" not in refused
