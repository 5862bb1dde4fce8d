"""The object that users build: sources, handlers, a database, and the doors through which events come in. Wiring only."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hookonce.asgi.app import App, Desk
from hookonce.asgi.examiner import Examiner
from hookonce.clock import Clock, SystemClock
from hookonce.errors import ConfigurationError, Reason, StorageError, VerificationError
from hookonce.flow.accept import Acceptor
from hookonce.flow.explain import Rejection, rejection_insert
from hookonce.flow.receive import Bounds, Receiver
from hookonce.model import Arrival, Delivery, Stored
from hookonce.providers import Endpoint
from hookonce.registry import Handler, Registry, Source, is_named_only, named_only
from hookonce.storage.backend import Backend
from hookonce.storage.connect import backend_factory
from hookonce.storage.operation import Operation
from hookonce.telemetry import Counters
from hookonce.worker.loop import Worker, WorkerSettings

T = TypeVar("T")


class Inbox:
    """A durable inbox: every event is accepted once and applied once.

    `database`: a URL, a SQLAlchemy engine or sessionmaker, a function that returns a connection, or nothing
    (SQLite, `hookonce.db` in the current folder).
    """

    def __init__(
        self,
        database: Any = None,
        *,
        bounds: Bounds | None = None,
        worker: WorkerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.database = database
        self.registry = Registry()
        self.counters = Counters()
        self.clock: Clock = clock or SystemClock()
        self.worker_settings = worker or WorkerSettings()
        self._factory = backend_factory(database)
        self._hands = self._factory().hands
        receiver = Receiver(self.registry, self.clock, bounds or Bounds())
        examiner = Examiner(self.registry, self._keep_rejection)
        self._desk = Desk(self.registry, receiver, self.counters, examiner)
        self._doors: dict[asyncio.AbstractEventLoop, Acceptor] = {}
        self._background: asyncio.AbstractEventLoop | None = None
        self._background_lock = threading.Lock()
        self._wakes: list[Callable[[], None]] = []
        self._starts: list[Callable[..., None]] = []
        self._desk.accepted = self._wake_workers

    # -- declare ----------------------------------------------------------------------------------------------

    def source(self, endpoint: Endpoint | str) -> Source:
        """Add an endpoint; what comes back takes handlers: `@stripe.on("invoice.paid")`.

        A name alone stands for a source that the configuration file brings, with its provider and its secrets.
        """
        if isinstance(endpoint, str):
            endpoint = named_only(endpoint)
        known = self.registry.sources.get(endpoint.name)
        if known is not None and is_named_only(known.endpoint) and not is_named_only(endpoint):
            known.endpoint = endpoint
            return known
        source = Source(endpoint, self._check)
        self.registry.add(source)
        return source

    def on_start(self, function: Callable[..., None]) -> Callable[..., None]:
        """Run the decorated function before the first event, in a transaction of its own: `def tables(conn): ...`."""
        names = list(inspect.signature(function).parameters)
        gives = sorted(self._hands.gives)
        if len(names) != 1 or names[0] not in gives or inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"{function.__qualname__} cannot be run at start",
                do=f"def {function.__name__}({' or '.join(gives)}): ...",
            )
        self._starts.append(function)
        return function

    async def start(self) -> None:
        """Run what was registered with `on_start`. The command line does, before it serves or works."""

        def run(backend: Backend) -> None:
            lane = backend.lane()
            try:
                for function in self._starts:
                    lane.begin()
                    function(lane.given(next(iter(inspect.signature(function).parameters))))
                    lane.flush()
                    lane.commit()
            except BaseException:
                lane.rollback()
                raise
            finally:
                lane.close()

        if self._starts:
            await self.with_backend(lambda backend: asyncio.to_thread(run, backend))

    def adjust(self, *, bounds: Mapping[str, Any] | None = None, worker: Mapping[str, Any] | None = None) -> None:
        """Override single bounds and worker settings, before anything is received: what the configuration says."""
        receiver = self._desk.receiver
        self._desk.receiver = Receiver(
            self.registry, self.clock, dataclasses.replace(receiver.bounds, **(bounds or {}))
        )
        self.worker_settings = dataclasses.replace(self.worker_settings, **(worker or {}))

    def _check(self, handler: Handler) -> None:
        missing = set(handler.wants) - self._hands.gives - {"event"}
        if missing:
            raise ConfigurationError(
                f"{handler.where}: there is no {' or '.join(sorted(missing))} to give: {self._hands.because}",
                do=f"this inbox gives: event, {', '.join(sorted(self._hands.gives))}",
            )
        colour = "async" if handler.is_async else "sync"
        if colour not in self._hands.colours:
            wrong, right = ("async def", "def") if handler.is_async else ("def", "async def")
            name = getattr(handler.function, "__name__", "handler")
            raise ConfigurationError(
                f'{name} is "{wrong}", but {self._hands.because} ({handler.where})',
                code="HO109",
                do=f'write "{right} {name}"',
            )

    # -- receive ----------------------------------------------------------------------------------------------

    def asgi(self, path: str = "") -> App:
        """The receiver as an ASGI callable: POST `path`/<source>."""
        return App(self._desk, self._acceptor, path=path)

    def wsgi(self, path: str = "") -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
        """The receiver as a WSGI callable: POST `path`/<source>."""
        from hookonce.wsgi import WsgiApp

        return WsgiApp(self._desk, self._submit_blocking, path=path)

    async def accept(self, source: str, body: bytes, headers: Mapping[str, str]) -> Stored:
        """Accept without HTTP: a signed message from a queue. Raises VerificationError or StorageError.

        Of a batch the first event is told of; `accept_all` tells of every one.
        """
        stored = await self.accept_all(source, body, headers)
        if not stored:
            raise VerificationError(Reason.ID_MISSING, f"{source}: there is no event in this request")
        return stored[0]

    async def accept_all(self, source: str, body: bytes, headers: Mapping[str, str]) -> list[Stored]:
        """As `accept`, for senders that put several events into one request. All of them share a commit."""
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        delivery = Delivery(source, raw, body)
        need = self._desk.receiver.needs(delivery)
        if need is not None:
            await asyncio.to_thread(need)
        arrivals = self._desk.receiver.open(delivery).arrivals
        acceptor = self._acceptor()
        if len(arrivals) == 1:
            outcomes = [await acceptor.submit(arrivals[0])]
        else:
            outcomes = await asyncio.gather(*acceptor.submit_all(arrivals))
        for arrival, stored in zip(arrivals, outcomes, strict=True):
            self._desk.stored(arrival, stored)
        return outcomes

    def _acceptor(self) -> Acceptor:
        """The acceptor of the running loop; each loop has connections of its own."""
        loop = asyncio.get_running_loop()
        acceptor = self._doors.get(loop)
        if acceptor is None:
            for closed in [known for known in self._doors if known.is_closed()]:
                del self._doors[closed]
            acceptor = self._doors[loop] = Acceptor(self._factory(), self.clock)
        return acceptor

    def _submit_blocking(self, arrivals: Sequence[Arrival]) -> list[Stored | BaseException]:
        """Accept from a thread: all threads of a WSGI server share the commits of one background loop."""
        with self._background_lock:
            if self._background is None:
                self._background = asyncio.new_event_loop()
                threading.Thread(target=self._background.run_forever, name="hookonce-accept", daemon=True).start()

        async def submit() -> list[Stored | BaseException]:
            try:
                return await asyncio.gather(*self._acceptor().submit_all(arrivals), return_exceptions=True)
            except StorageError as error:
                return [error] * len(arrivals)

        return asyncio.run_coroutine_threadsafe(submit(), self._background).result()

    def _keep_rejection(self, rejection: Rejection) -> None:
        """Called by the examiner's thread, once a minute and source at most."""
        operation = rejection_insert(rejection, now=self.clock.override)
        asyncio.run(self.with_backend(lambda backend: backend.run(operation, within=5.0)))

    # -- work -------------------------------------------------------------------------------------------------

    def worker(self, backend: Backend | None = None) -> Worker:
        """A worker for the running loop."""
        worker = Worker(backend or self._factory(), self.registry, self.clock, self.counters, self.worker_settings)
        loop = asyncio.get_running_loop()
        self._wakes = [*self._wakes, lambda: _wake(loop, worker)]
        return worker

    def _wake_workers(self) -> None:
        for wake in self._wakes:
            wake()

    def process_pending(self) -> None:
        """Work on everything that is due, then return: for cron, scripts and tests."""

        async def drain() -> None:
            backend = self._factory()
            try:
                await Worker(backend, self.registry, self.clock, self.counters, self.worker_settings).drain()
            finally:
                await backend.close()

        asyncio.run(drain())

    # -- ask --------------------------------------------------------------------------------------------------

    async def with_backend(self, use: Callable[[Backend], Awaitable[T]]) -> T:
        """Use a backend for a moment: for migrations, questions and checks."""
        backend = self._factory()
        try:
            return await use(backend)
        finally:
            await backend.close()

    async def ask(self, operation: Operation[T]) -> T:
        """Run one read-only operation."""
        return await self.with_backend(lambda backend: backend.read(operation))

    async def close(self) -> None:
        """Answer what waits, then close the connections of the running loop."""
        acceptor = self._doors.pop(asyncio.get_running_loop(), None)
        if acceptor is not None:
            await acceptor.close()


def _wake(loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    if worker.wanted and not loop.is_closed():
        loop.call_soon_threadsafe(worker.wake)
