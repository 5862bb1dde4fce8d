"""The worker's loop: claim in batches, hand groups to lanes, write down what did not succeed.

Correctness needs nothing from this file but the order of its calls: whatever it forgets, drops or does twice, the
claim's lease and the row lock put right. Polling carries it; a wake-up is only a hint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hookonce.clock import Clock
from hookonce.errors import Conflict, DiskFailure, HandlerTimeout, LostClaim, StorageError, Unavailable
from hookonce.failpoints import fp
from hookonce.flow import claim as claiming
from hookonce.flow.handle import Done, Limits, Turn
from hookonce.flow.settle import APPLIED, SKIPPED, decide, settle
from hookonce.model import Claim, ClaimId, Outcome, Result, State
from hookonce.registry import CRASHES_MAX, Handler, Registry
from hookonce.storage.backend import Backend, Colour
from hookonce.storage.operation import Operation
from hookonce.telemetry import Counters, claim_fields, log_event, work_log
from hookonce.worker.lanes import Slots

T = TypeVar("T")

POLL_IDLE_SECONDS = 0.25
SUSPECT_SECONDS = 0.25
OUTAGE_SECONDS = 1.0
GROUP_MAX = 32
GROUP_SECONDS = 0.02
QUICK_SECONDS = 0.005
QUICK_LANES = 4
"""Lanes that work on shared transactions at once. More of them only take the interpreter from each other."""

CONFLICTS_MAX = 10
CLAIM_MAX = 512
NOBODY_SECONDS = 5.0
LEAVE_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How much a worker takes on. `group` = 1 gives every event a transaction of its own."""

    concurrency: int = 8
    lease_seconds: float = claiming.LEASE_SECONDS
    group: int = GROUP_MAX
    crashes_max: int = CRASHES_MAX


@dataclass(slots=True)
class _Ready:
    """A claim in hand, and since when."""

    turn: Turn
    since: float
    alone: bool = False


class Worker:
    """Works on what is due until it is told to stop. Belongs to one event loop."""

    def __init__(
        self, backend: Backend, registry: Registry, clock: Clock, counters: Counters, settings: WorkerSettings
    ) -> None:
        self._backend = backend
        self._registry = registry
        self._clock = clock
        self._counters = counters
        self._settings = settings
        self._slots = Slots(backend, min(settings.concurrency, backend.lanes_max), share=settings.group > 1)
        self._ready: deque[_Ready] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._unsettled: list[tuple[Claim, Outcome, float]] = []
        self._pace: dict[str, float] = {}
        self._limit = max(8, settings.concurrency * 2)
        self._wake = asyncio.Event()
        self._quick = 0
        self._suspects_at = 0.0
        self._unheard: dict[ClaimId, float] = {}
        self._suspect: _Ready | None = None
        self._outage = False
        self.failure: Exception | None = None

    @property
    def busy(self) -> bool:
        return bool(self._ready or self._running or self._unsettled)

    @property
    def wanted(self) -> bool:
        """Whether a hint would change anything: not while one is pending or there is enough to do."""
        return not self._wake.is_set() and self._slots.free > 0

    def wake(self) -> None:
        """A hint that there may be work. From another thread: loop.call_soon_threadsafe(worker.wake)."""
        self._wake.set()

    async def run(self, stop: asyncio.Event, *, grace_seconds: float = 25.0) -> None:
        """Work until `stop` is set, then finish within the grace what has begun and hand back the rest."""
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda _: self._wake.set())
        try:
            while not stop.is_set() and self.failure is None:
                found = await self._turn()
                if not found:
                    await self._rest()
        finally:
            stopping.cancel()
            await self._leave(grace_seconds)
        if self.failure is not None:
            raise self.failure

    async def drain(self) -> None:
        """Work until nothing is due: for tests, cron and command lines."""
        try:
            while True:
                self._suspects_at = 0.0
                # What was at work while we looked may have ended meanwhile, and left something due, or kept us from
                # looking for a second suspect: only a look by somebody with free hands is the last.
                idle = not self.busy
                found = await self._turn()
                if self.failure is not None:
                    raise self.failure
                if idle and not found and not self.busy:
                    return
                if self._running:
                    await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._leave(0.0)

    async def _turn(self) -> bool:
        """One round: write what could not be written, claim, hand out. Whether something was found."""
        try:
            await self._settle_again()
            await self._hand_back_late()
            found = await self._claim()
        except DiskFailure as error:
            self.failure = error
            return False
        except StorageError as error:
            self._note_outage(error)
            await asyncio.sleep(OUTAGE_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311 - spreads reconnects
            return False
        self._outage = False
        self._hand_out()
        return found

    async def _rest(self) -> None:
        """Until a lane is done, a hint comes, or it is time to look again."""
        waiter = asyncio.ensure_future(self._wake.wait())
        pause = POLL_IDLE_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311 - spreads polls
        await asyncio.wait({waiter, *self._running}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        self._wake.clear()

    # -- claim ------------------------------------------------------------------------------------------------

    async def _claim(self) -> bool:
        if not self._slots.free or len(self._ready) > self._limit // 2:
            return False
        found = False
        await self._disown()
        now = time.monotonic()
        if now >= self._suspects_at and self._suspect is None:
            found = await self._claim_suspect()
            self._suspects_at = 0.0 if found else now + SUSPECT_SECONDS
        fp("claim.before_claim")
        claim_id = claiming.new_claim_id()
        claims = await self._heard(
            claim_id,
            claiming.claim_due(
                limit=self._limit,
                lease_seconds=self._settings.lease_seconds,
                now=self._clock.override,
                claim_id=claim_id,
            ),
        )
        fp("claim.after_claim")
        self._ready += [_Ready(self._turn_of(claim), now) for claim in claims]
        if len(claims) == self._limit:
            self._limit = min(self._limit * 2, CLAIM_MAX)
        return found or bool(claims)

    async def _heard(self, claim_id: ClaimId, operation: Operation[T]) -> T:
        """Claim. If the answer is lost, what was claimed may be ours without our knowing."""
        try:
            return await self._backend.run(operation, within=NOBODY_SECONDS, single=True)
        except StorageError:
            self._unheard[claim_id] = time.monotonic()
            raise

    async def _disown(self) -> None:
        """Hand back what we may hold unknowingly, before its lease makes us look dead.

        More than once: a claim whose answer was lost may be committed later than we ask.
        """
        if not self._unheard:
            return
        now = time.monotonic()
        await self._backend.run(
            claiming.disown(list(self._unheard), now=self._clock.override), within=NOBODY_SECONDS, single=True
        )
        kept = self._settings.lease_seconds
        self._unheard = {claim_id: at for claim_id, at in self._unheard.items() if now - at < kept}

    async def _claim_suspect(self) -> bool:
        claim_id = claiming.new_claim_id()
        suspect = await self._heard(
            claim_id,
            claiming.claim_suspect(
                lease_seconds=self._settings.lease_seconds,
                crashes_max=self._settings.crashes_max,
                now=self._clock.override,
                claim_id=claim_id,
            ),
        )
        if suspect is None:
            return False
        claim = suspect.claim
        if suspect.given_up:
            self._report(claim, Outcome(state=State.FAILED, result=Result.CRASH_LOOP, error=claiming.CRASHED))
        else:
            log_event(
                work_log,
                logging.WARNING,
                "taken over",
                **claim_fields(claim),
                crashes=claim.crashes,
                state="processing",
            )
            # The only one in hand: if it takes this process with it, no second suspect is blamed once more.
            self._suspect = _Ready(self._turn_of(claim), time.monotonic(), alone=True)
            self._ready.append(self._suspect)
        return True

    def _turn_of(self, claim: Claim) -> Turn:
        return Turn(claim, self._registry.handler_for(claim.source, claim.type))

    async def _hand_back_late(self) -> None:
        """What could not begin in half of its lease goes back, uncounted: somebody else may have a free lane."""
        if not self._ready or time.monotonic() - self._ready[0].since < self._settings.lease_seconds / 2:
            return
        self._limit = max(1, self._limit // 2)
        await self._hand_back(list(self._ready))
        self._ready.clear()

    async def _hand_back(self, ready: Sequence[_Ready]) -> None:
        by_claim: dict[str, list[Claim]] = {}
        for one in ready:
            self._forget_suspect(one)
            by_claim.setdefault(one.turn.claim.claim_id, []).append(one.turn.claim)
        fp("claim.before_release")
        for claims in by_claim.values():
            await self._backend.run(
                claiming.release(claims, now=self._clock.override), within=NOBODY_SECONDS, single=True
            )

    # -- hand out ---------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        while self._ready and self._slots.free > 0:
            quick = self._shares(self._ready[0])
            if quick and self._quick == QUICK_LANES:
                return
            self._start(self._next_group(), quick=quick)

    def _start(self, group: list[_Ready], *, quick: bool = False) -> None:
        self._slots.free -= 1
        self._quick += quick
        task = asyncio.ensure_future(self._work(group))
        self._running.add(task)
        task.add_done_callback(partial(self._over, quick=quick))

    def _over(self, task: asyncio.Task[None], *, quick: bool) -> None:
        self._slots.free += 1
        self._quick -= quick
        self._running.discard(task)
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            work_log.error("a bug in the worker; the lease will put it right", exc_info=task.exception())

    def _next_group(self) -> list[_Ready]:
        """The next turn, with those behind it that may share its transaction."""
        first = self._ready.popleft()
        group = [first]
        handler = first.turn.handler
        if first.alone:
            return group
        if handler is not None and handler.batch > 1:
            self._gather(group, lambda other: other.turn.handler is handler, handler.batch)
        elif self._groups(handler):
            spent = self._pace_of(handler)

            def fits(other: _Ready) -> bool:
                nonlocal spent
                pace = self._pace_of(other.turn.handler)
                spent += pace
                quick = pace <= QUICK_SECONDS and spent <= GROUP_SECONDS
                return quick and _may_join(other.turn.handler, handler, self._backend)

            most = self._settings.group if self._settings.group > 1 else GROUP_MAX
            self._gather(group, fits, min(most, self._fair_share()))
        return group

    def _gather(self, group: list[_Ready], fits: Callable[[_Ready], bool], most: int) -> None:
        claim_id = group[0].turn.claim.claim_id
        while self._ready and len(group) < most:
            other = self._ready[0]
            if other.alone or other.turn.claim.claim_id != claim_id or not fits(other):
                return
            group.append(self._ready.popleft())

    def _groups(self, handler: Handler | None) -> bool:
        return self._pace_of(handler) <= QUICK_SECONDS

    def _shares(self, ready: _Ready) -> bool:
        """Whether this turn will share a transaction with others."""
        handler = ready.turn.handler
        return (
            self._slots.shares and not ready.alone and (handler is None or handler.batch == 1) and self._groups(handler)
        )

    def _fair_share(self) -> int:
        """Few events are spread over the free lanes rather than queued in one transaction."""
        lanes = min(self._slots.free, QUICK_LANES - self._quick) if self._slots.shares else self._slots.free
        return -(-(len(self._ready) + 1) // max(1, lanes))  # with the one that was taken already

    def _pace_of(self, handler: Handler | None) -> float:
        """What a handler took lately; unknown is slow. Only quick handlers share a transaction."""
        if handler is None:
            return 0.0
        return self._pace.get(handler.name, 1.0)

    def _learn(self, done: Sequence[Done]) -> None:
        for one in done:
            if one.turn.handler is not None and one.turn.handler.batch == 1:
                name = one.turn.handler.name
                self._pace[name] = max(one.seconds, 0.9 * self._pace.get(name, 0.0))

    # -- work -------------------------------------------------------------------------------------------------

    async def _work(self, group: list[_Ready]) -> None:
        began = time.monotonic()
        try:
            done = await self._on_lane([one.turn for one in group])
        except asyncio.CancelledError:
            # Out of grace. The lane's connection is gone, so nothing of it commits: another worker may have it now.
            with contextlib.suppress(StorageError):
                await self._hand_back(group)
            raise
        except Exception as error:
            await self._ended_badly(group, error, time.monotonic() - began)
        else:
            self._learn(done)
            await self._ended(done)
        finally:
            self._forget_suspect(group[0])

    def _forget_suspect(self, ready: _Ready) -> None:
        if ready is self._suspect:
            self._suspect = None

    async def _on_lane(self, turns: list[Turn]) -> list[Done]:
        """Run a group on a free lane. Two that collided part for a moment and try again; nobody is to blame."""
        colour = _colour(turns[0].handler, self._backend)
        for conflict in range(CONFLICTS_MAX):
            slot = await self._slots.take(colour)
            try:
                return await slot.run(turns, self._limits(turns))
            except Conflict:
                if conflict + 1 == CONFLICTS_MAX:
                    raise
            finally:
                self._slots.give_back(colour, slot)
            await asyncio.sleep(0.005 * random.random() * 2**conflict)  # noqa: S311 - parts two that collided
        raise AssertionError

    def _limits(self, turns: Sequence[Turn]) -> Limits:
        own = [turn.handler.timeout_seconds for turn in turns if turn.handler and turn.handler.timeout_seconds]
        return Limits(seconds=max(own, default=self._backend.handler_seconds), now=self._clock.override)

    async def _ended(self, done: Sequence[Done]) -> None:
        for one in done:
            claim = one.turn.claim
            if one.error is None:
                self._report(claim, APPLIED if one.result == Result.APPLIED else SKIPPED)
            elif isinstance(one.error, LostClaim):
                self._report_lost(claim)
            elif isinstance(one.error, DiskFailure):
                self._fail(one.error)
            elif isinstance(one.error, Conflict):
                self._ready.appendleft(_Ready(one.turn, time.monotonic(), alone=True))
            else:
                await self._failed(one.turn, one.error, one.seconds)

    async def _ended_badly(self, group: list[_Ready], error: Exception, seconds: float) -> None:
        """The transaction is undone. One turn: its outcome is written. Several: each half is tried by itself."""
        if isinstance(error, DiskFailure):
            self._fail(error)
            return
        if len(group) == 1:
            turn = group[0].turn
            if isinstance(error, LostClaim):
                self._report_lost(turn.claim)
            else:
                await self._failed(turn, error, seconds)
        elif isinstance(error, StorageError) and not isinstance(error, Conflict):
            for one in group:
                await self._failed(one.turn, error, seconds)
        else:
            if isinstance(error, HandlerTimeout):
                self._learn_slow(group, seconds)
            self._split(group)

    def _learn_slow(self, group: list[_Ready], seconds: float) -> None:
        """One of them ran out of time, with the lease of all: if they come back, each gets a turn of its own.

        Otherwise they would be handed back, claimed and grouped again, and the one would never be found.
        """
        for one in group:
            if one.turn.handler is not None:
                self._pace[one.turn.handler.name] = seconds

    def _fail(self, error: DiskFailure) -> None:
        self.failure = error
        self._wake.set()

    def _split(self, group: list[_Ready]) -> None:
        handler = group[0].turn.handler
        if handler is None or handler.batch == 1:
            self._ready.extendleft(_Ready(one.turn, one.since, alone=True) for one in reversed(group))
            return
        half = len(group) // 2
        self._start(group[:half])
        self._start(group[half:])

    async def _failed(self, turn: Turn, error: BaseException, seconds: float) -> None:
        outcome = decide(error, turn.claim, turn.handler or _NO_HANDLER, random.random())  # noqa: S311 - spreads retries
        fp("settle.before_failure")
        await self._settle(turn.claim, outcome, seconds)

    async def _settle(self, claim: Claim, outcome: Outcome, seconds: float) -> None:
        try:
            held = await self._backend.run(
                settle(claim, outcome, seconds=seconds, now=self._clock.override), within=NOBODY_SECONDS
            )
        except StorageError as error:
            self._note_outage(error)
            self._unsettled.append((claim, outcome, seconds))
            return
        fp("settle.after_failure")
        if held:
            self._report(claim, outcome)
        else:
            self._report_lost(claim)

    async def _settle_again(self) -> None:
        """After an outage: the outcomes that could not be written, before their leases make them look like crashes."""
        waiting, self._unsettled = self._unsettled, []
        for claim, outcome, seconds in waiting:
            await self._settle(claim, outcome, seconds)
        if self._unsettled:
            raise Unavailable(f"{len(self._unsettled)} outcomes wait to be written")

    # -- leave ------------------------------------------------------------------------------------------------

    async def _leave(self, grace_seconds: float) -> None:
        """Hand back what has not begun, wait for what has, take the connections away from what does not end."""
        try:
            if self._ready:
                await self._hand_back(list(self._ready))
                self._ready.clear()
        except StorageError as error:
            self._note_outage(error)
        if self._running:
            await asyncio.wait(set(self._running), timeout=grace_seconds)
        for task in set(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running), timeout=LEAVE_SECONDS)
        await self._slots.close()

    # -- report -----------------------------------------------------------------------------------------------

    def _report(self, claim: Claim, outcome: Outcome) -> None:
        result = outcome.result.value if outcome.result else outcome.state.value
        self._counters.handled[claim.source, result] += 1
        level = logging.INFO if outcome.error is None else logging.WARNING
        if outcome.state is State.FAILED:
            level = logging.ERROR
        if work_log.isEnabledFor(level):
            log_event(
                work_log,
                level,
                outcome.state.value,
                **claim_fields(claim),
                state=outcome.state.value,
                result=result,
                attempt=claim.attempts,
                error=outcome.error,
            )

    def _report_lost(self, claim: Claim) -> None:
        self._counters.handled[claim.source, "lost"] += 1
        log_event(work_log, logging.WARNING, "claim lost, result dropped", **claim_fields(claim))

    def _note_outage(self, error: StorageError) -> None:
        if not self._outage:
            log_event(work_log, logging.ERROR, "the database does not answer", error=error)
        self._outage = True


def _nothing() -> None:
    """Stands where no handler does."""


_NO_HANDLER = Handler(function=_nothing, source="", pattern="")


def _colour(handler: Handler | None, backend: Backend) -> Colour:
    if handler is None:
        return "sync" if "sync" in backend.hands.colours else "async"
    if handler.is_async or "sync" not in backend.hands.colours:
        return "async"
    return "sync"


def _may_join(other: Handler | None, first: Handler | None, backend: Backend) -> bool:
    """Whether both run on the same kind of lane, one event a call."""
    single = other is None or other.batch == 1
    return single and _colour(other, backend) == _colour(first, backend)
