"""Kill it yourself: receivers and workers killed and stopped at random, under load, for as long as you like.

    python -m tests.scenarios --seconds 60 --database both

Started in the repository. Progress goes to stderr, the table (or `--json`) to stdout; the exit status is 1 if anything
was lost, doubled, missing or otherwise wrong. A seed repeats the events and the order of kills, not the moments.
"""

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.scenarios.arena import Outcome, Progress, kill_at_random, postgres_arena, sqlite_arena
from tests.servers.postgres import PostgresServer

DATABASES = ("sqlite", "postgres")
INTERRUPTED = 130
LEAVE_SECONDS = 5.0


def main(arguments: Sequence[str]) -> int:
    """Torture, report, and say how to repeat it. Returns the exit status."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows: list[dict[str, Any]] = []
    try:
        for name in DATABASES if options.database == "both" else (options.database,):
            rows.append(_tortured(name, options.seconds, options.seed))
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    finally:
        _end_children()
    wrong = any(row["wrong"] for row in rows)
    again = (
        f"python -m tests.scenarios --seconds {options.seconds:g} --database {options.database} --seed {options.seed}"
    )
    if options.json:
        print(json.dumps({"ok": not wrong, "seed": options.seed, "again": again, "rows": rows}, indent=2))
    else:
        print(_table(rows))
        for row in rows:
            for text in row["wrong"]:
                print(f"\n{row['database']}: {text}")
        print(f"\n{'WRONG' if wrong else 'ok'}. The same events and victims again: {again}")
    return int(wrong)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, for each database (60)")
    parser.add_argument("--database", choices=(*DATABASES, "both"), default="both")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1_000_000), help="another one each time")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    return parser.parse_args(arguments)


def _tortured(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """One row. The folder stays if something was wrong: the sender's log and what the processes said are in it."""
    folder = Path(tempfile.mkdtemp(prefix=f"hookonce-{name}-"))
    keep = False
    try:
        with contextlib.ExitStack() as stack:
            if name == "sqlite":
                arena = stack.enter_context(sqlite_arena(folder))
            else:
                _say(f"{name}: starting a server")
                arena = stack.enter_context(postgres_arena(stack.enter_context(PostgresServer()), folder))
            _say(f"{name}: {seconds:g} s, seed {seed}")
            try:
                row = _row(name, kill_at_random(arena, seconds, seed=seed, tell=lambda progress: _tell(name, progress)))
            except AssertionError as error:  # a process that does not start, or end, or an event that is never taken
                row = {"database": name, "wrong": [str(error)]}
            keep = bool(row["wrong"])
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        row["wrong"].append(f"the logs are in {folder}")
    return row


def _row(name: str, outcome: Outcome) -> dict[str, Any]:
    report = outcome.report
    return {
        "database": name,
        "seconds": round(outcome.seconds, 1),
        "kills": outcome.kills,
        "stops": outcome.stops,
        "events": report.events,
        "deliveries": report.deliveries,
        "acknowledged": report.acknowledged,
        "acknowledged lost": len(report.lost),
        "doubled": len(report.doubled),
        "missing": len(report.missing),
        "wrong": [] if report.ok else [str(report)],
    }


def _table(rows: Sequence[dict[str, Any]]) -> str:
    names = [name for name in max(rows, key=len) if name != "wrong"]
    cells = [names, *([str(row.get(name, "?")) for name in names] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(names))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    )


def _tell(name: str, progress: Progress) -> None:
    _say(
        f"{name}: {progress.seconds:4.0f} s, {progress.kills} kills, {progress.stops} stops, "
        f"{progress.deliveries} deliveries, {progress.acknowledged} events acknowledged"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _end_children() -> None:
    """Whatever an interruption left between its start and its owner. They do not hear of Ctrl-C: the sessions are theirs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    left = psutil.Process().children(recursive=True)
    for child in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(left, LEAVE_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
