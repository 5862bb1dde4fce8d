"""Why a request was refused: each likely cause is named by trial, and nothing is let in by it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookonce.errors import Reason, VerificationError
from hookonce.flow.explain import find_cause, fits
from hookonce.model import Delivery, Secret
from hookonce.providers import GitHub, Known, Locators, StandardWebhooks, Stripe
from hookonce.schemes.signature import SignatureScheme

NOW = 1_800_000_000.0
BODY = json.dumps({"id": "evt_1", "type": "invoice.paid", "note": "Grüße", "livemode": False}).encode()


class Urly(Known):
    """A sender that signs the address it posts to."""

    scheme = SignatureScheme(signature="header:X-Sig", signed="{url}{body}")
    locators = Locators(event_id="body:id")
    url_needed = True


def request(endpoint, body: bytes = BODY, *, secret: Secret | None = None, at: float = NOW, path: str = "") -> Delivery:
    headers = endpoint.provider.scheme.sign(body, secret or endpoint.secrets[0], at, "msg_1")
    return Delivery(endpoint.name, [(b"host", b"example.com"), *headers], body, path)


def cause_of(endpoint, delivery: Delivery, *others):
    """The cause that is found for a request which is refused."""
    with pytest.raises(VerificationError) as caught:
        endpoint.provider.scheme.verify(delivery, endpoint.secrets, NOW)
    return find_cause(endpoint, [endpoint, *others], delivery, caught.value, NOW)


def test_another_sources_secret_is_named():
    """HO108: the source whose secret it is, and that the body says test mode."""
    live, test = Stripe("whsec_live"), Stripe("whsec_test", name="stripe_test")
    cause = cause_of(live, request(live, secret=test.secrets[0]), test)
    assert cause.code == "HO108"
    assert "stripe_test" in cause.seen and "livemode=false" in cause.likely
    assert "whsec_test" not in str(cause)


@pytest.mark.parametrize(("made", "configured"), [
    (b"s3cret\n", b"s3cret"), (b"s3cret", b'"s3cret"'), (b"s3cret", b"whsec_s3cret"), (b"abc", b"ABC"),
])  # fmt: skip
def test_a_secret_that_was_copied_badly(made, configured):
    """HO101: a line break, quotes, a prefix or capital letters too many."""
    endpoint = GitHub(configured)
    cause = cause_of(endpoint, request(endpoint, secret=Secret(value=made)))
    assert cause.code == "HO101" and "matches the secret" in cause.seen


@pytest.mark.parametrize("rewrite", [
    lambda body: body + b"\n",
    lambda body: body.rstrip(b"}") + b"} ",
    lambda body: json.dumps(json.loads(body), indent=2).encode(),
    lambda body: json.dumps(json.loads(body), separators=(",", ":"), ensure_ascii=False).encode(),
])  # fmt: skip
def test_a_body_that_was_rewritten(rewrite):
    """HO102: the signature fits the body as it was before a proxy or a middleware wrote it anew."""
    endpoint = GitHub("s3cret")
    genuine = request(endpoint)
    cause = cause_of(endpoint, replace(genuine, body=rewrite(BODY)))
    assert cause.code == "HO102", cause


@pytest.mark.parametrize(("signed_at", "word"), [(NOW - 432, "ahead"), (NOW + 432, "behind")])
def test_a_clock_that_is_wrong(signed_at, word):
    """HO106: the signature is right; how far the clocks are apart is said."""
    endpoint = Stripe("whsec_x")
    cause = cause_of(endpoint, request(endpoint, at=signed_at))
    assert cause.code == "HO106" and "432 s" in cause.seen and f"clock is {word}" in cause.likely


def test_an_expired_secret_is_named():
    """HO108: signed with a secret whose time is over."""
    old = Secret(value=b"old", not_after=datetime.fromtimestamp(NOW - 60, UTC))
    endpoint = GitHub([Secret(value=b"new"), old])
    assert cause_of(endpoint, request(endpoint, secret=Secret(value=b"old"))).code == "HO108"


def test_the_public_url_is_found():
    """HO101: the address that the provider signed, as the option to write."""
    endpoint = Urly("s3cret", name="urly", url="https://example.com/hooks/urly")
    signer = Urly("s3cret", name="urly", url="https://example.com/hooks/urly/")
    delivery = replace(request(signer), path="/hooks/urly")
    cause = cause_of(endpoint, delivery)
    assert 'url = "https://example.com/hooks/urly/"' in cause.do


def test_what_is_missing_is_said_with_what_is_there():
    """A header that should be there, and those that look like one."""
    endpoint = StandardWebhooks("whsec_" + "QUJD" * 8)
    cause = cause_of(endpoint, Delivery("s", [(b"x-hub-signature", b"sha1=00")], BODY))
    assert "there is no webhook-signature header" in cause.seen or "svix-signature" in cause.seen
    assert "x-hub-signature" in cause.seen


def test_an_unknown_secret_says_what_was_tried():
    """HO101: none of the trials fits; fingerprints are shown, and no secret."""
    endpoint = Stripe(["whsec_one", "whsec_two"])
    cause = cause_of(endpoint, request(endpoint, secret=Secret(value=b"whsec_three")))
    assert cause.code == "HO101" and all(secret.id in cause.tried for secret in endpoint.secrets)
    assert "whsec" not in str(cause)


@given(body=st.binary(max_size=200), header=st.binary(max_size=100))
def test_any_request_has_some_cause(body, header):
    """Whatever the bytes: a cause, no exception, and nothing that is not text."""
    for endpoint in (Stripe("whsec_x"), GitHub("s"), Urly("s", name="urly", url="https://example.com/x")):
        for name in (b"stripe-signature", b"x-hub-signature-256", b"x-sig"):
            delivery = Delivery(endpoint.name, [(name, header)], body)
            error = VerificationError(Reason.SIGNATURE_MISMATCH, "no active secret made this signature")
            assert find_cause(endpoint, [], delivery, error, NOW).code
            assert not fits(endpoint, delivery, NOW)
