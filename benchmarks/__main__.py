"""The command line: `python -m benchmarks --only accept --quick`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import accept, drain, duplicates, end_to_end, growth, machine, plots, report, verify
from benchmarks.databases import KINDS, Lab
from benchmarks.settings import Settings

SECTIONS: Mapping[str, Callable[[Settings, Lab], report.Report]] = {
    "accept": accept.run,
    "drain": drain.run,
    "growth": growth.run,
    "duplicates": duplicates.run,
    "end_to_end": end_to_end.run,
    "verify": verify.run,
}
RESULTS = Path(__file__).with_name("results")


def numbers(text: str) -> tuple[int, ...]:
    """Read "1,16,64"."""
    return tuple(int(part.replace("_", "")) for part in text.split(","))


def parse(arguments: Sequence[str] | None = None) -> tuple[list[str], Settings]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--only", metavar="SECTIONS", help=f"of {', '.join(SECTIONS)}; several with commas (default: all)")
    add("--quick", action="store_true", help="small and short: shows that everything works, measures nothing")
    add("--rounds", type=int, help="how often every case is measured (default: 5)")
    add("--seconds", type=float, help="how long one measurement sends (default: 5)")
    add("--database", choices=(*KINDS, "both"), default="both")
    add("--connections", type=numbers, help="of accept (default: 1,16,64,256)")
    add("--backlog", type=int, help="events in drain (default: 20,000)")
    add("--sizes", type=numbers, help="stored receipts in growth (default: 10000,100000,1000000)")
    add("--growth-events", type=int, help="events of one measurement in growth (default: 40,000)")
    add("--sleep", type=float, help="seconds that the handler in duplicates sleeps (default: 5)")
    add("--copies", type=int, default=1_000, help="of the event in duplicates (default: 1,000)")
    add("--profile", action="store_true", help="accept, drain: also record flame graphs and self times with py-spy")
    add("--output", type=Path, help="folder for the results (default: benchmarks/results)")
    given = parser.parse_args(arguments)
    sections = given.only.split(",") if given.only else list(SECTIONS)
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}: {', '.join(SECTIONS)}")
    return sections, _settings(given)


def _settings(given: argparse.Namespace) -> Settings:
    quick: bool = given.quick

    def chosen(value: Any, normal: Any, short: Any) -> Any:
        return value if value is not None else (short if quick else normal)

    return Settings(
        kinds=KINDS if given.database == "both" else (given.database,),
        connections=chosen(given.connections, (1, 16, 64, 256), (1, 64)),
        rounds=chosen(given.rounds, 5, 1),
        seconds=chosen(given.seconds, 5.0, 2.0),
        warm_seconds=1.0 if quick else 2.0,
        backlog=chosen(given.backlog, 20_000, 2_000),
        sizes=chosen(given.sizes, (10_000, 100_000, 1_000_000), (1_000, 10_000)),
        growth_events=chosen(given.growth_events, 40_000, 2_000),
        sleep=chosen(given.sleep, 5.0, 2.0),
        copies=given.copies,
        profile=given.profile,
        output=given.output or (RESULTS / "quick" if quick else RESULTS),
    )


def main() -> None:
    sections, settings = parse()
    for section in sections:
        with Lab() as lab:
            result = SECTIONS[section](settings, lab)
            seen = machine.describe(lab.postgres_version())
        report.write(result, seen, settings.output)
        plots.draw(section, settings.output)


if __name__ == "__main__":
    main()
