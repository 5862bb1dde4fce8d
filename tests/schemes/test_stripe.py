"""Stripe's scheme, against vectors, against Stripe's own library, and against whatever bytes a sender may send."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime

import pytest
import stripe
from hypothesis import given
from hypothesis import strategies as st

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret
from hookonce.schemes import StripeScheme

NOW = 1_800_000_000.0
SECRET = Secret(value=b"whsec_test_secret", label="live")
OTHER = Secret(value=b"whsec_other")
BODY = b'{\n  "id": "evt_1",\n  "object": "event",\n  "type": "invoice.paid"\n}'
SCHEME = StripeScheme()


def hex_of(secret: Secret, timestamp: bytes, body: bytes = BODY) -> bytes:
    """The signature, computed apart from our code."""
    return hmac.new(secret.value, timestamp + b"." + body, hashlib.sha256).hexdigest().encode()


def delivery(value: bytes, body: bytes = BODY, *more: tuple[bytes, bytes]) -> Delivery:
    """A request with this Stripe-Signature."""
    return Delivery("stripe", [(b"host", b"x"), (b"stripe-signature", value), *more], body)


def signed(at: float = NOW, secret: Secret = SECRET, body: bytes = BODY) -> Delivery:
    """A genuine request."""
    return Delivery("stripe", SCHEME.sign(body, secret, at, ""), body)


def refusal(request: Delivery, secrets=(SECRET,), now: float = NOW) -> Reason:
    """Why a request is refused; anything but a VerificationError fails the test."""
    with pytest.raises(VerificationError) as caught:
        SCHEME.verify(request, secrets, now)
    return caught.value.reason


def test_accepts_what_it_signs_and_says_with_what():
    """A genuine request names the secret, the raw digest and the time of signing."""
    verified = SCHEME.verify(signed(), [SECRET], NOW)
    assert verified.secret_id == SECRET.id
    assert verified.signature == bytes.fromhex(hex_of(SECRET, b"1800000000").decode())
    assert verified.signed_at == NOW


def test_stripes_library_accepts_what_we_sign():
    """What our send command produces passes stripe.Webhook.construct_event."""
    import time

    ((name, value),) = SCHEME.sign(BODY, SECRET, time.time(), "ignored")
    assert name == b"stripe-signature"
    event = stripe.Webhook.construct_event(BODY, value.decode(), SECRET.value.decode())
    assert event.id == "evt_1"


@given(body=st.text(st.characters(exclude_categories=["Cs"])), at=st.integers(1, 10**10))
def test_we_accept_what_stripes_library_signs(body, at):
    """Whatever text Stripe's own helper signs, we accept, and the other way round."""
    value = stripe.WebhookSignature.generate_signature_header(body, SECRET.value.decode(), timestamp=at).encode()
    assert SCHEME.verify(delivery(value, body.encode()), [SECRET], float(at)).secret_id == SECRET.id
    ours = SCHEME.sign(body.encode(), SECRET, at, "")[0][1].decode()
    assert stripe.WebhookSignature.verify_header(body, ours, SECRET.value.decode())


@pytest.mark.parametrize(
    "make",
    [
        lambda good: b"t=1800000000,v1=" + b"0" * 64 + b",v1=" + good,
        lambda good: b"t=1800000000,v1=" + good + b",v1=" + b"0" * 64,
        lambda good: b"v1=" + good + b",t=1800000000",
        lambda good: b"t=1800000000,v0=" + b"f" * 64 + b",v1=" + good + b",v2=new,x",
        lambda good: b"t=1800000000,v1=\xff\x00,v1=" + good,
    ],
)
def test_finds_the_signature_among_others(make):
    """Several v1, other schemes, unknown parts and any order do not hide a good signature."""
    assert SCHEME.verify(delivery(make(hex_of(SECRET, b"1800000000"))), [SECRET], NOW).secret_id == SECRET.id


def test_v0_never_counts():
    """A correct digest labelled v0 proves nothing."""
    good = hex_of(SECRET, b"1800000000")
    assert refusal(delivery(b"t=1800000000,v0=" + good)) is Reason.SIGNATURE_MALFORMED
    assert refusal(delivery(b"t=1800000000,v0=" + good + b",v1=" + b"0" * 64)) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.TIMESTAMP_MISSING),
        (b"v1=", Reason.TIMESTAMP_MISSING),
        (b"t=1800000000", Reason.SIGNATURE_MALFORMED),
        (b"t=,v1=aa", Reason.TIMESTAMP_MALFORMED),
        (b"t=1800000000,v1=", Reason.SIGNATURE_MISMATCH),
        (b"t=1800000000,v1=zz", Reason.SIGNATURE_MISMATCH),
    ],
)
def test_says_what_is_wrong_with_the_header(value, reason):
    """Each kind of broken header has its reason."""
    assert refusal(delivery(value)) is reason


def test_a_missing_header_is_its_own_reason():
    """No header at all is not a malformed one."""
    assert refusal(Delivery("stripe", [(b"host", b"x")], BODY)) is Reason.SIGNATURE_MISSING


def test_a_second_header_or_timestamp_is_refused():
    """A good header beside another one is refused, in either order, and so are two timestamps."""
    good = b"t=1800000000,v1=" + hex_of(SECRET, b"1800000000")
    for request in (
        delivery(good, BODY, (b"stripe-signature", good)),
        delivery(b"", BODY, (b"stripe-signature", good)),
        delivery(b"t=1800000000," + good),
    ):
        assert refusal(request) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("stamp", [
    b"+1800000000", b"-1800000000", b" 1800000000", b"1800000000 ", b"1_800_000_000", b"1800000000.0", b"1.8e9",
    b"0x6b49d200", "١٨٠٠٠٠٠٠٠٠".encode(), b"\xb2", b"9" * 17, b"9" * 5000, b"\x001800000000", b"",
])  # fmt: skip
def test_only_digits_are_a_timestamp(stamp):
    """Other spellings of a number are refused even when they are signed."""
    value = b"t=" + stamp + b",v1=" + hex_of(SECRET, stamp)
    assert refusal(delivery(value)) is Reason.TIMESTAMP_MALFORMED


@pytest.mark.parametrize(("offset", "reason"), [
    (-301, Reason.TOO_OLD), (-300, None), (-299, None), (299, None), (300, None), (301, Reason.IN_THE_FUTURE),
])  # fmt: skip
def test_window_has_exact_edges_both_ways(offset, reason):
    """300 s old or ahead is accepted, 301 s is not."""
    if reason is None:
        SCHEME.verify(signed(NOW + offset), [SECRET], NOW)
    else:
        assert refusal(signed(NOW + offset)) is reason


def test_a_wrong_signature_is_a_mismatch_however_old_it_is():
    """Only genuine requests are called old: the reason can be trusted."""
    assert refusal(signed(NOW - 10_000, OTHER)) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(
    "change",
    [
        lambda body: json.dumps(json.loads(body)).encode(),
        lambda body: json.dumps(dict(reversed(json.loads(body).items())), indent=2).encode(),
        lambda body: body + b" ",
        lambda body: body + b"\n",
        lambda body: body.replace(b"\n", b"\r\n"),
        lambda body: b"\xef\xbb\xbf" + body,
        lambda body: body[:-1],
        lambda body: b"",
    ],
)
def test_the_same_json_in_other_bytes_fails(change):
    """Reordered, reformatted, padded or cut bodies are not what was signed."""
    request = signed()
    assert refusal(Delivery("stripe", request.headers, change(BODY))) is Reason.SIGNATURE_MISMATCH


def test_bytes_cannot_move_from_the_timestamp_into_the_body():
    """A digit shifted over the separator breaks the signature or the timestamp."""
    good = hex_of(SECRET, b"1800000000", b"1.{}")
    assert refusal(delivery(b"t=1800000000.1,v1=" + good, b"{}")) is Reason.TIMESTAMP_MALFORMED


def test_bodies_that_are_no_text_are_bytes_like_any_other():
    """A body of all byte values verifies: nothing is decoded."""
    body = bytes(range(256)) * 9
    assert SCHEME.verify(signed(body=body), [SECRET], NOW).secret_id == SECRET.id


def test_any_active_secret_verifies_during_a_rotation():
    """Old and new secret both work, and the receipt can say which one it was."""
    for secret in (SECRET, OTHER):
        assert SCHEME.verify(signed(secret=secret), [SECRET, OTHER], NOW).secret_id == secret.id
    assert refusal(signed(), [OTHER]) is Reason.SIGNATURE_MISMATCH
    assert refusal(signed(), []) is Reason.SIGNATURE_MISMATCH


def test_an_expired_secret_is_not_tried():
    """From its not_after on, a secret is as unknown as any other."""
    until = Secret(value=SECRET.value, not_after=datetime.fromtimestamp(NOW, UTC))
    SCHEME.verify(signed(NOW - 1), [until], NOW - 1)
    assert refusal(signed(), [until]) is Reason.SIGNATURE_MISMATCH


def test_an_empty_secret_is_never_tried():
    """A request signed with the empty key is refused although an empty secret is configured."""
    empty = Secret(value=b"")
    assert refusal(signed(secret=empty), [empty]) is Reason.SIGNATURE_MISMATCH


def test_signatures_and_secrets_are_bounded():
    """Eight signatures and four secrets are looked at; one request cannot ask for more."""
    good = hex_of(SECRET, b"1800000000")
    fill = b",v1=" + b"0" * 64
    SCHEME.verify(delivery(b"t=1800000000" + fill * 7 + b",v1=" + good), [SECRET], NOW)
    assert refusal(delivery(b"t=1800000000" + fill * 8 + b",v1=" + good)) is Reason.SIGNATURE_MALFORMED
    others = [Secret(value=b"whsec_%d" % number) for number in range(4)]
    SCHEME.verify(signed(), [*others[:3], SECRET], NOW)
    assert refusal(signed(), [*others, SECRET]) is Reason.SIGNATURE_MISMATCH


def test_expired_secrets_do_not_use_up_the_bound():
    """Four secrets that expired leave room for the one that did not."""
    gone = [Secret(value=b"whsec_%d" % n, not_after=datetime.fromtimestamp(1, UTC)) for n in range(4)]
    SCHEME.verify(signed(), [*gone, SECRET], NOW)


def test_every_pair_is_compared_in_constant_time(monkeypatch):
    """No early exit: matching or not, each secret meets each signature, in hmac.compare_digest, as bytes."""
    calls = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: calls.append((a, b)) or real(a, b))
    good = b"t=1800000000,v1=" + hex_of(SECRET, b"1800000000") + b",v1=" + b"0" * 64
    SCHEME.verify(delivery(good), [SECRET, OTHER], NOW)
    accepted = len(calls)
    refusal(delivery(good), [OTHER, OTHER])
    assert (accepted, len(calls)) == (4, 8)
    assert all(type(a) is bytes and type(b) is bytes for a, b in calls)


@given(value=st.binary(max_size=200), body=st.binary(max_size=50), key=st.binary(max_size=80))
def test_arbitrary_bytes_are_refused_and_nothing_else(value, body, key):
    """Random headers, bodies and secrets give a VerificationError, never another exception."""
    refusal(delivery(value, body), [Secret(value=key)])


@given(
    parts=st.lists(st.sampled_from([b"t=", b"v1=", b"v0=", b",", b"=", b"1800000000", b"\x00", b"\xff", b"t", b" "]))
)
def test_arbitrary_arrangements_are_refused_and_nothing_else(parts):
    """Headers made of the right pieces in the wrong places give a VerificationError."""
    refusal(delivery(b"".join(parts)))


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_value_is_survived_in_the_header(byte):
    """No single byte, put anywhere into a good header, does more than make it fail or be ignored."""
    good = b"t=1800000000,v1=" + hex_of(SECRET, b"1800000000")
    for at in range(0, len(good), 7):
        try:
            SCHEME.verify(delivery(good[:at] + bytes([byte]) + good[at:]), [SECRET], NOW)
        except VerificationError:
            continue


def test_errors_repeat_nothing_that_was_sent():
    """An error text holds no byte of the request, so that logs cannot be written by a sender."""
    with pytest.raises(VerificationError) as caught:
        SCHEME.verify(delivery(b"t=CANARY,v1=CANARY", b"CANARY"), [SECRET], NOW)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("tolerance", [0, -1, float("inf"), float("nan"), "300", None, True])
def test_a_tolerance_that_switches_the_window_off_is_refused(tolerance):
    """Infinite, empty and impossible windows fail at construction."""
    with pytest.raises(ConfigurationError) as caught:
        StripeScheme(tolerance=tolerance)
    assert caught.value.code == "HO101"
