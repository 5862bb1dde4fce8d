"""A TCP proxy before PostgreSQL that understands just enough of the protocol to cut a connection where it hurts.

Byte for byte what passes is what was sent. Of each connection it follows which statement is being run, by the name of
the prepared statement or by its text, and cuts before the server has seen it, or after the server has answered and
before the client could hear it.
"""

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

Moment = Literal["before", "during", "after"]
MOMENTS: tuple[Moment, ...] = ("before", "during", "after")

NAMES: Mapping[str, bytes] = {
    "accept": b"INSERT INTO hookonce_receipt",
    "duplicate": b"INSERT INTO hookonce_delivery",
    "claim": b"SET state = 'processing', token",
    "suspect": b"SET token = r.token + 1",
    "lock": b"FOR NO KEY UPDATE OF r",
    "mark": b"SET state = 'processed'",
    "settle": b"SET state = ",
    "commit": b"COMMIT",
}
"""A name for each statement worth a cut, and words that only it has; the first that fits counts."""


@dataclass(slots=True)
class _Stream:
    """Bytes of one direction, cut into messages."""

    started: bool = False
    waiting: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes, *, from_client: bool) -> list[tuple[bytes, bytes]]:
        """The messages that are complete now: type (empty for the very first ones of a client) and all bytes."""
        self.waiting += data
        found = []
        while True:
            headless = from_client and not self.started
            head = 4 if headless else 5
            if len(self.waiting) < head:
                return found
            length = int.from_bytes(self.waiting[head - 4 : head], "big") + (0 if headless else 1)
            if len(self.waiting) < length:
                return found
            message = bytes(self.waiting[:length])
            del self.waiting[:length]
            if headless:
                # SSL and GSS requests are answered with one bare byte; our clients send none (sslmode=disable).
                self.started = True
            found.append((b"" if headless else message[:1], message))


class Proxy:
    """Runs in a thread. Cuts at random, at most so often, only the statements it was told to."""

    def __init__(self, target: int, *, seed: int = 1) -> None:
        self.port = 0
        self.cuts: Counter[tuple[str, Moment]] = Counter()
        self.share: dict[str, float] = {}
        self.cuts_max = 0
        self.moments: tuple[Moment, ...] = MOMENTS
        self._chance = random.Random(seed)
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10.0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10.0)

    def cut(self, share: Mapping[str, float], *, most: int, moments: tuple[Moment, ...] = MOMENTS) -> None:
        """From now on cut these statements, each with its probability, until so many were cut in all."""
        self.moments, self.cuts_max, self.share = moments, self.cuts.total() + most, dict(share)

    @property
    def done(self) -> bool:
        return self.cuts.total() >= self.cuts_max

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            self._connections.discard(task)
            return
        try:
            await _Connection(self, reader, writer, *server).run()
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            server[1].transport.abort()
            self._connections.discard(task)

    def decide(self, name: str) -> Moment | None:
        """Whether and when to cut this one."""
        if name not in self.share or self.done or self._chance.random() >= self.share[name]:
            return None
        moment = self._chance.choice(self.moments)
        self.cuts[name, moment] += 1
        return moment


class _Connection:
    """One connection of a client, and ours to the server for it."""

    def __init__(
        self,
        proxy: Proxy,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = from_client, to_client
        self._from_server, self._to_server = from_server, to_server
        self._prepared: dict[bytes, str] = {}
        self._swallow = False
        self._over = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._upwards()), group.create_task(self._downwards())]
            await self._over.wait()
            for task in tasks:
                task.cancel()

    async def _upwards(self) -> None:
        stream = _Stream()
        at_its_end = False
        with contextlib.suppress(OSError):
            while data := await self._from_client.read(1 << 16):
                for kind, message in stream.feed(data, from_client=True):
                    name = self._name(kind, message)
                    moment = self._proxy.decide(name) if name and not (self._swallow or at_its_end) else None
                    if moment == "before":
                        self._over.set()
                        return
                    self._swallow = self._swallow or moment == "after"
                    at_its_end = at_its_end or moment == "during"
                    self._to_server.write(message)
                    if at_its_end and kind in {b"S", b"Q"}:  # the server has all of it, and will run it
                        await self._to_server.drain()
                        self._over.set()
                        return
                await self._to_server.drain()
        self._over.set()

    async def _downwards(self) -> None:
        stream = _Stream()
        with contextlib.suppress(OSError):
            while data := await self._from_server.read(1 << 16):
                for kind, message in stream.feed(data, from_client=False):
                    if self._swallow:
                        if kind == b"Z":  # the server is done, and the client will never know
                            self._over.set()
                            return
                        continue
                    self._to_client.write(message)
                await self._to_client.drain()
        self._over.set()

    def _name(self, kind: bytes, message: bytes) -> str:
        """The statement that this message runs, if it runs one that has a name."""
        match kind:
            case b"Q":
                return _named(message[5:-1])
            case b"P":
                statement, _, rest = message[5:].partition(b"\0")
                self._prepared[statement] = _named(rest.partition(b"\0")[0])
                return ""
            case b"B":
                statement = message[5:].partition(b"\0")[2].partition(b"\0")[0]
                return self._prepared.get(statement, "")
            case _:
                return ""


def _named(text: bytes) -> str:
    for name, words in NAMES.items():
        if words in text:
            return name
    return ""
