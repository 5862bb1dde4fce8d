"""Every provider we know: what it sends is accepted, read rightly, and refused as soon as anything about it is wrong."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookonce.errors import Reason, VerificationError
from hookonce.flow.verify import verify
from hookonce.model import Delivery, Secret
from hookonce.providers import PROVIDERS
from hookonce.providers.base import Endpoint
from hookonce.providers.known import REGISTERED, Known
from hookonce.providers.samples import sample

NOW = 1_800_000_000.0
YEAR = 365 * 86_400.0
URL = "https://example.com/webhooks/source"
ALL = sorted(REGISTERED)


@cache
def made_secret(name: str, number: int) -> Secret:
    return Secret(value=REGISTERED[name].new_secret())


def secret_of(name: str, number: int = 0) -> Secret:
    return made_secret(name, number)


@cache
def endpoint_of(name: str) -> Known:
    declared = REGISTERED[name]
    options: dict[str, Any] = {"url": URL} if declared.url_needed else {}
    return declared([secret_of(name)], **{**options, **declared.sample_options})


@cache
def delivery_of(name: str, at: float = NOW, number: int = 0) -> Delivery:
    """A genuine request with one event."""
    declared, endpoint = REGISTERED[name], endpoint_of(name)
    made = sample(name, declared.sample_type, event_id=declared.sample_id, seed=7, created=int(at))
    unsigned = Delivery(name, made.headers, made.body, "/webhooks/source", made.query)
    return endpoint.provider.scheme.seal(unsigned, secret_of(name, number), at, declared.sample_id or "msg_1")


def facts_of(endpoint: Endpoint, delivery: Delivery) -> Any:
    """What the event says, alone or in its batch."""
    provider = endpoint.provider
    if provider.split is None:
        return provider.facts(delivery)
    (body, *_), outer = provider.split(delivery)
    return provider.facts(dataclasses.replace(delivery, body=body), outer)


def refusal(endpoint: Endpoint, delivery: Delivery, now: float = NOW) -> Reason:
    with pytest.raises(VerificationError) as caught:
        verify(endpoint, delivery, now)
    return caught.value.reason


@pytest.mark.parametrize("name", ALL)
def test_what_it_sends_is_accepted_and_read(name: str) -> None:
    """A sample signed as the provider signs verifies, and says its id, its type and its time."""
    endpoint, delivery = endpoint_of(name), delivery_of(name)
    declared = REGISTERED[name]
    verified = verify(endpoint, delivery, NOW)
    assert verified.secret_id == secret_of(name).id
    facts = facts_of(endpoint, delivery)
    assert facts.problem is None
    assert facts.type == declared.sample_type, facts
    if declared.locators.event_id is None:
        assert endpoint.provider.fingerprint
    else:
        assert facts.event_id is not None, facts
        if declared.sample_id is not None and isinstance(declared.locators.event_id, str):
            assert facts.event_id == declared.sample_id
    if declared.locators.event_time is not None:
        assert facts.event_time == pytest.approx(NOW, abs=1.0), facts
    if declared.locators.object_id is not None:
        assert facts.object_id, facts


@pytest.mark.parametrize("name", ALL)
def test_a_changed_body_is_refused(name: str) -> None:
    """One byte more at the end of the body, unless the sender's signature does not cover the body at all."""
    endpoint, delivery = endpoint_of(name), delivery_of(name)
    changed = dataclasses.replace(delivery, body=delivery.body + b" ")
    if endpoint.provider.scheme.body_bound:
        assert refusal(endpoint, changed) in (Reason.SIGNATURE_MISMATCH, Reason.SIGNATURE_MALFORMED)
    else:
        assert REGISTERED[name].note, f"{name} does not say that the body is not covered"


@pytest.mark.parametrize("name", ALL)
def test_another_secret_is_refused(name: str) -> None:
    """A request that somebody else signed."""
    other = delivery_of(name, NOW, 1)
    assert refusal(endpoint_of(name), other) in (Reason.SIGNATURE_MISMATCH, Reason.SIGNATURE_MALFORMED)


@pytest.mark.parametrize("name", ALL)
def test_a_rotated_secret_is_accepted_beside_the_new_one(name: str) -> None:
    """Both secrets work for as long as both are configured; the receipt says which one it was."""
    declared = REGISTERED[name]
    options: dict[str, Any] = {"url": URL} if declared.url_needed else {}
    both = declared([secret_of(name, 1), secret_of(name)], **{**options, **declared.sample_options})
    assert verify(both, delivery_of(name), NOW).secret_id == secret_of(name).id
    assert verify(both, delivery_of(name, NOW, 1), NOW).secret_id == secret_of(name, 1).id


@pytest.mark.parametrize("name", ALL)
def test_stale_and_future_requests(name: str) -> None:
    """What is dated a year ahead is refused wherever a date is signed; a year back, wherever the declaration says so."""
    endpoint = endpoint_of(name)
    described = endpoint.provider.scheme.describe()["timestamp"]
    if described.startswith("none"):
        verify(endpoint, delivery_of(name), NOW + YEAR)
        return
    assert refusal(endpoint, delivery_of(name, NOW + YEAR)) is Reason.IN_THE_FUTURE
    if "any age" in described:
        verify(endpoint, delivery_of(name, NOW - YEAR), NOW)
    else:
        assert refusal(endpoint, delivery_of(name, NOW - YEAR)) is Reason.TOO_OLD


@pytest.mark.parametrize("name", ALL)
def test_without_its_signature_it_is_refused(name: str) -> None:
    """No headers, no query and an empty body; then each header of the genuine request in turn turned to garbage."""
    endpoint, delivery = endpoint_of(name), delivery_of(name)
    refusal(endpoint, Delivery(name, [], b""))
    refusal(endpoint, Delivery(name, [], b"{}"))
    for number, (header, _) in enumerate(delivery.headers):
        for garbage in (b"", b"\xff\xfe", b"v1=,t=", b"x" * 100_000):
            headers = list(delivery.headers)
            headers[number] = (header, garbage)
            try:
                verify(endpoint, dataclasses.replace(delivery, headers=headers), NOW)
            except VerificationError:
                continue


header_names = st.sampled_from(sorted({header for name in ALL for header, _ in delivery_of(name).headers}))
header_values = st.binary(max_size=60) | st.sampled_from(
    [b"1800000000", b"t=1800000000,v1=00", b"Bearer a.b.c", b"sha256=00"]
)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=25)
@given(
    headers=st.lists(st.tuples(header_names, header_values), max_size=6),
    body=st.binary(max_size=80) | st.sampled_from([b"[]", b"{}", b"[1]", b'{"events":[{}]}', b"a=b&c=d", b"a.b.c"]),
    query=st.binary(max_size=20),
)
def test_whatever_the_bytes_nothing_else_is_raised(name: str, headers: Any, body: bytes, query: bytes) -> None:
    """Headers, bodies and queries at random: refused with a VerificationError, and never read into an exception."""
    endpoint = endpoint_of(name)
    delivery = Delivery(name, headers, body, "/webhooks/source", query)
    with pytest.raises(VerificationError):
        verify(endpoint, delivery, NOW)
    with pytest.raises(VerificationError):
        # Not by the net below: the scheme itself names what is wrong.
        endpoint.provider.scheme.verify(delivery, endpoint.secrets, NOW)
    endpoint.provider.facts(delivery)
    if endpoint.provider.split is not None:
        try:
            bodies, outer = endpoint.provider.split(delivery)
        except (ValueError, RecursionError):
            return
        for one in bodies:
            endpoint.provider.facts(dataclasses.replace(delivery, body=one), outer)


def test_every_provider_says_what_a_person_needs_to_know() -> None:
    """A title, a sentence, how it retries, and a sample that looks like what it sends."""
    for name, declared in REGISTERED.items():
        assert PROVIDERS[name] is declared
        assert declared.title and declared.__doc__, name
        assert declared.retries_say, name
        assert declared.sample is not None or name in ("stripe", "github"), name
        assert declared.scheme.describe(), name
