"""Samples: the same for the same seed, verifiable once signed, and read like the real thing."""

from __future__ import annotations

import json

import pytest

from hookonce.model import Delivery
from hookonce.providers import PROVIDERS
from hookonce.providers.samples import sample

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_800_000_000.0
TYPES = [
    ("stripe", "invoice.paid", "in_"),
    ("stripe", "payout.paid", "po_"),
    ("stripe", "payout.created", "po_"),
    ("stripe", "charge.refunded", "ch_"),
    ("stripe", "customer.subscription.updated", "sub_"),
    ("stripe", "checkout.session.completed", "cs_"),
    ("stripe", "issuing_card.created", "issu_"),
    ("stripe", "ping", "ping_"),
    ("github", "push", None),
    ("github", "pull_request.opened", None),
    ("github", "issues.opened", None),
    ("github", "ping", None),
    ("github", "release.published", None),
    ("standard_webhooks", "user.created", ""),
    ("hmac", "order.shipped", "obj_"),
]


def endpoint_of(provider: str):
    """An endpoint of each provider, with the locators that fit the generic sample."""
    extra = {"hmac": {"header": "X-Sig", "event_id": "body:id", "type": "body:type", "object_id": "body:data.id"}}
    return PROVIDERS[provider](WHSEC, **extra.get(provider, {}))


@pytest.mark.parametrize(("provider", "kind", "prefix"), TYPES)
def test_a_signed_sample_is_a_genuine_request(provider, kind, prefix):
    """It verifies, and says the id, the type and the object that were asked for."""
    endpoint = endpoint_of(provider)
    made = sample(provider, kind, event_id="evt_7", seed=1)
    headers = made.headers + endpoint.provider.scheme.sign(made.body, endpoint.secrets[0], NOW, "evt_7")
    request = Delivery(endpoint.name, headers, made.body)
    endpoint.provider.scheme.verify(request, endpoint.secrets, NOW)
    facts = endpoint.provider.facts(request)
    assert (facts.event_id, facts.type, facts.problem) == ("evt_7", kind, None)
    assert facts.object_id is None if prefix is None else facts.object_id.startswith(prefix)


@pytest.mark.parametrize(("provider", "kind", "prefix"), TYPES)
def test_the_seed_decides(provider, kind, prefix):
    """The same seed gives the same bytes, another one gives others, with an id of its own."""
    first, again, other = (sample(provider, kind, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.body != other.body
    assert isinstance(json.loads(first.body), dict)


def test_the_time_can_be_said():
    """An event of a given moment, for tests about lateness and order."""
    facts = endpoint_of("stripe").provider.facts(Delivery("s", [], sample("stripe", "invoice.paid", created=1234).body))
    assert facts.event_time == 1234.0


@pytest.mark.parametrize(("provider", "kind", "prefix"), TYPES)
def test_headers_are_what_a_delivery_holds(provider, kind, prefix):
    """Lower-case names, each once, with a content type and a user agent."""
    names = [name for name, _ in sample(provider, kind).headers]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() for name in names)
    assert {b"content-type", b"user-agent"} <= set(names)
