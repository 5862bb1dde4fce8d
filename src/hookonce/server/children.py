"""Several processes behind one socket: a parent that listens and supervises, children that serve.

Children are spawned, never forked: each runs the command line afresh and inherits a listening socket. On Linux each has
one of its own, and the kernel spreads connections over them; on one that all share, whoever wakes first takes all. The
parent keeps every socket open: connections that wait on one survive its child, and are the next child's.

Parent and child hold the two ends of a line. The child says on it that it serves. When the parent's end closes, the
child finishes and leaves: that is how the parent asks it to stop, and also what happens when the parent dies. A signal
would not do for the first: terminals and service managers send theirs to the children as well, and the parent's would
count as the second, which means "leave at once".
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hookonce.errors import HookonceError
from hookonce.telemetry import log_event

log = logging.getLogger("hookonce.server")

ENVIRONMENT = "HOOKONCE_CHILD"
LISTEN_BACKLOG = 2_048
BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 10.0
STEADY_SECONDS = 10.0
"""A child that lived this long did not die of starting."""

FINAL_CODES = frozenset({2, 78})
"""Usage and configuration: starting again changes nothing."""

EX_UNAVAILABLE = 69
_PR_SET_PDEATHSIG = 1


class ListenError(HookonceError):
    """The address cannot be listened on."""

    code = "HO129"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, or an error that says why not."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=LISTEN_BACKLOG)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ListenError(
            f"cannot listen on {host}:{port}: {why}",
            do=f"choose another address or port, or see who has it: ss -ltnp 'sport = :{port}'",
        ) from error


def listen_many(host: str, port: int, count: int) -> list[socket.socket]:
    """A socket for each child where the kernel spreads connections over them, else one for all."""
    first = listen(host, port)
    if sys.platform != "linux" or count == 1:
        return [first]
    # The first has found out that nobody else listens there; those that may share an address would not notice.
    family, address = first.family, first.getsockname()
    first.close()
    try:
        return [
            socket.create_server(address[:2], family=family, backlog=LISTEN_BACKLOG, reuse_port=True)
            for _ in range(count)
        ]
    except OSError as error:
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Child:
    """What a child has from its parent."""

    listener: socket.socket
    line: socket.socket
    folder: Path
    """Where siblings leave their counts."""

    parent: int

    @classmethod
    def from_environment(cls) -> Child | None:
        """Who we are, if our parent is a supervisor. Not inherited by processes that we start."""
        text = os.environ.pop(ENVIRONMENT, "")
        if not text:
            return None
        listener, line, parent, folder = text.split(",", 3)
        die_with_parent(int(parent))
        return cls(socket.socket(fileno=int(listener)), socket.socket(fileno=int(line)), Path(folder), int(parent))

    def attach(self, stop: asyncio.Event) -> None:
        """Set `stop` when the parent hangs up or is gone."""
        loop = asyncio.get_running_loop()

        def hung_up() -> None:
            loop.remove_reader(self.line)
            stop.set()

        self.line.setblocking(False)
        loop.add_reader(self.line, hung_up)

    def clear_up(self) -> None:
        """What the parent would have removed, had it not been killed."""
        if os.getppid() != self.parent:
            shutil.rmtree(self.folder, ignore_errors=True)

    def say_ready(self) -> None:
        with contextlib.suppress(OSError):
            self.line.send(b"r")


def die_with_parent(parent: int) -> None:
    """SIGTERM when the parent dies: even if our event loop were not to see the line hang up."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before we could ask for the signal
        os.kill(os.getpid(), signal.SIGTERM)


@dataclass(slots=True)
class _Slot:
    """One place for a child: at most one at a time, and how its starts have gone."""

    number: int
    listener: socket.socket
    process: asyncio.subprocess.Process | None = None
    line: socket.socket | None = None
    serving: bool = False
    failures: int = 0


@dataclass(slots=True)
class _Supervisor:
    """Keeps every slot filled until it is told to stop, or until a child says that there is no point."""

    command: Sequence[str]
    stop: asyncio.Event
    killed: set[int]
    ready: Callable[[], None]
    folder: Path
    slots: list[_Slot] = field(default_factory=list)
    code: int = 0
    ever_ready: bool = False

    async def keep(self, slot: _Slot) -> None:
        while not self.stop.is_set():
            began = time.monotonic()
            await self._start(slot)
            code = await self._watch(slot)
            if self.stop.is_set():
                return
            self._judge(slot, code, time.monotonic() - began)
            if slot.failures:
                pause = min(BACKOFF_FIRST_SECONDS * 2.0 ** (slot.failures - 1), BACKOFF_MAX_SECONDS)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stop.wait(), pause)

    async def _start(self, slot: _Slot) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            files = (slot.listener.fileno(), theirs.fileno())
            slot.serving = False
            slot.line = ours
            slot.process = await asyncio.create_subprocess_exec(
                *self.command,
                pass_fds=files,
                env={**os.environ, ENVIRONMENT: f"{files[0]},{files[1]},{os.getpid()},{self.folder}"},
            )

    async def _watch(self, slot: _Slot) -> int:
        assert slot.process is not None
        assert slot.line is not None
        listening = asyncio.ensure_future(self._hear(slot, slot.line))
        self.killed.add(slot.process.pid)
        try:
            return await slot.process.wait()
        finally:
            self.killed.discard(slot.process.pid)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            slot.line.close()

    async def _hear(self, slot: _Slot, line: socket.socket) -> None:
        line.setblocking(False)
        with contextlib.suppress(OSError):
            slot.serving = await asyncio.get_running_loop().sock_recv(line, 1) == b"r"
        if all(other.serving for other in self.slots) and not self.ever_ready:
            self.ever_ready = True
            self.ready()

    def _judge(self, slot: _Slot, code: int, seconds: float) -> None:
        """A child has ended that should not have: replace it, wait before that, or give up."""
        served = slot.serving
        slot.serving = False
        # Out of service with 69: the disk failed, and going on is what must not happen. Before anybody has served: the
        # database cannot be reached, which is for the operator to see. Otherwise others serve, and this one waits.
        if code in FINAL_CODES or (code == EX_UNAVAILABLE and (served or not self.ever_ready)):
            self.code = code
            self.stop.set()
            return
        slot.failures = 0 if served and seconds >= STEADY_SECONDS else slot.failures + 1
        log_event(
            log, logging.ERROR, "a child ended and is replaced", child=slot.number, code=code, failures=slot.failures
        )

    async def leave(self, seconds: float) -> None:
        """Hang up on all children, and wait until they have finished; whoever has not by then is killed."""
        processes = [slot.process for slot in self.slots if slot.process is not None]
        for slot in self.slots:
            slot.listener.close()  # or connections would go on waiting on it that nobody will ever answer
            if slot.line is not None:
                with contextlib.suppress(OSError):
                    slot.line.shutdown(socket.SHUT_RDWR)
        waits = [asyncio.ensure_future(process.wait()) for process in processes]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=seconds)
        if late:
            log_event(log, logging.WARNING, "children killed", count=len(late), seconds=seconds)
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await asyncio.wait(waits)


async def supervise(
    listeners: Sequence[socket.socket],
    *,
    processes: int,
    command: Sequence[str] | None,
    stop: asyncio.Event,
    leave_seconds: float,
    killed: set[int],
    ready: Callable[[], None],
) -> int:
    """Keep `processes` children serving until `stop` is set. Returns the exit code.

    `killed` always holds their process ids, for a signal handler that cannot wait.
    """
    folder = Path(tempfile.mkdtemp(prefix="hookonce-"))
    supervisor = _Supervisor(command or (sys.executable, *sys.orig_argv[1:]), stop, killed, ready, folder)
    supervisor.slots = [_Slot(number, listeners[number % len(listeners)]) for number in range(processes)]
    keeping = [asyncio.ensure_future(supervisor.keep(slot)) for slot in supervisor.slots]
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({stopping, *keeping}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await supervisor.leave(leave_seconds)
        await asyncio.gather(*keeping)
    finally:
        stopping.cancel()
        shutil.rmtree(folder, ignore_errors=True)
    return supervisor.code
