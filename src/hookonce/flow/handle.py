"""Stage handle (T2): the row lock, the re-check, the handler and the mark, in one transaction.

`work` is the order of the steps, written once; `run_sync` and `run_async` walk through it on a lane, which is one
connection or session to the database. Several quick events may share a transaction, each behind a savepoint: they
commit together or run again, so the promise to each is the same.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from hookonce.errors import HandlerMisuse, LostClaim, StorageError
from hookonce.event import Event
from hookonce.failpoints import fp
from hookonce.model import Claim
from hookonce.registry import Handler
from hookonce.storage.operation import Many, Row, Rows, Statement, Step


@dataclass(frozen=True, slots=True)
class Turn:
    """A claim and the handler that it goes to; None when no handler takes its type."""

    claim: Claim
    handler: Handler | None


@dataclass(slots=True)
class Done:
    """How one turn ended: applied, failed with `error`, or lost to another worker (a LostClaim)."""

    turn: Turn
    result: str = ""
    error: BaseException | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """Step: run a handler. For a batch handler `events` has many."""

    handler: Handler
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Step: from here, one event can be undone alone."""


@dataclass(frozen=True, slots=True)
class Undo:
    """Step: undo everything since the last savepoint."""


WorkStep = Step | Call | Savepoint | Undo
Work = Generator[WorkStep, Any, list[Done]]


class _Lane(Protocol):
    """One connection or session on which turns are worked, one transaction at a time."""

    @property
    def groups(self) -> bool:
        """Whether several events may share a transaction here."""
        ...

    def given(self, name: str) -> object:
        """What a handler gets for `conn` or `session`."""
        ...

    def translate(self, error: BaseException) -> BaseException:
        """A driver's error as one of ours, when it says something about the database rather than the handler."""
        ...

    def abort(self) -> None:
        """Take the connection away from whoever uses it, from any thread. What it wrote is rolled back."""
        ...


class Lane(_Lane, Protocol):
    """A lane that blocks; used in a thread."""

    def begin(self) -> None: ...
    def execute(self, step: Step) -> Rows: ...
    def savepoint(self) -> None: ...
    def undo(self) -> None: ...
    def handler_runs(self, running: bool) -> None:
        """Told before and after each handler: guards stand only while it runs."""
        ...

    def flush(self) -> None:
        """Send what an ORM still holds back."""
        ...

    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class AsyncLane(_Lane, Protocol):
    """A lane on an event loop."""

    async def begin(self) -> None: ...
    async def execute(self, step: Step) -> Rows: ...
    async def savepoint(self) -> None: ...
    async def undo(self) -> None: ...
    def handler_runs(self, running: bool) -> None: ...
    async def flush(self) -> None: ...
    async def call(self, handler: Handler, arguments: Sequence[object]) -> None:
        """Run a handler, sync or async, on this loop."""
        ...

    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a transaction may take, told to the server as well, for when this process cannot."""

    seconds: float
    now: float | None = None

    def statement_values(self) -> dict[str, str]:
        milliseconds = int(self.seconds * 1000)
        return {"limit_ms": str(milliseconds), "idle_ms": str(milliseconds + 5_000)}


def work(turns: Sequence[Turn], limits: Limits) -> Work:
    """T2 for one turn, or for several that share a transaction. Raises what undoes all of it."""
    claim_id = turns[0].claim.claim_id
    ids = [(turn.claim.id, turn.claim.token) for turn in turns]
    rows = yield Many("work_lock", ids, {"claim_id": claim_id, **limits.statement_values()})
    fp("handle.after_lock")
    held = {row[0]: row for row in rows}
    ended = [
        Done(turn, error=None if turn.claim.id in held else LostClaim("taken over before it began")) for turn in turns
    ]
    mine = [done for done in ended if done.error is None]
    if turns[0].handler is not None and turns[0].handler.batch > 1:
        yield from _batch(turns[0].handler, mine, held)
    else:
        yield from _each(mine, held)
    applied = [done for done in mine if done.error is None]
    if applied:
        yield from _mark(applied, xid=rows[0][11], claim_id=claim_id, now=limits.now)
    return ended


def _each(mine: list[Done], held: dict[int, Row]) -> Generator[WorkStep, Any, None]:
    alone = len(mine) == 1
    for done in mine:
        handler = done.turn.handler
        if handler is None:
            done.result = "skipped"
            continue
        if not alone:
            yield Savepoint()
        began = time.monotonic()
        try:
            yield Call(handler, (_event(done.turn.claim, held),))
            done.result = "applied"
        except (HandlerMisuse, StorageError):
            raise
        except Exception as error:
            if alone:
                raise
            done.error = error
            yield Undo()
        finally:
            done.seconds = time.monotonic() - began


def _batch(handler: Handler, mine: list[Done], held: dict[int, Row]) -> Generator[WorkStep, Any, None]:
    if mine:
        yield Call(handler, tuple(_event(done.turn.claim, held) for done in mine))
    for done in mine:
        done.result = "applied"


def _mark(applied: list[Done], *, xid: str, claim_id: str, now: float | None) -> Generator[WorkStep, Any, None]:
    """The last statement before COMMIT. Unless every row is still ours, in this very transaction, nothing counts."""
    fp("settle.before_mark")
    rows = [(done.turn.claim.id, done.turn.claim.token, done.result) for done in applied]
    marked = yield Many("work_mark", rows, {"claim_id": claim_id, "xid": xid, "now": now})
    if len(marked) == len(applied):
        return
    if xid and (yield Statement("work_xid"))[0][0] != xid:
        raise HandlerMisuse(
            "the handler ended the transaction that it was given (COMMIT or ROLLBACK)",
            likely="what it wrote before is committed without the event's mark, and would be written again",
            do="leave the transaction alone: it is committed for you, together with the mark",
        )
    raise LostClaim("another worker owns this event by now")


def _event(claim: Claim, held: dict[int, Row]) -> Event:
    row = held[claim.id]
    return Event(
        claim=claim,
        raw=bytes(row[9] or b""),
        header_bytes=bytes(row[10] or b""),
        delivery_id=row[2],
        account=row[4],
        api_version=row[6],
        event_time=row[5],
        received_epoch=row[7],
    )


def run_sync(turns: Sequence[Turn], lane: Lane, limits: Limits) -> list[Done]:
    """Walk through `work` on a blocking lane and commit. Whatever is raised, nothing of it was committed."""
    steps = work(turns, limits)
    try:
        fp("handle.before_begin")
        lane.begin()
        step = next(steps)
        while True:
            try:
                rows = _do_sync(step, lane)
            except Exception as error:
                step = steps.throw(lane.translate(error))
            else:
                step = steps.send(rows)
    except StopIteration as end:
        ended: list[Done] = end.value
    except BaseException as error:
        _quietly(lane.rollback)
        _raise(lane, error)
    _commit_checked(ended, lane)
    return ended


def _do_sync(step: WorkStep, lane: Lane) -> Rows:
    match step:
        case Call(handler, events):
            arguments = _arguments(handler, events, lane)
            fp("handle.before_handler")
            lane.handler_runs(True)
            try:
                handler.function(*arguments)
                lane.flush()
            finally:
                lane.handler_runs(False)
            fp("handle.after_handler")
            return ()
        case Savepoint():
            lane.savepoint()
            return ()
        case Undo():
            lane.undo()
            return ()
        case _:
            return lane.execute(step)


def _commit_checked(ended: list[Done], lane: Lane) -> None:
    if all(done.error is not None for done in ended):
        _quietly(lane.rollback)
        return
    try:
        fp("settle.before_commit")
        lane.commit()
        fp("settle.after_commit")
    except BaseException as error:
        _quietly(lane.rollback)
        _raise(lane, error)


async def run_async(turns: Sequence[Turn], lane: AsyncLane, limits: Limits) -> list[Done]:
    """Walk through `work` on an event loop and commit. The twin of `run_sync`, step for step."""
    steps = work(turns, limits)
    try:
        fp("handle.before_begin")
        await lane.begin()
        step = next(steps)
        while True:
            try:
                rows = await _do_async(step, lane)
            except Exception as error:
                step = steps.throw(lane.translate(error))
            else:
                step = steps.send(rows)
    except StopIteration as end:
        ended: list[Done] = end.value
    except BaseException as error:
        await _quietly_async(lane)
        _raise(lane, error)
    if all(done.error is not None for done in ended):
        await _quietly_async(lane)
        return ended
    try:
        fp("settle.before_commit")
        await lane.commit()
        fp("settle.after_commit")
    except BaseException as error:
        await _quietly_async(lane)
        _raise(lane, error)
    return ended


async def _do_async(step: WorkStep, lane: AsyncLane) -> Rows:
    match step:
        case Call(handler, events):
            arguments = _arguments(handler, events, lane)
            fp("handle.before_handler")
            lane.handler_runs(True)
            try:
                await lane.call(handler, arguments)
                await lane.flush()
            finally:
                lane.handler_runs(False)
            fp("handle.after_handler")
            return ()
        case Savepoint():
            await lane.savepoint()
            return ()
        case Undo():
            await lane.undo()
            return ()
        case _:
            return await lane.execute(step)


def _arguments(handler: Handler, events: tuple[Event, ...], lane: _Lane) -> list[object]:
    event: object = list(events) if handler.batch > 1 else events[0]
    return [event if name == "event" else lane.given(name) for name in handler.wants]


def _raise(lane: _Lane, error: BaseException) -> NoReturn:
    translated = lane.translate(error) if isinstance(error, Exception) else error
    if translated is error:
        raise error
    raise translated from error


def _quietly(step: Callable[[], None]) -> None:
    """A rollback that fails has still rolled back: its connection is gone, and the next begin finds that out."""
    with contextlib.suppress(Exception):
        step()


async def _quietly_async(lane: AsyncLane) -> None:
    with contextlib.suppress(Exception):
        await lane.rollback()
