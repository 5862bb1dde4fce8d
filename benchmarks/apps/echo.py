"""The ceiling: read the body, answer, nothing else."""

from __future__ import annotations

from typing import Any

from benchmarks.apps.lifespan import lifespan

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
END = {"type": "http.response.body", "body": b'{"ok":true}'}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    chunks = []
    more = True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    _ = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    await send(START)
    await send(END)
