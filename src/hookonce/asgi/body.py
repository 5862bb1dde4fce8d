"""Reading a request body within its bounds: bytes and seconds. No server does this for us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from hookonce.errors import Reason, VerificationError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Gone(Exception):
    """The client left before its body was complete; there is nobody to answer."""


async def read_body(
    receive: Receive, headers: Sequence[tuple[bytes, bytes]], *, bytes_max: int, seconds: float
) -> bytes:
    """The exact bytes. Raises VerificationError for a body that is too large, too slow, cut short or eaten."""
    announced = _announced(headers)
    if announced is not None and announced > bytes_max:
        raise VerificationError(Reason.BODY_TOO_LARGE, f"{announced} bytes announced, {bytes_max} allowed")
    try:
        async with asyncio.timeout(seconds):
            body = await _collect(receive, bytes_max)
    except TimeoutError:
        raise VerificationError(Reason.BODY_TOO_SLOW, f"the body was not complete after {seconds:g} s") from None
    if announced is not None and len(body) != announced:
        # A server that has parsed the request itself never gives us less: something above us read it first.
        reason = Reason.BODY_CUT_SHORT if body else Reason.BODY_EATEN
        raise VerificationError(reason, f"Content-Length was {announced}, {len(body)} bytes came")
    return body


async def _collect(receive: Receive, bytes_max: int) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts = [body]
        size = len(body)
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > bytes_max:
                raise VerificationError(Reason.BODY_TOO_LARGE, f"more than {bytes_max} bytes")
        body = b"".join(parts)
    if len(body) > bytes_max:
        raise VerificationError(Reason.BODY_TOO_LARGE, f"more than {bytes_max} bytes")
    return body


def _announced(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 19 else None
    return None
