"""One HTTP connection: uvicorn's httptools protocol, with the deadlines and refusals that it does not have.

Promise: nothing here costs a request anything worth measuring. Deadlines are kept by looking at every connection once
a second, and what a connection is doing is read from what uvicorn's parser keeps anyway.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import httptools
import uvicorn
from uvicorn._types import HTTPScope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hookonce.errors import ConfigurationError

HEAD_SECONDS = 10.0
IDLE_SECONDS = 75.0
STALL_SECONDS = 60.0
HEAD_BYTES_MAX = 64 << 10
CONNECTIONS_MAX = 10_000
SWEEP_SECONDS = 1.0
SWEEP_SLICE = 500

_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_AMBIGUOUS = (
    b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"Content-Length: 1\r\n 2\r\n\r\nab",
    b"Content-Length : 1\r\n\r\na",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a connection may be. 0 for `address_connections_max` means no limit: behind a proxy all have one address."""

    head_seconds: float = HEAD_SECONDS
    idle_seconds: float = IDLE_SECONDS
    stall_seconds: float = STALL_SECONDS
    head_bytes_max: int = HEAD_BYTES_MAX
    connections_max: int = CONNECTIONS_MAX
    address_connections_max: int = 0

    @property
    def connections_hard_max(self) -> int:
        """Above `connections_max` a request is answered 503; above this a connection is cut without a word."""
        return self.connections_max + self.connections_max // 4 + 16


class Config(uvicorn.Config):
    """uvicorn's configuration, and ours."""

    def __init__(self, app: Any, *, limits: Limits, **given: Any) -> None:
        super().__init__(app, **given)
        self.limits = limits
        self.by_address: Counter[str] = Counter()


class BadRequest(Exception):
    """Raised inside the parser's callbacks: answered 400."""


_OFFER = frozenset({b"connection", b"upgrade", b"http2-settings"})


class Connection(HttpToolsProtocol):
    """One connection. What it is busy with is told by `_phase`, which only the sweeper asks."""

    config: Config
    # Both are None until the first request; uvicorn does not say so.
    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    scope: HTTPScope | None  # type: ignore[assignment]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._address = ""
        self._deaf = False
        self._method = b""
        self._head_bytes = 0
        self._mark: object = None
        self._since = self.loop.time()

    # -- a connection comes and goes --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        limits, by_address = self.config.limits, self.config.by_address
        self._address = self.client[0] if self.client else ""
        by_address[self._address] += 1
        if len(self.connections) > limits.connections_hard_max:
            transport.abort()
        elif len(self.connections) > limits.connections_max or (
            0 < limits.address_connections_max < by_address[self._address]
        ):
            self.app = too_many

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        by_address = self.config.by_address
        by_address[self._address] -= 1
        if not by_address[self._address]:
            del by_address[self._address]

    # -- bytes come in ----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse()
        if self._in_head():
            self._head_bytes += len(data)
            if self._head_bytes > self.config.limits.head_bytes_max:
                self.transport.write(_HEAD_TOO_LARGE)
                self.transport.close()
        else:
            self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        elif name == b"transfer-encoding":
            # httptools accepts a coding before "chunked", and chunks in HTTP/1.0: some proxies read both differently.
            if value.strip().lower() != b"chunked" or self.parser.get_http_version() != "1.1":
                raise BadRequest
        elif name == b"host" and any(other == b"host" for other, _ in self.headers):
            raise BadRequest
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self.parser
        if parser.get_http_version() not in ("1.1", "1.0"):
            raise BadRequest
        if parser.should_upgrade():
            self._method = parser.get_method()
            return
        super().on_headers_complete()
        # Trailers come through on_header as well: they must never look like headers to whoever verifies signatures.
        self.headers = NOWHERE

    def on_message_complete(self) -> None:
        cycle = self.cycle
        if cycle is not None and not self.parser.should_upgrade() and not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def _decline(self, rest: bytes) -> None:
        """Somebody offers another protocol, as Java's client does with every request: read it as if he had not.

        httptools leaves the body unread in that case, so the request is parsed once more, without the offer.
        """
        if self._method == b"CONNECT":
            self._refuse()
            return
        head = [self._method, b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name not in _OFFER:
                head += [name, b": ", value, b"\r\n"]
            elif b"close" in value.lower():
                head.append(b"connection: close\r\n")
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join([*head, b"\r\n", rest]))

    def _refuse(self) -> None:
        """The parser gave up. A request before this one that is complete is still answered, and first."""
        cycle = self.cycle
        if cycle is None or (cycle.response_complete and not cycle.more_body):
            self.send_400_response("Invalid HTTP request received.")
        elif cycle.response_started:
            self.transport.close()
        elif cycle.more_body or self.pipeline:
            self.send_400_response("Invalid HTTP request received.")
        else:
            self._last_request()

    def _last_request(self) -> None:
        self._deaf = True
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """As uvicorn does, without a timer for every answer: idle connections are the sweeper's."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    # -- once a second ----------------------------------------------------------------------------------------

    def _in_head(self) -> bool:
        """A request has begun and its head is not complete: its scope has no cycle yet."""
        return self.scope is not None and (self.cycle is None or self.cycle.scope is not self.scope)

    def _phase(self) -> tuple[object, float]:
        """An object that stays the same for as long as the phase lasts, and how long it may last (0: for ever)."""
        limits, cycle = self.config.limits, self.cycle
        if cycle is None:
            return None, limits.head_seconds
        if self._in_head():
            return self.scope, limits.head_seconds
        if not cycle.response_complete:
            # The body's deadline is the application's. What is left is an answer that nobody reads.
            return cycle, limits.stall_seconds if self.flow.write_paused else 0.0
        return cycle.message_event, limits.idle_seconds

    def sweep(self, now: float) -> None:
        """End this connection if what it does has lasted too long."""
        mark, seconds = self._phase()
        if mark is not self._mark:
            self._mark, self._since = mark, now
        elif seconds and now - self._since >= seconds:
            self._end()

    def _end(self) -> None:
        if self._in_head():
            self.transport.write(_TIMEOUT)
            self.transport.close()
        elif self.flow.write_paused:
            self.transport.abort()
        else:
            self.transport.close()


class _Nowhere(list[tuple[bytes, bytes]]):
    """Where trailers go."""

    def append(self, _: tuple[bytes, bytes], /) -> None:
        pass


NOWHERE = _Nowhere()


async def too_many(scope: Any, receive: Any, send: Any) -> None:
    """The answer on a connection above the limit."""
    del scope, receive
    headers = [(b"content-length", b"0"), (b"retry-after", b"5"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def sweep_for_ever(connections: set[Any], limits: Limits) -> None:
    """Look at every connection once a second, in slices, so that ten thousand of them hold nobody up."""
    loop = asyncio.get_running_loop()
    pause = min(SWEEP_SECONDS, limits.head_seconds / 4)
    while True:
        await asyncio.sleep(pause)
        now = loop.time()
        for number, connection in enumerate(tuple(connections), start=1):
            connection.sweep(now)
            if number % SWEEP_SLICE == 0:
                await asyncio.sleep(0)


def refuse_lenient_parser() -> None:
    """The refusal of ambiguous requests is httptools' own: make sure that the installed one does refuse them."""
    for tail in _AMBIGUOUS:
        parser = httptools.HttpRequestParser(object())
        try:
            parser.feed_data(b"POST / HTTP/1.1\r\nHost: a\r\n" + tail)
        except httptools.HttpParserError:
            continue
        raise ConfigurationError(
            f"this httptools takes a request that can be read in two ways: {tail[:40]!r}",
            do="pip install --upgrade httptools",
        )
