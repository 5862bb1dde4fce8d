"""The fence: each word of the WHERE clauses is what keeps an old holder out. Without it, he gets in.

Every test runs twice: with our SQL the protective outcome, with one word taken out the harm. So none of the words
can be lost without a test that turns red.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from hookonce.errors import HandlerMisuse, LostClaim
from hookonce.flow.claim import release
from hookonce.flow.settle import settle
from hookonce.model import Claim, ClaimId, Outcome, State
from hookonce.storage.statements import Style, load
from tests.storage.world import Move, World, runs, writes

STYLES: tuple[Style, ...] = ("named", "pyformat", "numeric_dollar", "qmark")
WORDS = {
    # The parameter stays in the text, so that drivers that count them still find it.
    "token": (r"r\.token = (\S+)", {"sqlite": r"\1 IS NOT NULL", "postgres": r"\1::text IS NOT NULL"}),
    "claim_id": (r"r\.claim_id = (\S+)", {"sqlite": r"\1 IS NOT NULL", "postgres": r"\1::text IS NOT NULL"}),
    "state": (r"r\.state(?: \|\| '')? = 'processing'", {"sqlite": "1 = 1", "postgres": "true"}),
    "xid": (r"pg_current_xact_id\(\)::text = (\S+)", {"postgres": r"\1::text IS NOT NULL"}),
}


@contextmanager
def without(world: World, statement: str, word: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Our SQL with one condition of one statement taken out, in every style of parameters."""
    pattern, instead = WORDS[word]
    with monkeypatch.context() as patch:
        for style in STYLES:
            blocks = cast("dict[str, Any]", load(world.dialect, style))
            block = blocks[statement]
            where, found = re.subn(pattern, instead[world.dialect], block.text)
            assert found == 1, f"{statement} does not ask for {word}"
            patch.setitem(blocks, statement, replace(block, text=where))
        yield


def stale(world: World, claim: Claim, word: str) -> Claim:
    """A claim that is wrong in exactly one respect."""
    match word:
        case "token":
            return replace(claim, token=claim.token - 1)
        case "claim_id":
            return replace(claim, claim_id=ClaimId(claim.claim_id[::-1]))
        case _:
            world.sql("UPDATE hookonce_receipt SET state = 'failed'")
            return claim


@pytest.mark.parametrize("word", ["token", "claim_id", "state"])
async def test_the_lock_refuses_a_stale_claim(world: World, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose turn is over does not even start its handler; without the word it does, and writes."""
    claim = stale(world, await world.one_claim(), word)
    (done,) = await world.handle(world.turn(claim, writes("a")))
    assert isinstance(done.error, LostClaim)
    assert world.effects() == []

    started: list[str] = []
    with without(world, "work_lock", word, monkeypatch), without(world, "work_mark", word, monkeypatch):
        await world.handle(world.turn(claim, writes("a"), Move(lambda _: started.append("started"))))
    assert started == ["started"]
    assert world.effects() == ["a"]


BREAKS = {
    "token": "UPDATE hookonce_receipt SET token = token + 1",
    "claim_id": "UPDATE hookonce_receipt SET claim_id = 'somebody else'",
    "state": "UPDATE hookonce_receipt SET state = 'failed'",
}


@pytest.mark.parametrize("word", ["token", "claim_id", "state"])
async def test_the_mark_refuses_a_turn_that_was_lost(world: World, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the row is not ours at the end, all of it is undone; without the word the handler's writes are committed."""
    claim = await world.one_claim()
    with pytest.raises(LostClaim):
        await world.handle(world.turn(claim, writes("a"), runs(BREAKS[word])))
    assert world.effects() == []
    assert world.receipt("state, token, claim_id") == ("processing", claim.token, claim.claim_id)

    with without(world, "work_mark", word, monkeypatch):
        await world.handle(world.turn(claim, writes("a"), runs(BREAKS[word])))
    assert world.effects() == ["a"]


async def test_the_mark_refuses_another_transaction(pg: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that slipped a COMMIT past every guard is found by the transaction's number, and by nothing else."""

    def slip(hand: Any) -> Any:
        driver = hand.conn
        if pg.runner.kind == "sqlalchemy":
            sync = driver if pg.runner.colour == "sync" else driver.sync_connection
            driver = sync.connection.driver_connection
        if hasattr(driver, "pgconn"):
            driver.pgconn.exec_(b"COMMIT")
            driver.pgconn.exec_(b"BEGIN")
            return None
        return _slip_asyncpg(driver)

    claim = await pg.one_claim()
    with pytest.raises(HandlerMisuse):
        await pg.handle(pg.turn(claim, Move(slip), writes("a")))
    assert pg.effects() == []
    assert pg.receipt("state") == ("processing",)

    with without(pg, "work_mark", "xid", monkeypatch):
        await pg.handle(pg.turn(claim, Move(slip), writes("a")))
    assert pg.receipt("state") == ("processed",)


async def _slip_asyncpg(driver: Any) -> None:
    await driver.execute("COMMIT")
    await driver.execute("BEGIN")


@pytest.mark.parametrize("word", ["token", "claim_id", "state"])
async def test_settle_is_fenced(plain: World, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outcome is written by the holder of the claim; without the word by anybody who ever held it."""
    claim = stale(plain, await plain.one_claim(), word)
    before = plain.receipt("state, last_error")
    outcome = Outcome(state=State.RETRYING, error="late", delay_seconds=1)
    assert not await plain.backend.run(settle(claim, outcome, seconds=0, now=None))
    assert plain.receipt("state, last_error") == before

    with without(plain, "receipt_settle", word, monkeypatch):
        assert await plain.another().run(settle(claim, outcome, seconds=0, now=None))
    assert plain.receipt("state, last_error") == ("retrying", "late")


@pytest.mark.parametrize("word", ["token", "claim_id", "state"])
async def test_release_is_fenced(plain: World, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand-back touches only what is still held; without the word it takes the event from its new owner."""
    claim = stale(plain, await plain.one_claim(), word)
    before = plain.receipt("state, attempts")
    assert await plain.backend.run(release([claim], now=None), single=True) == 0
    assert plain.receipt("state, attempts") == before

    with without(plain, "receipt_release", word, monkeypatch):
        assert await plain.another().run(release([claim], now=None), single=True) == 1
    assert plain.receipt("state, attempts") == ("received", 0)
