"""Requests that are more than one event: batches, handshakes, answers of their own. Through both doors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hookonce import Bounds, VerificationError
from hookonce.clock import SetClock
from hookonce.errors import KeysUnavailable
from hookonce.failpoints import armed
from hookonce.flow.receive import EVENTS_MAX
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers import Known, Locators, Profile
from hookonce.providers.documents import JsonBatch
from hookonce.schemes.signature import SignatureScheme
from hookonce.schemes.token import TokenScheme
from tests.asgi.doors import AsgiDoor, WsgiDoor
from tests.flow.box import Place, until

NOW = 1_800_000_000.0
DOORS = {"asgi": AsgiDoor, "wsgi": WsgiDoor}
LOCATORS = Locators(event_id="body:id", type="body:kind", account="outer:account")


class Crate(Known):
    """A sender that puts many events into one request."""

    scheme = SignatureScheme(signature="header:X-Sig")
    locators = LOCATORS
    split = JsonBatch("events")


class Shy(Known):
    """A sender with handshakes of both kinds, and answers of its own."""

    scheme = SignatureScheme(signature="header:X-Sig")
    locators = LOCATORS
    acknowledge = Answer(200, b"[accepted]")
    profile = Profile(bare=True)

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if delivery.method != "GET":
            return None
        return Answer(body=dict(pair.split(b"=") for pair in delivery.query.split(b"&"))[b"hello"])

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        return Answer(body=json.loads(delivery.body)["challenge"].encode())


class Remote(Known):
    """A sender whose key has to be fetched first."""

    scheme = TokenScheme(at="header:X-Token")
    locators = LOCATORS


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Any]:
    """Both doors on both databases."""
    inbox = place.inbox(
        Crate("s3cret", name="crate"),
        Shy("s3cret", name="shy"),
        clock=SetClock(NOW),
        bounds=Bounds(source_rate=0.0, address_rate=0.0),
    )
    one = DOORS[request.param](inbox)
    one.place = place
    yield one
    await one.close()


def crate(*names: str) -> tuple[bytes, Any]:
    """A signed batch with one event a name."""
    events = [{"id": name, "kind": "packed", "note": "Grüße"} for name in names]
    body = json.dumps({"account": "acct_1", "events": events}, ensure_ascii=False, indent=1).encode()
    return body, sealed("crate", body)


def sealed(name: str, body: bytes) -> Any:
    scheme = Crate.scheme
    return scheme.sign(body, Secret(value=b"s3cret"), NOW, "")


def ids(door: Any) -> list[str]:
    return [name for (name,) in door.place.sql("SELECT event_id FROM hookonce_receipt ORDER BY event_id")]


async def test_every_event_of_a_batch_is_a_receipt(door: Any) -> None:
    """Three events are three receipts with their own bytes, type and account, in one commit; sent again, none is new."""
    commits: list[int] = []
    with armed("accept.before_insert", lambda: commits.append(1), onwards=True):
        first = await door.post("/crate", *crate("a", "b", "c"))
    again = await door.post("/crate", *crate("a", "b", "c"))
    assert (first.status, again.status, len(commits)) == (202, 200, 1)
    assert ids(door) == ["a", "b", "c"]
    assert door.place.verdicts() == ["duplicate"] * 3
    assert {account for (account,) in door.place.sql("SELECT account FROM hookonce_receipt")} == {"acct_1"}
    for body in door.place.bodies():
        assert body in crate("a", "b", "c")[0] and json.loads(body)["note"] == "Grüße"


async def test_a_duplicate_among_new_events_hides_none(door: Any) -> None:
    """Known and new events in one request, and one of them twice: what is new is stored, and the answer is that of new ones."""
    await door.post("/crate", *crate("b"))
    answer = await door.post("/crate", *crate("a", "b", "c", "c"))
    assert answer.status == 202
    assert ids(door) == ["a", "b", "c"]
    assert door.place.verdicts() == ["duplicate"] * 2


async def test_a_large_batch_is_one_commit(door: Any) -> None:
    """More events than a group holds still share one: a crash leaves all of them or none."""
    commits: list[int] = []
    with armed("accept.before_insert", lambda: commits.append(1), onwards=True):
        answer = await door.post("/crate", *crate(*[f"e{number:04}" for number in range(900)]))
    assert (answer.status, len(commits), len(ids(door))) == (202, 1, 900)


async def test_a_batch_that_cannot_be_stored_is_refused_whole(door: Any) -> None:
    """The commit fails: 503, and nothing of the batch is there; sent again it is all new."""

    def fail() -> None:
        raise OSError("the disk is gone")

    with armed("accept.before_insert", fail, onwards=True):
        refused = await door.post("/crate", *crate("a", "b"))
    assert refused.status == 503 and "retry-after" in refused.headers
    assert ids(door) == []
    assert (await door.post("/crate", *crate("a", "b"))).status == 202


async def test_too_many_events_are_refused(door: Any) -> None:
    """A request is bounded in events as well as in bytes."""
    answer = await door.post("/crate", *crate(*map(str, range(EVENTS_MAX + 1))))
    assert (answer.status, ids(door)) == (413, [])


async def test_an_empty_batch_is_fine(door: Any) -> None:
    """Senders that check an endpoint with no events at all hear yes."""
    assert (await door.post("/crate", *crate())).status == 200
    assert ids(door) == []


@pytest.mark.parametrize("body", [b"", b"nothing", b"{}", b'{"events": 5}', b'{"events": [', b"[" * 100_000, b"\xff"])
async def test_a_batch_that_cannot_be_read_is_kept(door: Any, body: bytes) -> None:
    """Authentic, but not what it should be: kept whole, and marked, not lost."""
    assert (await door.post("/crate", body, sealed("crate", body))).status == 202
    assert door.place.sql("SELECT problem, event_id FROM hookonce_receipt") == [("not_json", None)]
    assert door.place.bodies() == [body]


async def test_an_event_without_an_id_refuses_the_request(door: Any) -> None:
    """One event of a batch that cannot be told from others: 400, and nothing is stored."""
    body = b'{"events": [{"id": "a"}, {"kind": "b"}]}'
    assert (await door.post("/crate", body, sealed("crate", body))).status == 400
    assert ids(door) == []


async def test_a_forged_batch_is_not_taken_apart(door: Any) -> None:
    """No signature, no events."""
    assert (await door.post("/crate", crate("a")[0], [(b"x-sig", b"0" * 64)])).status == 401
    assert ids(door) == []


async def test_a_verified_handshake_is_answered_and_not_stored(door: Any) -> None:
    """The challenge comes back as text that no browser takes for a page; unsigned it is refused, and what is no handshake is an event."""
    body = b'{"challenge": "c-1"}'
    answer = await door.post("/shy", body, sealed("shy", body))
    assert (answer.status, answer.body, answer.headers["x-content-type-options"]) == (200, b"c-1", "nosniff")
    assert answer.headers["content-type"].startswith("text/plain")
    assert (await door.post("/shy", body, [(b"x-sig", b"0" * 64)])).status == 401
    assert ids(door) == []
    event = b'{"id": "evt_1", "kind": "a"}'
    stored = await door.post("/shy", event, sealed("shy", event))
    assert (stored.status, stored.body) == (200, b"[accepted]")
    assert ids(door) == ["evt_1"]


async def test_refusals_of_a_bare_sender_are_empty(door: Any) -> None:
    """Exactly the status, and no body: some senders insist."""
    refused = await door.post("/shy", b"{}", [(b"x-sig", b"0" * 64)])
    assert (refused.status, refused.body, "content-type" in refused.headers) == (401, b"", False)


async def test_other_methods_are_refused_where_nobody_greets(door: Any) -> None:
    """GET is an answer only of sources whose provider says hello that way, and only when it does."""
    assert (await door.post("/crate", b"", method="GET")).status == 405
    assert (await door.post("/shy", b"", method="GET")).status == 405
    assert (await door.post("/shy", b"", method="PUT")).status == 405
    assert (await door.post("/nobody", b"", method="GET")).status == 405


async def test_a_greeting_with_a_query(door: Any) -> None:
    """An unsigned hello is answered, counted, and stored nowhere."""
    if isinstance(door, AsgiDoor):
        scope = {"type": "http", "method": "GET", "path": "/shy", "query_string": b"hello=world", "headers": []}
        answer = await door.call(scope, [{"type": "http.request", "body": b""}])
    else:
        answer = door.call({"REQUEST_METHOD": "GET", "PATH_INFO": "/shy", "QUERY_STRING": "hello=world"})
    assert (answer.status, answer.body) == (200, b"world")
    assert door.inbox.counters.received["shy", "handshake"] == 1
    assert ids(door) == []


async def test_a_key_that_cannot_be_fetched_is_our_fault(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender is asked to come again with 503, and the cause is counted by its name."""

    def need() -> None:
        raise KeysUnavailable("keys.example.com does not answer")

    monkeypatch.setattr(door.inbox._desk.receiver, "needs", lambda delivery: need)
    answer = await door.post("/crate", *crate("a"))
    assert answer.status == 503 and "retry-after" in answer.headers
    assert door.inbox.counters.received["crate", "keys_unavailable"] == 1
    assert ids(door) == []


async def test_a_batch_without_http(place: Place) -> None:
    """From a queue: every event of the message is told of; `accept` tells of the first."""
    inbox = place.inbox(Crate("s3cret", name="crate"), clock=SetClock(NOW))
    body, headers = crate("a", "b")
    named = {name.decode(): value.decode() for name, value in headers}
    assert [stored.verdict for stored in await inbox.accept_all("crate", body, named)] == ["accepted"] * 2
    assert (await inbox.accept("crate", body, named)).verdict == "duplicate"
    empty, signature = crate()
    with pytest.raises(VerificationError):
        await inbox.accept("crate", empty, {name.decode(): value.decode() for name, value in signature})
    await inbox.close()


async def test_why_a_request_was_refused_is_kept(place: Place) -> None:
    """Outside the request the cause is found, logged under the request's id, and there to be asked for; one a minute."""
    inbox = place.inbox(Crate("s3cret", name="crate"), Crate("0ther", name="other"), clock=SetClock(NOW))
    door = AsgiDoor(inbox)
    body, _ = crate("a")
    headers = Crate.scheme.sign(body, Secret(value=b"0ther"), NOW, "")
    for _ in range(3):
        assert (await door.post("/crate", body, headers)).status == 401
    await until(lambda: place.count("rejection") == 1, what="the cause is kept")
    ((source, reason, cause),) = place.sql("SELECT source, reason, cause FROM hookonce_rejection")
    assert (source, reason) == ("crate", "signature_mismatch")
    assert "HO108" in cause and "'other'" in cause and "0ther" not in cause
    assert place.count("receipt") == 0
    await inbox.close()
