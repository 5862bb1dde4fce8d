"""The short way of a webhook through the server, without an ASGI task of its own.

When the body of a POST to a source is complete its arrival is submitted, and the answer is written when its group has
been committed: no scope, no task, no coroutine. That is worth a third of the rate. Everything else that comes in on the
same connection goes the way of any ASGI server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any

from uvicorn.middleware.proxy_headers import _TrustedHosts as ProxyHeaders
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from hookonce.asgi.app import Desk
from hookonce.asgi.responses import NO, UNAVAILABLE, YES, headers_of
from hookonce.errors import Reason, StorageError, VerificationError
from hookonce.failpoints import fp
from hookonce.flow.accept import Acceptor
from hookonce.model import Arrival, Delivery, Stored
from hookonce.server.protocol import NOWHERE, Connection, too_many

ADDRESS_CHARS_MAX = 64
"""Of what a proxy says about its client: an address is shorter, and whatever it is, it is kept and counted by."""

Headers = list[tuple[bytes, bytes]]

SENT_AHEAD_MAX = 16
"""Requests that a connection may send before it has its answer; above that it is not read from."""


@dataclass(slots=True)
class Direct:
    """What the connections of one server share: where arrivals go, which paths are sources, answers ready to send."""

    desk: Desk
    acceptor: Acceptor
    routes: dict[bytes, str]
    proxies: ProxyHeaders | None = None
    _answers: dict[int, bytes] = field(default_factory=dict)
    _answers_for: object = None

    def address_of(self, peer: str, headers: Headers) -> str:
        """Who sent this: the peer, or whom a proxy that we trust names."""
        if self.proxies is None or peer not in self.proxies:
            return peer
        # All of them: some proxies add a line of their own below one that the client has made up.
        named = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        return self.proxies.get_trusted_client_address(named)[0][:ADDRESS_CHARS_MAX] or peer

    def answer(self, status: int, default_headers: Headers, *, last: bool, retry_after: float) -> bytes:
        """The bytes of an answer. Made once a second: the server's date header is part of it."""
        if self._answers_for is not default_headers:
            self._answers.clear()
            self._answers_for = default_headers
        ready = None if last or retry_after else self._answers.get(status)
        if ready is None:
            headers = [*default_headers, *headers_of(status, retry_after)]
            if last and (b"connection", b"close") not in headers:
                headers.append((b"connection", b"close"))
            lines = [b"%b: %b\r\n" % pair for pair in headers]
            ready = b"".join([STATUS_LINE[status], *lines, b"\r\n", YES if status < 300 else NO])
            if not (last or retry_after):
                self._answers[status] = ready
        return ready


class _Stage(Enum):
    """What a connection does, as far as this file knows."""

    ELSEWHERE = auto()  # nothing yet, or a request that goes the long way
    HEAD = auto()
    BODY = auto()
    BUSY = auto()
    IDLE = auto()


@dataclass(slots=True)
class _Request:
    """A webhook as it is read."""

    source: str
    path: bytes
    headers: Headers
    body: list[bytes] = field(default_factory=list)
    size: int = 0
    last: bool = False


class DirectConnection(Connection):
    """One connection. One webhook of it is on its way at a time; those that were sent ahead wait their turn."""

    direct: Direct

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stage = _Stage.ELSEWHERE
        self._reading: _Request | None = None
        self._ahead: deque[_Request] = deque()
        self._busy = False
        self._last = False
        self._head: Headers = []

    # -- what the parser sees ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = self._head = []
        self._stage = _Stage.HEAD

    def on_headers_complete(self) -> None:
        parser = self.parser
        source = self.direct.routes.get(self.url)
        if parser.should_upgrade():
            self._stage = _Stage.ELSEWHERE
            self._method = parser.get_method()
        elif source is not None and self._may_go_direct():
            self._reading = _Request(source, self.url, self.headers)
            self._stage = _Stage.BODY
            self.headers = NOWHERE
        elif self._busy:
            self._end_after_this()  # sent ahead, and not a webhook: the client sends it again on a new connection
        else:
            self._go_the_long_way()

    def _may_go_direct(self) -> bool:
        """A plain POST over HTTP/1.1, and nothing on this connection that must be answered before it the long way."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and not self.expect_100_continue
            and self.app is not too_many
            and (self.cycle is None or self.cycle.response_complete)
        )

    def _go_the_long_way(self) -> None:
        self._stage = _Stage.ELSEWHERE
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url = url
        self.headers += headers
        self.expect_100_continue = expects
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        request = self._reading
        if request is None:
            if self._stage is _Stage.ELSEWHERE:
                super().on_body(body)
            return
        request.size += len(body)
        if request.size <= self.direct.desk.receiver.bounds.body_bytes_max:
            request.body.append(body)
        else:
            request.body.clear()
            if not self._busy:
                self._complete(request)

    def on_message_complete(self) -> None:
        if self._reading is not None:
            self._complete(self._reading)
        elif self._stage is _Stage.ELSEWHERE:
            super().on_message_complete()

    def _complete(self, request: _Request) -> None:
        self._reading = None
        request.last = not self.parser.should_keep_alive()
        if not self._busy:
            self._deliver(request)
            return
        self._ahead.append(request)
        if len(self._ahead) == SENT_AHEAD_MAX:
            self.flow.pause_reading()

    # -- the webhook ------------------------------------------------------------------------------------------

    def _deliver(self, request: _Request) -> None:
        desk = self.direct.desk
        receiver = desk.receiver
        address = self.direct.address_of(self._address, request.headers)
        self._busy = True
        self._stage = _Stage.BUSY
        self._last = self._last or request.last
        retry_after = receiver.admit(request.source, address)
        delivery = None
        try:
            if retry_after:
                raise VerificationError(Reason.RATE_LIMITED)
            if request.size > receiver.bounds.body_bytes_max:
                raise VerificationError(Reason.BODY_TOO_LARGE, f"more than {receiver.bounds.body_bytes_max} bytes")
            body = request.body[0] if len(request.body) == 1 else b"".join(request.body)
            path = request.path.decode("latin-1")
            delivery = Delivery(request.source, request.headers, body, path, b"", address)
            arrival = receiver.arrive(delivery)
        except VerificationError as error:
            self._answer(desk.refuse(request.source, address, error, delivery), retry_after)
            return
        try:
            self.direct.acceptor.submit_to(arrival, partial(self._stored, arrival))
        except StorageError as error:
            self._answer(desk.unavailable(arrival, error))

    def _stored(self, arrival: Arrival, outcome: Stored | Exception) -> None:
        fp("accept.before_answer")
        desk = self.direct.desk
        if isinstance(outcome, Stored):
            self._answer(desk.stored(arrival, outcome))
        else:
            self._answer(desk.unavailable(arrival, outcome))

    def _answer(self, status: int, retry_after: float = 0.0) -> None:
        self._busy = False
        if self._stage is _Stage.BUSY:
            self._stage = _Stage.IDLE
        transport = self.transport
        if transport.is_closing():
            return
        if status == UNAVAILABLE:
            retry_after = self.direct.desk.resend_after()
        last = self._last or status in (408, 413)
        defaults = self.server_state.default_headers
        transport.write(self.direct.answer(status, defaults, last=last, retry_after=retry_after))
        self.server_state.total_requests += 1
        if last:
            transport.close()
        elif self._ahead:
            self.flow.resume_reading()
            # Not from here: a run of refused requests sent ahead would go deeper with each.
            self.loop.call_soon(self._deliver_next)

    def _deliver_next(self) -> None:
        if self._ahead and not self._busy:
            self._deliver(self._ahead.popleft())

    # -- the end ----------------------------------------------------------------------------------------------

    def _end_after_this(self) -> None:
        self._last = True
        self._deaf = True
        self._reading = None

    def connection_lost(self, exc: Exception | None) -> None:
        """What was submitted goes on: the arrival belongs to its group, not to this connection."""
        self._ahead.clear()
        self._reading = None
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._busy or self._reading is not None:
            self._last = True
        else:
            super().shutdown()

    def _refuse(self) -> None:
        if self._busy:
            self._end_after_this()
        elif self._reading is not None:
            self._reading = None
            self.send_400_response("Invalid HTTP request received.")
        else:
            super()._refuse()

    def _last_request(self) -> None:
        if self._busy:
            self._end_after_this()
        else:
            super()._last_request()

    # -- once a second ----------------------------------------------------------------------------------------

    def _in_head(self) -> bool:
        return self._stage is _Stage.HEAD or (self._stage is _Stage.ELSEWHERE and super()._in_head())

    def _phase(self) -> tuple[object, float]:
        limits = self.config.limits
        match self._stage:
            case _Stage.HEAD:
                return self._head, limits.head_seconds
            case _Stage.BODY:
                return self._head, self.direct.desk.receiver.bounds.body_seconds + limits.head_seconds
            case _Stage.BUSY:
                return self._head, limits.stall_seconds if self.flow.write_paused else 0.0
            case _Stage.IDLE:
                return self._head, limits.idle_seconds
            case _Stage.ELSEWHERE:
                return super()._phase()

    def _end(self) -> None:
        request = self._reading
        if request is None or self._busy:
            super()._end()
            return
        self._reading = None
        self._last = True
        error = VerificationError(Reason.BODY_TOO_SLOW, "the body was not complete in time")
        self._answer(self.direct.desk.refuse(request.source, self._address, error))


def direct_for(desk: Desk, acceptor: Acceptor, path: str, trusted_proxies: Sequence[str] = ()) -> Direct:
    """The short way for all sources below `path` whose requests are one event each."""
    prefix = path.rstrip("/")
    plain = [source for source in desk.registry if source.endpoint.provider.plain]
    routes = {f"{prefix}/{source.name}".encode(): source.name for source in plain}
    return Direct(desk, acceptor, routes, ProxyHeaders(list(trusted_proxies)) if trusted_proxies else None)
