"""The places where handlers run: a thread with a blocking connection each, or connections on the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from typing import Any

from hookonce.errors import HandlerTimeout
from hookonce.flow.handle import AsyncLane, Done, Lane, Limits, Turn, run_async, run_sync
from hookonce.storage.backend import Backend, Colour

ABORT_SECONDS = 1.0
"""How long a lane may take to notice that its connection is gone, before it is left behind."""


class SyncSlot:
    """A daemon thread and its lane. Daemon: a handler that never returns must not keep the process alive."""

    def __init__(self, backend: Backend, *, share: bool) -> None:
        self._lane: Lane = backend.lane()
        self.shares = share and self._lane.groups
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.usable = True
        threading.Thread(target=self._work, name="hookonce-lane", daemon=True).start()

    async def run(self, turns: Sequence[Turn], limits: Limits) -> list[Done]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Done]] = loop.create_future()
        self._jobs.put((turns, limits, loop, future))
        try:
            done, _ = await asyncio.wait({future}, timeout=limits.seconds)
        except asyncio.CancelledError:
            await self._take_away(future)
            raise
        if not done and not await self._take_away(future):
            raise HandlerTimeout(f"the handler ran longer than {limits.seconds:g} s and does not stop")
        error = future.exception()
        if not done and error is not None:
            # Whatever it was that it met on a connection taken away (SQLite says MemoryError): the time is the reason.
            raise HandlerTimeout(f"the handler ran longer than {limits.seconds:g} s") from error
        return future.result()

    async def _take_away(self, future: asyncio.Future[list[Done]]) -> bool:
        """Take the connection from the thread, and give it a moment to notice. Whether it did."""
        self.usable = False
        self._lane.abort()
        self._jobs.put(None)
        done, _ = await asyncio.wait({future}, timeout=ABORT_SECONDS)
        if not done:
            future.cancel()
        elif not future.cancelled():
            future.exception()
        return bool(done)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            turns, limits, loop, future = job
            try:
                result: list[Done] | BaseException = self._run(turns, limits)
            except BaseException as error:
                result = error
            try:
                loop.call_soon_threadsafe(_settle, future, result)
            except RuntimeError:
                break  # the loop is gone: so is everybody who could want to know
            del job, turns, limits, loop, future, result
        self._lane.close()

    def _run(self, turns: Sequence[Turn], limits: Limits) -> list[Done]:
        """One transaction for all, or one for each where they may not share: still one way through the queue."""
        if self.shares or len(turns) == 1 or is_batch(turns):
            return run_sync(turns, self._lane, limits)
        done: list[Done] = []
        for turn in turns:
            try:
                done += run_sync([turn], self._lane, limits)
            except Exception as error:
                done.append(Done(turn, error=error))
        return done

    async def close(self) -> None:
        self._jobs.put(None)


class AsyncSlot:
    """A lane on this event loop."""

    def __init__(self, lane: AsyncLane, *, share: bool) -> None:
        self._lane = lane
        self.shares = share and lane.groups
        self.usable = True

    async def run(self, turns: Sequence[Turn], limits: Limits) -> list[Done]:
        task = asyncio.ensure_future(self._run(turns, limits))
        try:
            done, _ = await asyncio.wait({task}, timeout=limits.seconds)
        except asyncio.CancelledError:
            await self._take_away(task)
            raise
        if not done:
            await self._take_away(task)
            raise HandlerTimeout(f"the handler ran longer than {limits.seconds:g} s")
        return task.result()

    async def _run(self, turns: Sequence[Turn], limits: Limits) -> list[Done]:
        if self.shares or len(turns) == 1 or is_batch(turns):
            return await run_async(turns, self._lane, limits)
        done: list[Done] = []
        for turn in turns:
            try:
                done += await run_async([turn], self._lane, limits)
            except Exception as error:
                done.append(Done(turn, error=error))
        return done

    async def _take_away(self, task: asyncio.Future[list[Done]]) -> None:
        self.usable = False
        self._lane.abort()
        task.cancel()
        await asyncio.wait({task}, timeout=ABORT_SECONDS)

    async def close(self) -> None:
        await self._lane.close()


Slot = SyncSlot | AsyncSlot


class Slots:
    """At most so many lanes, opened when needed, kept while they are sound."""

    def __init__(self, backend: Backend, count: int, *, share: bool) -> None:
        self._backend = backend
        self._share = share
        self._idle: dict[Colour, list[Slot]] = {"sync": [], "async": []}
        self.free = count
        self.shares = False
        """Whether events share transactions here: known once there is a lane."""

    async def take(self, colour: Colour) -> Slot:
        """A lane for somebody who has counted himself in by lowering `free`."""
        if self._idle[colour]:
            return self._idle[colour].pop()
        slot = (
            SyncSlot(self._backend, share=self._share)
            if colour == "sync"
            else AsyncSlot(await self._backend.async_lane(), share=self._share)
        )
        self.shares = slot.shares
        return slot

    def give_back(self, colour: Colour, slot: Slot) -> None:
        if slot.usable:
            self._idle[colour].append(slot)

    async def close(self) -> None:
        for slot in [*self._idle["sync"], *self._idle["async"]]:
            await slot.close()
        self._idle = {"sync": [], "async": []}


def is_batch(turns: Sequence[Turn]) -> bool:
    """Whether these turns are for one call of a batch handler."""
    return turns[0].handler is not None and turns[0].handler.batch > 1


def _settle(future: asyncio.Future[list[Done]], result: list[Done] | BaseException) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
