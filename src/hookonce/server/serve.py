"""Serving: one process that accepts, works, tells how it is, and leaves without losing anything.

The worker has a thread and an event loop of its own, so that no handler can slow an answer to a provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypedDict, Unpack

import uvicorn

from hookonce.asgi.app import App
from hookonce.errors import ConfigurationError, HookonceError, SchemaError, StorageError
from hookonce.inbox import Inbox
from hookonce.server.children import Child, ListenError, listen, listen_many, supervise
from hookonce.server.counted import Counted
from hookonce.server.direct import DirectConnection, direct_for
from hookonce.server.health import Asgi, Health, Receive, Scope, Send, with_health
from hookonce.server.protocol import (
    CONNECTIONS_MAX,
    HEAD_SECONDS,
    Config,
    Connection,
    Limits,
    refuse_lenient_parser,
    sweep_for_ever,
)
from hookonce.server.signals import Signals, leave
from hookonce.storage.backend import Backend
from hookonce.storage.migrate import migrate, require_current
from hookonce.telemetry import log_event

log = logging.getLogger("hookonce.server")

HOST = "127.0.0.1"
PORT = 8000
PATH = "/webhooks"
GRACE_SECONDS = 25.0
CLOSE_SECONDS = 7.0
"""How long the last groups of arrivals may take: a little more than an arrival waits for its answer."""

BACKLOG = 2_048
FILES_KEPT_BACK = 200

EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
EX_CONFIG = 78


class Options(TypedDict, total=False):
    """What `serve` and `run_server` take; each is explained at `serve`."""

    host: str
    port: int
    sock: socket.socket | None
    receiver: bool
    worker: bool
    path: str
    grace_seconds: float
    drain_seconds: float
    head_seconds: float
    connections_max: int
    address_connections_max: int
    trusted_proxies: Sequence[str]
    migrate: bool
    beside: Asgi | None
    lines: Callable[[], Sequence[str]]
    ready: Callable[[str], None]


async def serve(inbox: Inbox, *, stop: asyncio.Event | None = None, **options: Unpack[Options]) -> None:
    """Serve until `stop` is set, then finish what has begun. Raises DiskFailure, and what makes a start impossible.

    - `host`, `port`: where to listen (port 0: any); or `sock`, a socket that listens already.
    - `receiver`, `worker`: which halves to run. Health is answered in any case.
    - `path`: sources lie below it. `beside`: another ASGI callable for everything that is neither below it nor health.
    - `drain_seconds`: how long /readyz says 503 before connections are refused. `grace_seconds`: how long requests
      and handlers may take to finish after that.
    - `head_seconds`: a request's head must be complete in that time. `connections_max`: more are answered 503.
      `address_connections_max`: the same for each address, 0 for no limit.
    - `trusted_proxies`: addresses whose X-Forwarded-For is believed; "*" believes everybody.
    - `migrate`: bring the schema up to date at start, instead of refusing to start.
    - `lines`: what /metrics tells besides its gauges; by default this inbox's counters.
    - `ready`: called with the URL once requests are answered.
    """
    refuse_lenient_parser()
    given = options.get("sock")
    listener = given or listen(options.get("host", HOST), options.get("port", PORT))
    try:
        await inbox.with_backend(
            lambda backend: _Service(inbox, backend, listener, options).run(stop or asyncio.Event())
        )
    finally:
        listener.close()


class _Service:
    """One run of `serve`: the parts, in the order in which they start and stop."""

    def __init__(self, inbox: Inbox, backend: Backend, listener: socket.socket, options: Options) -> None:
        self._inbox = inbox
        self._backend = backend
        self._listener = listener
        self._options = options
        self._grace = options.get("grace_seconds", GRACE_SECONDS)
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._health = Health.of(backend, options.get("lines", inbox.counters.lines), now=lambda: inbox.clock.override)
        self._door = Door(self._config())
        self._worker = WorkerThread(inbox, self._grace, self._fail) if options.get("worker", True) else None

    def _config(self) -> Config:
        options = self._options
        trusted = list(options.get("trusted_proxies", ()))
        limits = Limits(
            head_seconds=options.get("head_seconds", HEAD_SECONDS),
            connections_max=connections_allowed(options.get("connections_max", CONNECTIONS_MAX)),
            address_connections_max=options.get("address_connections_max", 0),
        )
        return Config(
            with_health(self._app(), self._health),
            limits=limits,
            http=self._protocol(trusted),
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            proxy_headers=bool(trusted),
            forwarded_allow_ips=trusted or None,
        )

    def _protocol(self, trusted: Sequence[str]) -> type[Connection]:
        """How connections are served: webhooks the short way, where there is a receiver."""
        if not self._options.get("receiver", True):
            return Connection
        path = self._options.get("path", PATH)
        receiver = self._inbox.asgi(path)
        direct = direct_for(receiver.desk, receiver.acceptor(), path, trusted)
        return type("DirectConnection", (DirectConnection,), {"direct": direct})

    def _app(self) -> Asgi:
        beside = self._options.get("beside") or _not_found
        if not self._options.get("receiver", True):
            return beside
        path = self._options.get("path", PATH).rstrip("/")
        receiver: App = self._inbox.asgi(path)
        receiver.desk.disk_failed = self._fail
        if self._options.get("beside") is None or not path:
            return receiver
        below = path + "/"

        async def either(scope: Scope, receive: Receive, send: Send) -> None:
            inside = scope["type"] == "http" and scope["path"].startswith(below)
            await (receiver if inside else beside)(scope, receive, send)

        return either

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def run(self, stop: asyncio.Event) -> None:
        if self._options.get("migrate", False):
            await migrate(self._backend)
        await require_current(self._backend)
        await self._door.open(self._listener)
        if self._worker is not None:
            self._worker.start()
        self._options.get("ready", _say_ready)(url_of(self._listener))
        stopping = asyncio.ensure_future(stop.wait())
        ends: set[asyncio.Future[Any]] = {stopping, self._failure}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._failure.done():
            await self._drain()
        stopping.cancel()
        if self._failure.done():
            await self._abandon()
            self._failure.result()
        await self._finish()

    async def _drain(self) -> None:
        """Tell the load balancer, and give it time to listen."""
        self._health.draining = True
        seconds = self._options.get("drain_seconds", 0.0)
        log_event(log, logging.INFO, "stopping", drain_seconds=seconds, grace_seconds=self._grace)
        if seconds:
            await asyncio.wait({self._failure}, timeout=seconds)

    async def _finish(self) -> None:
        """Requests and handlers finish side by side, within the grace; then the connections to the database go."""
        began = time.monotonic()
        leaving: list[Coroutine[Any, Any, None]] = [self._door.close(self._grace)]
        if self._worker is not None:
            leaving.append(self._worker.stop())
        await asyncio.gather(*leaving)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._inbox.close()
        except TimeoutError:
            log_event(log, logging.WARNING, "the database did not answer; what it did not confirm was not acknowledged")
        if self._failure.done():
            self._failure.result()
        log_event(log, logging.INFO, "stopped", seconds=f"{time.monotonic() - began:.1f}")

    async def _abandon(self) -> None:
        """After a failure nothing more may be acknowledged: no grace, connections are cut."""
        await self._door.close(0.0)
        if self._worker is not None:
            self._worker.grace_seconds = 0.0
            await self._worker.stop()


class Door(uvicorn.Server):
    """uvicorn's server, opened and closed by us; its signal handlers are never installed."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._chores: list[asyncio.Task[None]] = []

    async def open(self, listener: socket.socket) -> None:
        """Answer what comes in on this socket."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.on_tick(0)
        await self.startup(sockets=[listener])
        self._chores = [
            asyncio.ensure_future(self.main_loop()),
            asyncio.ensure_future(sweep_for_ever(self.server_state.connections, self.config.limits)),
        ]

    async def close(self, grace_seconds: float) -> None:
        """No new connections; those without a request go now, the others when they have been answered."""
        for server in self.servers:
            server.close()
        state = self.server_state
        for connection in tuple(state.connections):
            connection.shutdown()
        deadline = time.monotonic() + grace_seconds
        while (state.connections or state.tasks) and time.monotonic() < deadline:  # noqa: ASYNC110 - uvicorn's sets do not tell
            await asyncio.sleep(0.02)
        for connection in tuple(state.connections):
            connection.transport.abort()
        late = set(state.tasks)
        if late:
            log_event(log, logging.WARNING, "requests cut off", count=len(late))
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=1.0)
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)


class WorkerThread:
    """A worker on a loop and connections of its own. Daemon: no handler can keep the process from ending."""

    NAME = "hookonce-worker"

    def __init__(self, inbox: Inbox, grace_seconds: float, failed: Callable[[BaseException], None]) -> None:
        self.grace_seconds = grace_seconds
        self._inbox = inbox
        self._failed = failed
        self._home = asyncio.get_running_loop()
        self._loop = loop_factory()()
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()

    def start(self) -> None:
        threading.Thread(target=self._main, name=self.NAME, daemon=True).start()

    def _main(self) -> None:
        problem: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._inbox.with_backend(self._work))
        except BaseException as error:  # whatever ends the worker ends the process, which says why
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop is gone: the process ends anyway
            self._home.call_soon_threadsafe(self._over, problem)

    async def _work(self, backend: Backend) -> None:
        await self._inbox.worker(backend).run(self._stop, grace_seconds=self.grace_seconds)

    def _over(self, problem: BaseException | None) -> None:
        self._ended.set()
        if problem is not None:
            self._failed(problem)

    async def stop(self) -> None:
        """Let it finish within the grace. If it does not, it is left behind, and its transactions are rolled back."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself, and its loop is closed
            self._loop.call_soon_threadsafe(self._stop.set)
        try:
            await asyncio.wait_for(self._ended.wait(), self.grace_seconds + 4.0)
        except TimeoutError:
            log_event(
                log, logging.WARNING, "the worker did not end in time; its events are taken over after their lease"
            )


def run_server(
    inbox: Inbox,
    *,
    processes: int = 1,
    command: Sequence[str] | None = None,
    signals: Signals | None = None,
    **options: Unpack[Options],
) -> int:
    """Serve in this process, or in several, until SIGTERM or SIGINT. Returns the exit code for the command line.

    With `processes` above 1 this process only supervises: each child runs `command` (by default the command line of
    this process), comes to this same call, and serves. Errors are logged, one line each, never as a traceback.
    `signals`: made earlier, so that a signal that comes while the application is still being loaded is not lost.
    """
    signals = signals or Signals()
    child = Child.from_environment()
    try:
        if child is None and processes > 1:
            with asyncio.Runner() as runner:
                return runner.run(_supervise(signals, processes, command, options))
        raise_file_limit()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve_here(inbox, signals, child, options))
        code = 0
    except Exception as error:  # every error ends here as a code and a line
        code = exit_code_of(error)
        log.critical("%s", error, exc_info=error if code == EX_SOFTWARE else None)
    if any(thread.name == WorkerThread.NAME for thread in threading.enumerate()):
        logging.shutdown()
        leave(code)
    return code


async def _serve_here(inbox: Inbox, signals: Signals, child: Child | None, options: Options) -> None:
    stop = asyncio.Event()
    signals.attach(stop)
    chores: list[asyncio.Task[None]] = []
    if child is not None:
        child.attach(stop)
        say = options.get("ready")
        counted = Counted(child.folder, options.get("lines", inbox.counters.lines))
        chores.append(asyncio.ensure_future(counted.write_for_ever()))

        def ready(url: str) -> None:
            child.say_ready()
            if say is not None:
                say(url)

        options = {**options, "sock": child.listener, "ready": ready, "lines": counted.lines}
    try:
        await serve(inbox, stop=stop, **options)
    finally:
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        if child is not None:
            child.clear_up()
        signals.detach()


async def _supervise(signals: Signals, processes: int, command: Sequence[str] | None, options: Options) -> int:
    stop = asyncio.Event()
    signals.attach(stop)
    given = options.get("sock")
    listeners = [given] if given else listen_many(options.get("host", HOST), options.get("port", PORT), processes)
    url = url_of(listeners[0])
    seconds = options.get("drain_seconds", 0.0) + options.get("grace_seconds", GRACE_SECONDS) + CLOSE_SECONDS + 5.0
    try:
        return await supervise(
            listeners,
            processes=processes,
            command=command,
            stop=stop,
            leave_seconds=seconds,
            killed=signals.killed,
            ready=lambda: options.get("ready", _say_ready)(url),
        )
    finally:
        signals.detach()
        for listener in listeners:
            listener.close()


def exit_code_of(error: BaseException) -> int:
    """The code of sysexits.h that service managers know what to do with."""
    match error:
        case ConfigurationError() | SchemaError():
            return EX_CONFIG
        case StorageError() | ListenError():
            return EX_UNAVAILABLE
        case HookonceError():
            return 1
        case _:
            return EX_SOFTWARE


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The loop of uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def raise_file_limit() -> None:
    """Every connection is a file; the soft limit is a relic of programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS says "unlimited" and does not mean it
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_allowed(wanted: int) -> int:
    """As many connections as wanted, and as files allow: those above the limit need one as well, for a moment."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(16, min(wanted, (soft - FILES_KEPT_BACK) * 3 // 4))


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _say_ready(url: str) -> None:
    log_event(log, logging.INFO, "serving", url=url, process=os.getpid())


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    del receive
    if scope["type"] == "http":
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


__all__ = ["ListenError", "Options", "exit_code_of", "run_server", "serve"]
