"""Looking for the cause of refusals outside the request: one a minute and source, so that a flood of forgeries buys no time."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from hookonce.errors import HookonceError, Reason, VerificationError
from hookonce.flow.accept import readable
from hookonce.flow.explain import KEPT_BYTES, Rejection, find_cause
from hookonce.flow.receive import kept_headers
from hookonce.model import Delivery
from hookonce.registry import Registry
from hookonce.telemetry import explain_log, log_event

EVERY_SECONDS = 60.0
WAITING_MAX = 8

EXAMINED = frozenset(
    {
        Reason.SIGNATURE_MISSING,
        Reason.SIGNATURE_MALFORMED,
        Reason.SIGNATURE_MISMATCH,
        Reason.TIMESTAMP_MISSING,
        Reason.TIMESTAMP_MALFORMED,
        Reason.TOO_OLD,
        Reason.IN_THE_FUTURE,
        Reason.ID_MISSING,
    }
)

Keep = Callable[[Rejection], None]


@dataclass(frozen=True, slots=True)
class _Refused:
    request_id: str
    delivery: Delivery
    error: VerificationError
    now: float


class Examiner:
    """A thread that is started by the first refusal, and whatever it found out goes to the log and to `keep`."""

    def __init__(self, registry: Registry, keep: Keep) -> None:
        self._registry = registry
        self._keep = keep
        self._prefix = f"req_{os.urandom(5).hex()}"
        self._count = itertools.count(1)
        self._looked: dict[str, float] = {}
        self._waiting: queue.Queue[_Refused] = queue.Queue(WAITING_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def name(self) -> str:
        """An id for a refused request, by which the log and `hookonce explain` call it."""
        return f"{self._prefix}{next(self._count):x}"

    def look(self, request_id: str, delivery: Delivery, error: VerificationError, now: float) -> None:
        """Have this one looked at, unless another of its source was a moment ago. Costs the request nothing."""
        if error.reason not in EXAMINED or delivery.source not in self._registry.sources:
            return
        moment = time.monotonic()
        if moment - self._looked.get(delivery.source, -EVERY_SECONDS) < EVERY_SECONDS:
            return
        self._looked[delivery.source] = moment
        try:
            self._waiting.put_nowait(_Refused(request_id, delivery, error, now))
        except queue.Full:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="hookonce-examiner", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._examine(self._waiting.get())

    def _examine(self, refused: _Refused) -> None:
        delivery = refused.delivery
        try:
            endpoints = [source.endpoint for source in self._registry]
            endpoint = next(one for one in endpoints if one.name == delivery.source)
            cause = find_cause(endpoint, endpoints, delivery, refused.error, refused.now)
            log_event(
                explain_log,
                logging.WARNING,
                "refused because",
                source=delivery.source,
                request=refused.request_id,
                code=cause.code,
                cause=cause.seen,
                likely=cause.likely,
                do=f"hookonce explain {refused.request_id}",
            )
            self._keep(
                Rejection(
                    request_id=refused.request_id,
                    at=refused.now,
                    source=delivery.source,
                    reason=refused.error.reason.value,
                    cause=str(cause),
                    address=readable(delivery.address) or "",
                    method=delivery.method,
                    path=readable(delivery.path) or "",
                    query=delivery.query[:KEPT_BYTES],
                    headers=kept_headers(delivery.headers)[:KEPT_BYTES],
                    raw=delivery.body,
                )
            )
        except HookonceError as error:
            log_event(explain_log, logging.WARNING, "a refusal was not kept", source=delivery.source, error=error.seen)
        except Exception:
            explain_log.exception("a refusal could not be examined")
