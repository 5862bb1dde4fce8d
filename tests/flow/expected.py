"""What the inbox must do, written down a second time: a table in memory, moved by hand, and the laws that always hold.

Knows no code of the product. Whoever changes what an event may do next changes it here as well, in other words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ATTEMPTS_MAX = 3
CRASHES_MAX = 3
LEASE_SECONDS = 10.0
WAITS = {"fails": 5.0, "retries": 7.0, "parks": 30.0, "outage": 2.0}
"""How a turn may end badly, and how long the event then waits: an error, Retry, Park, or a database that is away."""

OPEN = frozenset({"received", "processing", "retrying", "waiting"})
BY_THE_FLOW = {
    "received": {"processing"},
    "retrying": {"processing"},
    "waiting": {"processing"},
    "processing": {"processing", "processed", "retrying", "failed", "waiting", "received", "discarded"},
    "processed": set[str](),
    "failed": set[str](),
    "discarded": set[str](),
}
BY_A_PERSON = {
    "received": {"discarded"},
    "retrying": {"discarded"},
    "waiting": {"received", "discarded"},
    "failed": {"received", "discarded"},
    "processed": {"received"},
    "discarded": set[str](),
    "processing": set[str](),
}


@dataclass(slots=True)
class Row:
    """One event as it must be."""

    id: int
    body: int
    state: str
    due: float
    attempts: int = 0
    crashes: int = 0
    token: int = 0
    generation: int = 0
    result: str | None = None
    holder: str = ""
    was_parked: bool = False
    effects: Counter[int] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)
    settled: int = 0
    acts: int = 0

    def ends(self, how: str, now: float) -> None:
        """A turn that its holder ends with anything but success."""
        self.settled += 1
        state, self.result, wait = "retrying", None, WAITS.get(how, 0.0)
        match how:
            case "discards":
                state, self.result = "discarded", "discarded"
            case "parks" if self.was_parked:
                state, self.result, wait = "failed", "too_early", 0.0
            case "parks":
                state, self.result = "waiting", "too_early"
            case "misuses":
                state, self.result = "failed", "misuse"
            case "outage":
                self.attempts -= 1
            case _ if self.attempts >= ATTEMPTS_MAX:
                state, self.result, wait = "failed", "gave_up", 0.0
        self.state, self.due, self.holder = state, now + wait, ""

    def applied(self) -> None:
        """A turn that its holder committed."""
        self.effects[self.generation] += 1
        self.state, self.result, self.holder = "processed", "applied", ""


class Expected:
    """All of them, by the name of the event."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.locked: set[str] = set()

    # accept

    def arrives(self, name: str, body: int) -> str:
        """The verdict that an arrival must get. A new one is only written down by `stored`."""
        known = self.rows.get(name)
        if known is None:
            return "accepted"
        return "duplicate" if known.body == body else "mismatch"

    # claim

    def due(self, now: float, limit: int) -> list[str]:
        """Whose turn it is: nothing that ever took a worker with it, oldest first."""
        found = [
            (row.due, row.id, name)
            for name, row in self.rows.items()
            if row.state in {"received", "retrying", "waiting"} and not row.crashes and row.due <= now
        ]
        return [name for _, _, name in sorted(found)[:limit]]

    def suspect(self, now: float) -> str | None:
        """Who has to be looked at alone: left behind by a dead worker now, or before."""
        found = [
            (row.due, row.id, name)
            for name, row in self.rows.items()
            if (row.state == "processing" or (row.crashes and row.state in OPEN))
            and row.due <= now
            and name not in self.locked
        ]
        return min(found)[2] if found else None

    def taken(self, name: str, holder: str, now: float) -> None:
        """Somebody's turn at it."""
        row = self.rows[name]
        row.token += 1
        if row.state == "processing":
            row.crashes += 1
            if row.crashes >= CRASHES_MAX:
                row.state, row.result, row.holder = "failed", "crash_loop", ""
                return
        row.attempts += 1
        row.was_parked = row.result == "too_early"
        row.state, row.holder, row.due = "processing", holder, now + LEASE_SECONDS

    def holds(self, name: str, token: int, holder: str) -> bool:
        row = self.rows[name]
        return row.state == "processing" and (row.token, row.holder) == (token, holder)

    def handed_back(self, name: str, now: float) -> None:
        row = self.rows[name]
        row.state, row.due, row.holder = "received", now, ""
        row.attempts -= 1

    # a person

    def replayed(self, name: str, now: float) -> bool:
        """Whether it may be, and what follows."""
        row = self.rows[name]
        if row.state not in {"processed", "failed", "waiting"}:
            return False
        if row.state != "waiting":
            row.generation, row.attempts, row.crashes, row.result = row.generation + 1, 0, 0, None
        row.state, row.due, row.acts = "received", now, row.acts + 1
        return True

    def discarded(self, name: str) -> bool:
        row = self.rows[name]
        if row.state not in {"received", "retrying", "waiting", "failed"}:
            return False
        row.state, row.result, row.acts = "discarded", "discarded", row.acts + 1
        return True


@dataclass(frozen=True, slots=True)
class Seen:
    """One receipt as it stands in the database, with all that was written beside it."""

    id: int
    name: str
    key: bytes
    state: str
    due: float
    attempts: int
    crashes: int
    token: int
    generation: int
    result: str | None
    holder: str
    body: bytes
    effects: tuple[int, ...]
    repeats: tuple[str, ...]
    settled: int
    acts: int


def compare(expected: Expected, seen: Iterable[Seen]) -> None:
    """The table in memory is the table in the database."""
    found = {one.name: one for one in seen}
    assert set(found) == set(expected.rows), "the receipts are those of the events that were stored"
    for name, row in expected.rows.items():
        one = found[name]
        must = (row.id, row.state, row.result, row.attempts, row.crashes, row.token, row.generation)
        does = (one.id, one.state, one.result, one.attempts, one.crashes, one.token, one.generation)
        assert does == must, (
            f"{name}: is {does}, must be {must} (id, state, result, attempts, crashes, token, generation)"
        )
        if row.state in OPEN:
            assert one.due == row.due, f"{name}: due at {one.due}, must be {row.due}"
        if row.state == "processing":
            assert one.holder == row.holder, f"{name}: in other hands"
        assert Counter(one.effects) == +row.effects, f"{name}: effects of {one.effects}, must be of {dict(row.effects)}"
        assert Counter(one.repeats) == row.repeats, f"{name}: repeats {one.repeats}, must be {dict(row.repeats)}"
        assert (one.settled, one.acts) == (row.settled, row.acts), f"{name}: outcomes and acts written down"


def laws_of_one_moment(seen: Sequence[Seen], acknowledged: Iterable[str]) -> None:
    """What is true of every row at all times, whatever happened before."""
    names = [one.name for one in seen]
    assert set(acknowledged) <= set(names), "what was acknowledged is there"
    assert len(set(names)) == len(names), "one event, one receipt"
    assert len({one.key for one in seen}) == len(seen), "one receipt, one key"
    for one in seen:
        times = Counter(one.effects)
        assert max(times.values(), default=0) <= 1, f"{one.name}: applied twice in one generation"
        assert max(times, default=0) <= one.generation, f"{one.name}: an effect of a generation that never was"
        marked = one.state == "processed"
        assert times[one.generation] == marked, f"{one.name}: {one.state}, with {times[one.generation]} effects"
        assert 0 <= one.crashes <= one.token, f"{one.name}: more crashes than turns"
        assert 0 <= one.attempts <= one.token, f"{one.name}: more attempts than turns"
        assert bool(one.holder) or one.state != "processing", f"{one.name}: being worked on by nobody"
        assert one.state in BY_THE_FLOW, f"{one.name}: {one.state} is no state"


def laws_of_one_step(before: Sequence[Seen], after: Sequence[Seen], *, by_a_person: bool, many: bool) -> None:
    """What is true of every change. `many`: several turns may have passed between the two looks."""
    now = {one.name: one for one in after}
    edges = BY_A_PERSON if by_a_person else BY_THE_FLOW
    for old in before:
        assert old.name in now, f"{old.name}: its receipt is gone"
        new = now[old.name]
        assert (new.id, new.key, new.body) == (old.id, old.key, old.body), f"{old.name}: its identity or body changed"
        assert new.token >= old.token, f"{old.name}: the token went back"
        assert new.crashes >= old.crashes or new.generation > old.generation, f"{old.name}: a crash was forgotten"
        assert new.generation == old.generation or by_a_person, f"{old.name}: replayed by nobody"
        assert set(old.effects) <= set(new.effects), f"{old.name}: an effect is gone"
        assert len(new.repeats) >= len(old.repeats), f"{old.name}: a delivery was forgotten"
        taken = new.token > old.token
        if new.attempts < old.attempts:
            back = new.generation > old.generation or (old.state, new.token) == ("processing", old.token)
            assert back or many, f"{old.name}: an attempt was given back that nobody had"
        if old.state == new.state and not taken:
            assert new.holder == old.holder, f"{old.name}: changed hands without a turn"
        elif not many:
            assert new.state in edges[old.state], f"{old.name}: {old.state} -> {new.state}"
            assert new.token - old.token <= 1, f"{old.name}: two turns in one step"
        if old.state not in OPEN and not by_a_person:
            assert new.state == old.state, f"{old.name}: left {old.state} without a person"
