"""The ASGI callable: POST <anything>/<source>, answered after the commit.

A cancelled request task changes nothing: the arrival belongs to its group, which runs to its end.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from hookonce.asgi.body import Gone, read_body
from hookonce.asgi.examiner import Examiner
from hookonce.asgi.responses import (
    RETRY_AFTER_SECONDS,
    STATUS_OF_REASON,
    UNAVAILABLE,
    Message,
    answer_messages,
    messages,
    status_of,
)
from hookonce.errors import (
    Busy,
    DiskFailure,
    KeysUnavailable,
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
from hookonce.model import Answer, Arrival, Delivery, Stored, Verdict
from hookonce.registry import Registry
from hookonce.telemetry import Counters, accept_log, log_event, verify_log

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

REFUSAL_LOGS_PER_SECOND = 10


class Desk:
    """What every front door (ASGI, WSGI, no HTTP) shares: from a delivery to a status, counted and logged."""

    def __init__(self, registry: Registry, receiver: Receiver, counters: Counters, examiner: Examiner) -> None:
        self.registry = registry
        self.receiver = receiver
        self.counters = counters
        self.accepted: Callable[[], None] = lambda: None
        self.disk_failed: Callable[[DiskFailure], None] = lambda _: None
        self.examiner = examiner
        self._refusals_second = 0
        self._refusals = 0

    def known(self, source: str) -> str:
        """A source's name as a label: foreign names are not let into counters or logs."""
        return source if source in self.registry.sources else "unknown"

    def refuse(self, source: str, address: str, error: VerificationError, delivery: Delivery | None = None) -> int:
        """Count, log and answer a request that is not let in. Logged without its body, and not more than a few a second."""
        self.counters.received[self.known(source), error.reason.value] += 1
        request_id = self.examiner.name()
        if delivery is not None:
            self.examiner.look(request_id, delivery, error, self.receiver.now())
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
                request=request_id,
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

    def answer(
        self, source: str, arrivals: Sequence[Arrival], outcomes: Sequence[Stored | BaseException]
    ) -> tuple[Message, Message]:
        """One answer for all events of a request: yes only when every one of them is ours."""
        status = 200
        for arrival, outcome in zip(arrivals, outcomes, strict=True):
            if isinstance(outcome, Stored):
                status = max(status, self.stored(arrival, outcome))
            elif isinstance(outcome, Exception):
                status = max(status, self.unavailable(arrival, outcome))
            else:
                raise outcome
        if status == UNAVAILABLE:
            return self.no(source, status, self.resend_after())
        acknowledge = self.registry.sources[source].endpoint.provider.acknowledge
        return messages(status) if acknowledge is None else answer_messages(acknowledge)

    def no(self, source: str, status: int, retry_after: float = 0.0) -> tuple[Message, Message]:
        """A refusal. Some senders insist that it carries nothing at all."""
        found = self.registry.sources.get(source)
        bare = found is not None and found.endpoint.provider.profile.bare
        return messages(status, retry_after, bare=bare)

    def greeted(self, source: str, answer: Answer) -> Answer:
        """Count and log a handshake. What was said in it may be a secret: it is not logged."""
        self.counters.received[self.known(source), "handshake"] += 1
        log_event(verify_log, logging.INFO, "handshake answered", source=self.known(source))
        return answer

    def unverifiable(self, source: str, error: KeysUnavailable) -> int:
        """The sender's public keys could not be fetched: not its fault, so it is asked to come again."""
        self.counters.received[self.known(source), "keys_unavailable"] += 1
        log_event(verify_log, logging.ERROR, "cannot verify", source=self.known(source), error=error)
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
        method: str = scope["method"]
        delivery = None
        try:
            retry_after = desk.receiver.admit(source, address)
            if retry_after:
                raise VerificationError(Reason.RATE_LIMITED)
            bounds = desk.receiver.bounds
            body = b""
            if method == "POST":
                body = await read_body(receive, headers, bytes_max=bounds.body_bytes_max, seconds=bounds.body_seconds)
            query = scope.get("query_string", b"")
            delivery = Delivery(source, headers, body, scope["path"], query, address, method)
            start, end = await self._answer(delivery)
        except VerificationError as error:
            start, end = desk.no(source, desk.refuse(source, address, error, delivery), retry_after)
        except Gone:
            return
        fp("accept.before_answer")
        await send(start)
        await send(end)

    async def _answer(self, delivery: Delivery) -> tuple[Message, Message]:
        desk = self._desk
        greeted = desk.receiver.greet(delivery)
        if greeted is not None:
            return answer_messages(desk.greeted(delivery.source, greeted))
        if delivery.method != "POST":
            raise VerificationError(Reason.WRONG_METHOD)
        need = desk.receiver.needs(delivery)
        if need is not None:
            try:
                await asyncio.to_thread(need)
            except KeysUnavailable as error:
                return desk.no(delivery.source, desk.unverifiable(delivery.source, error), desk.resend_after())
        opened = desk.receiver.open(delivery)
        if opened.answer is not None:
            return answer_messages(desk.greeted(delivery.source, opened.answer))
        return await self._store(delivery.source, opened.arrivals)

    async def _store(self, source: str, arrivals: Sequence[Arrival]) -> tuple[Message, Message]:
        outcomes: Sequence[Stored | BaseException]
        try:
            if len(arrivals) == 1:
                outcomes = [await self._acceptor().submit(arrivals[0])]
            else:
                outcomes = await asyncio.gather(*self._acceptor().submit_all(arrivals), return_exceptions=True)
        except StorageError as error:
            outcomes = [error] * len(arrivals)
        return self._desk.answer(source, arrivals, outcomes)

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
