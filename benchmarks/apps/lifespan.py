"""What an ASGI server asks at start and stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Step = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """Start or stop without a task."""


async def lifespan(receive: Any, send: Any, *, start: Step = nothing, stop: Step = nothing) -> None:
    while True:
        kind = (await receive())["type"]
        await (start if kind == "lifespan.startup" else stop)()
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
