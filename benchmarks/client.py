"""A client that keeps the time of every single request: for the sections in which latency counts, not load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp

from benchmarks import events

SECONDS_MAX = 60.0

Send = Callable[[str], Awaitable[None]]


@dataclass
class Answers:
    """What came back."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    sent_at: dict[str, float] = field(default_factory=dict)

    @property
    def good(self) -> int:
        return sum(count for status, count in self.statuses.items() if 200 <= status < 300)

    def status_text(self) -> str:
        return ", ".join(f"{count} x {status or 'no answer'}" for status, count in sorted(self.statuses.items()))


async def send_one(session: aiohttp.ClientSession, url: str, name: str, answers: Answers) -> None:
    body = events.body(name)
    headers = events.headers(body)
    answers.sent_at[name] = time.time()
    began = time.perf_counter()
    try:
        async with session.post(url, data=body, headers=headers) as answer:
            await answer.read()
            status = answer.status
    except (aiohttp.ClientError, TimeoutError):
        status = 0
    answers.seconds.append(time.perf_counter() - began)
    answers.statuses[status] += 1


def open_session(connections: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections), timeout=aiohttp.ClientTimeout(total=SECONDS_MAX)
    )


async def send_copies(url: str, name: str, *, count: int, connections: int) -> Answers:
    """Send one event many times, as fast as so many connections allow."""
    answers = Answers()
    left = count

    async def some(session: aiohttp.ClientSession) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await send_one(session, url, name, answers)

    async with open_session(connections) as session:
        await asyncio.gather(*(some(session) for _ in range(connections)))
    return answers


async def send_steadily(url: str, prefix: str, *, rate: float, seconds: float) -> Answers:
    """Send different events at a steady pace, whether or not the last one was answered."""
    answers = Answers()
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    async with open_session(connections=64) as session:
        began = loop.time()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            tasks.append(loop.create_task(send_one(session, url, events.event_id(prefix, number), answers)))
        await asyncio.gather(*tasks)
    return answers
