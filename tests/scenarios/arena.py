"""One database, the shop's processes on it, and a sender: what every scenario is played in."""

import contextlib
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookonce.failpoints import POINTS
from tests.scenarios import shop
from tests.scenarios.checker import Report, check, database
from tests.scenarios.processes import Role, Shop, free_port
from tests.scenarios.sender import Mix, Sender, Sent
from tests.servers.postgres import PostgresServer

NEVER = 1_000_000
"""Crashes that are forgiven where processes are killed more often than any event deserves."""


class Arena:
    """Closes whatever was started in it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.log = folder / "sender.log"
        self.port = free_port()
        self._open = contextlib.ExitStack()
        shop.prepare(url)

    @property
    def is_sqlite(self) -> bool:
        return shop.is_sqlite(self.url)

    def shop(self, role: Role, *, port: int | None = None, url: str = "", **options: Any) -> Shop:
        """A process of the shop. On standby it is not waited for."""
        process = self._open.enter_context(
            Shop(role, url or self.url, self.folder, port=self.port if port is None else port, **options)
        )
        return process if options.get("standby") else process.ready(or_dead=bool(options.get("failpoints")))

    def sender(self, *, ports: Sequence[int] = (), **options: Any) -> Sender:
        return self._open.enter_context(Sender(ports or [self.port], self.log, **options))

    def send(self, *events: Sent, ports: Sequence[int] = (), seconds: float = 30.0, **options: Any) -> Sender:
        """Send just these events, each until it is acknowledged."""
        sender = self.sender(ports=ports, script=events, events_max=0, **options)
        sender.finish(seconds)
        return sender

    def check(self, **options: Any) -> Report:
        """The end check; whatever it finds fails the test."""
        report = check(self.url, self.log, **options)
        assert report.ok, f"{report}\n"
        return report

    def one(self, text: str, *values: object) -> Any:
        with database(self.url) as db:
            return db.one(text, *values)

    def rows(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with database(self.url) as db:
            return db.rows(text, *values)

    def states(self) -> dict[str, int]:
        return dict(self.rows("SELECT state, count(*) FROM hookonce_receipt GROUP BY state"))

    def close(self) -> None:
        self._open.close()


@contextlib.contextmanager
def postgres_arena(server: PostgresServer, folder: Path) -> Any:
    """An arena on a fresh database of this server."""
    name = server.create_database()
    # Handlers that meet at the same accounts wait for each other in rings: let the server notice soon.
    server.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'")
    arena = Arena(server.dsn(name), folder)
    try:
        yield arena
    finally:
        arena.close()
        server.start()
        server.drop_database(name)


@contextlib.contextmanager
def sqlite_arena(folder: Path) -> Any:
    """An arena on a fresh file."""
    arena = Arena(f"sqlite:///{folder / 'shop.db'}", folder)
    try:
        yield arena
    finally:
        arena.close()


# -- torture ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """One row of the torture table."""

    what: str
    kills: int
    seconds: float
    report: Report
    stops: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, for whoever watches it."""

    seconds: float
    kills: int
    stops: int
    deliveries: int
    acknowledged: int


RELEASING = Mix(slow=0.5, once=0.05)
"""A mix in which much waits for a lane, so that much is handed back."""


def kill_at_points(
    arena: Arena, points: Sequence[str] = POINTS, occurrences: Sequence[int] = (1, 2, 10), *, seed: int = 1
) -> Outcome:
    """Kill a process at each point, at each occurrence; the next one takes over, under a storm that never ends."""
    began = time.monotonic()
    cases = [f"{point}=kill@{nth}" for point in points for nth in occurrences]
    releasing = list(points) == ["claim.before_release"]
    options: dict[str, Any] = {"crashes_max": NEVER, "standby": True}
    options |= {"lease": 0.3, "concurrency": 1} if releasing else {"lease": 1.0}
    sender = (
        arena.sender(seed=seed, mix=RELEASING, extra={"seconds": 0.06}, rate=60.0)
        if releasing
        else arena.sender(seed=seed, mix=Mix(poison=0.03, once=0.2, duplicate=0.3))
    )
    standby = arena.shop("both", failpoints=cases[0], **options)
    for number, case in enumerate(cases, start=1):
        victim = standby
        standby = arena.shop("both", failpoints=cases[number] if number < len(cases) else "", **options)
        victim.begin()
        victim.dies(25.0, f"{case}: the process passes this point and dies")
        assert victim.wait() == -signal.SIGKILL, f"{case}: ended by itself\n{victim.tail()}"
        victim.close()
    standby.begin()
    standby.ready()
    sender.finish()
    report = check(arena.url, arena.log)
    standby.terminate()
    return Outcome("killed at every point", len(cases), time.monotonic() - began, report)


STOP_SHARE = 0.2
STOP_SECONDS = (0.2, 1.8)
"""Shorter and longer than the lease of one second; never so long that an accept behind it runs out of its time."""
TELL_SECONDS = 3.0


def kill_at_random(
    arena: Arena, seconds: float, *, seed: int = 1, tell: Callable[[Progress], None] | None = None
) -> Outcome:
    """Kill receivers and workers at random moments, each replaced at once, and stop some for a while, under load."""
    began = time.monotonic()
    chance = random.Random(seed)
    receivers, workers = (1, 2) if arena.is_sqlite else (2, 2)
    ports = [free_port() for _ in range(receivers)]
    options: dict[str, Any] = {"crashes_max": NEVER, "standby": True}
    team: list[tuple[Role, int]] = [("receiver", port) for port in ports] + [("worker", 0)] * workers
    running = [arena.shop(role, port=port, **options) for role, port in team]
    spare = [arena.shop(role, port=port, **options) for role, port in team]
    for process in running:
        process.begin()
        process.ready()
    sender = arena.sender(ports=ports, seed=seed, rate=400.0)
    stopped: dict[int, float] = {}
    kills = stops = 0
    told = began
    try:
        while (now := time.monotonic()) - began < seconds:
            if tell is not None and now - told >= TELL_SECONDS:
                told = now
                tell(Progress(now - began, kills, stops, sender.tally.deliveries, len(sender.tally.acknowledged)))
            # Drawn whether they are used or not: so the victims are the same for the same seed.
            pause, victim, stop = chance.uniform(0.02, 0.3), chance.randrange(len(team)), chance.random() < STOP_SHARE
            stop_seconds = chance.uniform(*STOP_SECONDS)
            time.sleep(pause)  # the moment is what is random here
            for number in [number for number, wake_at in stopped.items() if wake_at < time.monotonic()]:
                running[number].signal(signal.SIGCONT)
                del stopped[number]
            if stop:
                if victim not in stopped:
                    running[victim].signal(signal.SIGSTOP)
                    stopped[victim] = time.monotonic() + stop_seconds
                    stops += 1
                continue
            stopped.pop(victim, None)
            running[victim].kill()
            running[victim].close()
            kills += 1
            running[victim], (role, port) = spare[victim], team[victim]
            running[victim].begin()
            spare[victim] = arena.shop(role, port=port, **options)
    finally:
        # Also when this is interrupted: the sender waits for the answer of one that is stopped.
        for number in stopped:
            running[number].signal(signal.SIGCONT)
    sender.finish()
    report = check(arena.url, arena.log)
    for process in running:
        process.ready()
        process.terminate()
    for process in spare:
        process.kill()
    return Outcome("killed at random", kills, time.monotonic() - began, report, stops)
