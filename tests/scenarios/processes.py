"""The shop's processes as a test holds them: started, stopped, killed by their own id, never waited for without a bound."""

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import hookonce

ROOT = Path(__file__).parents[2]
SOURCES = Path(hookonce.__file__).parents[1]
PORTS = range(20_000, 32_000)
START_SECONDS = 30.0
END_SECONDS = 30.0
POLL_SECONDS = 0.01

Role = Literal["receiver", "worker", "both"]


def until(condition: Callable[[], object], seconds: float, what: str | Callable[[], str]) -> float:
    """Wait for a condition, within a bound. Returns how long it took. `what`: the words, or how to find them then."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


def free_port() -> int:
    """A port below those that the system gives to outgoing connections."""
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("found no free port")


class Shop:
    """One process of the shop."""

    def __init__(
        self,
        role: Role,
        database: str,
        folder: Path,
        *,
        port: int = 0,
        failpoints: str = "",
        broken: str = "",
        lease: float = 1.0,
        concurrency: int = 8,
        crashes_max: int = 3,
        grace: float = 10.0,
        standby: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.failpoints = failpoints
        self.log = folder / f"shop-{os.getpid()}.log"
        self._standby = standby
        self._line = b""
        command = [sys.executable, "-m", "tests.scenarios.shop", role, "--database", database, "--port", str(port)]
        command += ["--lease", str(lease), "--concurrency", str(concurrency), "--crashes-max", str(crashes_max)]
        command += ["--grace", str(grace)]
        command += ["--broken", broken] if broken else []
        command += ["--standby"] if standby else []
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}",
                    "HOOKONCE_FAILPOINTS": failpoints,
                    **(environment or {}),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stopped(self) -> bool:
        """Whether SIGSTOP has taken hold of it."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def begin(self) -> None:
        """Tell a process on standby to go."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"{self.failpoints or 'the shop'}: died on standby\n{self.tail()}") from None

    def ready(self, *, or_dead: bool = False) -> Self:
        """Wait until it listens and works. `or_dead`: a failpoint may be faster than the word."""
        line = self._read_line(START_SECONDS)
        if line != b"ready\n" and not (or_dead and line == b""):
            raise AssertionError(f"the shop did not start: {line!r}\n{self.tail()}")
        return self

    def dies(self, seconds: float, what: str) -> None:
        """Wait until it has ended by itself."""
        until(lambda: not self.alive, seconds, lambda: f"{what}\n{self.tail()}")

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Its exit status."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"pid {self.pid} did not end within {seconds:g} s\n{self.tail()}") from None

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self, seconds: float = END_SECONDS) -> dict[str, int]:
        """SIGTERM, and wait for a clean end. Returns what it counted."""
        self.signal(signal.SIGTERM)
        status = self.wait(seconds)
        assert status == 0, f"ended with {status} on SIGTERM\n{self.tail()}"
        last = self._read_line(1.0)
        counted: dict[str, int] = json.loads(last)["handled"]
        return counted

    def tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-6_000:]

    def close(self) -> None:
        """Whatever it does, it is gone afterwards."""
        if self.alive:
            self._process.kill()
            self._process.wait(END_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read_line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._line:
            readable, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise AssertionError(f"pid {self.pid} said nothing for {seconds:g} s\n{self.tail()}")
            read = os.read(pipe, 4096)
            if not read:
                break
            self._line += read
        line, end, self._line = self._line.partition(b"\n")
        return line + end
