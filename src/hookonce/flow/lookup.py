"""Read-only questions: which receipts there are, everything about one, and the counts. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from hookonce.errors import NotFound
from hookonce.model import ReceiptId, State, utc
from hookonce.storage.operation import Operation, Row, Statement

LIMIT = 50
ROWS_MAX = 200
"""Deliveries and attempts shown of one receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which receipts. `type` may hold `*`; `needle` is one of the five ids, whole."""

    source: str | None = None
    state: State | None = None
    type: str | None = None
    needle: str | None = None
    before: int | None = None

    @property
    def narrow(self) -> bool:
        """Whether anything at all was asked for."""
        return any((self.source, self.state, self.type, self.needle))


@dataclass(frozen=True, slots=True)
class Line:
    """One receipt in a list."""

    id: ReceiptId
    source: str
    event_id: str | None
    type: str | None
    object_id: str | None
    state: State
    result: str | None
    attempts: int
    crashes: int
    generation: int
    received_at: datetime
    processed_at: datetime | None
    last_error: str | None
    duplicates: int


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One later arrival of the same event."""

    at: datetime
    verdict: str
    delivery_id: str | None
    address: str
    correlation_id: str
    body_bytes: int | None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt that did not succeed."""

    generation: int
    attempt: int
    ended_at: datetime
    seconds: float
    state: str
    result: str | None
    error: str | None
    counted: bool


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What a person did."""

    at: datetime
    actor: str
    action: str
    from_state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Everything about one receipt. `raw` is None once the body was purged."""

    id: ReceiptId
    source: str
    account: str | None
    event_id: str | None
    delivery_id: str | None
    type: str | None
    object_id: str | None
    event_time: datetime | None
    api_version: str | None
    problem: str | None
    secret_id: str
    correlation_id: str
    address: str
    received_at: datetime
    state: State
    due_at: datetime
    attempts: int
    crashes: int
    token: int
    processed_at: datetime | None
    result: str | None
    last_error: str | None
    generation: int
    body_digest: bytes
    raw: bytes | None
    headers: tuple[tuple[str, str], ...]
    deliveries: tuple[DeliveryRow, ...]
    failures: tuple[AttemptRow, ...]
    audit: tuple[AuditRow, ...]


@dataclass(frozen=True, slots=True)
class SecretUse:
    """How many events a secret signed, and when the last one came."""

    source: str
    secret_id: str
    events: int
    last_at: float


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is of what."""

    states: tuple[tuple[str, str, int], ...]
    deliveries: tuple[tuple[str, str, int], ...]
    oldest_seconds: float | None


def listed(query: Filter, *, limit: int = LIMIT) -> Operation[list[Line]]:
    """Receipts, newest first."""
    values = {
        "source": query.source,
        "state": query.state.value if query.state else None,
        "type": _pattern(query.type),
        "needle": query.needle,
        "before": query.before,
        "limit": limit,
    }
    rows = yield Statement("receipt_list", values)
    return [_line(row) for row in rows]


def shown(receipt_id: int) -> Operation[Receipt]:
    """One receipt with its deliveries, its failed attempts and what people did to it. NotFound when there is none."""
    rows = yield Statement("receipt_show", {"id": receipt_id})
    if not rows:
        raise NotFound(f"there is no receipt {receipt_id}", do="hookonce list")
    deliveries = yield Statement("receipt_deliveries", {"id": receipt_id, "limit": ROWS_MAX})
    attempts = yield Statement("receipt_attempts", {"id": receipt_id, "limit": ROWS_MAX})
    audit = yield Statement("receipt_audit", {"id": receipt_id})
    return _receipt(
        rows[0],
        tuple(
            DeliveryRow(_utc(row[0]), row[1], row[2], row[3], row[4], None if row[5] is None else len(row[5]))
            for row in deliveries
        ),
        tuple(
            AttemptRow(row[0], row[1], _utc(row[2]), row[3], row[4], row[5], row[6], bool(row[7])) for row in attempts
        ),
        tuple(AuditRow(_utc(row[0]), row[1], row[2], row[3], row[4]) for row in audit),
    )


def counted(*, now: float | None) -> Operation[Counts]:
    """Receipts by source and state, later arrivals by verdict, and how long the oldest due one has waited."""
    states = yield Statement("state_counts")
    deliveries = yield Statement("duplicate_counts")
    oldest = yield Statement("oldest_open", {"now": now})
    return Counts(
        tuple((source, state, count) for source, state, count, _ in states),
        tuple((source, verdict, count) for source, verdict, count in deliveries),
        oldest[0][0],
    )


def secret_uses(*, events: int) -> Operation[list[SecretUse]]:
    """Which secrets signed the newest receipts, and when last."""
    rows = yield Statement("secret_uses", {"events": events})
    return [SecretUse(*row) for row in rows]


def headers_of(kept: bytes) -> Iterator[tuple[str, str]]:
    """The kept request headers, in their order."""
    for line in kept.decode("latin-1").split("\r\n"):
        name, separator, value = line.partition(": ")
        if separator:
            yield name, value


def _pattern(given: str | None) -> str | None:
    """`*` for any text; everything else stands for itself."""
    if given is None:
        return None
    for special in "!%_":
        given = given.replace(special, f"!{special}")
    return given.replace("*", "%")


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _line(row: Row) -> Line:
    return Line(
        id=ReceiptId(row[0]),
        source=row[1],
        event_id=row[2],
        type=row[3],
        object_id=row[4],
        state=State(row[5]),
        result=row[6],
        attempts=row[7],
        crashes=row[8],
        generation=row[9],
        received_at=_utc(row[10]),
        processed_at=utc(row[11]),
        last_error=row[12],
        duplicates=row[13],
    )


def _receipt(
    row: Row, deliveries: tuple[DeliveryRow, ...], failures: tuple[AttemptRow, ...], audit: tuple[AuditRow, ...]
) -> Receipt:
    return Receipt(
        id=ReceiptId(row[0]),
        source=row[1],
        account=row[2],
        event_id=row[3],
        delivery_id=row[4],
        type=row[5],
        object_id=row[6],
        event_time=utc(row[7]),
        api_version=row[8],
        problem=row[9],
        secret_id=row[10],
        correlation_id=row[11],
        address=row[12],
        received_at=_utc(row[13]),
        state=State(row[14]),
        due_at=_utc(min(row[15], 250_000_000_000.0)),  # a wait that only a person ends lies beyond the calendar
        attempts=row[16],
        crashes=row[17],
        token=row[18],
        processed_at=utc(row[19]),
        result=row[20],
        last_error=row[21],
        generation=row[22],
        body_digest=bytes(row[23]),
        raw=None if row[24] is None else bytes(row[24]),
        headers=tuple(headers_of(bytes(row[25] or b""))),
        deliveries=deliveries,
        failures=failures,
        audit=audit,
    )
