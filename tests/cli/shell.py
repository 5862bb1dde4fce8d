"""The command line as users have it: real processes, in a folder of their own, with an environment of their own."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hookonce

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = Path(hookonce.__file__).parents[1]
SECONDS = 30.0
SECRET = "whsec_b25seSBmb3IgdGhlIHRlc3RzIG9mIHRoaXMgcmVwb3NpdG9yeQ=="

CONFIG = """
app = "shop:inbox"
database = "sqlite:///shop.db"

[server]
listen = "127.0.0.1:0"

[sources.shop]
provider = "standard_webhooks"
secrets = ["env:SHOP_SECRET"]
"""

APP = """
from hookonce import Inbox

inbox = Inbox()
shop = inbox.source("shop")


@inbox.on_start
def tables(conn):
    conn.execute("CREATE TABLE IF NOT EXISTS effect (event_id TEXT NOT NULL)")


@shop.on("order.*")
def order(event, conn):
    mark = "?" if "sqlite" in type(conn).__module__ else "%s"
    conn.execute(f"INSERT INTO effect VALUES ({mark})", (event.id,))


@shop.on("bad.*", attempts=1)
def bad(event):
    raise ValueError("this handler never succeeds")
"""


@dataclass
class Shell:
    """Runs `python -m hookonce` in one folder."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def environ(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**inherited, "PYTHONPATH": str(SOURCES), "USER": "ann", **self.environment}

    def __call__(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "hookonce", *arguments],
            cwd=self.folder,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        assert code == 70 or "Traceback" not in done.stderr, done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--json").stdout.splitlines()]

    @contextmanager
    def running(self, *arguments: str) -> Iterator["Running"]:
        """A process that stays, from its first word that it is ready to its end by SIGTERM."""
        log = self.folder / f"{arguments[0]}.log"
        with log.open("w") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "hookonce", *arguments],
                cwd=self.folder,
                env=self.environ(),
                stdout=written,
                stderr=written,
                stdin=subprocess.DEVNULL,
            )
        try:

            def health() -> str | None:
                assert process.poll() is None, log.read_text()
                found = re.search(r"health +http://(\S+)/readyz", log.read_text())
                return found[1] if found else None

            yield Running(self, process, log, eventually(health))
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)


@dataclass
class Running:
    """A process that serves."""

    shell: Shell
    process: "subprocess.Popen[bytes]"
    log: Path
    address: str

    def send(self, *arguments: str, code: int = 0) -> Any:
        return self.shell.json("send", *arguments, "--to", self.address, code=code)

    def post(self, source: str, body: bytes, headers: dict[str, str], query: str = "") -> int:
        """One request as it is, and the status that came back."""
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS)
        try:
            connection.request("POST", f"/webhooks/{source}{f'?{query}' if query else ''}", body, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def settled(self, count: int) -> list[Any]:
        """Wait until that many receipts are there and none is on its way."""

        def all_ended() -> list[Any] | None:
            found = self.shell.lines("list")
            ended = [one for one in found if one["state"] not in ("received", "processing")]
            return found if len(ended) == len(found) == count else None

        return eventually(all_ended)


def eventually(look: Callable[[], Any]) -> Any:
    """What `look` finds, as soon as it finds something; an error after a bound."""
    deadline = time.monotonic() + SECONDS
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
