"""The ASGI callable: POST <anything>/<source>, answered after the commit.

A cancelled request task changes nothing: the arrival belongs to its group, which runs to its end.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from hookonce.asgi.body import Gone, read_body
from hookonce.asgi.responses import RETRY_AFTER_SECONDS, STATUS_OF_REASON, UNAVAILABLE, messages, status_of
from hookonce.errors import (
    Busy,
    DiskFailure,
    NotDurable,
    Reason,
    RowRefused,
    SchemaError,
    StorageError,
    VerificationError,
)
from hookonce.failpoints import fp
from hookonce.flow.accept import Acceptor
from hookonce.flow.receive import Receiver
from hookonce.model import Arrival, Delivery, Stored, Verdict
from hookonce.registry import Registry
from hookonce.telemetry import Counters, accept_log, log_event, verify_log

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

REFUSAL_LOGS_PER_SECOND = 10


class Desk:
    """What every front door (ASGI, WSGI, no HTTP) shares: from a delivery to a status, counted and logged."""

    def __init__(self, registry: Registry, receiver: Receiver, counters: Counters) -> None:
        self.registry = registry
        self.receiver = receiver
        self.counters = counters
        self.accepted: Callable[[], None] = lambda: None
        self.disk_failed: Callable[[DiskFailure], None] = lambda _: None
        self._refusals_second = 0
        self._refusals = 0

    def known(self, source: str) -> str:
        """A source's name as a label: foreign names are not let into counters or logs."""
        return source if source in self.registry.sources else "unknown"

    def refuse(self, source: str, address: str, error: VerificationError) -> int:
        """Count, log and answer a request that is not let in. Logged without its body, and not more than a few a second."""
        self.counters.received[self.known(source), error.reason.value] += 1
        second = int(time.monotonic())
        if second != self._refusals_second:
            self._refusals_second, self._refusals = second, 0
        self._refusals += 1
        if self._refusals <= REFUSAL_LOGS_PER_SECOND:
            log_event(
                verify_log,
                logging.WARNING,
                "refused",
                source=self.known(source),
                reason=error.reason.value,
                seen=error.seen,
                address=address,
            )
        return STATUS_OF_REASON[error.reason]

    def unavailable(self, arrival: Arrival, error: Exception) -> int:
        self.counters.received[arrival.source, cause_of(error)] += 1
        log_event(
            accept_log,
            logging.ERROR,
            "not stored",
            source=arrival.source,
            event_id=arrival.facts.event_id,
            correlation_id=arrival.correlation_id,
            error=error,
            refused="yes" if isinstance(error, RowRefused) else None,
        )
        if isinstance(error, DiskFailure):
            self.disk_failed(error)
        return UNAVAILABLE

    def resend_after(self) -> float:
        """How long a sender is asked to wait. Spread, so that they do not all come back at the same instant."""
        return RETRY_AFTER_SECONDS * (1.0 + random.random())  # noqa: S311 - spreads resends, protects nothing

    def stored(self, arrival: Arrival, stored: Stored) -> int:
        verdict = stored.verdict
        facts, profile = arrival.facts, self.registry.sources[arrival.source].endpoint.provider.profile
        self.counters.received[arrival.source, verdict.value] += 1
        untested = verdict is Verdict.ACCEPTED and not profile.tested(facts.api_version)
        if untested:
            self.counters.untested[arrival.source] += 1
        if verdict is Verdict.ACCEPTED:
            self.accepted()
        level = logging.WARNING if untested or verdict in (Verdict.MISMATCH, Verdict.SUSPECT_REPLAY) else logging.INFO
        if accept_log.isEnabledFor(level):
            log_event(
                accept_log,
                level,
                verdict.value,
                source=arrival.source,
                event_id=facts.event_id,
                type=facts.type,
                object_id=facts.object_id,
                receipt_id=stored.receipt_id,
                state=("waiting" if arrival.hold else "received") if verdict is Verdict.ACCEPTED else None,
                correlation_id=arrival.correlation_id,
                untested_version=(facts.api_version or "none") if untested else None,
                first_seconds_ago=_ago(stored.since, self.receiver.now()),
            )
        return status_of(verdict, plain_ok=profile.plain_ok)


def cause_of(error: Exception) -> str:
    """Why something could not be stored, for the counters: each asks for another remedy."""
    match error:
        case Busy():
            return "busy"
        case RowRefused():
            return "row_refused"
        case DiskFailure():
            return "disk_failed"
        case NotDurable():
            return "not_durable"
        case SchemaError():
            return "schema"
        case _:
            return "unavailable"


def _ago(then: float | None, now: float) -> float | None:
    """Never negative: the database's clock and ours may differ a little."""
    return None if then is None else round(max(0.0, now - then), 3)


class App:
    """ASGI: give it a path below which the sources lie, or mount it and leave the path empty."""

    def __init__(self, desk: Desk, acceptor: Callable[[], Acceptor], *, path: str = "") -> None:
        self._desk = desk
        self._acceptor = acceptor
        self._prefix = path.rstrip("/") + "/"

    @property
    def desk(self) -> Desk:
        """Whoever serves this learns here of a disk that failed."""
        return self._desk

    def acceptor(self) -> Acceptor:
        """Where arrivals go on the running loop."""
        return self._acceptor()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_other(scope, receive, send)
            return
        desk = self._desk
        headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        client = scope.get("client")
        address: str = client[0] if client else ""
        source = self._source(scope)
        try:
            retry_after = desk.receiver.admit(source, address)
            if retry_after:
                raise VerificationError(Reason.RATE_LIMITED)
            if scope["method"] != "POST":
                raise VerificationError(Reason.WRONG_METHOD)
            bounds = desk.receiver.bounds
            body = await read_body(receive, headers, bytes_max=bounds.body_bytes_max, seconds=bounds.body_seconds)
            arrival = desk.receiver.arrive(
                Delivery(source, headers, body, scope["path"], scope.get("query_string", b""), address)
            )
        except VerificationError as error:
            start, end = messages(desk.refuse(source, address, error), retry_after)
        except Gone:
            return
        else:
            start, end = messages(*await self._store(arrival))
        fp("accept.before_answer")
        await send(start)
        await send(end)

    async def _store(self, arrival: Arrival) -> tuple[int, float]:
        try:
            stored = await self._acceptor().submit(arrival)
        except StorageError as error:
            return self._desk.unavailable(arrival, error), self._desk.resend_after()
        return self._desk.stored(arrival, stored), 0.0

    def _source(self, scope: Scope) -> str:
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root):
            path = path[len(root) :]
        return path[len(self._prefix) :] if path.startswith(self._prefix) else ""


async def _refuse_other(scope: Scope, receive: Receive, send: Send) -> None:
    """Lifespan is nothing to us; a WebSocket is closed."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "websocket.close", "code": 1008})
