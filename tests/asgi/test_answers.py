"""What a sender is told, through both doors: one table of statuses, one small body, and never a 409."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookonce import Bounds, Inbox
from hookonce.asgi.app import cause_of
from hookonce.asgi.responses import NO, STATUS_OF_REASON, STATUS_OF_VERDICT, YES, headers_of, messages
from hookonce.clock import SetClock
from hookonce.errors import (
    Busy,
    Conflict,
    DiskFailure,
    NotDurable,
    Reason,
    RowRefused,
    SchemaError,
    StorageError,
    Unavailable,
)
from hookonce.failpoints import armed
from hookonce.model import Verdict
from hookonce.providers import GitHub, StandardWebhooks
from tests.asgi.doors import AsgiDoor, WsgiDoor
from tests.flow.box import OTHER_SECRET, WAIT_SECONDS, Place, acme, bare, github, signed, stripe
from tests.flow.test_verify import HEADER_NAMES, NOW

DOORS = {"asgi": AsgiDoor, "wsgi": WsgiDoor}
PLAIN = bare(name="plain", plain_ok=True)
OPEN: Callable[..., Any] = lambda **settings: Bounds(**{"source_rate": 0.0, "address_rate": 0.0, **settings})  # noqa: E731


def inbox_on(place: Place, **bounds: Any) -> Inbox:
    return place.inbox(acme(), bare(), github(), stripe(), PLAIN, clock=SetClock(NOW), bounds=OPEN(**bounds))


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest, lite: Place) -> AsyncIterator[Any]:
    """Both doors in turn, on SQLite."""
    one = DOORS[request.param](inbox_on(lite, body_bytes_max=10_000, body_seconds=0.1))
    yield one
    await one.close()


@pytest.fixture(params=DOORS)
async def open_door(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Any]:
    """Both doors in turn, on both databases."""
    one = DOORS[request.param](inbox_on(place))
    yield one
    await one.close()


def event(event_id: str = "evt_1", body: bytes = b'{"type": "a"}', secret: Any = None) -> tuple[bytes, Any]:
    endpoint = acme() if secret is None else acme(secret)
    return body, signed(endpoint, body, event_id, NOW)


# the matrix


async def test_new_and_known_events(open_door: Any) -> None:
    """202 for a new event, 200 for a known one, with equal bodies: same input, same output."""
    first = await open_door.post("/acme", *event())
    again = [await open_door.post("/acme", *event()) for _ in range(3)]
    assert (first.status, [answer.status for answer in again]) == (202, [200] * 3)
    assert {first.body, *(answer.body for answer in again)} == {b'{"received":true}'}
    assert first.headers == {"content-type": "application/json", "content-length": "17"}


async def test_a_provider_that_insists_on_200(open_door: Any) -> None:
    """Where 202 would count as a failure a new event is answered 200."""
    headers = signed(PLAIN, b"{}", "evt_1", NOW)
    statuses = [(await open_door.post("/plain", b"{}", headers)).status for _ in range(2)]
    assert statuses == [200, 200]


async def test_evidence_is_acknowledged(door: Any) -> None:
    """Another body under a known id, and a replay under another delivery id: owned, therefore 200."""
    await door.post("/acme", *event())
    assert (await door.post("/acme", *event(body=b'{"type": "b"}'))).status == 200
    for delivery, status in (("d1", 202), ("d2", 200)):
        headers = signed(github(), b"{}", delivery, NOW)
        assert (await door.post("/github", b"{}", headers)).status == status


async def test_refusals(door: Any) -> None:
    """Every refusal has its status, and all have the same body, which tells nothing."""
    body, headers = event()
    late = signed(acme(), body, "evt_1", NOW - 301)
    no_id = signed(stripe(), b"{}", "", NOW)
    answers = {
        "unsigned": (401, await door.post("/acme", body)),
        "forged": (401, await door.post("/acme", *event(secret=OTHER_SECRET))),
        "other bytes": (401, await door.post("/acme", body + b" ", headers)),
        "late": (401, await door.post("/acme", body, late)),
        "nonsense": (401, await door.post("/acme", body, [(b"webhook-id", b"x"), (b"webhook-signature", b"\xff")])),
        "no id": (400, await door.post("/stripe", b"{}", no_id)),
        "unknown source": (404, await door.post("/nobody", body, headers)),
        "no source": (404, await door.post("/", body, headers)),
        "below a source": (404, await door.post("/acme/more", body, headers)),
        "get": (405, await door.post("/acme", body, headers, method="GET")),
        "head": (405, await door.post("/acme", body, headers, method="HEAD")),
        "odd method": (405, await door.post("/acme", body, headers, method="POST\x00")),
        "too large": (413, await door.post("/acme", b"x" * 10_001, headers)),
        "announced too large": (413, await door.post("/acme", body, headers, length=1 << 40)),
        "compressed": (415, await door.post("/acme", body, [*headers, (b"content-encoding", b"gzip")])),
        "cut short": (400, await door.post("/acme", body, headers, length=len(body) + 1)),
    }
    assert {name: answer.status for name, (_, answer) in answers.items()} == {
        name: status for name, (status, _) in answers.items()
    }
    assert {answer.body for _, answer in answers.values()} == {b'{"received":false}'}
    assert answers["get"][1].headers["allow"] == "POST"
    assert answers["too large"][1].headers["connection"] == "close"
    assert door.inbox._desk.counters.received["unknown", "unknown_source"] == 3
    assert door.inbox._desk.counters.received["acme", "signature_mismatch"] == 2


async def test_what_arrives_in_pieces_is_bounded(lite: Place) -> None:
    """A body without a length is read up to the bound and no further, through both doors."""
    inbox = inbox_on(lite, body_bytes_max=1_000)
    body, headers = event(body=b'{"type": "' + b"x" * 900 + b'"}')
    asgi, wsgi = AsgiDoor(inbox), WsgiDoor(inbox)
    pieces = [body[:100], body[100:500], b"", body[500:]]
    assert (await asgi.post("/acme", body, headers, chunks=pieces, length=None)).status == 202
    assert (await asgi.post("/acme", body, headers, chunks=[b"x" * 400] * 3, length=None)).status == 413
    assert (await asgi.post("/acme", body, headers, chunks=[b"x" * 1_001], length=None)).status == 413
    assert (await wsgi.post("/acme", body, headers, chunked=True)).status == 200
    assert (await wsgi.post("/acme", b"x" * 1_001, headers, chunked=True)).status == 413
    assert lite.bodies() == [body]
    await wsgi.close()
    await asgi.close()


async def test_a_slow_body_is_given_up(lite: Place) -> None:
    """A body that does not end in time is answered 408 and the connection is closed."""
    asgi = AsgiDoor(inbox_on(lite, body_seconds=0.05))
    answer = await asgi.post("/acme", b"{", stuck=True, length=None)
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert asgi.inbox.counters.received["acme", "body_too_slow"] == 1


async def test_a_client_that_leaves_is_not_answered(lite: Place) -> None:
    """Gone before the body was complete: nothing is sent, nothing is stored, at the first message or later."""
    asgi = AsgiDoor(inbox_on(lite))
    body, headers = event()
    assert (await asgi.post("/acme", body, headers, chunks=[body[:5]], gone=True)).status == 0
    assert (await asgi.post("/acme", body, headers, chunks=[], gone=True)).status == 0
    assert lite.count("receipt") == 0


async def test_a_body_that_somebody_else_read_is_our_fault(door: Any) -> None:
    """A middleware ate the body: 500, so that the sender comes again, and a reason of its own in the counters."""
    body, headers = event()
    answer = await door.post("/acme", b"", headers, length=len(body))
    assert (answer.status, answer.body) == (500, NO)
    assert door.inbox.counters.received["acme", "body_eaten"] == 1


@pytest.mark.parametrize("per", ["source_rate", "address_rate"])
@pytest.mark.parametrize("kind", DOORS)
async def test_a_rate_is_told_with_the_time_to_wait(lite: Place, kind: str, per: str) -> None:
    """Over its rate a sender gets 429 and when to come again, before its body is read or its signature checked."""
    door = DOORS[kind](inbox_on(lite, **{per: 1.0}))
    answers = [await door.post("/acme", *event(f"evt_{number}")) for number in range(4)]
    assert [answer.status for answer in answers] == [202, 202, 429, 429]
    assert answers[3].headers["retry-after"] == "1"
    assert (answers[3].body, lite.count("receipt")) == (NO, 2)
    other = await door.post("/bare", b"{}", signed(bare(), b"{}", "evt_1", NOW), address="198.51.100.1")
    assert other.status == 202
    await door.close()


async def test_a_database_that_is_away(open_door: Any, place: Place) -> None:
    """503 with Retry-After while nothing can be stored, 202 as soon as it can; never a 2xx in between."""
    assert (await open_door.post("/acme", *event("evt_0"))).status == 202
    place.sql("ALTER TABLE hookonce_receipt RENAME TO away")
    for number in range(3):
        answer = await open_door.post("/acme", *event(f"evt_{number}"))
        assert (answer.status, answer.body) == (503, NO)
        assert 5 <= int(answer.headers["retry-after"]) <= 10
    place.sql("ALTER TABLE away RENAME TO hookonce_receipt")
    statuses = [(await open_door.post("/acme", *event(f"evt_{number}"))).status for number in range(3)]
    assert statuses == [200, 202, 202]
    assert open_door.inbox.counters.received["acme", "schema"] == 3


async def test_verified_inserted_committed_answered_handled(place: Place) -> None:
    """In this order; the request does not run the handler, and whoever is answered has a committed row."""
    inbox = inbox_on(place)
    door = AsgiDoor(inbox)
    seen: list[tuple[str, int]] = []

    @inbox.registry.sources["acme"].on("*")
    def handle(event: Any) -> None:
        seen.append(("handler", place.count("receipt")))

    points = ("receive.after_verify", "accept.before_insert", "accept.after_insert", "accept.before_answer")
    with contextlib.ExitStack() as stack:
        for point in points:
            note = functools.partial(lambda name: seen.append((name, place.count("receipt"))), point)
            stack.enter_context(armed(point, note, onwards=True))
        assert (await door.post("/acme", *event())).status == 202
    seen.append(("answer", place.count("receipt")))
    backend = inbox._factory()
    await inbox.worker(backend).drain()
    assert seen == [*zip(points, (0, 0, 1, 1), strict=True), ("answer", 1), ("handler", 1)]
    await backend.close()
    await door.close()


@pytest.mark.parametrize("kind", DOORS)
async def test_requests_as_they_were_recorded(lite: Place, kind: str) -> None:
    """The examples that GitHub and Standard Webhooks publish, secret and signature included, are taken as they are."""
    endpoints = GitHub("It's a Secret to Everybody"), StandardWebhooks("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    inbox = lite.inbox(*endpoints, clock=SetClock(1_614_265_330.0))
    door = DOORS[kind](inbox)
    bodies = [b"Hello, World!", b'{"test": 2432232314}']
    github_headers = [
        (b"user-agent", b"GitHub-Hookshot/044aadd"),
        (b"x-github-delivery", b"72d3162e-cc78-11e3-81ab-4c9367dc0958"),
        (b"x-github-event", b"issues"),
        (b"x-hub-signature-256", b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
    ]
    svix_headers = [
        (b"webhook-id", b"msg_p5jXN8AQM9LWM0D4loKWxJek"),
        (b"webhook-timestamp", b"1614265330"),
        (b"webhook-signature", b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ]
    for status in (202, 200):
        assert (await door.post("/github", bodies[0], github_headers)).status == status
        assert (await door.post("/standard_webhooks", bodies[1], svix_headers)).status == status
    assert lite.bodies() == bodies
    await door.close()


def test_every_outcome_has_a_status_and_none_is_409() -> None:
    """The table is complete, 4xx and 5xx say who has to act, and a duplicate is never a conflict."""
    assert set(STATUS_OF_REASON) == set(Reason)
    assert set(STATUS_OF_VERDICT) == set(Verdict)
    statuses = {*STATUS_OF_REASON.values(), *STATUS_OF_VERDICT.values(), 503}
    assert statuses == {200, 202, 400, 401, 404, 405, 408, 413, 415, 429, 500, 503}
    for status in statuses:
        start, end = messages(status)
        assert end["body"] == (YES if status < 300 else NO)
        assert (b"content-length", b"%d" % len(end["body"])) in start["headers"] == headers_of(status)


@pytest.mark.parametrize("wait", [0.001, 1.0, 1.2, 30.0])
def test_the_wait_is_rounded_up(wait: float) -> None:
    """Whole seconds, at least one, and never less than is needed."""
    told = int(dict(headers_of(429, wait))[b"retry-after"])
    assert wait <= told < wait + 1


# any bytes


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.one_of(st.sampled_from(["/acme", "/stripe", "/github", "/bare"]), st.text(max_size=20)),
    headers=st.lists(st.tuples(st.sampled_from(HEADER_NAMES), st.binary(max_size=60)), max_size=5),
    body=st.binary(max_size=100),
    method=st.sampled_from(["POST", "POST", "POST", "GET", ""]),
)
async def test_arbitrary_bytes_are_the_senders_fault(
    door: Any, path: str, headers: list[tuple[bytes, bytes]], body: bytes, method: str
) -> None:
    """No path, header or body makes a 5xx."""
    answer = await door.post(path, body, headers, method=method)
    assert 400 <= answer.status < 500


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    identity=st.binary(min_size=1, max_size=600),
    headers=st.lists(
        st.tuples(st.sampled_from([b"traceparent", b"x-a", b"cookie"]), st.binary(max_size=60)), max_size=4
    ),
    body=st.binary(max_size=100),
)
async def test_arbitrary_bytes_that_are_signed_are_stored(
    open_door: Any, identity: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    """What somebody with the secret sends is accepted or refused, never an error of ours."""
    sign = signed(bare(), body, identity.decode("latin-1"), NOW)
    answer = await open_door.post("/bare", body, [*sign, *headers])
    assert answer.status in (200, 202, 401)


# where it is mounted


@pytest.mark.parametrize(
    ("path", "root_path", "asked", "status"),
    [
        ("", "", "/acme", 202),
        ("/hooks", "", "/hooks/acme", 202),
        ("/hooks/", "", "/hooks/acme", 202),
        ("/hooks", "", "/acme", 404),
        ("/hooks", "", "/hooksacme", 404),
        ("", "/mounted", "/acme", 202),
        ("/in", "/mounted", "/in/acme", 202),
    ],
)
@pytest.mark.parametrize("kind", DOORS)
async def test_mounting(lite: Place, kind: str, path: str, root_path: str, asked: str, status: int) -> None:
    """Below a path of its own, and below the path of whoever mounts it."""
    door = DOORS[kind](inbox_on(lite), path, root_path)
    assert (await door.post(asked, *event())).status == status
    await door.close()


async def test_lifespan_is_answered(lite: Place) -> None:
    """As the only application of a server it starts up and shuts down when told to."""
    sent = []
    messages_in = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages_in.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await inbox_on(lite).asgi()({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_refused(lite: Place) -> None:
    """There is nothing to talk about."""
    sent = []

    async def send(message: Any) -> None:
        sent.append(message)

    await inbox_on(lite).asgi()({"type": "websocket", "path": "/acme", "headers": []}, asyncio.Event().wait, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


# what handlers do is not the sender's business


async def test_handlers_never_change_an_answer(open_door: Any, place: Place) -> None:
    """The event failed, is retried or was discarded: its duplicates are answered 200 like any other."""
    inbox = open_door.inbox
    ran = []

    @inbox.registry.sources["acme"].on("*", attempts=1)
    def fail(event: Any) -> None:
        ran.append(event.id)
        raise ZeroDivisionError

    assert (await open_door.post("/acme", *event())).status == 202
    assert ran == []
    backend = inbox._factory()
    for status in (200, 200):
        await inbox.worker(backend).drain()
        assert place.states() == ["failed"]
        assert (await open_door.post("/acme", *event())).status == status
    assert ran == ["evt_1"]
    assert place.verdicts() == ["duplicate", "duplicate"]
    await backend.close()


@pytest.mark.parametrize("kind", DOORS)
async def test_twenty_at_once_are_one_event(place: Place, kind: str) -> None:
    """The same event twenty times at the same moment, on twenty threads or tasks: one 202, the others 200."""
    door = DOORS[kind](inbox_on(place))
    answers = await asyncio.gather(*(door.post("/acme", *event()) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [200] * 19 + [202]
    assert (place.count("receipt"), place.count("delivery")) == (1, 19)
    await door.close()


async def test_a_request_that_is_cancelled_is_stored(place: Place) -> None:
    """The server gives up on a request while its commit is under way: the event is ours all the same."""
    inbox = inbox_on(place)
    door = AsgiDoor(inbox)
    loop, here, gone = asyncio.get_running_loop(), threading.get_ident(), threading.Event()
    requests = [asyncio.ensure_future(door.post("/acme", *event(f"evt_{n}"))) for n in range(20)]

    def leave() -> None:
        for request in requests:
            request.cancel()
        gone.set()

    def under_way() -> None:
        loop.call_soon_threadsafe(leave)
        if threading.get_ident() != here:  # SQLite's lane is a thread: hold the transaction until they have left
            assert gone.wait(WAIT_SECONDS)

    with armed("accept.before_insert", under_way):
        ended = await asyncio.gather(*requests, return_exceptions=True)
    assert {type(end) for end in ended} == {asyncio.CancelledError}
    await inbox._acceptor().drain()
    assert place.count("receipt") > 0
    answers = [await door.post("/acme", *event(f"evt_{n}")) for n in range(20)]
    assert {answer.status for answer in answers} <= {200, 202}
    assert (place.count("receipt"), place.count("body")) == (20, 20)
    await door.close()


async def test_a_new_event_wakes_the_workers(lite: Place) -> None:
    """Once stored, not before, and not for what we had already."""
    inbox = inbox_on(lite)
    woken: list[int] = []
    inbox._wakes = [lambda: woken.append(lite.count("receipt"))]
    door = AsgiDoor(inbox)
    for _ in range(3):
        await door.post("/acme", *event())
    await door.post("/acme", *event("evt_2", secret=OTHER_SECRET))
    assert woken == [1]
    await door.close()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Busy("the queue is full"), "busy"),
        (RowRefused("a NUL"), "row_refused"),
        (DiskFailure("I/O error"), "disk_failed"),
        (NotDurable("a warning"), "not_durable"),
        (SchemaError("no table"), "schema"),
        (Conflict("deadlock"), "unavailable"),
        (Unavailable("no answer"), "unavailable"),
    ],
)
def test_what_could_not_be_stored_is_counted_by_its_cause(error: StorageError, cause: str) -> None:
    """All of them are answered 503, and each asks somebody else to act."""
    assert cause_of(error) == cause
