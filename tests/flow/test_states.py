"""Anything that can happen to events, in any order: what is in the database is what a table in memory says.

Every rule is a real step of the product: accepting, claiming, working, settling, handing back, a person's act. Workers
die at any point of their transaction, wake up with turns that are over, and clocks go forwards and back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from hookonce import Discard, Event, Park, Retry
from hookonce.clock import SetClock
from hookonce.errors import HandlerMisuse, LostClaim, StorageError, Unavailable
from hookonce.failpoints import FailpointHit, armed
from hookonce.flow.claim import claim_due, claim_suspect, release
from hookonce.flow.handle import Done, Limits, Turn, run_sync
from hookonce.flow.operate import Act, act
from hookonce.flow.settle import decide, settle
from hookonce.model import Claim
from hookonce.registry import Backoff
from hookonce.storage.postgres import cut
from hookonce.storage.sqlite import choose_module
from tests.flow.box import Box, Place, acme, wrote
from tests.flow.expected import (
    ATTEMPTS_MAX,
    CRASHES_MAX,
    LEASE_SECONDS,
    WAITS,
    Expected,
    Row,
    Seen,
    compare,
    laws_of_one_moment,
    laws_of_one_step,
)

EXAMPLES = 120
STEPS = 40
SHRINKING_SECONDS = 30
START = 1_800_000_000.0
WAIT_SECONDS = 20.0
A_DAY = 86_400.0

NAMES = [f"evt_{number}" for number in range(6)]
arrivals = st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 0, 0, 1]))
"""Few names, so that most of what arrives was there before; now and then with another body."""

picks = st.integers(0, 63)
BAD_ENDS = [*WAITS, "discards"]
ends = st.sampled_from(["succeeds", "succeeds", *BAD_ENDS, "misuses"])
bad_ends = st.sampled_from([*BAD_ENDS, "misuses"])
quiet_ends = st.sampled_from(["succeeds", "succeeds", "fails", "retries", "parks", "discards"])
"""Those that concern nobody but the event, however many share its transaction."""

DEADLY = (
    "handle.after_lock",
    "handle.before_handler",
    "handle.after_handler",
    "settle.before_mark",
    "settle.before_commit",
    "settle.after_commit",
)
UNANSWERED = (
    "accept.before_insert",
    "accept.after_insert",
    "accept.before_deliveries",
    "accept.after_deliveries",
)


class Died(BaseException):
    """The worker is gone: nothing that follows in its code runs any more."""


def error_of(how: str) -> Exception:
    """The same end as a handler's, for a worker that never came to its handler."""
    match how:
        case "fails":
            return ValueError("no")
        case "retries":
            return Retry("later", after=WAITS[how])
        case "parks":
            return Park("too early", wait=WAITS[how])
        case "discards":
            return Discard("not ours")
        case "outage":
            return Unavailable("the database is away")
        case _:
            return HandlerMisuse("the handler ended its transaction")


@dataclass
class Open:
    """A transaction of work that is open while other things happen."""

    claim: Claim
    lane: Any
    entered: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    how: str = ""
    ended: list[Done] | BaseException | None = None
    thread: threading.Thread | None = None


class Stage:
    """What outlives one example: the loop, the database, connections, and a handler that does what it is told."""

    def __init__(self, place: Place) -> None:
        self.runner = asyncio.Runner()
        self.place = place
        self.clock = SetClock(START)
        self.box = Box(place, self.clock, place.inbox(acme(), clock=self.clock))
        self.backends = [self.box.backend(), self.box.backend()]
        self.lanes: list[Any] = []
        self.script: dict[str, Callable[[Event, Any], None]] = {}
        self.box.source.on("*", attempts=ATTEMPTS_MAX, backoff=Backoff(fixed=(WAITS["fails"],), jitter=0.0))(
            self.handle
        )
        self.handler = self.box.source.handlers[0]
        self._eye: Any = (
            psycopg.connect(place.where, autocommit=True)
            if self.on_postgres
            else choose_module().connect(place.where, isolation_level=None, timeout=5)
        )

    @property
    def on_postgres(self) -> bool:
        return self.place.dialect == "postgres"

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    def step(self, operation: Any, *, backend: int = 0, single: bool = True) -> Any:
        return self.do(self.backends[backend].run(operation, single=single))

    def handle(self, event: Event, conn: Any) -> None:
        """Writes, then does what the script says."""
        wrote(conn, f"{event.id} {event.generation}")
        self.script[event.id](event, conn)

    def empty(self) -> None:
        self.clock.now = START
        self.script.clear()
        tables = ["effect", *(f"hookonce_{name}" for name in ("receipt", "body", "delivery", "attempt", "audit"))]
        self.do(self.backends[0].script(";\n".join(f"DELETE FROM {name}" for name in tables) + ";"))

    def lane(self) -> Any:
        return self.lanes.pop() if self.lanes else self.backends[0].lane()

    def kill(self, lane: Any) -> None:
        """Take the connection away as the kernel does, and wait until the database has noticed."""
        conn = lane._conn
        if not self.on_postgres:
            conn.close()
            return
        cut(conn)
        deadline = time.monotonic() + WAIT_SECONDS
        while self.sql(f"SELECT 1 FROM pg_stat_activity WHERE pid = {conn.info.backend_pid}"):
            assert time.monotonic() < deadline, "the server does not notice that a client is gone"
            time.sleep(0.001)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return list(self._eye.execute(text).fetchall())

    def look(self) -> list[Seen]:
        """Everything there is, read past the product."""
        due = "extract(epoch FROM r.due_at)::float8" if self.on_postgres else "r.due_at"
        effects, repeats = (
            Counter(self.sql("SELECT note FROM effect")),
            Counter(self.sql("SELECT receipt_id, verdict FROM hookonce_delivery")),
        )
        settled = Counter(identity for (identity,) in self.sql("SELECT receipt_id FROM hookonce_attempt"))
        acts = Counter(identity for (identity,) in self.sql("SELECT receipt_id FROM hookonce_audit"))
        rows = self.sql(
            f"SELECT r.id, r.event_id, r.key, r.state, {due}, r.attempts, r.crashes, r.token, r.generation, r.result,"
            " coalesce(r.claim_id, ''), b.raw FROM hookonce_receipt AS r JOIN hookonce_body AS b ON b.receipt_id = r.id"
            " ORDER BY r.id"
        )
        return [
            Seen(
                *(identity, name, bytes(key), *rest, bytes(body)),
                effects=tuple(int(text.split()[1]) for (text,) in effects.elements() if text.split()[0] == name),
                repeats=tuple(verdict for receipt, verdict in repeats.elements() if receipt == identity),
                settled=settled[identity],
                acts=acts[identity],
            )
            for identity, name, key, *rest, body in rows
        ]

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        self._eye.close()
        self.do(self.box.close())
        self.do(self.place.close())
        self.runner.close()


class Anything(RuleBasedStateMachine):
    """All that can happen. `expected` is moved by what must follow, the database by the product."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        stage.empty()
        self.stage = stage
        self.clock = stage.clock
        self.expected = Expected()
        self.claims: list[Claim] = []
        self.acknowledged: set[str] = set()
        self.turns: set[tuple[int, int]] = set()
        self.raced: set[str] = set()
        self.open: Open | None = None
        self.seen: list[Seen] = []
        self.by_a_person = False
        self.many = False

    # -- what there is to choose from -----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.clock.now

    def name(self, claim: Claim) -> str:
        assert claim.event_id is not None
        return claim.event_id

    def holds(self, claim: Claim) -> bool:
        return self.expected.holds(self.name(claim), claim.token, claim.claim_id)

    @property
    def held(self) -> list[Claim]:
        """Turns that count, except the one that is busy inside its transaction."""
        return [claim for claim in self.claims if self.holds(claim) and self.name(claim) not in self.expected.locked]

    @property
    def lost(self) -> list[Claim]:
        """Turns that are over, in the hands of whoever has not heard of it."""
        lost = [claim for claim in self.claims if not self.holds(claim)]
        # First those whose event is in other hands now: there is the most to destroy.
        return [claim for claim in lost if self.expected.rows[self.name(claim)].state == "processing"] or lost

    def mates(self, first: Claim) -> list[Claim]:
        """What was claimed with it. Who got what in a race is chance, and what follows must not depend on chance."""
        if first.claim_id in self.raced:
            return [first]
        together = [claim for claim in self.claims if claim.claim_id == first.claim_id]
        return [claim for claim in together if self.name(claim) not in self.expected.locked]

    def chosen(self, claims: list[Claim], pick: int) -> Claim:
        claim = claims[pick % len(claims)]
        note(f"  {self.name(claim)}, token {claim.token}")
        return claim

    # -- arrivals -------------------------------------------------------------------------------------------------

    async def _send(self, several: list[tuple[str, int]]) -> list[Any]:
        sending = [self.stage.box.send(name, n=body) for name, body in several]
        return await asyncio.gather(*sending, return_exceptions=True)

    def _stored(self, name: str, body: int, identity: int) -> None:
        self.expected.rows[name] = Row(identity, body, "received", self.now)

    @rule(several=st.lists(arrivals, min_size=1, max_size=5))
    def arrive(self, several: list[tuple[str, int]]) -> None:
        """Deliveries at the same moment, some of them of one event."""
        for (name, body), stored in zip(several, self.stage.do(self._send(several)), strict=True):
            must = self.expected.arrives(name, body)
            assert stored.verdict == must, f"{name}: {stored}, must be {must}"
            if must == "accepted":
                self._stored(name, body, stored.receipt_id)
            else:
                assert stored.receipt_id == self.expected.rows[name].id
                self.expected.rows[name].repeats[must] += 1
            self.acknowledged.add(name)

    @rule(arrival=arrivals, point=st.sampled_from(UNANSWERED))
    def arrive_without_an_answer(self, arrival: tuple[str, int], point: str) -> None:
        """The receiver dies around its commit: stored or not, the sender was not told."""
        name, body = arrival
        must = self.expected.arrives(name, body)
        with armed(point, partial(_raise, FailpointHit("here"))):
            (answer,) = self.stage.do(self._send([arrival]))
        passed = must != "accepted" or point in UNANSWERED[:2]
        assert isinstance(answer, StorageError) == passed, f"{answer!r}"
        if must == "accepted" and point != "accept.before_insert":
            ((identity,),) = self.stage.sql(f"SELECT id FROM hookonce_receipt WHERE event_id = '{name}'")
            self._stored(name, body, identity)
        elif must != "accepted" and point == "accept.after_deliveries":
            self.expected.rows[name].repeats[must] += 1
        if not passed:
            self.acknowledged.add(name)

    # -- turns ----------------------------------------------------------------------------------------------------

    def _took(self, claims: list[Claim]) -> None:
        for claim in claims:
            name = self.name(claim)
            assert (claim.id, claim.token) not in self.turns, f"{name}: token {claim.token} was given out before"
            self.turns.add((claim.id, claim.token))
            self.expected.taken(name, claim.claim_id, self.now)
            row = self.expected.rows[name]
            must = (row.id, row.token, row.attempts, row.crashes, row.generation)
            assert (claim.id, claim.token, claim.attempts, claim.crashes, claim.generation) == must
            self.claims.append(claim)

    def _claim(self, limit: int) -> Any:
        return claim_due(limit=limit, lease_seconds=LEASE_SECONDS, now=self.now)

    @rule(limit=st.integers(1, 4), worker=st.integers(0, 1))
    def claim(self, limit: int, worker: int) -> None:
        """A worker takes what is due."""
        must = self.expected.due(self.now, limit)
        claims = self.stage.step(self._claim(limit), backend=worker)
        assert sorted(must) == sorted(map(self.name, claims)), "what was due, no more and no less, is taken"
        self._took(claims)

    @rule(limits=st.tuples(st.integers(1, 3), st.integers(1, 3)))
    def claim_at_once(self, limits: tuple[int, int]) -> None:
        """Two workers reach for the same events: each goes to one of them."""
        due = self.expected.due(self.now, len(NAMES))

        async def both() -> list[list[Claim]]:
            backends = zip(self.stage.backends, limits, strict=True)
            return await asyncio.gather(*(one.run(self._claim(limit), single=True) for one, limit in backends))

        claims = sorted(chain.from_iterable(self.stage.do(both())), key=lambda claim: claim.id)
        names = [self.name(claim) for claim in claims]
        assert len(set(names)) == len(names) == min(sum(limits), len(due)), f"{due} were due, {names} were taken"
        assert set(names) <= set(due)
        self._took(claims)
        self.raced.update(claim.claim_id for claim in claims)

    @rule(worker=st.integers(0, 1))
    def take_over(self, worker: int) -> None:
        """A worker looks for what a dead one has left."""
        must = self.expected.suspect(self.now)
        operation = claim_suspect(lease_seconds=LEASE_SECONDS, crashes_max=CRASHES_MAX, now=self.now)
        suspect = self.stage.step(operation, backend=worker)
        assert (suspect and self.name(suspect.claim)) == must, "the one whose lease is over is taken over, nobody else"
        if suspect:
            self._took([suspect.claim])
            assert suspect.given_up == (self.expected.rows[self.name(suspect.claim)].state == "failed")

    # -- work -----------------------------------------------------------------------------------------------------

    def _plays(self, claims: list[Claim], hows: list[str]) -> None:
        for claim, how in zip(claims, hows, strict=True):
            self.stage.script[self.name(claim)] = partial(_play, how)

    def _worked(self, claims: list[Claim]) -> list[Done]:
        """One transaction, as a lane runs it. Raises what it ends with."""
        lane = self.stage.lane()
        try:
            turns = [Turn(claim, self.stage.handler) for claim in claims]
            return run_sync(turns, lane, Limits(seconds=WAIT_SECONDS, now=self.now))
        finally:
            self.stage.lanes.append(lane)

    def _settled(self, claim: Claim, error: BaseException) -> bool:
        outcome = decide(error, claim, self.stage.handler, 0.0)
        return bool(self.stage.step(settle(claim, outcome, seconds=0.0, now=self.now), single=False))

    def _ended(self, claim: Claim, how: str, error: BaseException | None, *, written: bool) -> None:
        """What must follow from the turn of somebody who had it; `written`: he also wrote down that he failed."""
        row = self.expected.rows[self.name(claim)]
        if how == "succeeds":
            assert error is None, f"{error!r}"
            row.applied()
            return
        assert error is not None and not isinstance(error, LostClaim), f"{error!r}"
        if written:
            assert self._settled(claim, error), "the holder's outcome is written"
            row.ends(how, self.now)

    @precondition(lambda self: self.held)
    @rule(pick=picks, how=ends, written=st.booleans())
    def work(self, pick: int, how: str, written: bool) -> None:
        """A turn: the handler, and what follows. Not written: the worker dies before it can say that it failed."""
        claim = self.chosen(self.held, pick)
        self._plays([claim], [how])
        error: BaseException | None = None
        try:
            (done,) = self._worked([claim])
        except Exception as raised:
            error = raised
        else:
            error = done.error
        self._ended(claim, how, error, written=written)

    @precondition(lambda self: any(len(self.mates(claim)) > 1 for claim in self.held))
    @rule(pick=picks, data=st.data(), written=st.booleans())
    def work_together(self, pick: int, data: Any, written: bool) -> None:
        """All that was claimed at once shares a transaction, also with turns that were lost meanwhile."""
        first = self.chosen([claim for claim in self.held if len(self.mates(claim)) > 1], pick)
        group = self.mates(first)
        hows = data.draw(st.lists(quiet_ends, min_size=len(group), max_size=len(group)))
        mine = [claim for claim in group if self.holds(claim)]
        self._plays(group, hows)
        if len(mine) == 1 and hows[group.index(mine[0])] != "succeeds":
            with pytest.raises(Exception, match=r"no|later|too early|not ours"):
                self._worked(group)
            return
        for done, how in zip(self._worked(group), hows, strict=True):
            claim = done.turn.claim
            if claim in mine:
                self._ended(claim, how, done.error, written=written)
            else:
                assert isinstance(done.error, LostClaim)

    @precondition(lambda self: self.held)
    @rule(pick=picks, point=st.sampled_from(DEADLY))
    def die_at_work(self, pick: int, point: str) -> None:
        """The worker is gone at any point of its transaction: before the commit nothing was, after it all is."""
        claim = self.chosen(self.held, pick)
        self._plays([claim], ["succeeds"])
        lane = self.stage.lane()

        def die() -> None:
            self.stage.kill(lane)
            raise Died

        with armed(point, die), pytest.raises(Died):
            run_sync([Turn(claim, self.stage.handler)], lane, Limits(seconds=WAIT_SECONDS, now=self.now))
        lane.close()
        if point == "settle.after_commit":
            self.expected.rows[self.name(claim)].applied()

    @precondition(lambda self: self.held)
    @rule(pick=picks, how=bad_ends)
    def give_up_before_work(self, pick: int, how: str) -> None:
        """An outcome without a transaction before it: no lane was to be had, or the time was over."""
        claim = self.chosen(self.held, pick)
        assert self._settled(claim, error_of(how))
        self.expected.rows[self.name(claim)].ends(how, self.now)

    @precondition(lambda self: self.held)
    @rule(pick=picks, all_of_them=st.booleans())
    def hand_back(self, pick: int, all_of_them: bool) -> None:
        """Claimed and not begun: given back, uncounted. What was lost meanwhile is left alone."""
        first = self.chosen(self.held, pick)
        mates = self.mates(first) if all_of_them else [first]
        mine = [claim for claim in mates if self.holds(claim)]
        assert self.stage.step(release(mates, now=self.now)) == len(mine)
        for claim in mine:
            self.expected.handed_back(self.name(claim), self.now)

    # -- zombies --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.lost)
    @rule(pick=picks, how=ends)
    def a_zombie_works(self, pick: int, how: str) -> None:
        """His handler does not even begin."""
        claim = self.chosen(self.lost, pick)
        self.stage.script[self.name(claim)] = partial(_raise, AssertionError("the handler of a lost turn began"))
        (done,) = self._worked([claim])
        assert isinstance(done.error, LostClaim), f"{done.error!r}"

    @precondition(lambda self: self.lost)
    @rule(pick=picks, how=bad_ends)
    def a_zombie_settles(self, pick: int, how: str) -> None:
        """What he has to say changes nothing."""
        assert not self._settled(self.chosen(self.lost, pick), error_of(how))

    @precondition(lambda self: self.lost)
    @rule(pick=picks)
    def a_zombie_hands_back(self, pick: int) -> None:
        """He has nothing to give."""
        assert self.stage.step(release([self.chosen(self.lost, pick)], now=self.now)) == 0

    # -- a long transaction: on SQLite it would be the only one -----------------------------------------------------

    @precondition(lambda self: self.stage.on_postgres and self.open is None and self.held)
    @rule(pick=picks)
    def begin_long_work(self, pick: int) -> None:
        """A handler has written and takes its time; the row is locked, however long its lease is over."""
        claim = self.chosen(self.held, pick)
        one = self.open = Open(claim, self.stage.lane())

        def handle(event: Event, conn: Any) -> None:
            one.entered.set()
            assert one.go_on.wait(WAIT_SECONDS)
            if one.how == "dies":
                self.stage.kill(one.lane)
                raise Died
            _play(one.how, event, conn)

        def run() -> None:
            try:
                one.ended = run_sync(
                    [Turn(claim, self.stage.handler)], one.lane, Limits(seconds=WAIT_SECONDS, now=self.now)
                )
            except BaseException as error:
                one.ended = error

        self.stage.script[self.name(claim)] = handle
        one.thread = threading.Thread(target=run, daemon=True)
        one.thread.start()
        assert one.entered.wait(WAIT_SECONDS)
        self.expected.locked.add(self.name(claim))

    @precondition(lambda self: self.open is not None)
    @rule(how=st.sampled_from(["succeeds", "succeeds", "dies", "dies", *BAD_ENDS, "misuses"]), written=st.booleans())
    def end_long_work(self, how: str, written: bool) -> None:
        """It ends, or dies."""
        one, self.open = self.open, None
        assert one is not None and one.thread is not None
        one.how = how
        one.go_on.set()
        one.thread.join(WAIT_SECONDS)
        self.expected.locked.discard(self.name(one.claim))
        if how == "dies":
            assert isinstance(one.ended, Died), f"{one.ended!r}"
            one.lane.close()
            return
        self.stage.lanes.append(one.lane)
        error = one.ended[0].error if isinstance(one.ended, list) else one.ended
        self._ended(one.claim, how, error, written=written)

    # -- a whole worker -------------------------------------------------------------------------------------------

    @precondition(lambda self: any(row.due <= self.now for row in self.expected.rows.values()))
    @rule(hows=st.lists(quiet_ends, min_size=len(NAMES), max_size=len(NAMES)))
    def drain(self, hows: list[str]) -> None:
        """A worker as it is runs until nothing is due, and takes over what is left behind."""
        plan = dict(zip(NAMES, hows, strict=True))
        for name in NAMES:
            if name not in self.expected.locked:
                self.stage.script[name] = partial(_play, plan[name])
        self.many = True
        self.stage.do(self.stage.box.drain(backend=self.stage.backends[1], concurrency=2, crashes_max=CRASHES_MAX))
        while name := self.expected.suspect(self.now):
            self._drained(name, plan)
        for name in self.expected.due(self.now, len(NAMES)):
            self._drained(name, plan)

    def _drained(self, name: str, plan: dict[str, str]) -> None:
        self.expected.taken(name, "the drain", self.now)
        row = self.expected.rows[name]
        self.turns.add((row.id, row.token))
        if row.state == "failed":
            return
        if plan[name] == "succeeds":
            row.applied()
        else:
            row.ends(plan[name], self.now)

    # -- people and time ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.expected.rows)
    @rule(pick=picks, action=st.sampled_from(["replay", "discard"]))
    def a_person_acts(self, pick: int, action: str) -> None:
        """Replay, release or discard, where it is allowed; a refusal where it is not."""
        name = sorted(self.expected.rows)[pick % len(self.expected.rows)]
        row = self.expected.rows[name]
        note(f"  {name}, {row.state}")
        allowed = self.expected.replayed(name, self.now) if action == "replay" else self.expected.discarded(name)
        order = Act(action=action, actor="the machine", reason="because")
        standing = self.stage.step(act(row.id, order, now=self.now), single=False)
        assert bool(standing.refusal) != allowed, f"{name}: {standing}"
        self.by_a_person = True

    @rule(seconds=st.sampled_from([1, 3, 5, 11, 31, 3600]))
    def time_passes(self, seconds: int) -> None:
        """Waits and leases end."""
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([1, 6, 12, 600]))
    def the_clock_is_set_back(self, seconds: int) -> None:
        """Nobody has a clock that only goes forwards."""
        self.clock.advance(-seconds)

    # -- after each step ------------------------------------------------------------------------------------------

    @invariant()
    def all_is_as_it_must_be(self) -> None:
        """The laws, and the table in memory."""
        before, self.seen = self.seen, self.stage.look()
        by_a_person, self.by_a_person = self.by_a_person, False
        many, self.many = self.many, False
        laws_of_one_moment(self.seen, self.acknowledged)
        laws_of_one_step(before, self.seen, by_a_person=by_a_person, many=many)
        compare(self.expected, self.seen)

    def teardown(self) -> None:
        """In the end, with a worker that lives and handlers that succeed, everything comes to an end."""
        if self.open is not None:
            self.end_long_work("dies", written=False)
        self.clock.now = max(self.clock.now, START) + A_DAY
        self.drain(["succeeds"] * len(NAMES))
        self.all_is_as_it_must_be()
        assert all(row.state in {"processed", "failed", "discarded"} for row in self.expected.rows.values())


def _raise(error: BaseException, *_: object) -> None:
    raise error


def _play(how: str, _: Event, conn: Any) -> None:
    """A handler that has written, and now ends as it is told."""
    if how == "misuses":
        conn.commit()
    elif how != "succeeds":
        raise error_of(how)


@pytest.fixture
def stage(place: Place) -> Iterator[Stage]:
    """Connections that all examples share."""
    one = Stage(place)
    yield one
    one.close()


def test_anything_in_any_order(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens, in whatever order: every event is stored once and applied once, and no step is lost."""
    # Each try is a database's work: five minutes, which is the default, are too long to wait for a red test.
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", SHRINKING_SECONDS)
    run_state_machine_as_test(
        lambda: Anything(stage),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=True,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
