"""Stage receive: nothing is parsed, stored or deduplicated before verification, and what is kept are the exact bytes."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookonce import Bounds, VerificationError
from hookonce.clock import SetClock
from hookonce.errors import Reason
from hookonce.flow import receive
from hookonce.flow.operate import Act, act
from hookonce.flow.receive import ADDRESSES_MAX, Buckets, Receiver
from hookonce.model import Delivery, Facts
from hookonce.providers import Endpoint, Stripe
from hookonce.providers.base import Provider
from tests.flow.box import OTHER_SECRET, Box, Place, acme, as_text, bare, github, signed, stripe
from tests.flow.test_verify import NOW, receiver

AWKWARD = {
    "NUL": b'{"id": "evt_1", "a": "\\u0000"}',
    "lone surrogate": b'{"id": "evt_1", "a": "\\ud800"}',
    "deep": b'{"id": "evt_1", "a": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "too deep to read": b'{"id": "evt_1", "a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "huge number": b'{"id": "evt_1", "a": ' + b"9" * 10_000 + b"}",
    "huge exponent": b'{"id": "evt_1", "a": 1e999999}',
    "NaN": b'{"id": "evt_1", "a": NaN, "b": -Infinity}',
    "duplicate keys": b'{"id": "evt_0", "id": "evt_1", "a": 1, "a": 2}',
    "invalid UTF-8": b'{"id": "evt_1", "a": "\xff\xfe"}',
    "UTF-8 with BOM": b'\xef\xbb\xbf{"id": "evt_1"}',
    "UTF-16": '{"id": "evt_1"}'.encode("utf-16"),
    "not JSON": b"id=evt_1&a=b",
    "empty": b"",
    "NUL bytes": b"\x00" * 100,
    "line ends": b'{"id": "evt_1",\r\n\t"a": 1}\r\n',
    "a list": b'["evt_1"]',
}


# order of the steps


def spied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, by name, in order."""
    seen: list[str] = []
    facts, verify = Provider.facts, receive.verify

    def watch_facts(self: Provider, delivery: Delivery, outer: Any = None) -> Facts:
        seen.append("parse")
        return facts(self, delivery, outer)

    def watch_verify(*args: Any) -> Any:
        seen.append("verify")
        return verify(*args)

    monkeypatch.setattr(Provider, "facts", watch_facts)
    monkeypatch.setattr(receive, "verify", watch_verify)
    return seen


async def test_a_forged_request_is_neither_parsed_nor_stored(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid JSON with a bad signature: the parser is not called, and no row of any kind is written."""
    seen = spied(monkeypatch)
    body = b'{"type": "invoice.paid"}'
    for event_id in ("evt_1", "evt_2"):
        forged = signed(acme(OTHER_SECRET), body, event_id, box.clock.time())
        with pytest.raises(VerificationError):
            await box.inbox.accept("acme", body, as_text(forged))
    assert seen == ["verify", "verify"]
    assert [box.place.count(table) for table in ("receipt", "body", "delivery", "attempt", "audit")] == [0] * 5
    await box.send()
    assert seen == ["verify", "verify", "verify", "parse"]


async def test_a_forged_id_does_not_suppress_the_real_event(box: Box) -> None:
    """A forger who knows the id of a coming event keeps nothing from being accepted and applied."""

    @box.source.on("*")
    def apply(event: Any, conn: Any) -> None:
        conn.execute(f"INSERT INTO effect (note) VALUES ('{event.id}')")

    for _ in range(3):
        forged = signed(acme(OTHER_SECRET), b"{}", "evt_1", box.clock.time())
        with pytest.raises(VerificationError):
            await box.inbox.accept("acme", b"{}", as_text(forged))
    assert (await box.send("evt_1")).verdict == "accepted"
    await box.drain()
    assert box.place.effects() == ["evt_1"]


def test_encodings_are_refused_before_anything_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed body is refused with its own reason and is not even verified, unless the source allows it."""
    seen = spied(monkeypatch)
    body = b"\x1f\x8b..."
    headers = signed(bare(), body, "evt_1", NOW)
    for coding in (b"gzip", b"GZIP", b"br", b"deflate", b"gzip, identity", b"\xff"):
        with pytest.raises(VerificationError) as caught:
            receiver(bare()).arrive(Delivery("bare", [*headers, (b"content-encoding", coding)], body))
        assert caught.value.reason is Reason.ENCODING_REFUSED
    assert seen == []
    allowed = bare(content_encodings=("gzip",))
    for which, coding in ((bare(), b"identity"), (bare(), b""), (allowed, b"gzip"), (allowed, b"Gzip")):
        arrival = receiver(which).arrive(Delivery("bare", [*headers, (b"content-encoding", coding)], body))
        assert arrival.body == body


def test_an_id_that_is_missing_is_refused() -> None:
    """Readable, authentic, and without an id where it should be: refused, for an id is never made up."""
    for endpoint, body in ((stripe(), b'{"type": "a"}'), (stripe(), b'{"id": ""}'), (stripe(), b'{"id": {"a": 1}}')):
        with pytest.raises(VerificationError) as caught:
            receiver(endpoint).arrive(Delivery(endpoint.name, signed(endpoint, body, "x", NOW), body))
        assert caught.value.reason is Reason.ID_MISSING


async def test_an_unreadable_body_is_kept_and_marked(place: Place) -> None:
    """Authentic and not JSON: stored under its bytes, marked, once however often it comes, and failed as unreadable."""
    inbox = place.inbox(stripe(), clock=SetClock(NOW))
    ran: list[str] = []

    @inbox.registry.sources["stripe"].on("*")
    def read(event: Any) -> None:
        ran.append(event.id)
        event.data  # noqa: B018

    body = b'{"id": "evt_1", '
    verdicts = [
        (await inbox.accept("stripe", body, as_text(signed(stripe(), body, "", NOW + late)))).verdict for late in (0, 9)
    ]
    assert verdicts == ["accepted", "duplicate"]
    assert place.sql("SELECT event_id, problem, state FROM hookonce_receipt") == [(None, "not_json", "received")]
    assert place.bodies() == [body]
    backend = inbox._factory()
    worker = inbox.worker(backend)
    await worker.drain()
    assert place.sql("SELECT state, result, attempts FROM hookonce_receipt") == [("failed", "unreadable", 1)]
    assert ran == ["receipt:1"]
    await backend.close()
    await place.close()


# the exact bytes


async def test_awkward_bodies_come_back_byte_for_byte(place: Place) -> None:
    """Whatever JSON is made of it: what was signed is what is stored."""
    endpoints = (bare(event_id="header:X-Id|body:id"), stripe())
    inbox = place.inbox(*endpoints, clock=SetClock(NOW))
    expected = []
    for name, body in AWKWARD.items():
        for endpoint in endpoints:
            headers = as_text(signed(endpoint, body, f"evt {name}", NOW))
            try:
                stored = await inbox.accept(endpoint.name, body, headers)
            except VerificationError as error:
                assert error.reason is Reason.ID_MISSING
                continue
            expected.append((stored.receipt_id, body))
    kept = place.sql("SELECT receipt_id, raw FROM hookonce_body ORDER BY receipt_id")
    # The second source gives most of them the same id: its first body wins, the others are kept as evidence.
    evidence = place.sql("SELECT receipt_id, raw FROM hookonce_delivery WHERE raw IS NOT NULL")
    assert sorted(expected) == sorted((receipt_id, bytes(raw)) for receipt_id, raw in [*kept, *evidence])
    assert {body for _, body in expected} == set(AWKWARD.values())
    await place.close()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(st.binary(max_size=600), min_size=1, max_size=12))
async def test_any_bytes_come_back_byte_for_byte(place: Place, bodies: list[bytes]) -> None:
    """Bodies of any bytes, signed and accepted together, are in the database as they came."""
    inbox = place.inbox(bare(), clock=SetClock(NOW))
    first = place.count("body")
    stored = [
        await inbox.accept("bare", body, as_text(signed(bare(), body, f"evt_{first}_{number}", NOW)))
        for number, body in enumerate(bodies)
    ]
    assert {one.verdict for one in stored} == {"accepted"}
    assert place.bodies()[first:] == bodies
    await place.close()


async def test_ids_of_any_length_and_alphabet_are_told_apart(place: Place) -> None:
    """Ids of up to a megabyte that differ in their last character are two events; each is known when it comes again."""
    inbox = place.inbox(stripe(), clock=SetClock(NOW))
    ids = ["\x00", "\x00\x00", "\ud800", "\udfff", "é", "e\u0301", "A", "a", "a ", "\u2028", "x" * 512, "x" * 513]
    ids += ["y" * 1_000_000 + "1", "y" * 1_000_000 + "2", "\U0001f600" * 10_000]
    for verdict in ("accepted", "duplicate"):
        for event_id in ids:
            body = json.dumps({"id": event_id}).encode()
            stored = await inbox.accept("stripe", body, as_text(signed(stripe(), body, "", NOW)))
            assert stored.verdict == verdict, event_id[:20]
    assert place.count("receipt") == len(ids)
    shown = [row[0] for row in place.sql("SELECT event_id FROM hookonce_receipt")]
    assert all(text.isprintable() and len(text) <= 512 for text in shown)
    await place.close()


async def test_trace_parents_of_any_bytes_are_no_reason_to_refuse(place: Place) -> None:
    """A traceparent header that no column could hold is left out; the event is accepted."""
    inbox = place.inbox(bare(), clock=SetClock(NOW))
    good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for number, value in enumerate((good, "\x00" * 55, "\x1b" * 55, "é" * 55, "x" * 54)):
        headers = as_text(signed(bare(), b"{}", f"evt_{number}", NOW)) | {"traceparent": value}
        assert (await inbox.accept("bare", b"{}", headers)).verdict == "accepted"
    kept = place.sql("SELECT trace_parent FROM hookonce_receipt ORDER BY id")
    assert kept == [(good,), (None,), (None,), (None,), (None,)]
    await place.close()


async def test_credentials_in_headers_are_not_kept(place: Place) -> None:
    """What the sender says about itself is kept; what would open doors elsewhere is not."""
    inbox = place.inbox(bare(), clock=SetClock(NOW))
    headers = as_text(signed(bare(), b"{}", "evt_1", NOW)) | {
        "User-Agent": "Acme/1",
        "Authorization": "Bearer canary",
        "Cookie": "canary",
        "Set-Cookie": "canary",
        "Proxy-Authorization": "canary",
    }
    await inbox.accept("bare", b"{}", headers)
    ((kept,),) = place.sql("SELECT headers FROM hookonce_body")
    assert b"user-agent: Acme/1" in bytes(kept)
    assert b"canary" not in bytes(kept) and b"cookie" not in bytes(kept).lower()
    await place.close()


# what is kept of an event, and for how long


async def test_a_duplicate_is_known_long_after_its_sender_gave_up(box: Box) -> None:
    """Three days, a month and more than a year later the same event is a duplicate, and is not applied again."""

    @box.source.on("*")
    def apply(event: Any, conn: Any) -> None:
        conn.execute(f"INSERT INTO effect (note) VALUES ('{event.id}')")

    await box.send()
    for days in (3, 31, 400):
        box.clock.advance(days * 86_400.0)
        await box.drain()
        assert (await box.send()).verdict == "duplicate"
    await box.drain()
    assert box.place.effects() == ["evt_1"]


@pytest.mark.parametrize("hold", [False, True])
async def test_an_untested_api_version_is_counted_and_waits_where_asked(place: Place, hold: bool) -> None:
    """Its version is kept and counted once; with hold_other_versions only a person lets it run."""
    clock = SetClock(NOW)
    endpoint = Stripe("whsec_tests", tested_version="2025-09-30.clover", hold_other_versions=hold)
    inbox = place.inbox(endpoint, clock=clock)

    @inbox.registry.sources["stripe"].on("*")
    def apply(event: Any, conn: Any) -> None:
        conn.execute(f"INSERT INTO effect (note) VALUES ('{event.id} {event.api_version}')")

    for event_id, version in (("evt_1", "2025-09-30.clover"), ("evt_2", "2026-01-28"), ("evt_2", "2026-01-28")):
        body = json.dumps({"id": event_id, "api_version": version}).encode()
        await inbox.accept("stripe", body, as_text(signed(endpoint, body, "", NOW)))
    assert place.sql("SELECT api_version FROM hookonce_receipt ORDER BY id") == [
        ("2025-09-30.clover",),
        ("2026-01-28",),
    ]
    assert 'hookonce_untested_version_total{source="stripe"} 1' in inbox.counters.lines()
    clock.advance(365 * 86_400.0)
    backend = inbox._factory()
    await inbox.worker(backend).drain()
    assert place.states() == ["processed", "waiting" if hold else "processed"]
    if hold:
        assert place.effects() == ["evt_1 2025-09-30.clover"]
        ((waiting,),) = place.sql("SELECT id FROM hookonce_receipt WHERE state = 'waiting'")
        await backend.run(act(waiting, Act(action="replay", actor="ann", reason="read"), now=clock.override))
        await inbox.worker(backend).drain()
    assert place.effects() == ["evt_1 2025-09-30.clover", "evt_2 2026-01-28"]
    await backend.close()
    await place.close()


# ids that nobody signed


async def test_a_body_replayed_under_another_delivery_id_is_no_second_event(place: Place) -> None:
    """GitHub's id is in a header that nobody signs: the same signed bytes under a new id change nothing."""
    inbox = place.inbox(github(), clock=SetClock(NOW))

    @inbox.registry.sources["github"].on("*")
    def apply(event: Any, conn: Any) -> None:
        conn.execute(f"INSERT INTO effect (note) VALUES ('{event.id}')")

    async def send(body: bytes, delivery: str) -> str:
        return (await inbox.accept("github", body, as_text(signed(github(), body, delivery, NOW)))).verdict.value

    verdicts = [await send(b'{"n": 1}', "d1"), await send(b'{"n": 1}', "d1"), await send(b'{"n": 1}', "d2")]
    verdicts += [await send(b'{"n": 2}', "d1"), await send(b'{"n": 2}', "d3"), await send(b'{"n": 2}', "d2")]
    assert verdicts == ["accepted", "duplicate", "suspect_replay", "mismatch", "accepted", "suspect_replay"]
    assert place.verdicts() == ["duplicate", "suspect_replay", "mismatch", "suspect_replay"]
    backend = inbox._factory()
    await inbox.worker(backend).drain()
    assert place.effects() == ["d1", "d3"]
    await backend.close()
    await place.close()


def test_a_signed_id_needs_no_guard() -> None:
    """Where the id is signed the same bytes under another id are another event; a guard would suppress it."""
    guards = []
    for endpoint, body in ((acme(), b"{}"), (bare(), b"{}"), (stripe(), b'{"id": "evt_1"}'), (github(), b"{}")):
        arrival = receiver(endpoint).arrive(Delivery(endpoint.name, signed(endpoint, body, "evt_1", NOW), body))
        guards.append(arrival.guard is not None)
    assert guards == [False, False, False, True]


# rates


def test_addresses_are_remembered_within_bounds() -> None:
    """A hundred thousand addresses take the memory of ten thousand."""
    which = receiver(acme(), bounds=Bounds(address_rate=10.0))
    for number in range(100_000):
        which.admit("acme", f"address {number}")
    assert len(which._by_address) <= ADDRESSES_MAX
    for number in range(1_000):
        which.admit(f"unknown {number}", "one address")
    assert len(which._by_source) <= 2


def test_a_noisy_address_is_held_back_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One address over its rate is told when to come again; it neither takes the tokens of others nor of the source."""
    monkeypatch.setattr(receive.time, "monotonic", lambda: 1_000.0)
    which = receiver(acme(), bounds=Bounds(address_rate=10.0, source_rate=100.0))
    waits = [which.admit("acme", "noisy") for _ in range(1_000)]
    assert waits[:20] == [0.0] * 20
    assert all(0 < wait <= 0.1 for wait in waits[20:])
    assert [which.admit("acme", f"quiet {number}") for number in range(150)] == [0.0] * 150


def test_a_noisy_source_starves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source over its rate, and any number of sources that do not exist, leave the others their share."""
    now = [1_000.0]
    monkeypatch.setattr(receive.time, "monotonic", lambda: now[0])
    which = receiver(acme(), bare(), bounds=Bounds(source_rate=5.0, address_rate=0.0))
    held = sum(which.admit("acme", f"a{n}") > 0 for n in range(100))
    held_unknown = sum(which.admit(f"unknown {n}", f"b{n}") > 0 for n in range(100))
    assert (held, held_unknown) == (90, 90)
    assert [which.admit("bare", f"c{n}") for n in range(10)] == [0.0] * 10
    wait = which.admit("acme", "a")
    now[0] += wait + 0.001
    assert which.admit("acme", "a") == 0.0
    assert which.admit("acme", "a") > 0.0


@pytest.mark.parametrize("rate", [0.01, 0.4, 1.0, 3.0])
def test_a_low_rate_lets_somebody_in(rate: float) -> None:
    """Less than one request a second is still one now and then, at the rate that was asked for."""
    buckets = Buckets(rate)
    let_in = sum(buckets.take("a", float(second)) == 0.0 for second in range(1_000))
    assert abs(let_in - min(1.0, rate) * 1_000) <= 3


def test_a_rate_of_nothing_is_no_limit() -> None:
    """0 switches a limit off, and remembers nobody."""
    buckets = Buckets(0.0)
    assert [buckets.take(str(number), 1.0) for number in range(100)] == [0.0] * 100
    assert len(buckets) == 0


def test_correlation_ids_are_never_given_twice() -> None:
    """Two receivers, many arrivals, no id twice."""
    counted = itertools.count()
    seen = set()
    for which in (receiver(acme()), receiver(acme())):
        for _ in range(100):
            seen.add(one_arrival(which, acme(), f"evt_{next(counted)}"))
    assert len(seen) == 200


def one_arrival(which: Receiver, endpoint: Endpoint, event_id: str) -> str:
    return which.arrive(Delivery(endpoint.name, signed(endpoint, b"{}", event_id, NOW), b"{}")).correlation_id
