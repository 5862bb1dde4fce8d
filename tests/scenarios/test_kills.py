"""Killed at every point and at random: nothing acknowledged is lost, nothing is booked twice, nothing is missing."""

import os

import pytest

from hookonce.failpoints import POINTS
from tests.scenarios.arena import NEVER, Arena, kill_at_points, kill_at_random
from tests.scenarios.processes import until
from tests.scenarios.sender import Mix

SECONDS = float(os.environ.get("HOOKONCE_KILL_SECONDS", "10"))
RELEASE = "claim.before_release"


def test_killed_at_every_point(arena: Arena) -> None:
    """Whatever step a process dies before or after, for the first, second or tenth time, the next one puts it right."""
    outcome = kill_at_points(arena, [point for point in POINTS if point != RELEASE])
    print(f"\n{len(POINTS) - 1} points, {outcome.kills} kills, {outcome.seconds:.0f} s: {outcome.report}")
    assert outcome.report.ok, str(outcome.report)
    assert outcome.report.crashes > 0


def test_killed_while_handing_back(arena: Arena) -> None:
    """A process that dies while it hands back what it could not begin leaves it to be taken over."""
    outcome = kill_at_points(arena, [RELEASE])
    print(f"\n{outcome.kills} kills, {outcome.seconds:.0f} s: {outcome.report}")
    assert outcome.report.ok, str(outcome.report)


def test_an_error_at_every_point(arena: Arena) -> None:
    """An exception that nobody expects, at any step, ends the step or the process, and costs no event."""
    sender = arena.sender(seed=3, mix=Mix(poison=0.03, once=0.2, duplicate=0.3))
    for point in POINTS:
        process = arena.shop("both", failpoints=f"{point}=raise@2", crashes_max=NEVER)
        goal = len(sender.tally.acknowledged) + 40
        until(
            lambda: not process.alive or len(sender.tally.acknowledged) >= goal,  # noqa: B023
            20.0,
            f"{point}: the sender is answered again\n{process.tail()}",
        )
        process.kill()
    last = arena.shop("both", crashes_max=NEVER)
    sender.finish()
    arena.check()
    last.terminate()


@pytest.mark.parametrize("seed", [1])
def test_killed_at_random(arena: Arena, seed: int) -> None:
    """Receivers and workers killed and stopped at random moments under load: lost 0, doubled 0, missing 0."""
    outcome = kill_at_random(arena, SECONDS, seed=seed)
    report = outcome.report
    print(
        f"\nacknowledged {report.acknowledged}, kills {outcome.kills}, stops {outcome.stops}, "
        f"lost {len(report.lost)}, doubled {len(report.doubled)}, missing {len(report.missing)}"
    )
    assert report.ok, str(report)
    assert outcome.kills > SECONDS
    assert outcome.stops > 0
