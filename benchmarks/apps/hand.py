"""The comparison: what a careful person writes by hand. Verify, insert, commit: one transaction for each request."""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from benchmarks import events
from benchmarks.apps.lifespan import lifespan
from benchmarks.hand_sqlite import open_sqlite

POOL = 16
TOLERANCE_SECONDS = 300
URL = os.environ["BENCH_DATABASE"]

HEADERS = [(b"content-type", b"application/json")]
ACCEPTED = {"type": "http.response.body", "body": b'{"ok":true}'}
DUPLICATE = {"type": "http.response.body", "body": b'{"ok":true,"duplicate":true}'}
REFUSED = {"type": "http.response.body", "body": b'{"ok":false}'}

Store = Callable[[str, bytes], Awaitable[bool]]


class Head(msgspec.Struct):
    """The part of the body that is read."""

    id: str
    type: str


_decode = msgspec.json.Decoder(Head).decode
_secret = events.SECRET.encode()
_store: Store


def verify(signature: bytes, body: bytes) -> Head | None:
    """The event, if the signature is right and fresh."""
    parts = dict(part.partition(b"=")[::2] for part in signature.split(b","))
    at = parts.get(b"t", b"0")
    expected = hmac.digest(_secret, at + b"." + body, "sha256").hex().encode()
    if not hmac.compare_digest(expected, parts.get(b"v1", b"")) or abs(time.time() - int(at)) > TOLERANCE_SECONDS:
        return None
    return _decode(body)


async def open_postgres() -> Store:
    """Asyncpg: the fastest driver there is, so that the comparison is with the best of its kind."""
    import asyncpg

    pool = await asyncpg.create_pool(URL, min_size=POOL, max_size=POOL)
    insert = "INSERT INTO hand_receipt (source, event_id, body) VALUES ('stripe', $1, $2) ON CONFLICT DO NOTHING RETURNING id"

    async def store(event_id: str, body: bytes) -> bool:
        async with pool.acquire() as conn:  # one statement outside a transaction block is one transaction
            return await conn.fetchval(insert, event_id, body) is not None

    return store


async def open_file() -> Store:
    """SQLite: one writer, in a thread of its own."""
    conn = open_sqlite(URL.removeprefix("sqlite:///"))
    thread = ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()
    insert = "INSERT INTO hand_receipt (source, event_id, body) VALUES ('stripe', ?, ?) ON CONFLICT DO NOTHING"

    def write(event_id: str, body: bytes) -> bool:
        conn.execute("BEGIN IMMEDIATE")
        new = conn.execute(insert, (event_id, body)).rowcount == 1
        conn.execute("COMMIT")
        return new

    async def store(event_id: str, body: bytes) -> bool:
        return await loop.run_in_executor(thread, write, event_id, body)

    return store


async def start() -> None:
    global _store
    _store = await (open_postgres() if URL.startswith("postgres") else open_file())


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send, start=start)
        return
    message = await receive()
    body = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    signature = next((value for name, value in scope["headers"] if name == b"stripe-signature"), b"")
    event = verify(signature, body)
    if event is None:
        await send({"type": "http.response.start", "status": 400, "headers": HEADERS})
        await send(REFUSED)
        return
    new = await _store(event.id, body)
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send(ACCEPTED if new else DUPLICATE)
