"""Processes under measurement: a server behind uvicorn, and children that wait for the word to begin."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 20.0
STOP_SECONDS = 15.0
CHILD_SECONDS = 600.0


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT)]
    path = os.pathsep.join(path for path in paths if path)
    return {**os.environ, "PYTHONFAULTHANDLER": "1", **extra, "PYTHONPATH": path}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


HOOKONCE = "hookonce serve"
"""Not an application: our own server, as its users start it."""


def command(app: str, port: int) -> list[str]:
    if app == HOOKONCE:
        return ["-m", "hookonce", "serve", "--listen", f"127.0.0.1:{port}", "--path", "/"]
    options = ["--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
    return ["-m", "uvicorn", app, "--port", str(port), *options]


class Server:
    """One process: uvicorn (httptools, uvloop) with one application, or `hookonce serve`."""

    def __init__(self, app: str, extra: Mapping[str, str], folder: Path) -> None:
        self.port = free_port()
        self._log = folder / f"server-{self.port}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *command(app, self.port)],
                cwd=ROOT,
                env=environment(extra),
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return self
            except OSError:
                time.sleep(0.02)
        self.__exit__()
        raise RuntimeError(f"the server did not answer within {START_SECONDS:g} s:\n{self.log()}")

    def __exit__(self, *_: object) -> None:
        died = self._process.poll()
        if died is not None:
            raise RuntimeError(f"the server ended by itself with {died}:\n{self.log()}")
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]


class Child:
    """A program of benchmarks.children: it says "ready", begins at "go", and ends with one line of JSON."""

    def __init__(self, module: str, options: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.children.{module}", json.dumps(options)],
            cwd=ROOT,
            env=environment({}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        if self._pipe(self._process.stdout).readline().strip() != "ready":
            self.kill()
            raise RuntimeError("the child did not get ready; its error stands above")

    def go(self) -> None:
        pipe = self._pipe(self._process.stdin)
        pipe.write("go\n")
        pipe.flush()

    def result(self) -> dict[str, Any]:
        out, _ = self._process.communicate(timeout=CHILD_SECONDS)
        if self._process.returncode != 0 or not out.strip():
            raise RuntimeError(f"the child ended with {self._process.returncode}")
        result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return result

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def run_children(children: Sequence[Child]) -> list[dict[str, Any]]:
    """Let them all begin at the same moment, and collect what they saw."""
    try:
        for child in children:
            child.wait_ready()
        for child in children:
            child.go()
        return [child.result() for child in children]
    finally:
        for child in children:
            child.kill()
