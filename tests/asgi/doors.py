"""The two front doors, driven in this process: the same call, the same answer."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from hookonce import Inbox
from tests.flow.box import in_background

ADDRESS = "203.0.113.9"
Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


class Door(Protocol):
    """One way in."""

    async def post(
        self, path: str, body: bytes, headers: Headers = (), *, method: str = "POST", address: str = ADDRESS
    ) -> Answer: ...

    async def close(self) -> None: ...


class AsgiDoor:
    """A server of one request at a time, for an ASGI callable."""

    def __init__(self, inbox: Inbox, path: str = "", root_path: str = "") -> None:
        self.app = inbox.asgi(path)
        self.inbox = inbox
        self.root_path = root_path

    async def post(
        self,
        path: str,
        body: bytes,
        headers: Headers = (),
        *,
        method: str = "POST",
        address: str = ADDRESS,
        chunks: Sequence[bytes] | None = None,
        length: int | None = -1,
        gone: bool = False,
        stuck: bool = False,
    ) -> Answer:
        """Post a body. `chunks`: in pieces; `length`: another Content-Length, None for none."""
        pieces = [body] if chunks is None else list(chunks)
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": piece, "more_body": number < len(pieces) or gone or stuck}
            for number, piece in enumerate(pieces, start=1)
        ]
        if gone:
            messages.append({"type": "http.disconnect"})
        announced = len(body) if length == -1 else length
        all_headers = [*headers] if announced is None else [*headers, (b"content-length", b"%d" % announced)]
        scope = {
            "type": "http",
            "method": method,
            "path": self.root_path + path,
            "root_path": self.root_path,
            "query_string": b"",
            "headers": all_headers,
            "client": (address, 1234),
        }
        return await self.call(scope, messages)

    async def call(self, scope: dict[str, Any], messages: list[dict[str, Any]]) -> Answer:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if not messages:
                await asyncio.Event().wait()
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await asyncio.wait_for(self.app(scope, receive, send), 15)
        if not sent:
            return Answer(0, {}, b"")
        start, end = sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], headers, end["body"])

    async def close(self) -> None:
        await self.inbox.close()


class WsgiDoor:
    """A server of twenty threads, for a WSGI callable."""

    def __init__(self, inbox: Inbox, path: str = "", root_path: str = "") -> None:
        self.app = inbox.wsgi(path)
        self.inbox = inbox
        self.root_path = root_path
        self.threads = ThreadPoolExecutor(20)

    async def post(
        self,
        path: str,
        body: bytes,
        headers: Headers = (),
        *,
        method: str = "POST",
        address: str = ADDRESS,
        length: int | None = -1,
        chunked: bool = False,
    ) -> Answer:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": self.root_path,
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "REMOTE_ADDR": address,
            "wsgi.input": io.BytesIO(body),
        }
        announced = len(body) if length == -1 else length
        if chunked:
            environ["HTTP_TRANSFER_ENCODING"] = "chunked"
        elif announced is not None:
            environ["CONTENT_LENGTH"] = str(announced)
        for name, value in headers:
            key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
            text = value.decode("latin-1")
            environ[key] = f"{environ[key]},{text}" if key in environ else text
        return await asyncio.get_running_loop().run_in_executor(self.threads, self.call, environ)

    def call(self, environ: dict[str, Any]) -> Answer:
        started: list[Any] = []
        parts = self.app(environ, lambda status, headers: started.append((status, headers)))
        ((status, headers),) = started
        return Answer(int(status.split()[0]), dict(headers), b"".join(parts))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, in_background, self.inbox)
        self.threads.shutdown()
