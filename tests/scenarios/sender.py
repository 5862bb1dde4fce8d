"""A sender outside the system, as unpleasant as the protocol allows, with a memory of its own.

What it is about to send is in its fsynced log before the first byte leaves; what it was answered follows. Its events
are the same for the same seed. It resends, within bounds, what was not acknowledged; 20 % of its events it sends again
although they were, 5 % out of order, 2 % with another body under the same id, 1 % are forged, 1 % are poison.
"""

import asyncio
import hashlib
import heapq
import json
import os
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from hookonce.providers import GitHub, Stripe
from hookonce.providers.base import Endpoint
from hookonce.providers.samples import sample
from tests.scenarios import shop

ANSWER_SECONDS = 20.0
CONNECT_SECONDS = 5.0
RESEND_SECONDS = (0.02, 0.15)
RESENDS_MAX = 2_000

Kind = Literal["plain", "once", "poison", "slow", "killer"]
Copy = Literal["first", "duplicate", "mismatch", "forged", "renamed"]

TYPES: Mapping[str, Kind] = {
    "invoice.paid": "plain",
    "charge.refunded": "plain",
    "checkout.session.completed": "plain",
    "payout.created": "once",
    "payout.paid": "slow",
    "shop.poison": "poison",
    "shop.killer": "killer",
    "push": "plain",
    "issues.opened": "once",
    "pull_request.opened": "plain",
}

ENDPOINTS: Mapping[str, Endpoint] = {
    "stripe": Stripe(secret=shop.STRIPE_SECRET),
    "github": GitHub(secret=shop.GITHUB_SECRET),
}
FORGED: Mapping[str, Endpoint] = {
    "stripe": Stripe(secret="whsec_somebody_else"),
    "github": GitHub(secret="somebody else"),
}


@dataclass(frozen=True, slots=True)
class Mix:
    """How often what happens, each as a share of the events."""

    once: float = 0.10
    slow: float = 0.02
    batch: float = 0.10
    poison: float = 0.01
    forged: float = 0.01
    duplicate: float = 0.20
    reordered: float = 0.05
    mismatch: float = 0.02
    renamed: float = 0.01


@dataclass(frozen=True, slots=True)
class Sent:
    """One event as its sender knows it."""

    id: str
    source: str
    type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]

    @property
    def kind(self) -> Kind:
        return TYPES[self.type]


@dataclass(slots=True)
class _Delivery:
    event: Sent
    copy: Copy
    body: bytes
    identity: str
    resends: int = 0


@cache
def _pattern(source: str, event_type: str) -> tuple[dict[str, Any], tuple[tuple[bytes, bytes], ...]]:
    made = sample(source, event_type, event_id="ID")
    return json.loads(made.body), tuple(made.headers)


def make_event(number: int, event_type: str, *, seed: int, extra: Mapping[str, object] | None = None) -> Sent:
    """The event of a number: everything about it follows from the number and the seed."""
    chance = random.Random(f"{seed} {number} {event_type}")
    source = "github" if event_type in {"push", "issues.opened", "pull_request.opened"} else "stripe"
    identity = f"evt_{seed}_{number:07d}"
    pattern, pattern_headers = _pattern(source, event_type)
    giver, taker = chance.sample(range(shop.ACCOUNTS), k=2)
    move = {"from": giver, "to": taker, "amount": chance.randrange(1, 100)}
    # The number: where the id is not signed, two events with the same bytes are one event sent twice.
    body = {**pattern, "move": move, "note": f"Grüße \u2028 \U0001f9fe {number}", **(extra or {})}
    if source == "stripe":
        body["id"] = identity
    headers = tuple((name, identity.encode() if value == b"ID" else value) for name, value in pattern_headers)
    # Spaces that no serializer would write: whoever stores anything but the bytes is found out.
    raw = json.dumps(body, ensure_ascii=False, indent=chance.choice((None, 1))).encode() + b" " * chance.randrange(4)
    return Sent(identity, source, event_type, raw, headers)


class Plan:
    """What happens next: a stream of events, the same for the same seed."""

    def __init__(self, seed: int, mix: Mix, *, extra: Mapping[str, object] | None = None) -> None:
        self.seed = seed
        self.mix = mix
        self._extra = extra
        self._chance = random.Random(seed)
        self._number = 0
        self._held: list[Sent] = []

    def next(self) -> tuple[Sent, frozenset[Copy]]:
        """The next event, and what will be sent of it besides the first copy."""
        event = self._make()
        if self._held and self._chance.random() < 0.3:
            event, self._held = self._held[0], [*self._held[1:], event]
        elif self._chance.random() < self.mix.reordered:
            self._held.append(event)
            event = self._make()
        extras: set[Copy] = {
            name for name in ("duplicate", "mismatch") if self._chance.random() < float(getattr(self.mix, name))
        }
        if event.source == "github" and self._chance.random() < self.mix.renamed * 3:
            extras.add("renamed")
        return event, frozenset({"forged"} if self._chance.random() < self.mix.forged else extras)

    def rest(self) -> list[Sent]:
        """Events that were held back and never sent otherwise."""
        held, self._held = self._held, []
        return held

    def _make(self) -> Sent:
        self._number += 1
        at = self._chance.random()
        for event_type, share in (
            ("shop.poison", self.mix.poison),
            ("payout.paid", self.mix.slow),
            ("payout.created", self.mix.once / 2),
            ("issues.opened", self.mix.once / 2),
            ("checkout.session.completed", self.mix.batch),
        ):
            at -= share
            if at < 0:
                return make_event(self._number, event_type, seed=self.seed, extra=self._extra)
        plain = self._chance.choice(("invoice.paid", "charge.refunded", "push", "pull_request.opened"))
        return make_event(self._number, plain, seed=self.seed, extra=self._extra)


class Log:
    """The sender's memory: one line before a delivery leaves, one when its answer is there; on disk before we go on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._count = 0

    def intent(self, delivery: _Delivery) -> int:
        self._count += 1
        event = delivery.event
        self._write(
            n=self._count,
            id=delivery.identity,
            event=event.id,
            source=event.source,
            kind=event.kind,
            copy=delivery.copy,
            sha=hashlib.sha256(delivery.body).hexdigest(),
        )
        return self._count

    def answer(self, number: int, status: int, seconds: float) -> None:
        """0 for none."""
        self._write(n=number, status=status, seconds=round(seconds, 4))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, **fields: object) -> None:
        os.write(self._file, json.dumps(fields).encode() + b"\n")
        os.fdatasync(self._file)


@dataclass(slots=True)
class Tally:
    """What the sender saw."""

    deliveries: int = 0
    acknowledged: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)


class Sender:
    """Sends in a thread of its own, over keep-alive connections, until it is told to stop."""

    def __init__(
        self,
        ports: Sequence[int],
        log: Path,
        *,
        seed: int = 1,
        mix: Mix | None = None,
        rate: float = 300.0,
        connections: int = 12,
        events_max: int = 1_000_000,
        script: Sequence[Sent] = (),
        extra: Mapping[str, object] | None = None,
    ) -> None:
        self.ports = list(ports)
        self.tally = Tally()
        self.log = Log(log)
        self.plan = Plan(seed, mix or Mix(), extra=extra)
        self._chance = random.Random(f"order {seed}")
        self._rate = rate
        self._connections = connections
        self._events_left = events_max
        self._queue: deque[_Delivery] = deque(_first(event) for event in script)
        self._again: list[tuple[float, int, _Delivery]] = []
        self._under_way = 0
        self._extras: dict[str, frozenset[Copy]] = {}
        self._pushed = 0
        self._fresh = threading.Event()
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._next_at = 0.0
        self._fresh.set()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    # -- from the test ------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(ANSWER_SECONDS + 5.0)
        self.log.close()

    def finish(self, seconds: float = 60.0) -> None:
        """No new events; what is not acknowledged is sent until it is, within the bound."""
        self._fresh.clear()
        deadline = time.monotonic() + seconds
        while self.outstanding and self._thread.is_alive():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{self.outstanding} deliveries were not answered 2xx in {seconds:g} s: {self.tally.statuses}"
                )
            time.sleep(0.01)
        self.check()

    def acknowledge(self, more: int, seconds: float = 30.0) -> None:
        """Wait until so many more events are acknowledged."""
        goal = len(self.tally.acknowledged) + more
        deadline = time.monotonic() + seconds
        while len(self.tally.acknowledged) < goal:
            self.check()
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not {more} more events were acknowledged in {seconds:g} s: {self.tally.statuses}"
                )
            time.sleep(0.01)

    def check(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"the sender failed: {self._failure!r}") from self._failure

    def add(self, *events: Sent) -> None:
        """Send these next."""
        self._queue.extend(_first(event) for event in events)

    def pause(self) -> None:
        """No new events until `go_on`; resends continue."""
        self._fresh.clear()

    def go_on(self) -> None:
        self._fresh.set()

    @property
    def outstanding(self) -> int:
        return len(self._queue) + len(self._again) + self._under_way

    # -- in the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._send_all())
        except BaseException as error:
            self._failure = error

    async def _send_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._connections):
                group.create_task(self._connection(number))

    async def _connection(self, number: int) -> None:
        wire: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        which = number
        while not self._stopped.is_set():
            delivery = self._take()
            if delivery is None:
                await asyncio.sleep(0.005)
                continue
            self._under_way += 1
            count = self.log.intent(delivery)
            began = time.monotonic()
            status = 0
            try:
                if wire is None:
                    which += 1
                    wire = await asyncio.wait_for(
                        asyncio.open_connection("127.0.0.1", self.ports[which % len(self.ports)]), CONNECT_SECONDS
                    )
                status, keep = await asyncio.wait_for(exchange(*wire, delivery.event, delivery), ANSWER_SECONDS)
                if not keep:
                    wire = _hang_up(wire)
            except (OSError, EOFError, TimeoutError):
                wire = _hang_up(wire)
            self.log.answer(count, status, time.monotonic() - began)
            self._note(delivery, status, time.monotonic() - began)
            self._under_way -= 1
        _hang_up(wire)

    def _take(self) -> _Delivery | None:
        now = time.monotonic()
        if self._again and self._again[0][0] <= now:
            return heapq.heappop(self._again)[2]
        if self._queue:
            return self._queue.popleft()
        if not self._fresh.is_set():
            for event in self.plan.rest():
                self._queue.append(_first(event))
            return self._queue.popleft() if self._queue else None
        if self._events_left <= 0 or now < self._next_at:
            return None
        self._events_left -= 1
        self._next_at = max(self._next_at, now - 0.1) + 1.0 / self._rate
        event, extras = self.plan.next()
        if "forged" in extras:
            return _Delivery(event, "forged", event.body, event.id)
        if "duplicate" in extras:
            # At the same moment, on other connections: two first deliveries at once.
            self._queue.extend(
                _Delivery(event, "duplicate", event.body, event.id) for _ in range(self._chance.choice((1, 1, 1, 3)))
            )
        self._extras[event.id] = extras
        return _first(event)

    def _note(self, delivery: _Delivery, status: int, seconds: float) -> None:
        tally = self.tally
        tally.deliveries += 1
        tally.statuses[status] += 1
        tally.seconds.append(seconds)
        tally.slowest_seconds = max(tally.slowest_seconds, seconds)
        event = delivery.event
        if 200 <= status < 300:
            if delivery.copy in {"first", "duplicate"}:
                tally.acknowledged.add(event.id)
                self._after_acknowledgement(event)
            return
        if delivery.copy == "forged" and 400 <= status < 500:
            return
        if status not in (0, 500, 503):
            raise AssertionError(f"{delivery.copy} {event.id} was answered {status}")
        delivery.resends += 1
        if delivery.resends > RESENDS_MAX:
            raise AssertionError(f"{event.id}: no answer after {RESENDS_MAX} deliveries")
        self._pushed += 1
        heapq.heappush(self._again, (time.monotonic() + self._chance.uniform(*RESEND_SECONDS), self._pushed, delivery))

    def _after_acknowledgement(self, event: Sent) -> None:
        extras = self._extras.pop(event.id, None)
        if extras is None:
            return
        if "mismatch" in extras:
            self._queue.append(_Delivery(event, "mismatch", event.body.replace(b'"amount"', b'"amount" ', 1), event.id))
        if "renamed" in extras:
            self._queue.append(_Delivery(event, "renamed", event.body, f"{event.id}-renamed"))
        if self._chance.random() < 0.05:
            self._queue.append(_Delivery(event, "duplicate", event.body, event.id))


def _first(event: Sent) -> _Delivery:
    return _Delivery(event, "first", event.body, event.id)


def _hang_up(wire: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None) -> None:
    if wire is not None:
        wire[1].transport.abort()


def request_bytes(event: Sent, delivery: _Delivery | None = None) -> bytes:
    """The request on the wire, signed now."""
    delivery = delivery or _first(event)
    endpoint = (FORGED if delivery.copy == "forged" else ENDPOINTS)[event.source]
    signed = endpoint.provider.scheme.sign(delivery.body, endpoint.secrets[0], time.time(), delivery.identity)
    headers = [
        (name, delivery.identity.encode() if value == event.id.encode() else value) for name, value in event.headers
    ]
    lines = [f"POST /webhooks/{event.source} HTTP/1.1\r\nHost: shop.example.com\r\n".encode()]
    lines += [b"%b: %b\r\n" % pair for pair in [*headers, *signed]]
    lines.append(b"Content-Length: %d\r\n\r\n" % len(delivery.body))
    return b"".join(lines) + delivery.body


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, event: Sent, delivery: _Delivery | None = None
) -> tuple[int, bool]:
    """Send one request and read its answer: the status, and whether the connection may be used again."""
    writer.write(request_bytes(event, delivery))
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    await reader.readexactly(int(fields.get("content-length", "0")))
    return int(lines[0].split()[1]), fields.get("connection") != "close"
