"""A served inbox as a process of its own, and the little HTTP that the tests speak to it."""

import asyncio
import contextlib
import http.client
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

import hookonce
from hookonce import Inbox
from hookonce.providers import Stripe
from hookonce.storage.migrate import migrate
from tests.server.app import SECRET

APP = Path(__file__).with_name("app.py")
SOURCES = Path(hookonce.__file__).parents[1]
BOUND_SECONDS = 30.0


class Served:
    """`with Served(database, ...) as served:` starts the process, waits until it answers, and ends it afterwards."""

    def __init__(self, database: str, *, before: Sequence[str] = (), **options: Any) -> None:
        self._database = database
        self.command = [
            *before, sys.executable, str(APP), json.dumps({"database": database, "port": 0, **options})
        ]  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        line = self.wait_line("ready")
        self.port = int(line.split()[1].rpartition(":")[2])
        return self

    def start(self) -> None:
        """Start without waiting."""
        self._temporary = tempfile.mkdtemp()
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(SOURCES), "TMPDIR": self._temporary},
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            self.lines.put(line)
        self.lines.put("")

    def wait_line(self, start: str) -> str:
        """The next line of output that begins so."""
        deadline = time.monotonic() + BOUND_SECONDS
        while True:
            line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            if line.startswith(start):
                return line
            if not line:
                raise AssertionError(f"ended without saying {start!r}:\n{self.output()}")

    def output(self) -> str:
        """Everything said so far."""
        return "".join(self.said)

    def term(self) -> None:
        """Ask it to stop."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = BOUND_SECONDS) -> int:
        """The exit code."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def children(self) -> list[psutil.Process]:
        """Processes below this one that have not ended."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in found if alive(child)]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            below = self.children()
            self.process.kill()
            for child in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.process.wait(BOUND_SECONDS)
        self._reader.join(BOUND_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self._temporary)

    # speak

    def post(self, event: str, **more: Any) -> int:
        """Deliver an event on a connection of its own; the status, or 0 if there was no answer."""
        try:
            return status_of(self.exchange(signed(event, **more)))
        except OSError:
            return 0

    def get(self, path: str) -> tuple[int, str]:
        """One GET; status 0 if there was no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=BOUND_SECONDS)

    def exchange(self, request: bytes) -> bytes:
        """Send these bytes, and return what comes until the other side closes or a complete answer is there."""
        with self.connect() as sock:
            sock.sendall(request)
            return read_answer(sock)


def alive(process: psutil.Process) -> bool:
    """A zombie has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_answer(sock: socket.socket) -> bytes:
    """One answer with a Content-Length, or whatever came before the end."""
    data = b""
    while True:
        head, gap, body = data.partition(b"\r\n\r\n")
        if gap:
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if length and len(body) >= int(length[0].split(b":")[1]):
                return data
        try:
            part = sock.recv(65536)
        except ConnectionResetError:
            return data
        if not part:
            return data
        data += part


def read_to_end(sock: socket.socket) -> bytes:
    """Everything until the other side closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(65536):
            data += part
    return data


def status_of(answer: bytes) -> int:
    """The status of an answer, 0 for none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def body_of(event: str) -> bytes:
    """An event as Stripe would write it."""
    return json.dumps({"id": event, "type": "invoice.paid", "data": {"object": {"id": "in_1"}}}).encode()


def signature(body: bytes) -> bytes:
    """Stripe's header over this body."""
    endpoint = Stripe(SECRET)
    ((name, value),) = endpoint.provider.scheme.sign(body, endpoint.secrets[0], time.time(), "")
    return name + b": " + value + b"\r\n"


def signed(event: str, *, headers: bytes = b"", length: bool = True) -> bytes:
    """A whole request with a valid signature."""
    body = body_of(event)
    announced = b"Content-Length: %d\r\n" % len(body) if length else b""
    return b"POST /webhooks/stripe HTTP/1.1\r\nHost: test\r\n" + headers + signature(body) + announced + b"\r\n" + body


def until(condition: Callable[[], Any], *, seconds: float = BOUND_SECONDS, what: str = "") -> Any:
    """Wait for a condition; what it returned."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain: {what or condition}")
        time.sleep(0.02)
    return found


def prepare(database: str) -> str:
    """Create the tables."""
    asyncio.run(Inbox(database).with_backend(migrate))
    return database


def states(path: Path) -> dict[str, str]:
    """The events in a SQLite inbox, and where they stand."""
    from hookonce.storage.sqlite import choose_module

    connection = choose_module().connect(str(path))
    try:
        return dict(connection.execute("SELECT event_id, state FROM hookonce_receipt").fetchall())
    finally:
        connection.close()


def stored(path: Path) -> set[str]:
    """The events in a SQLite inbox."""
    return set(states(path))


@contextlib.contextmanager
def storm(served: Served, threads: int = 8) -> Iterator[list[str]]:
    """Deliver events from many threads; the list collects what was acknowledged."""
    acknowledged: list[str] = []
    over = threading.Event()

    def send(name: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            event = f"evt_{name}_{count}"
            if served.post(event) in (200, 202):
                acknowledged.append(event)

    workers = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield acknowledged
    finally:
        over.set()
        for worker in workers:
            worker.join(BOUND_SECONDS)
