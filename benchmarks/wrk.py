"""The load generator: wrk with our script, found or installed, run once, read back."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks import events

SCRIPT = Path(__file__).with_name("load") / "stripe.lua"
INSTALL = ["apt-get", "install", "--yes", "--no-install-recommends", "wrk"]

_runs = itertools.count(1)


@dataclass(frozen=True)
class Load:
    """What wrk saw in one run."""

    prefix: str
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    bad_status: int
    sockets: int
    timeouts: int
    cpu: float

    @property
    def rate(self) -> float:
        return self.good / self.seconds

    @property
    def good(self) -> int:
        """Requests that were answered with 2xx."""
        return self.requests - self.bad_status

    @property
    def errors(self) -> int:
        return self.bad_status + self.sockets + self.timeouts


def require() -> str:
    """The path of wrk; installed when that is possible, else how to get it."""
    found = shutil.which("wrk")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("wrk is missing:", " ".join(INSTALL))
        subprocess.run(INSTALL, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, timeout=300)
        found = shutil.which("wrk")
    if found is None:
        raise SystemExit("wrk is missing, and nothing else sends fast enough from one core: apt-get install wrk")
    return found


def run(port: int, path: str, *, connections: int, seconds: float, folder: Path) -> Load:
    """Send for some seconds over so many connections from one thread."""
    head, tail = events.template()
    prefix = f"{os.getpid() % 10**6:06d}{next(_runs):04d}"
    result = folder / "wrk.json"
    result.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "BENCH_SECRET": events.SECRET,
        "BENCH_PREFIX": prefix,
        "BENCH_HEAD": head,
        "BENCH_TAIL": tail,
        "BENCH_PATH": path,
        "BENCH_RESULT": str(result),
    }
    command = [require(), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "10s", "-s"]
    before = _children_cpu()
    ended = subprocess.run(
        [*command, str(SCRIPT), f"http://127.0.0.1:{port}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=False,
    )
    if ended.returncode != 0 or not result.exists():
        raise RuntimeError(f"wrk ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    seen = json.loads(result.read_text(encoding="utf-8"))
    return Load(prefix=prefix, cpu=(_children_cpu() - before) / seen["seconds"], **seen)


def _children_cpu() -> float:
    """CPU seconds of children that ended: between two calls only wrk does."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
