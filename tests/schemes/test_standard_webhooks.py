"""Standard Webhooks: the published vector, the official library on the other side, both header families."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret
from hookonce.schemes import StandardWebhooksScheme
from hookonce.schemes.standard_webhooks import decode_key

SECRET = Secret(value=b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
OTHER = Secret(value=b"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
SCHEME = StandardWebhooksScheme()
NOW = 1_614_265_330.0
ID = b"msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
VECTOR = b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def headers_of(
    signature: bytes = VECTOR, identity: bytes = ID, stamp: bytes = b"1614265330", family: bytes = b"webhook"
):
    """The three headers of one family, those of the published vector unless said otherwise."""
    return [(family + b"-id", identity), (family + b"-timestamp", stamp), (family + b"-signature", signature)]


def digest_of(identity: bytes, stamp: bytes, body: bytes, key: bytes | None = None) -> bytes:
    """The signature, computed apart from our code."""
    key = decode_key(SECRET.value) if key is None else key
    return b"v1," + base64.b64encode(hmac.new(key, identity + b"." + stamp + b"." + body, hashlib.sha256).digest())


def refusal(headers, body: bytes = BODY, now: float = NOW, secrets=(SECRET,), scheme=SCHEME) -> Reason:
    """Why a request is refused; anything but a VerificationError fails the test."""
    with pytest.raises(VerificationError) as caught:
        scheme.verify(Delivery("sw", headers, body), secrets, now)
    return caught.value.reason


@pytest.mark.parametrize("family", [b"webhook", b"svix"])
def test_the_published_vector_in_both_header_families(family):
    """The vector of the reference libraries verifies, and names the secret as it was given, not the key inside."""
    verified = SCHEME.verify(Delivery("sw", headers_of(family=family), BODY), [SECRET], NOW)
    assert verified.secret_id == SECRET.id
    assert verified.signature == base64.b64decode(VECTOR[3:])
    assert verified.signed_at == NOW


def test_signs_the_published_vector():
    """Signing gives the three headers of the specification."""
    assert SCHEME.sign(BODY, SECRET, NOW, ID.decode()) == headers_of()


def test_the_official_library_accepts_what_we_sign():
    """What our send command produces passes standardwebhooks.Webhook.verify."""
    now = datetime.now(UTC).timestamp()
    headers = {name.decode(): value.decode() for name, value in SCHEME.sign(BODY, SECRET, now, "msg_1")}
    assert standardwebhooks.Webhook(SECRET.value.decode()).verify(BODY, headers) == {"test": 2432232314}


@given(
    key=st.binary(min_size=1, max_size=64),
    identity=st.text("abc_-123", min_size=1),
    at=st.integers(0, 10**10),
    body=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_we_accept_what_the_official_library_signs(key, identity, at, body):
    """Whatever key, id, time and text: its signature is ours."""
    secret = "whsec_" + base64.b64encode(key).decode()
    value = standardwebhooks.Webhook(secret).sign(identity, datetime.fromtimestamp(at, UTC), body).encode()
    request = Delivery("sw", headers_of(value, identity.encode(), str(at).encode()), body.encode())
    assert SCHEME.verify(request, [Secret(value=secret.encode())], at).signed_at == at


@pytest.mark.parametrize(
    "value",
    [
        b"v1,AAAA " + VECTOR,
        VECTOR + b" v1,AAAA",
        b"v1a,abc v2,xyz " + VECTOR + b" nonsense",
        b"  " + VECTOR + b" ",
    ],
)
def test_finds_the_signature_among_others(value):
    """Several signatures, asymmetric ones and future versions do not hide a good one."""
    SCHEME.verify(Delivery("sw", headers_of(value), BODY), [SECRET], NOW)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.SIGNATURE_MALFORMED),
        (VECTOR[3:], Reason.SIGNATURE_MALFORMED),
        (b"v1a," + VECTOR[3:], Reason.SIGNATURE_MALFORMED),
        (b"v2," + VECTOR[3:], Reason.SIGNATURE_MALFORMED),
        (b"v1=" + VECTOR[3:], Reason.SIGNATURE_MALFORMED),
        (b"V1," + VECTOR[3:], Reason.SIGNATURE_MALFORMED),
        (b"v1,", Reason.SIGNATURE_MISMATCH),
        (b"v1,!!!", Reason.SIGNATURE_MISMATCH),
        (VECTOR[:-1], Reason.SIGNATURE_MISMATCH),
        (VECTOR + b"=", Reason.SIGNATURE_MISMATCH),
    ],
)
def test_the_version_and_the_spelling_count(value, reason):
    """A right digest under another label, or in a lenient decoder's spelling, is refused."""
    assert refusal(headers_of(value)) is reason


@pytest.mark.parametrize("family", [b"webhook", b"svix"])
def test_what_is_missing_has_its_reason(family):
    """Signature and timestamp are missed by name; without an id there is nothing to go by."""
    identity, stamp, signature = headers_of(family=family)
    assert refusal([identity, stamp]) is Reason.SIGNATURE_MISSING
    assert refusal([identity, signature]) is Reason.TIMESTAMP_MISSING
    assert refusal([]) is Reason.SIGNATURE_MISSING
    assert refusal([(identity[0], b""), stamp, signature]) is Reason.ID_MISSING
    assert refusal([stamp, signature]) is (Reason.ID_MISSING)


@pytest.mark.parametrize("family", [b"webhook", b"svix"])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_repeated_header_is_refused(index, family):
    """Id, timestamp or signature twice, even twice the same, is malformed."""
    headers = headers_of(family=family)
    assert refusal([*headers, headers[index]]) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("extra", [(b"webhook-id", b"msg_new"), (b"webhook-id", b""), (b"webhook-signature", VECTOR)])
def test_an_unsigned_header_of_the_other_family_is_refused(extra):
    """A captured svix-* request cannot be given a new identity by adding a webhook-id that nobody signed."""
    with pytest.raises(VerificationError):
        SCHEME.verify(Delivery("sw", [*headers_of(family=b"svix"), extra], BODY), [SECRET], NOW)


def test_id_timestamp_and_body_are_all_signed():
    """Each of the three, changed, breaks the signature."""
    assert refusal(headers_of(identity=b"msg_other")) is Reason.SIGNATURE_MISMATCH
    assert refusal(headers_of(stamp=b"1614265331")) is Reason.SIGNATURE_MISMATCH
    assert refusal(headers_of(), b'{"test":2432232314}') is Reason.SIGNATURE_MISMATCH
    assert refusal(headers_of(), BODY + b"\n") is Reason.SIGNATURE_MISMATCH


def test_bytes_cannot_move_between_the_parts():
    """Shifting the separators keeps the signed bytes, and is refused all the same."""
    good = digest_of(b"msg_1", b"1614265330", b"1614265331.{}")
    assert refusal(headers_of(good, b"msg_1.1614265330", b"1614265331"), b"{}") is Reason.SIGNATURE_MALFORMED
    assert refusal(headers_of(good, b"msg_1", b"1614265330.1614265331"), b"{}") is Reason.TIMESTAMP_MALFORMED


@pytest.mark.parametrize(
    "stamp", [b"+1614265330", b" 1614265330", b"1614265330.0", b"1_614_265_330", b"", b"\xff", b"9" * 99]
)
def test_only_digits_are_a_timestamp(stamp):
    """Other spellings are refused even when they are signed."""
    assert refusal(headers_of(digest_of(ID, stamp, BODY), stamp=stamp)) is Reason.TIMESTAMP_MALFORMED


@pytest.mark.parametrize(("offset", "reason"), [
    (-301, Reason.TOO_OLD), (-300, None), (-299, None), (299, None), (300, None), (301, Reason.IN_THE_FUTURE),
])  # fmt: skip
def test_window_has_exact_edges_both_ways(offset, reason):
    """300 s old or ahead is accepted, 301 s is not."""
    headers = SCHEME.sign(BODY, SECRET, NOW + offset, "msg_1")
    if reason is None:
        SCHEME.verify(Delivery("sw", headers, BODY), [SECRET], NOW)
    else:
        assert refusal(headers) is reason


def test_any_active_secret_verifies_during_a_rotation():
    """Two secrets, one signature each in one request, or one signature by either."""
    for secret in (SECRET, OTHER):
        headers = SCHEME.sign(BODY, secret, NOW, "msg_1")
        assert SCHEME.verify(Delivery("sw", headers, BODY), [SECRET, OTHER], NOW).secret_id == secret.id
    expired = Secret(value=SECRET.value, not_after=datetime.fromtimestamp(NOW, UTC))
    assert refusal(headers_of(), secrets=[expired, OTHER]) is Reason.SIGNATURE_MISMATCH


def test_more_signatures_than_the_bound_are_refused():
    """Eight are compared, nine are malformed."""
    SCHEME.verify(Delivery("sw", headers_of(b"v1,AAAA " * 7 + VECTOR), BODY), [SECRET], NOW)
    assert refusal(headers_of(b"v1,AAAA " * 8 + VECTOR)) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b"whsec_TWlyYQ==", b"Mira"),
        (b"whsec_TWlyYQ", b"Mira"),
        (b"TWlyYQ==", b"Mira"),
        (b"whsec_", b""),
        (b"whsec_TWly YQ==", b""),
        (b"whsec_T", b""),
        (b"whsec_not base64!", b""),
        (b"\xff\x00", b""),
        (b"", b""),
    ],
)
def test_reads_the_key_out_of_the_secret(text, key):
    """Prefix and padding are optional; what is not base64 has no key."""
    assert decode_key(text) == key


@pytest.mark.parametrize("text", [b"whsec_", b"whsec_not base64!"])
def test_a_secret_without_a_key_is_never_tried(text):
    """A request signed with the empty key is refused although the secret decodes to nothing."""
    forged = headers_of(digest_of(ID, b"1614265330", BODY, b""))
    assert refusal(forged, secrets=[Secret(value=text)]) is Reason.SIGNATURE_MISMATCH


def test_a_raw_key_is_the_secrets_own_text():
    """Some senders sign with the text itself, prefix included."""
    scheme = StandardWebhooksScheme(key="raw")
    headers = headers_of(digest_of(ID, b"1614265330", BODY, SECRET.value))
    assert scheme.verify(Delivery("sw", headers, BODY), [SECRET], NOW).secret_id == SECRET.id
    assert refusal(headers) is Reason.SIGNATURE_MISMATCH
    assert scheme.sign(BODY, SECRET, NOW, ID.decode()) == headers


names = st.sampled_from(
    [b"webhook-id", b"webhook-timestamp", b"webhook-signature", b"svix-id", b"svix-timestamp", b"svix-signature"]
)
values = st.binary(max_size=60) | st.sampled_from([b"1614265330", b"v1,", VECTOR[:-3], b"msg_1"])


@given(headers=st.lists(st.tuples(names, values)), body=st.binary(max_size=40), key=st.binary(max_size=60))
def test_arbitrary_bytes_are_refused_and_nothing_else(headers, body, key):
    """Random headers, bodies and secrets give a VerificationError, never another exception."""
    refusal(headers, body, secrets=[Secret(value=key), Secret(value=b"whsec_" + key)])


@pytest.mark.parametrize("byte", range(256))
@pytest.mark.parametrize("index", [0, 1, 2])
def test_every_byte_value_is_survived_in_every_header(index, byte):
    """Any byte in front of an id, a timestamp or a signature makes it fail or be ignored, no more."""
    headers = headers_of()
    headers[index] = (headers[index][0], bytes([byte]) + headers[index][1])
    try:
        SCHEME.verify(Delivery("sw", headers, BODY), [SECRET], NOW)
    except VerificationError:
        return
    assert (index, byte) == (2, ord(" "))


@pytest.mark.parametrize("options", [{"key": "hex"}, {"tolerance": -5}])
def test_what_cannot_work_fails_at_construction(options):
    """Unknown key forms and impossible windows are found before any request."""
    with pytest.raises(ConfigurationError):
        StandardWebhooksScheme(**options)
