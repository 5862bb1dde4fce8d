"""A body is read within its bounds, whatever the server above us lets through."""

from __future__ import annotations

from typing import Any

import pytest

from hookonce.asgi.body import read_body
from hookonce.errors import Reason, VerificationError
from tests.flow.box import WAIT_SECONDS


async def test_a_body_without_end_is_not_read_on() -> None:
    """The bound is on what is taken in, not only on what is kept: the piece that passes it is the last that is read."""
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b"x" * 400, "more_body": read < 100}

    with pytest.raises(VerificationError) as caught:
        await read_body(receive, [], bytes_max=1_000, seconds=WAIT_SECONDS)
    assert (caught.value.reason, read) == (Reason.BODY_TOO_LARGE, 3)
