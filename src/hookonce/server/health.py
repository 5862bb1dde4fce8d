"""What probes and Prometheus ask: /livez, /readyz (and /healthz), /metrics.

Answers are shared and cached: however many ask, the database is asked once, and a question that hangs is not repeated.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hookonce.errors import SchemaError
from hookonce.model import State
from hookonce.storage.backend import Backend
from hookonce.storage.migrate import applied, known
from hookonce.storage.operation import Operation, Statement
from hookonce.telemetry import log_event

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
Check = Callable[[], Awaitable[None]]
"""Returns when all is well, raises when not."""

CHECK_SECONDS = 1.0
READY_CACHE_SECONDS = 1.0
GAUGES_CACHE_SECONDS = 5.0
GAUGES_SECONDS = 2.0
GAUGES_SHARE = 20.0
"""What took t seconds is not asked again for 20 t: on a large table a gauge must not become the load."""

NOT_BACKLOG = frozenset({State.PROCESSED.value, State.DISCARDED.value})

log = logging.getLogger("hookonce.server")


class Shared(Generic[T]):
    """A question that many may ask: one at a time is on its way, and its answer is good for a while."""

    def __init__(
        self, question: Callable[[], Awaitable[T]], *, within: float, cache_seconds: float = 0.0, share: float = 0.0
    ) -> None:
        self._question = question
        self._within = within
        self._cache_seconds = cache_seconds
        self._share = share
        self._running: asyncio.Task[T] | None = None
        self._good_until = 0.0

    async def ask(self) -> T:
        """The answer, at most `cache_seconds` old. TimeoutError when there is none `within` so many seconds."""
        task = self._running
        if task is None or (task.done() and time.monotonic() >= self._good_until):
            task = self._running = asyncio.ensure_future(self._run())
            task.add_done_callback(_heard)
        # Not cancelled when it is late: a driver may take longer to cancel than to answer.
        await asyncio.wait({task}, timeout=self._within)
        if not task.done():
            raise TimeoutError(f"no answer within {self._within:g} s")
        return task.result()

    async def _run(self) -> T:
        began = time.monotonic()
        try:
            return await self._question()
        finally:
            now = time.monotonic()
            self._good_until = now + max(self._cache_seconds, self._share * (now - began))


def _heard(task: asyncio.Task[Any]) -> None:
    """Whoever asked may have stopped listening; then nobody needs to hear of the failure."""
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits: receipts by source and state, and how long the oldest has been due."""

    counts: Sequence[tuple[str, str, int]]
    oldest_seconds: float


def backlog(*, now: float | None = None) -> Operation[Backlog]:
    """Count what is not finished."""
    counts = yield Statement("state_counts")
    oldest = yield Statement("oldest_open", {"now": now})
    seconds = oldest[0][0] if oldest else None
    rows = [(str(source), str(state), int(count)) for source, state, count, *_ in counts if state not in NOT_BACKLOG]
    return Backlog(rows, float(seconds or 0.0))


class Health:
    """What /readyz and /metrics answer. `draining`, once set, turns /readyz to 503 for good."""

    def __init__(self, checks: Mapping[str, Check], lines: Callable[[], Sequence[str]] = tuple) -> None:
        self.draining = False
        self._checks = {
            # A little longer than what is asked inside, so that the innermost gives the reason.
            name: Shared(check, within=CHECK_SECONDS + 0.1, cache_seconds=READY_CACHE_SECONDS)
            for name, check in checks.items()
        }
        self._lines = lines
        self._gauges: Shared[Backlog] | None = None
        self._failing: set[str] = set()

    @classmethod
    def of(
        cls, backend: Backend, lines: Callable[[], Sequence[str]], *, now: Callable[[], float | None] = lambda: None
    ) -> Health:
        """The health of a database: it answers, and its schema is at least as new as this version needs."""
        step = Shared(lambda: backend.read(applied()), within=CHECK_SECONDS)
        needed = known(backend.dialect)[-1].number

        async def database() -> None:
            await step.ask()

        async def schema() -> None:
            # Newer is well: somebody migrated while we run, and migrations allow for that. We only refuse to start.
            have = await step.ask()
            if have < needed:
                raise SchemaError(
                    f"{backend.where} is at step {have}, this version needs {needed}", do="hookonce migrate"
                )

        health = cls({"database": database, "schema": schema}, lines)
        health._gauges = Shared(
            lambda: backend.read(backlog(now=now())),
            within=GAUGES_SECONDS,
            cache_seconds=GAUGES_CACHE_SECONDS,
            share=GAUGES_SHARE,
        )
        return health

    async def ready(self) -> dict[str, bool]:
        """Each check by name, and whether it passed."""
        names = list(self._checks)
        passed = await asyncio.gather(*(self._passes(name) for name in names))
        return {**dict(zip(names, passed, strict=True)), "serving": not self.draining}

    async def _passes(self, name: str) -> bool:
        try:
            await self._checks[name].ask()
        except Exception as error:
            if name not in self._failing:
                self._failing.add(name)
                log_event(log, logging.ERROR, "not ready", check=name, error=error)
            return False
        if name in self._failing:
            self._failing.discard(name)
            log_event(log, logging.WARNING, "ready again", check=name)
        return True

    async def metrics(self) -> str:
        """Everything counted, in the text form that Prometheus reads. Without the gauges when the database is silent."""
        lines = list(self._lines())
        if self._gauges is not None:
            try:
                found = await self._gauges.ask()
            except Exception as error:
                log_event(log, logging.WARNING, "metrics without gauges", error=error)
            else:
                lines += _gauge_lines(found)
        return "\n".join(lines) + "\n"


def _gauge_lines(found: Backlog) -> list[str]:
    return [
        "# TYPE hookonce_oldest_pending_seconds gauge",
        f"hookonce_oldest_pending_seconds {max(0.0, found.oldest_seconds):.3f}",
        "# TYPE hookonce_backlog gauge",
        *(f'hookonce_backlog{{source="{source}",state="{state}"}} {count}' for source, state, count in found.counts),
    ]


def with_health(app: Asgi, health: Health) -> Asgi:
    """Answer the health paths, and hand everything else on. No names but those of the checks, no error texts."""

    async def live() -> tuple[int, bytes, bytes]:
        return 200, _JSON, b'{"status":"alive"}'

    async def ready() -> tuple[int, bytes, bytes]:
        checks = await health.ready()
        well = all(checks.values())
        shown = {name: "ok" if passed else "failed" for name, passed in checks.items()}
        body = json.dumps({"status": "ready" if well else "not ready", "checks": shown}, separators=(",", ":"))
        return 200 if well else 503, _JSON, body.encode()

    async def metrics() -> tuple[int, bytes, bytes]:
        return 200, _PROMETHEUS, (await health.metrics()).encode()

    pages = {"/livez": live, "/readyz": ready, "/healthz": ready, "/metrics": metrics}

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # A webhook is a POST: for it this is one comparison.
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or scope["path"] not in pages:
            await app(scope, receive, send)
            return
        status, kind, body = await pages[scope["path"]]()
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return answer


_JSON = b"application/json"
_PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"
