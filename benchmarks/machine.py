"""The machine that measures: what it is, and what its processes used."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from hookonce.storage.sqlite import choose_module

PACKAGES = ("hookonce", "uvicorn", "httptools", "uvloop", "psycopg", "asyncpg", "msgspec", "pysqlite3")


def describe(postgres_version: str | None) -> dict[str, str]:
    """Date, machine, versions and command line, for the head of every result."""
    memory = psutil.virtual_memory().total / 2**30
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "commit": _commit(),
        "machine": f"{_cpu_name()}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()} {platform.release()}",
        "load average at the end": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "PostgreSQL": postgres_version or "not used",
        "SQLite": choose_module().sqlite_version,
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "from source"


def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parent), "-c", "safe.directory=*"]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain", "../src"], capture_output=True, text=True, check=False)
    return (head.stdout.strip() or "unknown") + (" with changes" if changed.stdout.strip() else "")


def family(pid: int) -> list[psutil.Process]:
    """A process and everything below it; nothing if it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pids: Iterable[int]) -> float:
    return sum(_of(process, _cpu) for pid in pids for process in family(pid))


def memory_mb(pid: int) -> float:
    """Resident memory of a process and what is below it."""
    return sum(_of(process, lambda one: one.memory_info().rss / 2**20) for process in family(pid))


def _cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


def _of(process: psutil.Process, ask: Callable[[psutil.Process], float]) -> float:
    try:
        return ask(process)
    except psutil.Error:
        return 0.0


class CpuMeter:
    """Cores used by some processes since it was made."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._used = cpu_seconds(pids)

    def cores(self) -> float:
        return (cpu_seconds(self._pids) - self._used) / (time.monotonic() - self._began)
