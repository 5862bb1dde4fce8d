"""Stage receive: which bytes, from whom, within which bounds. What passes is verified and becomes an Arrival.

Nothing is parsed, stored or deduplicated before the signature has been checked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hookonce.clock import Clock
from hookonce.errors import Reason, VerificationError
from hookonce.failpoints import fp
from hookonce.flow.verify import verify, verify_nobody
from hookonce.model import Answer, Arrival, Delivery, Facts, Verified, receipt_key
from hookonce.providers.base import Endpoint, Greet
from hookonce.providers.locate import NOT_JSON
from hookonce.registry import Registry, Source
from hookonce.schemes.base import active

Headers = Sequence[tuple[bytes, bytes]]

BODY_BYTES_MAX = 1 << 20
BODY_SECONDS = 10.0
HEADERS_NOT_KEPT = frozenset({b"authorization", b"cookie", b"proxy-authorization", b"set-cookie"})
ADDRESSES_MAX = 10_000
EVENTS_MAX = 1_000
"""Events in one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a request may be. Rates are requests a second; 0 means no limit."""

    body_bytes_max: int = BODY_BYTES_MAX
    body_seconds: float = BODY_SECONDS
    source_rate: float = 10_000.0
    address_rate: float = 2_000.0
    event_age_seconds: float | None = None


class Buckets:
    """A token bucket for each name, in bounded memory: names long unseen are forgotten first."""

    def __init__(self, rate: float, *, names_max: int = ADDRESSES_MAX) -> None:
        self._rate = rate
        self._burst = max(2.0, rate * 2.0)
        self._names_max = names_max
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, name: str, now: float) -> float:
        """Take one token: 0.0 if there was one, else the seconds until there is."""
        if not self._rate:
            return 0.0
        # Taken out and put back at the end: each step is whole by itself, for the threads of a WSGI server.
        level, at = self._levels.pop(name, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._rate)
        wait = 0.0 if level >= 1.0 else (1.0 - level) / self._rate
        self._levels[name] = (level - 1.0 if not wait else level, now)
        if len(self._levels) > self._names_max:
            self._levels.popitem(last=False)
        return wait


@dataclass(frozen=True, slots=True)
class Opened:
    """What was in a verified request: events, or a handshake that has an answer of its own."""

    arrivals: tuple[Arrival, ...] = ()
    answer: Answer | None = None


class Receiver:
    """From request parts to an Arrival, or a VerificationError with the reason. Pure but for its rate limits."""

    def __init__(self, registry: Registry, clock: Clock, bounds: Bounds) -> None:
        self.bounds = bounds
        self._registry = registry
        self._clock = clock
        self._by_source = Buckets(bounds.source_rate)
        self._by_address = Buckets(bounds.address_rate)
        self._correlation_prefix = os.urandom(6).hex()
        self._correlation_count = itertools.count(1)

    def now(self) -> float:
        """The time by which signatures, and the ages in the log, are judged."""
        return self._clock.time()

    def admit(self, source: str, address: str) -> float:
        """Before the body is read: 0.0, or the seconds after which the sender may try again."""
        now = time.monotonic()
        known = source if source in self._registry.sources else ""
        return self._by_address.take(address, now) or self._by_source.take(known, now)

    def greet(self, delivery: Delivery) -> Answer | None:
        """The answer to a handshake that nobody signs, if this is one that the source's provider knows."""
        source = self._registry.sources.get(delivery.source)
        greet = None if source is None else source.endpoint.provider.greet
        return None if source is None or greet is None else _shielded(greet, delivery, source, self.now())

    def needs(self, delivery: Delivery) -> Callable[[], None] | None:
        """What has to be fetched before this can be verified: it blocks, and raises KeysUnavailable."""
        source = self._registry.sources.get(delivery.source)
        prepare = None if source is None else getattr(source.endpoint.provider.scheme, "prepare", None)
        return None if prepare is None else cast("Callable[[], None] | None", prepare(delivery))

    def arrive(self, delivery: Delivery) -> Arrival:
        """Verify a delivery that is one event, and read what it says about it."""
        now = self.now()
        source, verified = self._verified(delivery, now)
        return self._arrival(source, delivery, verified, now)

    def open(self, delivery: Delivery) -> Opened:
        """Verify a delivery, whatever it may hold: one event, many, or a handshake."""
        now = self.now()
        source, verified = self._verified(delivery, now)
        provider = source.endpoint.provider
        if provider.reply is not None:
            answer = _shielded(provider.reply, delivery, source, now)
            if answer is not None:
                return Opened(answer=answer)
        if provider.split is None:
            return Opened((self._arrival(source, delivery, verified, now),))
        try:
            bodies, outer = provider.split(delivery)
        except (ValueError, LookupError, RecursionError):
            return Opened((self._arrival(source, delivery, verified, now, unreadable=True),))
        if len(bodies) > EVENTS_MAX:
            raise VerificationError(Reason.BODY_TOO_LARGE, f"{len(bodies)} events in one request")
        events = [dataclasses.replace(delivery, body=body) for body in bodies]
        return Opened(tuple([self._arrival(source, event, verified, now, outer) for event in events]))

    def _verified(self, delivery: Delivery, now: float) -> tuple[Source, Verified]:
        source = self._registry.sources.get(delivery.source)
        if source is None:
            verify_nobody(delivery, now)
            raise AssertionError
        check_encoding(source.endpoint, delivery.headers)
        verified = verify(source.endpoint, delivery, now)
        fp("receive.after_verify")
        return source, verified

    def _arrival(
        self,
        source: Source,
        delivery: Delivery,
        verified: Verified,
        now: float,
        outer: Any = None,
        *,
        unreadable: bool = False,
    ) -> Arrival:
        provider = source.endpoint.provider
        facts = Facts(problem=NOT_JSON) if unreadable else provider.facts(delivery, outer)
        digest = hashlib.sha256(delivery.body).digest()
        if facts.event_id is not None:
            kind, identity = "event", facts.event_id.encode("utf-8", "surrogatepass")
        elif (found := provider.print_of(delivery, outer)) is not None:
            kind, identity = "print", found
            facts = dataclasses.replace(facts, event_id=print_name(found))
        else:
            kind, identity = "body", digest
            self._check_nameless(source, facts)
        self._check_age(facts, now)
        guarded = provider.profile.guard and not provider.profile.id_signed and verified.signature
        return Arrival(
            key=receipt_key(source=source.name, account=facts.account, kind=kind, identity=identity),
            guard=_guard(source.name, verified.signature, b"" if provider.signs_all else digest) if guarded else None,
            source=source.name,
            facts=facts,
            body=delivery.body,
            headers=kept_headers(delivery.headers),
            body_digest=digest,
            secret_id=verified.secret_id,
            correlation_id=f"{self._correlation_prefix}{next(self._correlation_count):x}",
            address=delivery.address,
            trace_parent=_trace_parent(delivery.headers),
            hold="API version" if provider.profile.holds(facts.api_version) else None,
        )

    def _check_age(self, facts: Facts, now: float) -> None:
        limit = self.bounds.event_age_seconds
        if limit is not None and facts.event_time is not None and now - facts.event_time > limit:
            raise VerificationError(Reason.EVENT_TOO_OLD, f"the event is older than {limit:g} s")

    def _check_nameless(self, source: Source, facts: Facts) -> None:
        """Authentic, but no id where it should be. An unreadable body is kept and marked; any other is refused."""
        if facts.problem is None:
            raise VerificationError(Reason.ID_MISSING, f"{source.name}: the event's id is not where it should be")


def check_encoding(endpoint: Endpoint, headers: Headers) -> None:
    """Refuse what is compressed, unless the sender is known to send it so."""
    for name, value in headers:
        if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
            if value.decode("latin-1").lower() in endpoint.provider.profile.content_encodings:
                continue
            raise VerificationError(Reason.ENCODING_REFUSED, "the body is compressed")


def print_name(found: bytes) -> str:
    """How a fingerprint shows where others have an id."""
    return f"fp:{hashlib.sha256(found).hexdigest()[:32]}"


def _shielded(shake: Greet, delivery: Delivery, source: Source, now: float) -> Answer | None:
    """What is asked of us is foreign: where a handshake does not find what it looks for, it is none."""
    try:
        return shake(delivery, tuple(active(source.endpoint.secrets, now)))
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration, RecursionError):
        return None


def _guard(source: str, signature: bytes, digest: bytes) -> bytes:
    """Same signed content under another, unsigned id: the second delivery is somebody's replay, not a new event.

    Where the signature covers all of it, it says by itself what the content is, however the bytes are written or packed.
    """
    return receipt_key(source=source, account=None, kind="guard", identity=signature + digest)


def kept_headers(headers: Headers) -> bytes:
    """The headers as they are stored: without those that are nobody's business."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers if pair[0] not in HEADERS_NOT_KEPT])


def _trace_parent(headers: Headers) -> str | None:
    for name, value in headers:
        if name == b"traceparent" and len(value) == 55:
            text = value.decode("latin-1")  # nobody signs it: what a column could not hold is left out
            return text if text.isascii() and text.isprintable() else None
    return None
