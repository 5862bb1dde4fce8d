"""The records that travel through the flow, the states of a receipt, and the edges between them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NewType

ReceiptId = NewType("ReceiptId", int)
ClaimId = NewType("ClaimId", str)

EVENT_ID_BYTES_MAX = 512
"""Ids are kept readable up to here; identity is the hash of the whole id, whatever its length."""


class State(StrEnum):
    """Where a receipt stands."""

    RECEIVED = "received"
    PROCESSING = "processing"
    PROCESSED = "processed"
    RETRYING = "retrying"
    FAILED = "failed"
    WAITING = "waiting"
    DISCARDED = "discarded"


OPEN_STATES = frozenset({State.RECEIVED, State.PROCESSING, State.RETRYING, State.WAITING})
"""States from which the flow itself still leads on."""

EDGES: Mapping[State, frozenset[State]] = {
    State.RECEIVED: frozenset({State.PROCESSING, State.DISCARDED}),
    State.PROCESSING: frozenset(
        {
            State.PROCESSING,
            State.PROCESSED,
            State.RETRYING,
            State.FAILED,
            State.WAITING,
            State.RECEIVED,
            State.DISCARDED,
        }
    ),
    State.RETRYING: frozenset({State.PROCESSING, State.DISCARDED}),
    State.WAITING: frozenset({State.PROCESSING, State.RECEIVED, State.DISCARDED}),
    State.PROCESSED: frozenset({State.RECEIVED}),
    State.FAILED: frozenset({State.RECEIVED, State.DISCARDED}),
    State.DISCARDED: frozenset(),
}
"""Every edge there is. PROCESSING to itself is the rescue of a claim whose worker died."""


class Result(StrEnum):
    """Why a receipt ended as it did."""

    APPLIED = "applied"
    SKIPPED = "skipped"
    GAVE_UP = "gave_up"
    CRASH_LOOP = "crash_loop"
    MISUSE = "misuse"
    UNREADABLE = "unreadable"
    TOO_EARLY = "too_early"
    OLDER_THAN_MEMORY = "older_than_memory"
    DISCARDED = "discarded"


class Verdict(StrEnum):
    """What an arrival turned out to be, once stored."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    MISMATCH = "mismatch"  # a known id with another body: the first one wins, this one is kept as evidence
    SUSPECT_REPLAY = "suspect_replay"  # a known signed body under another, unsigned id (F73)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One signing secret: the bytes, a fingerprint to show, and when it stops being valid."""

    value: bytes = field(repr=False)
    label: str = ""
    not_after: datetime | None = None

    @property
    def id(self) -> str:
        """A fingerprint that can be shown and stored: it says which secret, never what it is."""
        return hashlib.blake2b(self.value, key=b"hookonce secret id", digest_size=6).hexdigest()

    def __str__(self) -> str:
        return f"{self.id}{f' ({self.label})' if self.label else ''}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request as it came in: the exact bytes, nothing decoded, nothing trusted.

    Header names are lower case, as ASGI has them; order and repetition are kept.
    """

    source: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    path: str = ""
    query: bytes = b""
    address: str = ""
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a sender is told when it is more than a status: the answer to a handshake, or an acknowledgement of its own."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """A scheme's yes: which secret signed, and the signature that proved it."""

    secret_id: str
    signature: bytes
    signed_at: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a provider says about an event, read once from the verified request."""

    event_id: str | None = None
    delivery_id: str | None = None
    type: str | None = None
    object_id: str | None = None
    account: str | None = None
    event_time: float | None = None
    version_key: str | None = None
    api_version: str | None = None
    problem: str | None = None


@dataclass(slots=True)
class Arrival:
    """One verified delivery on its way into the database."""

    key: bytes
    guard: bytes | None
    source: str
    facts: Facts
    body: bytes
    headers: bytes
    body_digest: bytes
    secret_id: str
    correlation_id: str
    address: str
    trace_parent: str | None = None
    hold: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The database's word on an arrival: new, or one we already had, and since when."""

    verdict: Verdict
    receipt_id: ReceiptId
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """One committed turn at one receipt. Token and claim id fence every later write."""

    id: ReceiptId
    token: int
    claim_id: ClaimId
    source: str
    type: str | None
    problem: str | None
    attempts: int
    crashes: int
    generation: int
    last_result: str | None
    event_id: str | None
    object_id: str | None
    correlation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What follows from one attempt: computed here, written there."""

    state: State
    result: Result | None = None
    error: str | None = None
    delay_seconds: float = 0.0
    counted: bool = True


def receipt_key(*, source: str, account: str | None, kind: str, identity: bytes) -> bytes:
    """The identity of an event: a hash over length-prefixed parts, so that no two splits collide."""
    digest = hashlib.sha256()
    for part in (source.encode(), (account or "").encode("utf-8", "surrogatepass"), kind.encode(), identity):
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.digest()


def utc(epoch_seconds: float | None) -> datetime | None:
    """Epoch seconds, as the database layer speaks them, as an aware time."""
    return None if epoch_seconds is None else datetime.fromtimestamp(epoch_seconds, UTC)


__all__ = [
    "EDGES",
    "OPEN_STATES",
    "Answer",
    "Arrival",
    "Claim",
    "ClaimId",
    "Delivery",
    "Facts",
    "Outcome",
    "ReceiptId",
    "Result",
    "Secret",
    "State",
    "Stored",
    "Verdict",
    "Verified",
    "receipt_key",
    "utc",
]
