"""Stage handle on every runner: what a handler wrote and its mark are one transaction, whatever the handler does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hookonce.errors import HandlerError, HandlerMisuse, HandlerTimeout, LostClaim, StorageError
from hookonce.flow.handle import Limits, Turn
from hookonce.storage.sqlite import choose_module
from tests.storage.world import SWALLOWED, WAIT_SECONDS, Move, World, arrival, calls, raises, runs, writes


async def test_effect_and_mark_commit_together(world: World) -> None:
    """What the handler wrote is there and its event is processed; nothing of the claim is left."""
    claim = await world.one_claim()
    (done,) = await world.handle(world.turn(claim, writes("a"), writes("b")))
    assert done.result == "applied"
    assert world.effects() == ["a", "b"]
    assert world.receipt("state, result, claim_id, lease_until, token") == (
        "processed",
        "applied",
        None,
        None,
        claim.token,
    )


async def test_the_handler_sees_the_exact_bytes(world: World) -> None:
    """The event carries what was accepted: body, headers, ids and times."""
    seen: list[tuple[object, ...]] = []
    await world.accept(arrival(1, body=b'{"a": "\xff"}'))
    (claim,) = await world.claim()
    handler = world.handler()
    inner = handler.function

    def keep(event: object, *rest: object) -> object:
        seen.append((event.raw, event.headers, event.id, event.attempt, event.received_epoch > 1.7e9))  # type: ignore[attr-defined]
        return inner(event, *rest)

    if world.runner.colour == "async":

        async def function(event: object, *rest: object) -> None:
            await keep(event, *rest)  # type: ignore[misc]
    else:
        function = keep  # type: ignore[assignment]
    object.__setattr__(handler, "function", function)
    await world.handle(Turn(claim, handler))
    assert seen == [(b'{"a": "\xff"}', {"x": "y"}, "evt_1", 1, True)]


async def test_a_failure_leaves_nothing(world: World) -> None:
    """A handler that raises after writing has written nothing, and the claim still holds."""
    claim = await world.one_claim()
    with pytest.raises(ZeroDivisionError):
        await world.handle(world.turn(claim, writes("a"), raises(ZeroDivisionError())))
    assert world.effects() == []
    assert world.receipt("state, claim_id") == ("processing", claim.claim_id)


async def test_no_handler_is_skipped(world: World) -> None:
    """An event that nobody takes is processed as skipped."""
    claim = await world.one_claim()
    (done,) = await world.handle(Turn(claim, None))
    assert done.result == "skipped"
    assert world.receipt("state, result") == ("processed", "skipped")


async def test_a_lane_serves_one_event_after_another(world: World) -> None:
    """The same lane works on, after success and after failure."""
    await world.accept(*(arrival(number) for number in range(3)))
    first, second, third = await world.claim()
    slot = await world.slot()
    await slot.run([world.turn(first, writes("1"))], Limits(seconds=10))
    with pytest.raises(ZeroDivisionError):
        await slot.run([world.turn(second, writes("2"), raises(ZeroDivisionError()))], Limits(seconds=10))
    await slot.run([world.turn(third, writes("3"))], Limits(seconds=10))
    await slot.close()
    assert world.effects() == ["1", "3"]
    assert world.states() == ["processed", "processing", "processed"]


async def test_a_group_commits_together(world: World) -> None:
    """Of several events in a transaction each can fail alone; the others commit."""
    await world.accept(*(arrival(number) for number in range(3)))
    claims = await world.claim()
    moves = [(writes("0"),), (writes("1"), raises(ZeroDivisionError())), (writes("2"),)]
    done = await world.handle(*(world.turn(claim, *each) for claim, each in zip(claims, moves, strict=True)))
    assert [type(one.error) for one in done] == [type(None), ZeroDivisionError, type(None)]
    assert world.effects() == ["0", "2"]
    assert world.states() == ["processed", "processing", "processed"]


async def test_a_group_survives_a_failed_statement(world: World) -> None:
    """A database error undoes its own event, not its neighbours in the transaction."""
    await world.accept(*(arrival(number) for number in range(2)))
    first, second = await world.claim()
    done = await world.handle(
        world.turn(first, writes("0"), runs("INSERT INTO effect VALUES (NULL, 1, 2)")), world.turn(second, writes("1"))
    )
    assert done[0].error is not None
    assert done[1].error is None
    assert world.effects() == ["1"]


async def test_lost_claims_in_a_group_are_told(world: World) -> None:
    """An event of the group that belongs to somebody else by now is left alone, and named."""
    await world.accept(*(arrival(number) for number in range(2)))
    first, second = await world.claim()
    world.sql("UPDATE hookonce_receipt SET token = token + 1 WHERE id = 1")
    done = await world.handle(world.turn(first, writes("0")), world.turn(second, writes("1")))
    assert isinstance(done[0].error, LostClaim)
    assert world.effects() == ["1"]


# -- alone ----------------------------------------------------------------------------------------------------------


async def test_the_row_lock_outlasts_the_lease(pg: World) -> None:
    """While the handler runs its row is locked, however long ago the lease ended; a takeover has to skip it."""
    await pg.accept(arrival(1))
    (claim,) = await pg.claim(lease=-1)
    free: list[object] = []

    def look(_: object) -> None:
        free.append(pg.sql("SELECT id FROM hookonce_receipt WHERE state = 'processing' FOR NO KEY UPDATE SKIP LOCKED"))

    await pg.handle(pg.turn(claim, Move(look), writes("a")))
    assert free == [[]]
    assert pg.receipt("state") == ("processed",)


async def test_the_write_lock_is_held_from_the_beginning(lite: World) -> None:
    """Somebody who knows nothing of turns cannot write between what a handler reads and what it writes."""
    module = choose_module("pysqlite3" if lite.runner.driver == "pysqlite3" else "sqlite3")
    claim = await lite.one_claim()
    told: list[str] = []

    def write_beside(_: object) -> None:
        conn = module.connect(lite.where, isolation_level=None, timeout=0)
        try:
            conn.execute("INSERT INTO effect VALUES ('beside')")
        except module.OperationalError as error:
            told.append(str(error))
        finally:
            conn.close()

    await lite.handle(lite.turn(claim, runs("SELECT note FROM effect"), Move(write_beside), writes("a")))
    assert told == ["database is locked"]
    assert lite.effects() == ["a"]


# -- hostile handlers -----------------------------------------------------------------------------------------------


def nothing_happened(world: World) -> None:
    """No effect, no mark."""
    assert world.effects() == []
    assert world.receipt("state") == ("processing",)


async def test_commit_by_method_is_misuse(world: World) -> None:
    """A handler that commits what it was given is stopped; nothing of it is kept."""
    claim = await world.one_claim()
    with pytest.raises(HandlerMisuse) as caught:
        await world.handle(world.turn(claim, writes("a"), calls("commit")))
    assert caught.value.code == "HO111"
    nothing_happened(world)


async def test_rollback_by_method_is_misuse(world: World) -> None:
    """A handler that rolls back is stopped as well: what it wrote next would not be ours."""
    claim = await world.one_claim()
    with pytest.raises(HandlerMisuse):
        await world.handle(world.turn(claim, writes("a"), calls("rollback"), writes("b")))
    nothing_happened(world)


@pytest.mark.parametrize("text", ["COMMIT", "/* */ commit", "ROLLBACK", "END"])
async def test_ending_the_transaction_in_sql_is_misuse(world: World, text: str) -> None:
    """The words of SQL are not a way around."""
    claim = await world.one_claim()
    with pytest.raises(HandlerMisuse):
        await world.handle(world.turn(claim, writes("a"), runs(text)))
    nothing_happened(world)


async def test_a_swallowed_refusal_is_misuse_all_the_same(world: World) -> None:
    """Who catches our refusal and goes on has not got away with it, or has done no harm."""
    claim = await world.one_claim()
    try:
        await world.handle(world.turn(claim, writes("a"), runs("COMMIT") | SWALLOWED, writes("b")))
    except HandlerMisuse:
        nothing_happened(world)
    else:  # a transaction that was never left: everything or nothing still holds
        assert world.effects() == ["a", "b"]
        assert world.receipt("state") == ("processed",)


async def test_a_commit_below_the_driver_is_misuse(pg: World) -> None:
    """Even a COMMIT that no guard of ours saw is found: the transaction has another number afterwards."""

    def end_it(hand: object) -> object:
        driver = hand.conn  # type: ignore[attr-defined]
        if pg.runner.kind == "sqlalchemy":
            sync = driver if pg.runner.colour == "sync" else driver.sync_connection
            driver = sync.connection.driver_connection
        if hasattr(driver, "pgconn"):
            driver.pgconn.exec_(b"COMMIT")
            driver.pgconn.exec_(b"BEGIN")
            return None

        async def both() -> None:
            await driver.execute("COMMIT")
            await driver.execute("BEGIN")

        return both()

    claim = await pg.one_claim()
    with pytest.raises(HandlerMisuse):
        await pg.handle(pg.turn(claim, runs("SELECT 1"), Move(end_it)))
    assert pg.receipt("state") == ("processing",)


async def test_attach_is_misuse(lite: World) -> None:
    """A second file in the transaction would not be written atomically with ours."""
    claim = await lite.one_claim()
    with pytest.raises(HandlerMisuse):
        await lite.handle(lite.turn(claim, writes("a"), runs("ATTACH ':memory:' AS other")))
    nothing_happened(lite)


async def test_a_swallowed_error_is_counted(pg: World) -> None:
    """PostgreSQL would turn the COMMIT into a rollback without a word: it is told, as the handler's error."""
    claim = await pg.one_claim()
    with pytest.raises(HandlerError) as caught:
        await pg.handle(pg.turn(claim, writes("a"), writes("a") | SWALLOWED))
    assert not isinstance(caught.value, HandlerMisuse)
    assert not isinstance(caught.value, StorageError)
    nothing_happened(pg)


async def test_a_swallowed_error_on_sqlite_undoes_its_statement_only(lite: World) -> None:
    """SQLite undoes the statement that failed and nothing else; the handler may go on, and all of it commits."""
    claim = await lite.one_claim()
    await lite.handle(lite.turn(claim, writes("a"), writes("a") | SWALLOWED, writes("b")))
    assert lite.effects() == ["a", "b"]
    assert lite.receipt("state") == ("processed",)


async def test_an_error_at_commit_leaves_nothing(pg: World) -> None:
    """A deferred constraint fails at COMMIT: neither effect nor mark."""
    pg.sql(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$"
    )
    pg.sql(
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    claim = await pg.one_claim()
    with pytest.raises(Exception, match="no"):
        await pg.handle(pg.turn(claim, writes("a")))
    nothing_happened(pg)


# -- time -------------------------------------------------------------------------------------------------------


async def test_the_time_limit_takes_the_connection_away(world: World) -> None:
    """A handler that does not end loses its connection: others can write at once, and it can write no more.

    A connection class of the user's own cannot be taken from a handler that is not in the database: others write as
    soon as it goes on.
    """
    claim = await world.one_claim()
    let_go = threading.Event()
    lines: list[str] = []

    def wait(_: object) -> object:
        if world.runner.colour == "async":
            return _until_cancelled(lines)
        let_go.wait(WAIT_SECONDS)
        return None

    def tell(_: object) -> None:
        lines.append("wrote")

    handler = world.handler(writes("a"), Move(wait), writes("b"), Move(tell))
    slot = await world.slot()
    with pytest.raises(HandlerTimeout):
        await slot.run([Turn(claim, handler)], Limits(seconds=0.2))
    assert not slot.usable
    if world.runner.driver == "function":
        let_go.set()
    async with asyncio.timeout(WAIT_SECONDS):
        while not await _can_write(world):
            await asyncio.sleep(0.01)
    let_go.set()
    await slot.close()
    assert world.effects() == ["other"]
    assert lines in ([], ["cancelled"]) or world.runner.driver == "function"
    assert world.receipt("state") == ("processing",)


async def _until_cancelled(lines: list[str]) -> None:
    try:
        await asyncio.sleep(WAIT_SECONDS)
    except asyncio.CancelledError:
        lines.append("cancelled")
        raise


async def _can_write(world: World) -> bool:
    """Whether somebody else gets the row that the handler held."""
    try:
        if world.dialect == "postgres":
            world.sql("SELECT 1 FROM hookonce_receipt WHERE id = 1 FOR UPDATE NOWAIT")
            world.sql("INSERT INTO effect VALUES ('other')")
        else:
            world.sql("INSERT INTO effect VALUES ('other')")
    except Exception:
        return False
    return True


async def test_a_stuck_statement_ends_with_the_limit(pg: World) -> None:
    """The server knows the limit too: a statement that hangs is cancelled, and it is the handler's time limit."""
    claim = await pg.one_claim()
    with pytest.raises(HandlerTimeout):
        await pg.handle(pg.turn(claim, writes("a"), runs("SELECT pg_sleep(15)")), seconds=0.2)
    nothing_happened(pg)


async def test_limits_end_with_the_transaction(pg: World) -> None:
    """The handler's limits are not left on the connection for whoever uses it next."""
    await pg.accept(arrival(1), arrival(2))
    first, second = await pg.claim()
    slot = await pg.slot()
    await slot.run([pg.turn(first, writes("a"))], Limits(seconds=7))
    pg.sql(
        "CREATE OR REPLACE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.note := current_setting('statement_timeout'); RETURN NEW; END $$"
    )
    pg.sql("CREATE TRIGGER tell BEFORE INSERT ON effect FOR EACH ROW EXECUTE FUNCTION tell()")
    await slot.run([pg.turn(second, writes("b"))], Limits(seconds=9))
    await slot.close()
    assert pg.effects() == ["9s", "a"]
    if pg.runner.kind == "sqlalchemy":
        assert await pg.ask_engine("SHOW statement_timeout") == "0"
