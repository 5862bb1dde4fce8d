"""Profiles with py-spy: a flame graph to look at, and where the time itself was spent, by function."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

RATE = 200
TOP = 25
WAIT_SECONDS = 60.0

_SAMPLE = re.compile(r"^(?P<stack>.*) (?P<count>\d+)$")
_LINE_NUMBER = re.compile(r":\d+\)$")


def find() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if not found:
        raise SystemExit("--profile needs py-spy: pip install py-spy")
    return found


class Recording:
    """Py-spy looking at one process, which it stops for every sample: only so does it know which threads run."""

    def __init__(self, pid: int, seconds: float, target: Path) -> None:
        self._target = target
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [find(), "record", "--pid", str(pid), "--duration", str(max(1, int(seconds))), "--rate", str(RATE)]
        # The picture shows every thread, waiting ones included where the kernel does not tell them apart. The numbers
        # count only who holds the interpreter's lock: there is one, so these shares add up to what can be won.
        form = ["flamegraph"] if target.suffix == ".svg" else ["raw", "--gil"]
        command += ["--format", *form, "--output", str(target)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(self) -> Path:
        out, _ = self._process.communicate(timeout=WAIT_SECONDS)
        if not self._target.exists():
            raise RuntimeError(f"py-spy wrote nothing:\n{out}")
        return self._target


def self_times(raw: Path, *, lines: bool = False) -> list[tuple[str, float]]:
    """Each function's (or line's) share of the samples in which it was on top of the stack."""
    counts: Counter[str] = Counter()
    for line in raw.read_text(encoding="utf-8").splitlines():
        match = _SAMPLE.match(line)
        if match:
            top = match["stack"].rsplit(";", 1)[-1]
            counts[top if lines else _LINE_NUMBER.sub(")", top)] += int(match["count"])
    total = sum(counts.values()) or 1
    return [(name, count / total) for name, count in counts.most_common(TOP)]


def show(title: str, raw: Path) -> None:
    """Print the shares, and keep them beside the raw samples."""
    lines = [f"{title}: self time by function, of the time in which the interpreter ran", *_shares(self_times(raw))]
    lines += ["", f"{title}: self time by line", *_shares(self_times(raw, lines=True))]
    text = "\n".join(lines)
    raw.with_suffix(".txt").write_text(f"{text}\n", encoding="utf-8")
    print(f"\n{text}", flush=True)


def _shares(found: Sequence[tuple[str, float]]) -> list[str]:
    return [f"{share:7.1%}  {name}" for name, share in found]
