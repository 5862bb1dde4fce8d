"""Starting and leaving: nothing that was acknowledged is lost, and the exit code says what happened."""

import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

from tests.server.running import Served, prepare, read_answer, signed, states, status_of, stored, storm, until


def test_sigterm_under_load(file, database):
    """Told to stop while requests come in, it finishes them: what it acknowledged is stored, and the code is 0."""
    with Served(database) as served, storm(served) as acknowledged:
        until(lambda: len(acknowledged) > 200)
        served.term()
        assert served.wait() == 0
        assert "Traceback" not in served.output()
    assert len(acknowledged) > 200
    assert set(acknowledged) <= stored(file)


def test_sigterm_five_times(file, database):
    """Five signals in a row, as from a terminal, a supervisor and a process group, are one wish."""
    with Served(database) as served, storm(served) as acknowledged:
        until(lambda: len(acknowledged) > 50)
        for _ in range(5):
            served.term()
        assert served.wait() == 0
    assert set(acknowledged) <= stored(file)


def test_running_request_is_finished_and_idle_connections_are_closed(file, database):
    """A request whose body is still coming is waited for; a connection without one is closed at once."""
    with Served(database) as served, served.connect() as busy, served.connect() as idle:
        request = signed("evt_late")
        busy.sendall(request[:-10])
        idle.sendall(b"GET /livez HTTP/1.1\r\nHost: test\r\n\r\n")
        read_answer(idle)
        served.term()
        assert idle.recv(100) == b""
        assert served.process.poll() is None
        busy.sendall(request[-10:])
        answer = read_answer(busy)
        assert status_of(answer) == 202
        assert b"connection: close" in answer
        assert served.wait() == 0
    assert stored(file) == {"evt_late"}


def test_running_handler_is_finished(file, database):
    """A handler that runs when the signal comes is not cut off within the grace."""
    with Served(database, handler_seconds=1.0) as served:
        assert served.post("evt_1") == 202
        served.wait_line("handling")
        served.term()
        assert served.wait() == 0
    assert states(file) == {"evt_1": "processed"}


def test_second_sigterm_leaves_at_once(database):
    """A second signal, later than an echo of the first, ends the process in the middle of the grace, with code 0."""
    with Served(database, handler_seconds=60.0, grace_seconds=60.0, bounds={"body_seconds": 60.0}) as served:
        with served.connect() as busy:
            busy.sendall(signed("evt_slow")[:-10])
            served.term()
            until(lambda: served.get("/livez")[0] == 0, what="connections refused")
            began = time.monotonic()

            def ended():
                served.term()
                return served.process.poll() is not None

            until(ended)
        assert served.wait() == 0
        assert time.monotonic() - began < 10.0
        assert "leaving at once" in served.output()


def test_drain_delay(database):
    """While it drains, /readyz says 503 and events are still accepted; then connections are refused."""
    with Served(database, drain_seconds=2.0) as served:
        assert served.get("/readyz")[0] == 200
        served.term()
        status, body = until(lambda: (answer := served.get("/readyz"))[0] == 503 and answer)
        assert (status, '"serving":"failed"' in body) == (503, True)
        assert served.post("evt_1") == 202
        assert served.wait() == 0


def test_as_process_one(file, database):
    """As process 1 there are no default signal handlers: ours are installed, and SIGTERM is heard."""
    unshare = shutil.which("unshare")
    probe = [unshare or "unshare", "-p", "-f", "--mount-proc", "true"]
    if unshare is None or subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.fail("this test needs `unshare -p -f --mount-proc` (util-linux, as root or with CAP_SYS_ADMIN)")
    with Served(database, before=[unshare, "-p", "-f", "--kill-child", "--mount-proc"]) as served:
        assert served.said[0].split()[2] == "1"
        (inner,) = served.children()
        assert served.post("evt_1") == 202
        os.kill(inner.pid, signal.SIGTERM)
        assert served.wait() == 0
    assert stored(file) == {"evt_1"}


def test_address_in_use(database):
    """A port that is taken is one clear line with a code, and exit code 69."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_fails(database, 69, f"HO129 cannot listen on 127.0.0.1:{port}", port=port)


def test_unknown_host_and_impossible_port(database):
    """So are a host that does not exist and a port that cannot be."""
    assert_fails(database, 69, "HO129 cannot listen on", host="no-such-host.invalid")
    assert_fails(database, 69, "HO129 cannot listen on", port=70_000)


def test_schema_missing(tmp_path):
    """Without our tables it does not start, and says which command makes them; `migrate` makes them itself."""
    database = f"sqlite:///{tmp_path / 'empty.db'}"
    assert_fails(database, 78, "hookonce migrate")
    with Served(database, migrate=True) as served:
        assert served.post("evt_1") == 202
        served.term()
        assert served.wait() == 0


def test_database_unreachable():
    """A database that is not there at start is exit code 69."""
    assert_fails("postgresql://nobody@127.0.0.1:9/nothing", 69, "HO107")


@pytest.mark.parametrize("point", ["accept.before_insert", "claim.before_claim"])
def test_disk_failure_ends_the_process(tmp_path, point):
    """When the disk fails under the acceptor or the worker the process ends with 69 and says why: no going on."""
    database = prepare(f"sqlite:///{tmp_path / 'inbox.db'}")
    with Served(database, disk_fails_at=point, worker=point.startswith("claim")) as served:
        served.post("evt_1")
        assert served.wait() == 69
        assert "HO128 the disk failed" in served.output()
        assert "Traceback" not in served.output()


def assert_fails(database, code, text, **options):
    """Start, and expect it to end by itself with this code and text, without a traceback."""
    served = Served(database, **options)
    served.start()
    with Cleaned(served):
        assert served.wait() == code, served.output()
    assert text in served.output()
    assert "Traceback" not in served.output()


class Cleaned:
    """Clean up after a process that was started without waiting."""

    def __init__(self, served):
        self.served = served

    def __enter__(self):
        return self.served

    def __exit__(self, *error):
        self.served.__exit__(*error)
