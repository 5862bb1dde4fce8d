"""Stage verify: a yes or a VerificationError, whatever the bytes, and secrets that change without a refusal."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookonce import Event, Secret, VerificationError
from hookonce.clock import SetClock
from hookonce.errors import Reason
from hookonce.flow.operate import Act, act
from hookonce.flow.receive import Bounds, Receiver
from hookonce.flow.verify import verify, verify_nobody
from hookonce.model import Arrival, Delivery
from hookonce.providers import Endpoint
from hookonce.registry import Registry, Source
from tests.flow.box import OTHER_SECRET, SECRET, Box, Place, acme, as_text, bare, github, signed, stripe, wrote

NOW = 1_800_000_000.0
HEADER_NAMES = [
    b"webhook-id",
    b"webhook-signature",
    b"webhook-timestamp",
    b"svix-id",
    b"stripe-signature",
    b"x-hub-signature-256",
    b"x-github-delivery",
    b"x-sig",
    b"x-id",
    b"content-encoding",
    b"traceparent",
]


def receiver(*endpoints: Endpoint, clock: SetClock | None = None, bounds: Bounds | None = None) -> Receiver:
    registry = Registry()
    for endpoint in endpoints:
        registry.add(Source(endpoint, lambda _: None))
    return Receiver(registry, clock or SetClock(NOW), bounds or Bounds())


ALL = receiver(acme(), bare(), github(), stripe())


@settings(deadline=None, max_examples=300)
@given(
    source=st.sampled_from(["acme", "bare", "github", "stripe", "nobody"]),
    headers=st.lists(st.tuples(st.sampled_from(HEADER_NAMES), st.binary(max_size=80)), max_size=6),
    body=st.binary(max_size=200),
)
def test_no_bytes_raise_anything_but_a_verification_error(
    source: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    """Arbitrary bytes in every header that is read, and in the body: refused, never an exception of another kind."""
    with pytest.raises(VerificationError):
        ALL.arrive(Delivery(source, headers, body))


@settings(deadline=None, max_examples=150)
@given(header=st.binary(max_size=400), value=st.binary(max_size=80), length=st.sampled_from([1, 50, 2_600]))
def test_signed_requests_with_any_id_and_header_arrive_or_are_refused(header: bytes, value: bytes, length: int) -> None:
    """An id of 0 to 1 MB of any bytes, in a request that is signed: an arrival, or a VerificationError."""
    identity = header * length
    body = b"{}"
    headers = [
        *signed(bare(), body, identity.decode("latin-1"), NOW),
        (b"traceparent", value),
        (b"x-anything", value),
    ]
    try:
        arrival = ALL.arrive(Delivery("bare", headers, body))
    except VerificationError as error:
        assert error.reason in (Reason.ID_MISSING, Reason.SIGNATURE_MALFORMED, Reason.SIGNATURE_MISMATCH)
    else:
        assert len(arrival.key) == 32


@settings(deadline=None, max_examples=150)
@given(body=st.one_of(st.binary(max_size=300), st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace"))))
def test_signed_bodies_of_any_bytes_arrive_or_are_refused(body: bytes) -> None:
    """A body of any bytes that is signed: an arrival, or a refusal for its missing id."""
    for endpoint in (acme(), bare(), github(), stripe()):
        try:
            arrival = ALL.arrive(Delivery(endpoint.name, signed(endpoint, body, "evt_1", NOW), body))
        except VerificationError as error:
            assert error.reason is Reason.ID_MISSING
        else:
            assert arrival.body == body


def test_a_scheme_that_breaks_does_not_open_the_door() -> None:
    """An exception nobody foresaw inside a scheme is a refusal."""

    class Broken:
        def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> None:
            raise ZeroDivisionError

    endpoint = bare()
    object.__setattr__(endpoint.provider, "scheme", Broken())
    with pytest.raises(VerificationError) as caught:
        verify(endpoint, Delivery("bare", [], b""), NOW)
    assert caught.value.reason is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_an_unknown_source_costs_the_hashing_of_a_known_one(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a source exists cannot be told from the work: its body is hashed once in both cases."""
    hashed: list[int] = []
    real = hmac.digest

    def counting(key: bytes, message: bytes, name: str) -> bytes:
        hashed.append(len(message))
        return real(key, message, name)

    body = b"x" * size
    forged = signed(acme(OTHER_SECRET), body, "evt_1", NOW)
    work = {}
    monkeypatch.setattr(hmac, "digest", counting)
    for source in ("acme", "unknown", "another"):
        hashed.clear()
        with pytest.raises(VerificationError):
            ALL.arrive(Delivery(source, forged, body))
        work[source] = (len(hashed), sum(hashed))
    assert work["unknown"] == work["another"]
    assert sum(length >= size for length in hashed) >= 1
    assert abs(work["unknown"][1] - work["acme"][1]) < 100
    assert work["acme"][0] == 1 and work["unknown"][0] <= 2


def test_nobody_is_always_refused() -> None:
    """The source that stands for unknown ones opens nothing."""
    with pytest.raises(VerificationError) as caught:
        verify_nobody(Delivery("", [], b""), NOW)
    assert caught.value.reason is Reason.UNKNOWN_SOURCE


@pytest.mark.parametrize(("age", "good"), [(299, True), (300, True), (301, False), (-300, True), (-301, False)])
def test_the_window_is_closed_on_both_sides(age: int, good: bool) -> None:
    """A signature is good for 300 seconds, in both directions, and not for one more."""
    delivery = Delivery("acme", signed(acme(), b'{"type": "a"}', "evt_1", NOW - age), b'{"type": "a"}')
    if good:
        assert ALL.arrive(delivery).facts.event_id == "evt_1"
        return
    with pytest.raises(VerificationError) as caught:
        ALL.arrive(delivery)
    assert caught.value.reason in (Reason.TOO_OLD, Reason.IN_THE_FUTURE)


def test_reordered_and_respaced_json_is_refused() -> None:
    """The signature is over the bytes: the same JSON in other bytes does not pass."""
    body = b'{"a": 1, "b": "\xc3\xa9"}'
    headers = signed(acme(), body, "evt_1", NOW)
    for other in (b'{"b": "\xc3\xa9", "a": 1}', b'{"a":1,"b":"\xc3\xa9"}', b'{"a": 1, "b": "\\u00e9"}', body + b"\n"):
        with pytest.raises(VerificationError):
            ALL.arrive(Delivery("acme", headers, other))


def test_the_secret_of_one_source_opens_no_other() -> None:
    """Test, CLI and production have sources of their own: what one signs, no other takes."""
    one, other = acme(SECRET), acme(OTHER_SECRET)
    with pytest.raises(VerificationError):
        receiver(other).arrive(Delivery("acme", signed(one, b"{}", "evt_1", NOW), b"{}"))


async def test_a_rotation_refuses_nothing(place: Place) -> None:
    """Old secret, both, new secret: every event of a sender that changes over meanwhile is accepted once."""
    clock = SetClock(NOW)
    changeover = datetime.fromtimestamp(NOW + 100, UTC)
    old = Secret(value=SECRET.encode(), label="old", not_after=changeover)
    endpoint = acme([old, OTHER_SECRET])
    inbox = place.inbox(endpoint, clock=clock)
    for number in range(20):
        sender = 0 if number < 9 else 1
        headers = signed(endpoint, b'{"type": "a"}', f"evt_{number}", clock.time(), secret=sender)
        stored = await inbox.accept("acme", b'{"type": "a"}', as_text(headers))
        assert stored.verdict == "accepted"
        clock.advance(10)
    late = signed(endpoint, b'{"type": "a"}', "evt_99", clock.time(), secret=0)
    with pytest.raises(VerificationError):
        await inbox.accept("acme", b'{"type": "a"}', as_text(late))
    used = place.sql("SELECT secret_id, count(*) FROM hookonce_receipt GROUP BY secret_id ORDER BY min(id)")
    assert used == [(old.id, 9), (Secret(value=OTHER_SECRET.encode()).id, 11)]
    await place.close()


def arrive(which: Receiver, endpoint: Endpoint, body: bytes, event_id: str, now: float = NOW) -> Arrival:
    return which.arrive(Delivery(endpoint.name, signed(endpoint, body, event_id, now), body))


def test_the_age_of_events_is_a_setting_of_its_own() -> None:
    """A well-signed event that happened too long ago is refused only where that is asked for."""
    body = b'{"type": "a", "timestamp": "2026-01-01T00:00:00Z"}'
    assert arrive(receiver(acme()), acme(), body, "evt_1").facts.event_time is not None
    with pytest.raises(VerificationError) as caught:
        arrive(receiver(acme(), bounds=Bounds(event_age_seconds=3_600.0)), acme(), body, "evt_1")
    assert caught.value.reason is Reason.EVENT_TOO_OLD


async def test_a_replay_is_not_asked_for_its_age(box: Box) -> None:
    """Signature and event are long too old to be received: what is ours already can be replayed all the same."""

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, f"generation {event.generation}")

    await box.send()
    await box.drain()
    box.inbox.adjust(bounds={"event_age_seconds": 1.0})
    box.clock.advance(100 * 86_400.0)
    await box.backend().run(act(1, Act(action="replay", actor="ann", reason="to see"), now=box.clock.override))
    await box.drain()
    assert box.place.effects() == ["generation 0", "generation 1"]
    assert box.place.receipt("secret_id") == (box.source.endpoint.secrets[0].id,)


@pytest.mark.parametrize(
    ("endpoint", "bodies"),
    [
        (stripe(), (b'{"id": "evt_1"}', b'{"id": "evt_2"}')),
        (acme(), (b"{}", b"{}")),
        (bare(), (b"{}", b"{}")),
        (github(), (b"{}", b"{}")),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_retry_has_the_key_of_the_first(endpoint: Endpoint, bodies: tuple[bytes, bytes]) -> None:
    """Provider by provider: signed anew hours later the same event has the same key, and another event has another."""
    clock = SetClock(NOW)
    which = receiver(endpoint, clock=clock)
    keys = []
    for _ in range(3):
        pair = [arrive(which, endpoint, body, f"evt_{n}", clock.time()).key for n, body in enumerate(bodies, start=1)]
        keys.append(tuple(pair))
        clock.advance(5_000)
    assert len(set(keys)) == 1
    assert len(set(keys[0])) == 2


def test_neighbouring_identities_do_not_collide() -> None:
    """The same id at two sources, accounts or beside a body key gives different identities; the same again, the same."""
    keyed = acme(account="body:account")
    both = receiver(keyed, bare(name="other"))
    keys = [
        arrive(both, keyed, b'{"account": "a"}', "evt_1").key,
        arrive(both, keyed, b'{"account": "b"}', "evt_1").key,
        arrive(both, keyed, b'{"account": "aevt"}', "_1").key,
        arrive(both, bare(name="other"), b'{"account": "a"}', "evt_1").key,
    ]
    assert len(set(keys)) == 4
    assert arrive(both, keyed, b'{"account": "a", "x": 1}', "evt_1").key == keys[0]
