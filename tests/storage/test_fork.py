"""After a fork nothing is shared: each process has connections, threads and turns of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.storage.world import RUNNERS, Runner

SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from hookonce.flow.handle import Limits, Turn, run_async, run_sync
from tests.storage.conftest import make_world
from tests.storage.world import RUNNERS, arrival, maybe, writes

runner = next(runner for runner in RUNNERS if runner.name == sys.argv[1])
world = make_world(runner, sys.argv[2])

async def one(number):
    await world.accept(arrival(number))
    (claim,) = await world.claim(1)
    lane = await world.lane()
    turn = world.turn(claim, writes(str(number)))
    if runner.colour == "sync":
        run_sync([turn], lane, Limits(seconds=10))
    else:
        await run_async([turn], lane, Limits(seconds=10))
    await maybe(lane.close())
    if runner.kind == "sqlalchemy" and runner.colour == "async":
        await world.engine.dispose()  # its pool belongs to this loop

asyncio.run(one(1))
child = os.fork()
if child == 0:
    try:
        asyncio.run(one(2))
        asyncio.run(one(3))
        os._exit(0)
    except BaseException:
        import traceback
        traceback.print_exc()
    os._exit(1)
asyncio.run(one(4))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
asyncio.run(one(5))
assert world.effects() == ["1", "2", "3", "4", "5"], world.effects()
os._exit(0)
"""


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
def test_parent_and_child_go_on_apart(runner: Runner, request: pytest.FixtureRequest) -> None:
    """A process that has worked forks: parent and child accept and handle at the same time, each undisturbed."""
    where = str(request.getfixturevalue("fresh_postgres" if runner.dialect == "postgres" else "fresh_sqlite"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, runner.name, where], capture_output=True, text=True, timeout=60, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
