"""What probes and Prometheus are told."""

import asyncio
import json
import time

import pytest

from hookonce.errors import Unavailable
from hookonce.server import Health, with_health
from hookonce.server.health import Shared, backlog
from hookonce.storage.connect import backend_factory
from tests.server.running import Served, prepare, until
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.anyio


async def ask(app, path, method="GET"):
    """Status, headers and body of one request to an ASGI callable."""
    sent = []

    async def send(message):
        sent.append(message)

    await app({"type": "http", "method": method, "path": path, "headers": []}, None, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


async def elsewhere(scope, receive, send):
    """The application behind."""
    await send({"type": "http.response.start", "status": 299, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def test_paths_and_methods():
    """The four paths answer GET and HEAD; everything else goes to the application."""
    app = with_health(elsewhere, Health({}, lambda: ["hookonce_x 1"]))
    for path in ("/livez", "/readyz", "/healthz", "/metrics"):
        assert (await ask(app, path))[0] == 200
        assert (await ask(app, path, "HEAD"))[2] == b""
        assert (await ask(app, path, "POST"))[0] == 299
    assert (await ask(app, "/readyz/"))[0] == 299
    assert (await ask(app, "/metrics"))[2] == b"hookonce_x 1\n"


async def test_failing_check_is_named_but_not_explained():
    """The answer says which check failed; why is in the log, because anybody may ask."""

    async def fails():
        raise Unavailable("db.internal:5432 refused app:secret")

    async def passes():
        pass

    status, headers, body = await ask(with_health(elsewhere, Health({"database": fails, "schema": passes})), "/readyz")
    assert status == 503
    assert headers[b"content-type"] == b"application/json"
    assert json.loads(body) == {
        "status": "not ready", "checks": {"database": "failed", "schema": "ok", "serving": "ok"},
    }  # fmt: skip


async def test_draining_is_not_ready_but_alive():
    """A process that drains is not to be restarted, only left alone."""
    health = Health({})
    app = with_health(elsewhere, health)
    health.draining = True
    assert (await ask(app, "/livez"))[0] == 200
    assert (await ask(app, "/readyz"))[0] == 503


async def test_many_probes_are_one_question():
    """A hundred at once, and more soon after, ask the database once."""
    asked = []

    async def check():
        asked.append(1)
        await asyncio.sleep(0)

    health = Health({"database": check})
    await asyncio.gather(*(health.ready() for _ in range(100)))
    await health.ready()
    assert len(asked) == 1


async def test_question_that_hangs_is_not_repeated():
    """No answer in time is a failure, for everybody who asks, and still only one question is on its way."""
    asked = []
    answer = asyncio.Event()

    async def check():
        asked.append(1)
        await answer.wait()

    question = Shared(check, within=0.05)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await question.ask()
    assert len(asked) == 1
    answer.set()
    await question.ask()


def test_what_nobody_works_on_becomes_visible(database):
    """An event that nobody takes is in the backlog, and the age of the oldest one grows with the clock."""
    with Served(database, worker=False) as served:
        assert served.post("evt_1") == 202
        found = asyncio.run(asked(database, hours=3))
    assert found.counts == [("stripe", "received", 1)]
    assert 3 * 3_600 <= found.oldest_seconds < 3 * 3_600 + 60


async def asked(database, *, hours):
    """The gauges as they will be when so many hours have passed."""
    backend = backend_factory(database)()
    try:
        return await backend.read(backlog(now=time.time() + hours * 3_600))
    finally:
        await backend.close()


def test_metrics(database):
    """Counters and gauges are there after an event."""
    with Served(database, worker=False) as served:
        assert served.post("evt_1") == 202
        assert served.post("evt_1") == 200
        text = served.get("/metrics")[1]
        assert 'hookonce_received_total{source="stripe",outcome="accepted"} 1' in text
        assert 'hookonce_received_total{source="stripe",outcome="duplicate"} 1' in text
        assert 'hookonce_backlog{source="stripe",state="received"} 1' in text
        assert "hookonce_oldest_pending_seconds " in text


def test_health_without_receiver(database):
    """A process that only works answers the health paths, and no webhooks."""
    with Served(database, receiver=False) as served:
        assert served.get("/readyz")[0] == 200
        assert served.post("evt_1") == 404


def test_readyz_follows_the_database():
    """When PostgreSQL goes, /readyz turns 503 while /livez stays 200; when it returns, so does 200."""
    with PostgresServer() as server:
        database = prepare(server.dsn(server.create_database()))
        with Served(database) as served:
            assert served.get("/readyz") == (
                200, '{"status":"ready","checks":{"database":"ok","schema":"ok","serving":"ok"}}',
            )  # fmt: skip
            server.stop_immediate()
            body = until(lambda: (answer := served.get("/readyz"))[0] == 503 and answer[1])
            assert '"database":"failed"' in body
            assert served.get("/livez")[0] == 200
            assert served.get("/metrics")[0] == 200
            assert served.post("evt_1") == 503
            server.start()
            until(lambda: served.get("/readyz")[0] == 200)
            assert served.post("evt_1") == 202
            served.term()
            assert served.wait() == 0
            assert served.output().count("not ready check=database") == 1


def test_readyz_when_the_database_hangs():
    """A database that takes connections and never answers is not ready either, and says so within a few seconds."""
    with PostgresServer() as server:
        database = prepare(server.dsn(server.create_database()))
        with Served(database) as served:
            assert served.get("/readyz")[0] == 200
            stopped = freeze(server)
            try:
                until(lambda: served.get("/readyz")[0] == 503, seconds=5.0)
                assert served.get("/livez")[0] == 200
            finally:
                for process in stopped:
                    process.resume()
            until(lambda: served.get("/readyz")[0] == 200)


def freeze(server):
    """Stop every process of the server, so that it neither answers nor hangs up."""
    import psutil

    postmaster = psutil.Process(server.pid)
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.suspend()
    return processes
