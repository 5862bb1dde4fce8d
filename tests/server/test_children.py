"""Several processes behind one socket."""

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from hookonce.server.counted import summed
from tests.server.running import Served, alive, read_answer, stored, storm, until


@pytest.fixture
def three(database):
    """A parent with three children that serve."""
    with Served(database, processes=3) as served:
        yield served


def test_children_share_the_socket_and_leave_with_the_parent(file, three):
    """Three children serve; told to stop under load, they all finish, and the parent's code is 0."""
    assert len(three.children()) == 3
    children = three.children()
    with storm(three) as acknowledged:
        until(lambda: len(acknowledged) > 200)
        three.term()
        assert three.wait() == 0
    assert not any(alive(child) for child in children)
    assert set(acknowledged) <= stored(file)
    assert "Traceback" not in three.output()


def test_killed_child_is_replaced(file, three):
    """A child that is killed is replaced, and nothing that was acknowledged is lost."""
    first = {child.pid for child in three.children()}
    with storm(three) as acknowledged:
        until(lambda: len(acknowledged) > 50)
        os.kill(min(first), signal.SIGKILL)
        until(lambda: len({child.pid for child in three.children()} - first) == 1)
        seen = len(acknowledged)
        until(lambda: len(acknowledged) > seen + 50)
    assert len(three.children()) == 3
    assert set(acknowledged) <= stored(file)


def test_metrics_are_those_of_all(three):
    """Whichever child is asked, it answers for all, and for those that have died."""
    for number in range(40):
        assert three.post(f"evt_{number}") == 202
    wanted = 'hookonce_received_total{source="stripe",outcome="accepted"} 40'
    child = three.children()[0]
    folder = Path(child.environ()["HOOKONCE_CHILD"].split(",", 3)[3])
    until(lambda: wanted in summed([file.read_text().splitlines() for file in folder.glob("*.txt")]))
    until(lambda: all(wanted in three.get("/metrics")[1] for _ in range(20)))
    child.kill()
    until(lambda: len(three.children()) == 3)
    until(lambda: all(wanted in three.get("/metrics")[1] for _ in range(20)))


def test_connections_are_spread(file, database):
    """With two children each has a fair part of many connections that come at once."""
    with Served(database, processes=2) as served, contextlib.ExitStack() as stack:
        for _ in range(100):
            sock = stack.enter_context(served.connect())
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: test\r\n\r\n")
            assert read_answer(sock).startswith(b"HTTP/1.1 200")
        counts = [
            sum(c.status == psutil.CONN_ESTABLISHED for c in p.net_connections("tcp4")) for p in served.children()
        ]
        assert len(counts) == 2
        assert min(counts) >= 20


def test_address_in_use_is_seen_by_several(database):
    """Sockets that may share an address do not share it with a stranger."""
    with Served(database, processes=2) as first:
        second = Served(database, processes=2, port=first.port)
        second.start()
        try:
            assert second.wait() == 69
            assert "HO129 cannot listen" in second.output()
        finally:
            second.__exit__(None, None, None)


def test_child_that_dies_at_once_is_started_ever_more_slowly(three):
    """Killed again and again, a child is replaced with growing pauses, not in a tight loop."""

    def killed():
        for child in three.children():
            child.kill()
        return three.output().count("is replaced") >= 9

    began = time.monotonic()
    until(killed, seconds=60.0)
    assert time.monotonic() - began > 0.3
    assert "failures=3" in three.output()


def test_children_end_when_the_parent_is_killed(three):
    """Nobody is left behind when the parent is killed: the children finish and leave."""
    children = three.children()
    folder = Path(children[0].environ()["HOOKONCE_CHILD"].split(",", 3)[3])
    three.process.kill()
    until(lambda: not any(alive(child) for child in children))
    assert not folder.exists()
    assert "Traceback" not in three.output()


def test_signal_to_the_whole_group_still_finishes(file, database):
    """A terminal sends Ctrl-C to parent and children at once: that is still one wish, and requests are finished."""
    with Served(database, processes=2) as served, storm(served) as acknowledged:
        until(lambda: len(acknowledged) > 50)
        for process in [psutil.Process(served.process.pid), *served.children()]:
            process.send_signal(signal.SIGINT)
        assert served.wait() == 0
        assert "leaving at once" not in served.output()
    assert set(acknowledged) <= stored(file)


def test_second_signal_takes_the_children_along(database):
    """A second signal to the parent ends everything at once."""
    with Served(database, processes=2, handler_seconds=60.0, grace_seconds=60.0) as served:
        assert served.post("evt_1") == 202
        served.wait_line("handling")
        children = served.children()

        def ended():
            served.term()
            return served.process.poll() is not None

        until(ended)
        assert served.wait() == 0
        until(lambda: not any(alive(child) for child in children))


def test_configuration_error_ends_all(tmp_path):
    """What every start would meet again is not retried: the parent ends with the child's code."""
    served = Served(f"sqlite:///{tmp_path / 'empty.db'}", processes=2)
    served.start()
    try:
        assert served.wait() == 78
        assert "hookonce migrate" in served.output()
    finally:
        served.__exit__(None, None, None)


def test_disk_failure_ends_all(database):
    """A disk that fails under one child is a reason for all to stop, with code 69."""
    with Served(database, processes=2, disk_fails_at="accept.before_insert", worker=False) as served:
        served.post("evt_1")
        assert served.wait() == 69
        assert "HO128" in served.output()
