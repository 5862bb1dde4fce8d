"""Stage receive: which bytes, from whom, within which bounds. What passes is verified and becomes an Arrival.

Nothing is parsed, stored or deduplicated before the signature has been checked.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from hookonce.clock import Clock
from hookonce.errors import Reason, VerificationError
from hookonce.failpoints import fp
from hookonce.flow.verify import verify, verify_nobody
from hookonce.model import Arrival, Delivery, Facts, receipt_key
from hookonce.registry import Registry, Source

Headers = Sequence[tuple[bytes, bytes]]

BODY_BYTES_MAX = 1 << 20
BODY_SECONDS = 10.0
HEADERS_NOT_KEPT = frozenset({b"authorization", b"cookie", b"proxy-authorization", b"set-cookie"})
ADDRESSES_MAX = 10_000


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

    def arrive(self, delivery: Delivery) -> Arrival:
        """Verify a delivery and read what it says about its event."""
        now = self.now()
        source = self._registry.sources.get(delivery.source)
        if source is None:
            verify_nobody(delivery, now)
            raise AssertionError
        self._check_encoding(source, delivery.headers)
        verified = verify(source.endpoint, delivery, now)
        fp("receive.after_verify")
        facts = source.endpoint.provider.facts(delivery)
        if facts.event_id is None:
            facts = self._nameless(source, facts)
        self._check_age(facts, now)
        digest = hashlib.sha256(delivery.body).digest()
        return Arrival(
            key=self._key(source, facts, digest),
            guard=None
            if source.endpoint.provider.profile.id_signed
            else _guard(source.name, verified.signature, digest),
            source=source.name,
            facts=facts,
            body=delivery.body,
            headers=_kept(delivery.headers),
            body_digest=digest,
            secret_id=verified.secret_id,
            correlation_id=f"{self._correlation_prefix}{next(self._correlation_count):x}",
            address=delivery.address,
            trace_parent=_trace_parent(delivery.headers),
            hold="API version" if source.endpoint.provider.profile.holds(facts.api_version) else None,
        )

    def _check_encoding(self, source: Source, headers: Headers) -> None:
        for name, value in headers:
            if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
                if value.decode("latin-1").lower() in source.endpoint.provider.profile.content_encodings:
                    return
                raise VerificationError(Reason.ENCODING_REFUSED, "the body is compressed")

    def _check_age(self, facts: Facts, now: float) -> None:
        limit = self.bounds.event_age_seconds
        if limit is not None and facts.event_time is not None and now - facts.event_time > limit:
            raise VerificationError(Reason.EVENT_TOO_OLD, f"the event is older than {limit:g} s")

    def _nameless(self, source: Source, facts: Facts) -> Facts:
        """Authentic, but no id where it should be. An unreadable body is kept and marked; any other is refused."""
        if facts.problem is None:
            raise VerificationError(Reason.ID_MISSING, f"{source.name}: the event's id is not where it should be")
        return facts

    def _key(self, source: Source, facts: Facts, digest: bytes) -> bytes:
        if facts.event_id is None:
            return receipt_key(source=source.name, account=None, kind="body", identity=digest)
        identity = facts.event_id.encode("utf-8", "surrogatepass")
        return receipt_key(source=source.name, account=facts.account, kind="event", identity=identity)


def _guard(source: str, signature: bytes, digest: bytes) -> bytes:
    """Same signed bytes under another, unsigned id: the second delivery is somebody's replay, not a new event."""
    return receipt_key(source=source, account=None, kind="guard", identity=signature + digest)


def _kept(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers if pair[0] not in HEADERS_NOT_KEPT])


def _trace_parent(headers: Headers) -> str | None:
    for name, value in headers:
        if name == b"traceparent" and len(value) == 55:
            text = value.decode("latin-1")  # nobody signs it: what a column could not hold is left out
            return text if text.isascii() and text.isprintable() else None
    return None
