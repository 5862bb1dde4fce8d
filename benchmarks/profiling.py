"""Profiles with py-spy: a flame graph to look at, and where the time itself was spent, by function."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

RATE = 400
TOP = 25
WAIT_SECONDS = 60.0

_LINE = re.compile(r"^(?P<stack>.*) (?P<count>\d+)$")


def find() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if not found:
        raise SystemExit("--profile needs py-spy: pip install py-spy")
    return found


class Recording:
    """Py-spy looking at one process; nothing is measured while it does."""

    def __init__(self, pid: int, seconds: float, target: Path) -> None:
        self._target = target
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [find(), "record", "--pid", str(pid), "--duration", str(max(1, int(seconds))), "--rate", str(RATE)]
        command += ["--function", "--nonblocking"]
        command += ["--format", "flamegraph" if target.suffix == ".svg" else "raw", "--output", str(target)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(self) -> Path:
        out, _ = self._process.communicate(timeout=WAIT_SECONDS)
        if not self._target.exists():
            raise RuntimeError(f"py-spy wrote nothing:\n{out}")
        return self._target


def self_times(raw: Path) -> list[tuple[str, float]]:
    """Each function's share of the samples in which it was on top of the stack."""
    counts: Counter[str] = Counter()
    for line in raw.read_text(encoding="utf-8").splitlines():
        match = _LINE.match(line)
        if match:
            counts[match["stack"].rsplit(";", 1)[-1]] += int(match["count"])
    total = sum(counts.values()) or 1
    return [(name, count / total) for name, count in counts.most_common(TOP)]


def show(title: str, raw: Path) -> None:
    lines = [title, *(f"{share:7.1%}  {name}" for name, share in self_times(raw))]
    text = "\n".join(lines)
    raw.with_suffix(".txt").write_text(f"{text}\n", encoding="utf-8")
    print(f"\n{text}", flush=True)
