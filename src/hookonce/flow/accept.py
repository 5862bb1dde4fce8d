"""Stage accept: make arrivals ours, durably. Whatever waits at the same moment shares one commit.

Promise: whoever waits is told only after the COMMIT of the row, or, for a duplicate, of its delivery row.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from hookonce.clock import Clock
from hookonce.errors import Busy, Conflict, RowRefused, StorageError, Unavailable
from hookonce.failpoints import fp
from hookonce.model import EVENT_ID_BYTES_MAX, Arrival, ReceiptId, State, Stored, Verdict
from hookonce.storage.operation import Many, Operation, Value

T = TypeVar("T")

WAITING_MAX = 2_000
"""Arrivals in the queue before the answer is 503."""

GROUP_MAX = 500
"""Arrivals in one commit."""

BUDGET_SECONDS = 5.0
"""After this long an arrival is answered, whatever the database does."""

CONFLICTS_MAX = 10
"""Collisions with other transactions, one after another, before the answer is 503."""

FOREVER_SECONDS = 3_000 * 365.25 * 86_400.0
"""A wait that only a person ends."""


class Store(Protocol):
    """What accepting needs of a backend."""

    @property
    def bodies_apart(self) -> bool:
        """Whether bodies take a step of their own."""
        ...

    @property
    def groups_max(self) -> int:
        """How many groups may be on their way to the database at once."""
        ...

    async def run(
        self, operation: Operation[T], *, within: float | None = None, urgent: bool = False, single: bool = False
    ) -> T:
        """Run an operation in a transaction of its own; Unavailable when it is not done `within` seconds."""
        ...

    async def close(self) -> None: ...


def receipts_insert(
    arrivals: Sequence[Arrival], *, now: float | None, bodies_apart: bool
) -> Operation[dict[bytes, ReceiptId]]:
    """Insert what is new, bodies included. Returns key to id of the new ones."""
    rows = yield Many("receipt_insert", [_row(arrival) for arrival in arrivals], {"now": now})
    fresh = {bytes(key): ReceiptId(identity) for identity, key in rows}
    if bodies_apart and fresh:
        yield Many("body_insert", [(fresh[a.key], a.body, a.headers) for a in arrivals if a.key in fresh])
    return fresh


def deliveries_insert(arrivals: Sequence[Arrival], *, now: float | None) -> Operation[list[Stored | None]]:
    """Record arrivals of events that we have. None for one whose receipt is gone: it must be inserted again."""
    known = yield Many("receipt_known", [(a.key, a.guard) for a in arrivals])
    by_key = {bytes(key): (ReceiptId(identity), bytes(digest), since) for identity, key, _, digest, since in known}
    by_guard = {
        bytes(guard): (ReceiptId(identity), since) for identity, _, guard, _, since in known if guard is not None
    }
    stored = [_verdict(arrival, by_key, by_guard) for arrival in arrivals]
    found = [_delivery_row(a, s) for a, s in zip(arrivals, stored, strict=True) if s is not None]
    if found:
        yield Many("delivery_insert", found, {"now": now})
    return stored


def _verdict(
    arrival: Arrival,
    by_key: dict[bytes, tuple[ReceiptId, bytes, float]],
    by_guard: dict[bytes, tuple[ReceiptId, float]],
) -> Stored | None:
    if arrival.key in by_key:
        receipt_id, digest, since = by_key[arrival.key]
        return Stored(Verdict.DUPLICATE if digest == arrival.body_digest else Verdict.MISMATCH, receipt_id, since)
    if arrival.guard is not None and arrival.guard in by_guard:
        return Stored(Verdict.SUSPECT_REPLAY, *by_guard[arrival.guard])
    return None


def _row(a: Arrival) -> tuple[Value, ...]:
    facts = a.facts
    return (
        a.key,
        a.guard,
        a.source,
        readable(facts.account),
        readable(facts.event_id),
        readable(facts.delivery_id),
        readable(facts.type),
        readable(facts.object_id),
        facts.event_time,
        readable(facts.version_key),
        readable(facts.api_version),
        facts.problem,
        a.body_digest,
        a.secret_id,
        a.correlation_id,
        a.trace_parent,
        a.address,
        (State.WAITING if a.hold else State.RECEIVED).value,
        FOREVER_SECONDS if a.hold else 0.0,
        a.body,
        a.headers,
    )


def _delivery_row(a: Arrival, stored: Stored) -> tuple[Value, ...]:
    evidence = None if stored.verdict is Verdict.DUPLICATE else a.body
    return (
        stored.receipt_id,
        stored.verdict.value,
        readable(a.facts.delivery_id),
        a.body_digest,
        evidence,
        a.address,
        a.correlation_id,
    )


def readable(text: str | None) -> str | None:
    """Foreign text as a column may hold it: bounded, printable, no NUL, no half characters. Identity is the key's job."""
    if text is None or (len(text) <= EVENT_ID_BYTES_MAX and text.isprintable()):
        return text
    escaped = text[:EVENT_ID_BYTES_MAX].encode("unicode_escape").decode("ascii")
    return escaped if len(escaped) <= EVENT_ID_BYTES_MAX else escaped[: EVENT_ID_BYTES_MAX - 1] + "…"


Tell = Callable[[Stored | Exception], None]
"""How whoever waits is told: with what was stored, or with the error that kept it from being stored."""


@dataclass(slots=True)
class _Waiting:
    arrival: Arrival
    tell: Tell
    since: float
    batch: object = None
    told: bool = False

    def answer(self, outcome: Stored | Exception) -> None:
        if not self.told:
            self.told = True
            self.tell(outcome)


class Acceptor:
    """The queue in front of the database, and the groups that leave it. Belongs to one event loop."""

    def __init__(
        self, store: Store, clock: Clock, *, waiting_max: int = WAITING_MAX, budget: float = BUDGET_SECONDS
    ) -> None:
        self._store = store
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._waiting_max = waiting_max
        self._budget = budget
        self._groups: set[asyncio.Task[None]] = set()
        self._flushing = 0
        self._commit_seconds = 0.0
        self._sweeping = False

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._groups

    def submit(self, arrival: Arrival) -> asyncio.Future[Stored]:
        """Queue one arrival. The future is independent of whoever waits for it: a client that leaves changes nothing."""
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self.submit_to(arrival, partial(_resolve, future))
        return future

    def submit_all(self, arrivals: Sequence[Arrival]) -> list[asyncio.Future[Stored]]:
        """Queue the events of one request. They share a commit, so that a crash leaves all of them or none."""
        if len(self._waiting) + len(arrivals) > self._waiting_max:
            raise Busy(f"{len(self._waiting)} arrivals wait for the database already")
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in arrivals]
        batch = object()
        for arrival, future in zip(arrivals, futures, strict=True):
            self._enqueue(_Waiting(arrival, partial(_resolve, future), time.monotonic(), batch))
        return futures

    def submit_to(self, arrival: Arrival, tell: Tell) -> None:
        """Queue one arrival; `tell` is called once, when it is stored or has failed."""
        if len(self._waiting) >= self._waiting_max:
            raise Busy(f"{len(self._waiting)} arrivals wait for the database already")
        self._enqueue(_Waiting(arrival, tell, time.monotonic()))

    def _enqueue(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self._flushing < self._groups_allowed():
            self._start_group(asyncio.get_running_loop())
        elif not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(self._budget / 10, self._sweep)

    async def drain(self) -> None:
        """Wait until everything that was submitted is answered."""
        while self._groups:
            await asyncio.wait(self._groups)

    async def close(self) -> None:
        """Answer what waits, then close the connections."""
        await self.drain()
        await self._store.close()

    def _groups_allowed(self) -> int:
        # While commits are fast one group at a time is best: the next gathers meanwhile, and larger groups cost less.
        # Where the disk or the network makes them slow, more of them travel side by side.
        return min(self._store.groups_max, 1 + int(self._commit_seconds / 0.004))

    def _start_group(self, loop: asyncio.AbstractEventLoop) -> None:
        self._flushing += 1
        group = loop.create_task(self._flush())
        self._groups.add(group)
        group.add_done_callback(self._groups.discard)

    async def _flush(self) -> None:
        while self._waiting:
            group = self._next_group()
            began = time.monotonic()
            try:
                await self._write(group)
            except Exception as error:
                _fail(group, error)
            self._commit_seconds += 0.2 * (time.monotonic() - began - self._commit_seconds)
        # Here, not in a callback of the task: whoever submits next must not count on a group that has ended.
        self._flushing -= 1

    def _next_group(self) -> list[_Waiting]:
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), GROUP_MAX))]
        batch = group[-1].batch
        while batch is not None and self._waiting and self._waiting[0].batch is batch:
            group.append(self._waiting.popleft())
        return group

    async def _write(self, group: list[_Waiting]) -> None:
        deadline = group[0].since + self._budget
        first = {waiting.arrival.key: waiting for waiting in reversed(group)}
        new = sorted(first.values(), key=lambda waiting: waiting.arrival.key)
        fp("accept.before_insert")
        fresh = await self._insert(new, deadline)
        fp("accept.after_insert")
        known: list[_Waiting] = []
        for waiting in group:
            receipt_id = fresh.get(waiting.arrival.key)
            if receipt_id is not None and first[waiting.arrival.key] is waiting:
                waiting.answer(Stored(Verdict.ACCEPTED, receipt_id))
            elif not waiting.told:
                known.append(waiting)
        if known:
            await self._record(known, deadline)

    async def _insert(self, new: list[_Waiting], deadline: float) -> dict[bytes, ReceiptId]:
        """Insert, and where the database refuses a row, let that row fail alone."""
        arrivals = [waiting.arrival for waiting in new]
        try:
            return await self._run_twice(arrivals, deadline)
        except RowRefused as error:
            if len(new) == 1:
                _fail(new, error)
                return {}
            half = len(new) // 2
            return await self._insert(new[:half], deadline) | await self._insert(new[half:], deadline)

    async def _run_twice(self, arrivals: list[Arrival], deadline: float) -> dict[bytes, ReceiptId]:
        """After an ambiguous end, run the same insert once more on a new connection.

        Asking whether it was committed proves nothing: the first backend may still be committing. The unique
        index makes the second insert wait for the first and then answer truthfully.
        """

        def insert() -> Operation[dict[bytes, ReceiptId]]:
            return receipts_insert(arrivals, now=self._clock.override, bodies_apart=self._store.bodies_apart)

        try:
            return await self._run(insert, deadline)
        except Conflict:
            raise
        except Unavailable:
            return await self._run(insert, deadline)

    async def _run(self, operation: Callable[[], Operation[T]], deadline: float) -> T:
        """Run one step. Those that collided part for a moment and try again: nobody is to blame for it."""
        for conflict in range(CONFLICTS_MAX):
            try:
                return await self._store.run(operation(), within=_left(deadline), urgent=True, single=True)
            except Conflict:
                if conflict + 1 == CONFLICTS_MAX or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.002 * random.random() * 2**conflict)  # noqa: S311 - parts those that collided
        raise AssertionError

    async def _record(self, known: list[_Waiting], deadline: float) -> None:
        fp("accept.before_deliveries")
        for _ in range(3):
            arrivals = [waiting.arrival for waiting in known]
            stored = await self._run(partial(deliveries_insert, arrivals, now=self._clock.override), deadline)
            fp("accept.after_deliveries")
            for waiting, one in zip(known, stored, strict=True):
                if one is not None:
                    waiting.answer(one)
            known = [w for w, one in zip(known, stored, strict=True) if one is None]
            if not known:
                return
            # The receipt that stood in the way is gone by now: insert again rather than believe either answer.
            fresh = await self._insert(sorted(known, key=lambda w: w.arrival.key), deadline)
            for waiting in known:
                if waiting.arrival.key in fresh:
                    waiting.answer(Stored(Verdict.ACCEPTED, fresh[waiting.arrival.key]))
            known = [w for w in known if not w.told]
            if not known:
                return
        _fail(known, Unavailable("a receipt with this key came and went three times"))

    def _sweep(self) -> None:
        """Answer those that waited too long. They left nothing behind."""
        now = time.monotonic()
        while self._waiting and now - self._waiting[0].since > self._budget:
            _fail([self._waiting.popleft()], Busy(f"the database did not keep up within {self._budget:g} s"))
        if self._waiting:
            asyncio.get_running_loop().call_later(self._budget / 10, self._sweep)
        else:
            self._sweeping = False


def _left(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())


def _resolve(future: asyncio.Future[Stored], outcome: Stored | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
        future.exception()  # whoever left does not need to hear of it
    else:
        future.set_result(outcome)


def _fail(group: Iterable[_Waiting], error: Exception) -> None:
    told = error if isinstance(error, StorageError) else Unavailable(repr(error))
    for waiting in group:
        waiting.answer(told)
