"""A private PgBouncer in transaction mode before a test server, as an unprivileged user.

Taken from the PATH, or unpacked from Debian's packages without installing them. Where neither works, the error says so.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tests.servers.postgres import (
    POLL_SECONDS,
    START_SECONDS,
    PostgresServer,
    _account,
    _as,
    _free_port,
    _make_folder,
    _open_to,
    _shared_folder,
)

PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")
MISSING = (
    "No PgBouncer for the tests: {why}\n"
    "  apt-get install pgbouncer\n"
    "or let the tests fetch Debian's package: they need apt-get and dpkg, and a network"
)


class PgBouncerMissing(Exception):
    """No PgBouncer was found, and none could be fetched."""


class PgBouncer:
    """One pooler in transaction mode; `server_connections` is how few it has for any number of clients."""

    def __init__(self, server: PostgresServer, *, server_connections: int = 4) -> None:
        self._account = _account()
        self._program, self._libraries = find_pgbouncer()
        self.folder = _make_folder(self._account)
        self.port = _free_port()
        self._log = self.folder / "pgbouncer.log"
        (self.folder / "users.txt").write_text('"postgres" ""\n')
        (self.folder / "pgbouncer.ini").write_text(
            "[databases]\n"
            f"* = host={server.folder} port={server.port} user=postgres\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir = {self.folder}\n"
            f"auth_type = any\nauth_file = {self.folder}/users.txt\nadmin_users = postgres\n"
            f"pool_mode = transaction\ndefault_pool_size = {server_connections}\nmax_client_conn = 500\n"
        )
        _open_to(self._account, self.folder)
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, dbname: str) -> str:
        """Address through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    def start(self) -> None:
        """Start and wait until it takes clients."""
        arguments = _as(self._account, self.folder)
        arguments["env"] = {**arguments["env"], "LD_LIBRARY_PATH": self._libraries}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._program), str(self.folder / "pgbouncer.ini")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **arguments,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PgBouncerMissing(f"PgBouncer does not start:\n{self._log.read_text()[-2000:]}")
            time.sleep(POLL_SECONDS)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def show(self, what: str) -> list[tuple[object, ...]]:
        """Ask the pooler itself: SHOW POOLS, SHOW STATS."""
        with psycopg.connect(self.dsn("pgbouncer"), autocommit=True, prepare_threshold=None) as conn:
            return psycopg.ClientCursor(conn).execute(f"SHOW {what}".encode()).fetchall()

    def close(self) -> None:
        """Stop, and remove everything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@functools.cache
def find_pgbouncer() -> tuple[Path, str]:
    """The program, and where its libraries are when they are not the system's."""
    for installed in (shutil.which("pgbouncer"), "/usr/sbin/pgbouncer"):
        if installed and os.access(installed, os.X_OK):
            return Path(installed), ""
    return _unpacked()


def _unpacked() -> tuple[Path, str]:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise PgBouncerMissing(MISSING.format(why="it is not installed, and this is no Debian"))
    account = _account()
    folder = Path(tempfile.mkdtemp(dir=_shared_folder(account)))
    # One after another: a library that this release names otherwise is no reason to go without the program.
    done = [
        subprocess.run(
            ["apt-get", "download", name],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        for name in PACKAGES
    ]
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder / "root")], check=True, timeout=START_SECONDS)
    program = folder / "root/usr/sbin/pgbouncer"
    if not program.exists():
        raise PgBouncerMissing(MISSING.format(why=done[0].stderr.strip() or "the package holds no program"))
    _open_to(account, folder)
    return program, ":".join(str(path) for path in (folder / "root/usr/lib").glob("*-linux-*"))
