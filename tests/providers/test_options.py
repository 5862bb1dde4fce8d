"""What users say of a source: descriptions of unknown senders, gateways, fingerprints, event types, plug-ins."""

from __future__ import annotations

import base64
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from hookonce import ConfigurationError, Inbox
from hookonce.config import load
from hookonce.errors import VerificationError
from hookonce.model import Delivery, Secret, Verdict
from hookonce.providers import (
    PROVIDERS,
    Basic,
    Endpoint,
    GitHub,
    Hmac,
    Jwt,
    Known,
    SecretUrl,
    Shopify,
    Stripe,
    Token,
    directory,
)
from hookonce.providers.directory import options_of
from hookonce.schemes.signature import SignatureScheme
from tests.flow.box import Place

NOW = 1_800_000_000.0
BODY = b'{"id": "e1", "kind": "order.paid", "order": "o1", "at": 1800000000, "note": 1}'
WHERE: dict[str, Any] = {"event_id": "body:id", "type": "body:kind", "object_id": "body:order", "event_time": "body:at"}
DESCRIBED = {
    "hmac": Hmac("s3cret", header="X-Sig", **WHERE),
    "token": Token("s3cret", header="X-Token", **WHERE),
    "bearer": Token("s3cret", prefix="Bearer ", **WHERE),
    "basic": Basic("ann:s3cret", **WHERE),
    "secret_url": SecretUrl("s3cret", field="key", **WHERE),
    "jwt": Jwt("s3cret" * 8, issuer="acme", audience="us", body_claim="sha", tolerance=300.0, **WHERE),
}


def sealed(endpoint: Endpoint, body: bytes = BODY, *, at: float = NOW, secret: Secret | None = None) -> Delivery:
    scheme: Any = endpoint.provider.scheme
    return scheme.seal(Delivery(endpoint.name, [], body), secret or endpoint.secrets[0], at, "msg_1")


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_sender_is_described_in_a_line(name: str) -> None:
    """Its requests verify and are read; with another secret, or nothing at all, they are refused."""
    endpoint = DESCRIBED[name]
    delivery = sealed(endpoint)
    scheme = endpoint.provider.scheme
    assert scheme.verify(delivery, endpoint.secrets, NOW).secret_id == endpoint.secrets[0].id
    facts = endpoint.provider.facts(delivery)
    assert (facts.event_id, facts.type, facts.object_id, facts.event_time) == ("e1", "order.paid", "o1", NOW)
    other = sealed(endpoint, secret=Secret(value=b"ann:0ther" * 5))
    for forged in (other, Delivery("acme", [], BODY), Delivery("acme", [], b"")):
        with pytest.raises(VerificationError):
            scheme.verify(forged, endpoint.secrets, NOW)


@pytest.mark.parametrize("name", ["hmac", "jwt"])
def test_a_description_binds_the_body_where_it_can(name: str) -> None:
    """One byte more is refused."""
    endpoint = DESCRIBED[name]
    delivery = sealed(endpoint)
    changed = Delivery(delivery.source, delivery.headers, delivery.body + b" ")
    with pytest.raises(VerificationError):
        endpoint.provider.scheme.verify(changed, endpoint.secrets, NOW)


@pytest.mark.parametrize("claims", [
    {"iss": "mallory"}, {"aud": "them"}, {"sha": "0" * 64}, {"iat": NOW - 301}, {"iat": NOW + 301}, {"exp": NOW - 61},
    {"nbf": NOW + 61}, {"iat": "soon"}, {"exp": True},
])  # fmt: skip
def test_a_token_must_be_about_this_request_and_this_moment(claims: dict[str, Any]) -> None:
    """Issuer, audience, body and times: any of them wrong is refused, although the token itself is genuine."""
    endpoint = DESCRIBED["jwt"]
    scheme: Any = endpoint.provider.scheme
    unsigned = Delivery("jwt", [], BODY)
    token = scheme.token({**scheme.claims_for(unsigned, NOW, "m"), **claims}, endpoint.secrets[0])
    with pytest.raises(VerificationError):
        scheme.verify(Delivery("jwt", [(b"authorization", b"Bearer " + token)], BODY), endpoint.secrets, NOW)


def test_a_token_cannot_choose_its_algorithm() -> None:
    """Unsigned tokens, and those signed in a way that was not declared, are refused before any key is tried."""
    endpoint = DESCRIBED["jwt"]
    claims = base64.urlsafe_b64encode(json.dumps({"iss": "acme"}).encode()).rstrip(b"=")
    for header in ({"alg": "none"}, {"alg": "HS512"}, {"alg": "RS256"}, {}, {"alg": None}, []):
        head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=")
        for signature in (b"", b"AAAA"):
            token = b".".join((head, claims, signature))
            with pytest.raises(VerificationError):
                endpoint.provider.scheme.verify(
                    Delivery("jwt", [(b"authorization", b"Bearer " + token)], BODY), endpoint.secrets, NOW
                )


def test_more_fields_than_are_read_are_refused() -> None:
    """A form with a thousand empty fields and one more behind them: nothing unseen is let through with the rest."""
    mandrill = PROVIDERS["mandrill"]("s3cret", url="https://example.com/m")
    scheme: Any = mandrill.provider.scheme
    genuine = scheme.seal(Delivery("mandrill", [], b"mandrill_events=%5B%5D"), mandrill.secrets[0], NOW, "m")
    assert scheme.verify(genuine, mandrill.secrets, NOW)
    for more in (b"&" * 2_000 + b"&mandrill_events=%5B1%5D", b"&x" * 2_000):
        longer = Delivery("mandrill", genuine.headers, genuine.body + more)
        with pytest.raises(VerificationError):
            scheme.verify(longer, mandrill.secrets, NOW)


@pytest.mark.parametrize(("name", "moved"), [("discord", b"1"), ("sendgrid", b"7"), ("front", None)])  # fmt: skip
def test_no_digit_moves_between_time_and_body(name: str, moved: bytes | None) -> None:
    """Where nothing stands between them, a body that begins with a digit is refused; no JSON of these senders does."""
    endpoint = PROVIDERS[name](PROVIDERS[name].new_secret().decode())  # type: ignore[attr-defined]
    delivery = sealed(endpoint)
    assert endpoint.provider.scheme.verify(delivery, endpoint.secrets, NOW)
    if moved is not None:
        other = Delivery(name, sealed(endpoint, moved + BODY).headers, moved + BODY)
        with pytest.raises(VerificationError, match="digit"):
            endpoint.provider.scheme.verify(other, endpoint.secrets, NOW)


def test_a_checksum_does_not_bind_an_id() -> None:
    """PayPal signs the CRC-32 of the body only: its id counts as unsigned, so that a made body is a replay (F73)."""
    endpoint = PROVIDERS["paypal"](PROVIDERS["paypal"].new_secret().decode(), webhook_id="8XP")  # type: ignore[attr-defined]
    assert endpoint.provider.profile.id_signed is False and endpoint.provider.signs_all


def test_the_id_is_never_made_up() -> None:
    """Without an id, and without a word on what stands for one, a description is refused."""
    with pytest.raises(ConfigurationError, match="where is the event's id"):
        Hmac("s3cret", header="X-Sig")
    Hmac("s3cret", header="X-Sig", fingerprint=("body:order", "body:kind"))


async def test_a_fingerprint_stands_for_an_id_that_is_not_there(place: Place) -> None:
    """The chosen fields say what is the same event, whatever else has changed; with an id it is not asked."""
    inbox = place.inbox(Hmac("s3cret", name="print", header="X-Sig", fingerprint=("body:order", "body:kind")))
    endpoint = inbox.registry.sources["print"].endpoint

    async def send(body: bytes) -> str:
        headers = {name.decode(): value.decode() for name, value in sealed(endpoint, body).headers}
        return (await inbox.accept("print", body, headers)).verdict

    assert await send(BODY) == Verdict.ACCEPTED
    assert await send(BODY.replace(b'"note": 1', b'"note": 2')) == Verdict.MISMATCH  # the same event, said differently
    assert await send(BODY.replace(b"o1", b"o2")) == Verdict.ACCEPTED
    assert {name[:3] for (name,) in place.sql("SELECT event_id FROM hookonce_receipt")} == {"fp:"}
    with pytest.raises(VerificationError):
        await send(b'{"order": "o3"}')
    await inbox.close()


@pytest.mark.parametrize(("options", "event_id", "delivery_id"), [
    ({}, "d-1", "d-1"),
    ({"gateway": "hookdeck"}, "d-1", "hd-7"),
    ({"gateway": "hookdeck", "identity": "gateway"}, "hd-7", "d-1"),
    ({"event_id": "body:id"}, "e1", "d-1"),
])  # fmt: skip
def test_behind_a_gateway_one_says_whose_ids_count(options: dict[str, Any], event_id: str, delivery_id: str) -> None:
    """The sender's own by default; the gateway's, which stays the same over its retries, if one says so."""
    provider = GitHub("s", **options).provider
    headers = [(b"x-github-delivery", b"d-1"), (b"x-hookdeck-eventid", b"hd-7"), (b"x-github-event", b"push")]
    facts = provider.facts(Delivery("github", headers, BODY))
    assert (facts.event_id, facts.delivery_id) == (event_id, delivery_id)


@pytest.mark.parametrize("options", [
    {"gateway": "nobody"}, {"identity": "gateway"}, {"identity": "mine", "gateway": "svix"}, {"tolerance": 5.0},
])  # fmt: skip
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    """A gateway we do not know, ids of a gateway that is not there, a tolerance where no time is signed."""
    with pytest.raises(ConfigurationError):
        GitHub("s", **options)


async def test_two_subscriptions_are_two_receipts_or_one(place: Place) -> None:
    """Shopify sends one event to two subscriptions: two webhook ids, one event id; which one counts is configured (D4)."""
    inbox = place.inbox(Shopify("s", name="by_webhook"), Shopify("s", name="by_event", key_by="event_id"))
    for source, expected in (("by_webhook", 2), ("by_event", 1)):
        for webhook in ("w-1", "w-2", "w-2"):
            extra = {"x-shopify-webhook-id": webhook, "x-shopify-event-id": "e-1", "x-shopify-topic": "orders/paid"}
            headers = {name.decode(): value.decode() for name, value in sealed(Shopify("s")).headers}
            await inbox.accept(source, BODY, {**headers, **extra})
        rows = place.sql(f"SELECT count(*) FROM hookonce_receipt WHERE source = '{source}'")
        assert rows == [(expected,)]
    await inbox.close()


def test_an_event_type_that_does_not_exist_is_found_at_import(tmp_path: Path) -> None:
    """HO105 with what was probably meant; globs, known types and those that one insists on are taken."""
    stripe = Inbox(f"sqlite:///{tmp_path / 'x.db'}").source(Stripe("whsec_x"))
    for good in ("invoice.paid", "invoice.*", "*", "v1.billing.meter.error_report_triggered"):
        stripe.on(good)(lambda event: None)
    with pytest.raises(ConfigurationError) as caught:
        stripe.on("invoice.payed")(lambda event: None)
    assert caught.value.code == "HO105" and "did you mean 'invoice.paid'" in caught.value.do
    stripe.on("invoice.payed", unknown_ok=True)(lambda event: None)


class Acme(Known):
    """A provider in a package of somebody else."""

    scheme = SignatureScheme(signature="header:X-Acme")


def test_a_plugin_brings_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point a provider is there under its name; one that takes the name of ours is refused."""

    class Entry:
        def __init__(self, name: str) -> None:
            self.name, self.value = name, f"acme:{name}"

        def load(self) -> Any:
            return Acme

    monkeypatch.setattr(
        directory, "entry_points", lambda group: [Entry("acme")] if group == "hookonce.providers" else []
    )
    directory._plugins.cache_clear()
    try:
        assert PROVIDERS["acme"] is Acme and "acme" in list(PROVIDERS)
        monkeypatch.setattr(directory, "entry_points", lambda group: [Entry("stripe")])
        directory._plugins.cache_clear()
        with pytest.raises(ConfigurationError, match="there is one"):
            list(PROVIDERS)
    finally:
        monkeypatch.undo()
        directory._plugins.cache_clear()
    assert importlib.metadata.entry_points(group="hookonce.providers") is not None


def test_every_option_of_every_provider_can_be_configured(tmp_path: Path) -> None:
    """Each has a default that the configuration can read a value for, or is required and said to be."""
    for name in PROVIDERS:
        options = options_of(name)
        assert "secret" not in options and "name" not in options, name
        assert "tolerance" in options or name in ("token", "basic", "secret_url", "hmac"), name


def test_options_come_from_the_file_and_secrets_from_elsewhere(tmp_path: Path) -> None:
    """Tokens and certificates may be named by environment variable or file, like secrets; unknown options are found."""
    (tmp_path / "token").write_text("verify-me")
    file = tmp_path / "hookonce.toml"
    file.write_text(
        """
        [sources.meta]
        provider = "whatsapp_meta"
        secrets = ["env:META"]
        verify_token = "file:token"

        [sources.square]
        provider = "square"
        secrets = ["env:META"]
        url = "https://example.com/square"
        tolerances = "5m"
        """
    )
    config = load(file=str(file), environ={"META": "s3cret"})
    assert any("sources.square.tolerances" in problem and "tolerance" in problem for problem in config.problems)
    endpoints, problems, _ = config.endpoints()
    assert not problems
    assert [endpoint.name for endpoint in endpoints] == ["meta"]
