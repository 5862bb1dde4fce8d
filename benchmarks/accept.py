"""Accept: requests a second through HTTP until the answer, beside an echo and beside one transaction a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks import events, machine, profiling, wrk
from benchmarks.databases import TITLES, Database, Kind, Lab, Postgres
from benchmarks.processes import HOOKONCE, Server
from benchmarks.report import Goal, Report, median, ratio, spread
from benchmarks.settings import Settings

PATH = "/stripe"
ECHO = "echo"
PROFILE_CONNECTIONS = 64
GOAL_CONNECTIONS = 64


@dataclass(frozen=True)
class Case:
    """One server to be measured; `table` is where its answers must be found again."""

    name: str
    app: str
    kind: Kind | None = None
    table: str = ""


@dataclass(frozen=True)
class Sample:
    """One case, measured once."""

    case: str
    connections: int
    round: int
    load: wrk.Load
    rows: int
    lost: int
    server_cpu: float
    database_cpu: float
    server_mb: float

    @property
    def server_cpu_us(self) -> float:
        """What a request cost the server's process: less moved by other load than the rate."""
        return self.server_cpu / self.load.rate * 1e6 if self.load.rate else float("nan")

    def as_dict(self) -> Mapping[str, Any]:
        return {**asdict(self), "rate": self.load.rate, "server_cpu_us": self.server_cpu_us}


@dataclass
class Samples:
    """All samples, by case and connections, in the order of the rounds."""

    all: list[Sample] = field(default_factory=list)

    def of(self, case: str, connections: int) -> list[Sample]:
        return [one for one in self.all if (one.case, one.connections) == (case, connections)]

    def rates(self, case: str, connections: int) -> list[float]:
        return [one.load.rate for one in self.of(case, connections)]


def ours(kind: Kind) -> str:
    return f"{HOOKONCE}, {TITLES[kind]}"


def mounted(kind: Kind) -> str:
    return f"inbox.asgi() in uvicorn, {TITLES[kind]}"


def by_hand(kind: Kind) -> str:
    return f"one transaction a request, {TITLES[kind]}"


def cases(settings: Settings) -> Iterator[Case]:
    yield Case(ECHO, "benchmarks.apps.echo:app")
    for kind in settings.kinds:
        yield Case(ours(kind), HOOKONCE, kind, "hookonce_receipt")
        yield Case(mounted(kind), "benchmarks.apps.receiver:app", kind, "hookonce_receipt")
        yield Case(by_hand(kind), "benchmarks.apps.hand:app", kind, "hand_receipt")


def run(settings: Settings, lab: Lab) -> Report:
    wrk.require()
    samples = Samples()
    shared = lab.new("postgres") if "postgres" in settings.kinds else None
    for number in range(settings.rounds):
        for connections in settings.connections:
            for case in cases(settings):
                sample = measure(case, connections, number, settings=settings, lab=lab, shared=shared)
                samples.all.append(sample)
                settings.progress(
                    f"accept round {number + 1} {case.name} {connections}: {sample.load.rate:,.0f}/s",
                    f"p99 {sample.load.p99_ms:.1f} ms, errors {sample.load.errors}, lost {sample.lost}",
                )
    if settings.profile:
        profile(settings, lab)
    return _report(samples, settings)


def measure(
    case: Case, connections: int, number: int, *, settings: Settings, lab: Lab, shared: Database | None
) -> Sample:
    """A fresh server process on an empty database: warm up, measure, stop, count."""
    database = _empty(case, lab, shared)
    with Server(case.app, _environment(database), lab.folder) as server:
        wrk.run(server.port, PATH, connections=connections, seconds=settings.warm_seconds, folder=lab.folder)
        used = machine.CpuMeter([server.pid])
        database_used = machine.CpuMeter(database.pids if database else [])
        load = wrk.run(server.port, PATH, connections=connections, seconds=settings.seconds, folder=lab.folder)
        server_cpu, database_cpu = used.cores(), database_used.cores()
        server_mb = machine.memory_mb(server.pid)
    rows = load.good if database is None else _rows(case, load, database)
    if rows > load.requests + connections:
        raise AssertionError(f"{case.name}: {rows} rows of {load.requests} requests over {connections} connections")
    if database is not None and database is not shared:
        database.drop()
    return Sample(
        case=case.name,
        connections=connections,
        round=number,
        load=load,
        rows=rows,
        lost=max(0, load.good - rows),
        server_cpu=server_cpu,
        database_cpu=database_cpu,
        server_mb=server_mb,
    )


def _empty(case: Case, lab: Lab, shared: Database | None) -> Database | None:
    if case.kind == "postgres":
        assert isinstance(shared, Postgres)
        shared.empty()
        return shared
    return lab.new(case.kind) if case.kind else None


def _environment(database: Database | None) -> dict[str, str]:
    """What the applications read, and what `hookonce serve` reads. The rate limits stay, where they refuse nothing."""
    if database is None:
        return {}
    return {
        "BENCH_DATABASE": database.url,
        "HOOKONCE_DATABASE": database.url,
        "HOOKONCE_SOURCES__STRIPE__PROVIDER": "stripe",
        "HOOKONCE_SOURCES__STRIPE__SECRETS": events.SECRET,
        "HOOKONCE_SERVER__SOURCE_RATE": "1000000000",
        "HOOKONCE_SERVER__ADDRESS_RATE": "1000000000",
        "HOOKONCE_LOG__LEVEL": "warning",
    }


def _rows(case: Case, load: wrk.Load, database: Database) -> int:
    return database.number(
        f"SELECT count(*) FROM {case.table} WHERE event_id LIKE 'evt\\_{load.prefix}\\_%' ESCAPE '\\'"
    )


def profile(settings: Settings, lab: Lab) -> None:
    """Look at each of our servers under load, twice: once for the picture, once for the numbers."""
    seconds = max(8.0, settings.seconds)
    for kind in settings.kinds:
        database = lab.new(kind)
        with Server(HOOKONCE, _environment(database), lab.folder) as server:
            wrk.run(server.port, PATH, connections=PROFILE_CONNECTIONS, seconds=1, folder=lab.folder)
            for suffix in ("svg", "raw"):
                target = settings.output / f"profile-accept-{kind}.{suffix}"
                recording = profiling.Recording(server.pid, seconds - 1, target)
                wrk.run(server.port, PATH, connections=PROFILE_CONNECTIONS, seconds=seconds, folder=lab.folder)
                recording.wait()
        profiling.show(f"accept, {TITLES[kind]}, {PROFILE_CONNECTIONS} connections", target)
        database.drop()


def _report(samples: Samples, settings: Settings) -> Report:
    report = Report(
        section="accept",
        title="Accept: requests a second",
        columns=(
            *("case", "connections", "requests/s: median (min-max)", "of echo", "times one transaction a request"),
            *(
                "p50 ms",
                "p99 ms",
                "CPU server / database / wrk (cores)",
                "server CPU us a request",
                "RSS MB",
                "errors",
                "lost",
            ),
        ),
        notes=["Ratios are medians of the ratios within each round. SQLite runs inside the server process."],
        samples=[one.as_dict() for one in samples.all],
    )
    for connections in settings.connections:
        for case in cases(settings):
            report.rows.append(_row(samples, case, connections))
            report.data[f"{case.name}|{connections}"] = {
                "rate": median(samples.rates(case.name, connections)),
                "of_echo": ratio(samples.rates(case.name, connections), samples.rates(ECHO, connections)),
                "p99_ms": median([one.load.p99_ms for one in samples.of(case.name, connections)]),
            }
    if GOAL_CONNECTIONS in settings.connections and "postgres" in settings.kinds:
        report.goals = _goals(samples)
    report.goals.append(Goal("2xx without a row", 0, float(sum(one.lost for one in samples.all)), at_least=False))
    return report


def _row(samples: Samples, case: Case, connections: int) -> tuple[object, ...]:
    seen = samples.of(case.name, connections)
    rates = samples.rates(case.name, connections)
    cpu = [median([getattr(one, name) for one in seen]) for name in ("server_cpu", "database_cpu")]
    wrk_cpu = median([one.load.cpu for one in seen])
    against = ratio(rates, samples.rates(by_hand(case.kind), connections)) if case.kind else float("nan")
    return (
        case.name,
        connections,
        spread(rates),
        ratio(rates, samples.rates(ECHO, connections)),
        against,
        median([one.load.p50_ms for one in seen]),
        median([one.load.p99_ms for one in seen]),
        f"{cpu[0]:.2f} / {cpu[1]:.2f} / {wrk_cpu:.2f}",
        f"{median([one.server_cpu_us for one in seen]):.1f}",
        f"{median([one.server_mb for one in seen]):.0f}",
        sum(one.load.errors for one in seen),
        sum(one.lost for one in seen),
    )


def _goals(samples: Samples) -> list[Goal]:
    mine = samples.rates(ours("postgres"), GOAL_CONNECTIONS)
    p99 = median([one.load.p99_ms for one in samples.of(ours("postgres"), GOAL_CONNECTIONS)])
    where = f"PostgreSQL, {GOAL_CONNECTIONS} connections"
    return [
        Goal(f"{where}: of echo", 0.60, ratio(mine, samples.rates(ECHO, GOAL_CONNECTIONS))),
        Goal(
            f"{where}: times one transaction a request",
            2.5,
            ratio(mine, samples.rates(by_hand("postgres"), GOAL_CONNECTIONS)),
        ),
        Goal(f"{where}: p99", 5.0, p99, at_least=False, unit=" ms"),
    ]
