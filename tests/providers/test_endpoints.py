"""Endpoints: what users declare, what is refused at once, and what each provider's requests say."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookonce.errors import ConfigurationError, VerificationError
from hookonce.model import Delivery, Facts, Secret
from hookonce.providers import PROVIDERS, Endpoint, GitHub, Hmac, StandardWebhooks, Stripe
from hookonce.providers.base import Profile, Provider, read_secrets
from hookonce.providers.known import REGISTERED
from hookonce.providers.locate import Locators
from hookonce.schemes import HmacScheme

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_800_000_000.0


def hmac(secret="s3cret", **options):
    """A generic endpoint in which only what matters to a test is said."""
    return Hmac(secret, **({"header": "X-Sig", "event_id": "body:id"} | options))


DECLARE = [Stripe, GitHub, StandardWebhooks, hmac]


@pytest.mark.parametrize("declare", DECLARE)
def test_an_endpoint_has_a_name_a_provider_and_secrets(declare):
    """The name is the provider's unless said otherwise, and the provider's name stays what it is."""
    endpoint = declare(WHSEC)
    assert endpoint.name == endpoint.provider.name
    renamed = declare(WHSEC, name="billing-eu_2")
    assert (renamed.name, renamed.provider) == ("billing-eu_2", endpoint.provider)
    assert isinstance(endpoint, Endpoint)
    with pytest.raises(FrozenInstanceError):
        endpoint.name = "other"


def test_the_mapping_knows_every_provider():
    """Configuration files find providers under the names that endpoints report."""
    assert {name: PROVIDERS[name].__name__ for name in ("stripe", "github", "standard_webhooks", "hmac", "token")} == {
        "stripe": "Stripe", "github": "GitHub", "standard_webhooks": "StandardWebhooks", "hmac": "Hmac", "token": "Token",
    }  # fmt: skip
    assert all(declare.id == name for name, declare in REGISTERED.items())
    assert set(REGISTERED) < set(PROVIDERS)


def test_a_new_provider_is_a_few_lines():
    """A scheme, where the facts are, and how it delivers: that is all, and every provider of ours is below 60 lines."""

    class Acme(Endpoint):
        def __init__(self, secret):
            provider = Provider(
                name="acme",
                scheme=HmacScheme(header="X-Acme-Signature", signed="{body}"),
                locators=Locators(event_id="body:uuid", type="body:kind", object_id="body:order", event_time="body:at"),
                profile=Profile(horizon_days=3.0, id_signed=True),
            )
            super().__init__("acme", provider, read_secrets(secret, name="acme"))

    acme, body = Acme("s3cret"), b'{"uuid": "e1", "kind": "order.paid", "order": "o1", "at": 1800000000}'
    request = Delivery("acme", acme.provider.scheme.sign(body, acme.secrets[0], NOW, ""), body)
    assert acme.provider.scheme.verify(request, acme.secrets, NOW).secret_id == acme.secrets[0].id
    facts = acme.provider.facts(request)
    assert (facts.event_id, facts.type, facts.object_id, facts.event_time) == ("e1", "order.paid", "o1", NOW)
    for known in (Acme, Stripe, GitHub, StandardWebhooks):
        assert len(inspect.getsourcelines(known)[0]) < 60


def test_an_api_version_to_hold_must_be_said():
    """Without the version that was tested every event would be held: refused, with the way out."""
    with pytest.raises(ConfigurationError, match="HO101") as caught:
        Stripe(WHSEC, hold_other_versions=True)
    assert "tested_version" in caught.value.do


@pytest.mark.parametrize("given_secret", [
    WHSEC, WHSEC.encode(), Secret(value=WHSEC.encode()), [WHSEC], (WHSEC.encode(),), [Secret(value=WHSEC.encode())],
])  # fmt: skip
@pytest.mark.parametrize("declare", DECLARE)
def test_secrets_come_in_every_form(declare, given_secret):
    """Text, bytes, a Secret, or several of them."""
    assert [secret.value for secret in declare(given_secret).secrets] == [WHSEC.encode()]


def test_several_secrets_keep_order_label_and_end():
    """For a rotation: what the user says about each secret is kept."""
    old = Secret(value=b"old", label="until May", not_after=datetime(2026, 5, 1, tzinfo=UTC))
    assert GitHub(["new", old]).secrets == (Secret(value=b"new"), old)


def test_bytes_from_the_environment_come_back():
    """A secret that is no UTF-8, read from os.environ, is signed with its original bytes."""
    assert GitHub(b"s\xffcret".decode("utf-8", "surrogateescape")).secrets[0].value == b"s\xffcret"


@pytest.mark.parametrize("secret", [
    None, "", b"", "   ", "\n", [], (), [None], ["good-secret", ""], 5, {"a": 1}, Secret(value=b""), Secret(value="text"),
    " s3cret", "s3cret ", "s3cret\n", b"s3cret\r\n", "\ts3cret", "\u00a0s3cret", ["good-secret", "s3cret\n"], "\ud800",
    Secret(value=b"s3cret\n"), Secret(value=b"s3cret", not_after=datetime(2030, 1, 1)),
    ["a1", "b2", "c3", "d4", "e5"],
])  # fmt: skip
@pytest.mark.parametrize("declare", DECLARE)
def test_a_secret_that_cannot_work_is_refused(declare, secret):
    """Missing, empty, padded by a line break, of another type, or too many: found at construction, and not shown."""
    with pytest.raises(ConfigurationError) as caught:
        declare(secret)
    assert caught.value.code == "HO101"
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["sk_", "rk_", "pk_"])
@pytest.mark.parametrize("form", [lambda s: s, str.encode, lambda s: Secret(value=s.encode()), lambda s: [WHSEC, s]])
def test_stripes_api_keys_are_no_signing_secrets(prefix, form):
    """The mistake is named; of the key, three characters are shown."""
    with pytest.raises(ConfigurationError) as caught:
        Stripe(form(prefix + "live_CANARY"))
    text = str(caught.value)
    assert f'starts with "{prefix}": that is an API key; a signing secret starts with "whsec_"' in text
    assert text.startswith("HO101")
    assert "live" not in text
    assert "CANARY" not in text


def test_every_problem_is_reported_at_once():
    """Two bad secrets are two problems, each with its number."""
    with pytest.raises(ConfigurationError) as caught:
        Stripe(["sk_live_1", WHSEC, ""])
    assert len(caught.value.problems) == 2
    assert "secret 1" in str(caught.value)
    assert "secret 3" in str(caught.value)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64!", "plain text secret", "whsec_a"])
def test_standard_webhooks_secrets_must_decode(secret):
    """A secret that is not base64 is refused with the way out, unless its text is said to be the key."""
    with pytest.raises(ConfigurationError, match='key="raw"'):
        StandardWebhooks(secret)
    assert StandardWebhooks(secret, key="raw").secrets[0].value == secret.encode()


@pytest.mark.parametrize("secret", ["whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
def test_asymmetric_keys_are_refused_by_name(secret):
    """A public or private key is told apart from a shared secret."""
    with pytest.raises(ConfigurationError, match="asymmetric"):
        StandardWebhooks(secret)


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a b", "a/b", "é", "a" * 64, "a\n", "a.b", 5])
@pytest.mark.parametrize("declare", DECLARE)
def test_a_name_must_fit_into_a_path(declare, name):
    """Names that would need escaping in a URL are refused."""
    with pytest.raises(ConfigurationError) as caught:
        declare(WHSEC, name=name)
    assert caught.value.code == "HO101"


@pytest.mark.parametrize("name", ["a", "0", "a" * 63, "billing-eu_2"])
def test_the_longest_and_the_shortest_name(name):
    """One to 63 characters."""
    assert GitHub("s", name=name).name == name


@pytest.mark.parametrize("event_id", [None, ""])
def test_a_generic_sender_must_say_where_the_id_is(event_id):
    """No id, no endpoint: an identity is never made from the body's hash."""
    with pytest.raises(ConfigurationError, match="where is the event's id") as caught:
        hmac(event_id=event_id)
    assert caught.value.code == "HO101"


@pytest.mark.parametrize(
    "options", [{"event_id": "id"}, {"event_id": 5}, {"type": "nowhere"}, {"signed": "x"}, {"header": ""}]
)
def test_a_generic_sender_that_cannot_work_is_refused(options):
    """Locators, template and header are checked at construction."""
    with pytest.raises(ConfigurationError) as caught:
        hmac(**options)
    assert caught.value.code == "HO101"


@pytest.mark.parametrize(
    ("options", "signed"),
    [
        ({"event_id": "body:id"}, True),
        ({"event_id": "header:X-Id"}, False),
        ({"event_id": "body:id|header:X-Id"}, False),
        ({"event_id": "header:X-Id", "signed": "{header:x-id}.{body}"}, True),
        ({"event_id": "header:X-Id|header:X-Other", "signed": "{header:X-Id}.{body}"}, False),
    ],
)
def test_knows_whether_the_id_is_signed(options, signed):
    """The template and the locator together say if an attacker could replay a body under a new id."""
    assert hmac(**options).provider.profile.id_signed is signed


def test_profiles_say_what_the_design_relies_on():
    """Horizon, retries, time limit and whether the id is signed, provider by provider."""
    profiles = {
        name: declare(WHSEC).provider.profile
        for name, declare in PROVIDERS.items()
        if name in ("stripe", "github", "standard_webhooks")
    }
    assert {name: (p.retries, p.horizon_days, p.timeout_seconds, p.id_signed) for name, p in profiles.items()} == {
        "stripe": (True, 30.0, 10.0, True),
        "github": (False, 3.0, 10.0, False),
        "standard_webhooks": (True, 30.0, 15.0, True),
    }
    assert all(profile.content_encodings == () for profile in profiles.values())


def test_a_generic_profile_is_what_the_user_says():
    """Everything about delivery can be set."""
    profile = hmac(
        retries=False, horizon_days=2, timeout_seconds=3, plain_ok=True, content_encodings=("gzip",)
    ).provider.profile
    assert (profile.retries, profile.horizon_days, profile.timeout_seconds) == (False, 2, 3)
    assert (profile.plain_ok, profile.content_encodings) == (True, ("gzip",))


def test_github_facts():
    """Id and type come from the headers, the action from the body."""
    provider = GitHub("s").provider
    headers = [(b"x-github-event", b"pull_request"), (b"x-github-delivery", b"72d3162e")]
    opened = Facts(event_id="72d3162e", delivery_id="72d3162e", type="pull_request.opened")
    assert provider.facts(Delivery("github", headers, b'{"action":"opened"}')) == opened
    assert provider.facts(Delivery("github", headers, b"{}")).type == "pull_request"
    assert provider.facts(Delivery("github", [], b'{"action":"opened"}')) == Facts()


def test_stripe_facts_of_a_thin_event():
    """The newer events name their object and their account elsewhere, and write the time as text."""
    body = (
        b'{"id":"evt_test_65","object":"v2.core.event","type":"v1.billing.meter.error_report_triggered","livemode":true,'
        b'"created":"2024-09-17T06:20:52.246Z","context":"acct_1","related_object":{"id":"mtr_test_61","type":"billing.meter"}}'
    )
    facts = Stripe(WHSEC).provider.facts(Delivery("stripe", [], body))
    assert (facts.event_id, facts.object_id, facts.account) == ("evt_test_65", "mtr_test_61", "acct_1")
    assert facts.event_time == pytest.approx(1726554052.246)


def test_stripe_connect_accounts_are_kept_apart():
    """The connected account is part of the facts."""
    body = b'{"id":"evt_1","type":"charge.refunded","account":"acct_9","data":{"object":{"id":"ch_1"}},"created":5}'
    facts = Stripe(WHSEC).provider.facts(Delivery("stripe", [], body))
    assert facts == Facts(event_id="evt_1", type="charge.refunded", object_id="ch_1", account="acct_9", event_time=5.0)


@pytest.mark.parametrize("family", [b"webhook", b"svix"])
def test_standard_webhooks_facts(family):
    """The id is the one that was signed, in either header family."""
    facts = StandardWebhooks(WHSEC).provider.facts(
        Delivery(
            "sw", [(family + b"-id", b"msg_1")], b'{"type":"a","timestamp":"2023-11-14T22:13:20Z","data":{"id":7}}'
        )
    )
    assert facts == Facts(event_id="msg_1", type="a", object_id="7", event_time=1700000000.0)


names = st.sampled_from([b"webhook-id", b"svix-id", b"webhook-signature", b"webhook-timestamp"])


@given(
    st.lists(st.tuples(names, st.sampled_from([b"", b"msg_1", b"msg_2", b"1800000000", b"v1,x"])), max_size=3),
    st.booleans(),
)
def test_no_unsigned_header_becomes_the_identity(extra, svix):
    """Whatever is added to a genuine request, it is refused or keeps the id that was signed."""
    endpoint = StandardWebhooks(WHSEC)
    scheme = endpoint.provider.scheme
    headers = scheme.sign(b"{}", endpoint.secrets[0], NOW, "msg_signed")
    if svix:
        headers = [(name.replace(b"webhook", b"svix"), value) for name, value in headers]
    for request in (Delivery("sw", [*extra, *headers], b"{}"), Delivery("sw", [*headers, *extra], b"{}")):
        try:
            scheme.verify(request, endpoint.secrets, NOW)
        except VerificationError:
            continue
        assert endpoint.provider.facts(request).event_id == "msg_signed"


@pytest.mark.parametrize("declare", DECLARE)
@given(
    body=st.binary(max_size=80), headers=st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=5)
)
def test_arbitrary_requests_give_facts(declare, body, headers):
    """No verified request, however strange, makes reading its facts fail."""
    assert isinstance(declare(WHSEC).provider.facts(Delivery("s", headers, body)), Facts)


@pytest.mark.parametrize("declare", DECLARE)
def test_nothing_shows_a_secret(declare):
    """Neither repr nor str of an endpoint holds what it verifies with."""
    shown = repr(declare("whsec_Q0FOQVJZQ0FOQVJZQ0FOQVJZ")) + str(declare("whsec_Q0FOQVJZQ0FOQVJZQ0FOQVJZ"))
    assert "Q0FOQVJZ" not in shown
