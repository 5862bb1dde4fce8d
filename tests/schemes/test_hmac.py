"""The generic HMAC scheme: published vectors, every encoding, templates, and hostile bytes."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Delivery, Secret
from hookonce.schemes import HmacScheme
from hookonce.schemes.hmac import header_name

NOW = 1_800_000_000.0
SECRET = Secret(value=b"It's a Secret to Everybody")
BODY = b"Hello, World!"
GITHUB = HmacScheme(header="X-Hub-Signature-256", prefix="sha256=")
GITHUB_VECTOR = b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
STAMPED = HmacScheme(header="X-Sig", signed="v0:{header:X-Acme-Timestamp}:{body}", timestamp_header="X-Acme-Timestamp")


def refusal(scheme: HmacScheme, headers, body: bytes = BODY, now: float = NOW, secrets=(SECRET,)) -> Reason:
    """Why a request is refused; anything but a VerificationError fails the test."""
    with pytest.raises(VerificationError) as caught:
        scheme.verify(Delivery("acme", headers, body), secrets, now)
    return caught.value.reason


def test_githubs_published_vector():
    """The example in GitHub's documentation verifies, and signing gives the same header."""
    headers = [(b"x-hub-signature-256", GITHUB_VECTOR)]
    verified = GITHUB.verify(Delivery("github", headers, BODY), [SECRET], NOW)
    assert verified.secret_id == SECRET.id
    assert verified.signature == bytes.fromhex(GITHUB_VECTOR[7:].decode())
    assert verified.signed_at is None
    assert GITHUB.sign(BODY, SECRET, NOW, "ignored") == headers


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("hex", lambda digest: digest.hex().encode()),
        ("hex", lambda digest: digest.hex().upper().encode()),
        ("base64", base64.b64encode),
        ("base64url", base64.urlsafe_b64encode),
        ("base64url", lambda digest: base64.urlsafe_b64encode(digest).rstrip(b"=")),
    ],
)
@given(key=st.binary(min_size=1), body=st.binary())
def test_every_algorithm_in_every_encoding(algorithm, encoding, encode, key, body):
    """What the standard library computes is accepted, and the digest comes out raw whatever its spelling."""
    scheme = HmacScheme(header="X-Sig", algorithm=algorithm, encoding=encoding)
    digest = hmac.new(key, body, getattr(hashlib, algorithm)).digest()
    request = Delivery("acme", [(b"x-sig", encode(digest))], body)
    assert scheme.verify(request, [Secret(value=key)], NOW).signature == digest


@given(body=st.binary(), message_id=st.text(st.characters(max_codepoint=255)), now=st.floats(0, 4e9))
def test_signs_what_it_accepts(body, message_id, now):
    """Timestamp, id header, prefix and body survive the way there and back."""
    scheme = HmacScheme(
        header="X-Sig",
        prefix="v0=",
        signed="{header:X-Id};{{{timestamp}}};{body}",
        timestamp_header="X-T",
        encoding="base64",
    )
    headers = scheme.sign(body, SECRET, now, message_id)
    assert {name for name, _ in headers} == {b"x-sig", b"x-id", b"x-t"}
    assert scheme.verify(Delivery("acme", headers, body), [SECRET], now).signed_at == int(now)


def test_the_template_is_what_is_signed():
    """Literals, header values and body are joined in their order."""
    digest = hmac.new(SECRET.value, b"v0:1800000000:" + BODY, hashlib.sha256).hexdigest().encode()
    headers = [(b"x-acme-timestamp", b"1800000000"), (b"x-sig", digest)]
    assert STAMPED.verify(Delivery("acme", headers, BODY), [SECRET], NOW).signed_at == NOW
    assert refusal(STAMPED, [(b"x-acme-timestamp", b"1800000001"), (b"x-sig", digest)]) is Reason.SIGNATURE_MISMATCH


def test_doubled_braces_are_literal():
    """A template may contain braces that stand for themselves."""
    scheme = HmacScheme(header="X-Sig", signed="{{{body}}}")
    digest = hmac.new(SECRET.value, b"{Hello, World!}", hashlib.sha256).hexdigest().encode()
    scheme.verify(Delivery("acme", [(b"x-sig", digest)], BODY), [SECRET], NOW)


@pytest.mark.parametrize(("offset", "reason"), [
    (-301, Reason.TOO_OLD), (-300, None), (-299, None), (299, None), (300, None), (301, Reason.IN_THE_FUTURE),
])  # fmt: skip
def test_window_has_exact_edges_both_ways(offset, reason):
    """The signed timestamp counts against the tolerance in both directions."""
    headers = STAMPED.sign(BODY, SECRET, NOW + offset, "")
    if reason is None:
        STAMPED.verify(Delivery("acme", headers, BODY), [SECRET], NOW)
    else:
        assert refusal(STAMPED, headers) is reason


def test_milliseconds_are_a_unit_of_their_own():
    """A timestamp in milliseconds is compared as such, to the millisecond."""
    scheme = HmacScheme(
        header="X-Sig", signed="{timestamp}{body}", timestamp_header="X-T", timestamp_unit="ms", tolerance=5
    )
    headers = scheme.sign(BODY, SECRET, NOW - 4.999, "")
    assert scheme.verify(Delivery("acme", headers, BODY), [SECRET], NOW).signed_at == pytest.approx(NOW - 4.999)
    assert refusal(scheme, scheme.sign(BODY, SECRET, NOW - 5.001, "")) is Reason.TOO_OLD


@pytest.mark.parametrize("stamp", [b"+1800000000", b" 1800000000", b"1800000000.5", b"", b"\xff", b"9" * 5000])
def test_only_digits_are_a_timestamp(stamp):
    """Other spellings are refused even when they are signed."""
    digest = hmac.new(SECRET.value, b"v0:" + stamp + b":" + BODY, hashlib.sha256).hexdigest().encode()
    assert refusal(STAMPED, [(b"x-acme-timestamp", stamp), (b"x-sig", digest)]) is Reason.TIMESTAMP_MALFORMED


def test_what_is_missing_has_its_reason():
    """Signature, timestamp and signed headers are missed by name."""
    with_id = HmacScheme(header="X-Sig", signed="{header:X-Id}.{body}")
    assert refusal(GITHUB, []) is Reason.SIGNATURE_MISSING
    assert refusal(STAMPED, [(b"x-sig", b"0" * 64)]) is Reason.TIMESTAMP_MISSING
    assert refusal(with_id, [(b"x-sig", b"0" * 64)]) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("name", [b"x-sig", b"x-acme-timestamp"])
def test_a_repeated_header_is_refused(name):
    """The signature or the timestamp twice, even twice the same, is malformed."""
    headers = STAMPED.sign(BODY, SECRET, NOW, "")
    headers.append((name, dict(headers)[name]))
    assert refusal(STAMPED, headers) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("value", [
    b"", b"sha256=", GITHUB_VECTOR[7:], GITHUB_VECTOR.replace(b"sha256", b"sha1"), GITHUB_VECTOR[:-1], GITHUB_VECTOR + b"0",
    b" " + GITHUB_VECTOR, b"SHA256=" + GITHUB_VECTOR[7:],
])  # fmt: skip
def test_a_signature_of_another_shape_is_malformed(value):
    """Without the prefix, or of another length, it cannot be this algorithm in this encoding."""
    assert refusal(GITHUB, [(b"x-hub-signature-256", value)]) is Reason.SIGNATURE_MALFORMED


def test_base64_has_one_spelling():
    """The unused bits of the last character cannot be used to spell one digest differently."""
    scheme = HmacScheme(header="X-Sig", encoding="base64")
    good = scheme.sign(BODY, SECRET, NOW, "")[0][1]
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = good[:-2] + bytes([alphabet[alphabet.index(good[-2]) ^ 1]]) + b"="
    assert base64.b64decode(other) == base64.b64decode(good)
    assert refusal(scheme, [(b"x-sig", other)]) is Reason.SIGNATURE_MISMATCH


def test_a_changed_body_or_secret_fails():
    """One byte more, one byte less, or another secret."""
    headers = [(b"x-hub-signature-256", GITHUB_VECTOR)]
    assert refusal(GITHUB, headers, BODY + b" ") is Reason.SIGNATURE_MISMATCH
    assert refusal(GITHUB, headers, BODY[:-1]) is Reason.SIGNATURE_MISMATCH
    assert refusal(GITHUB, headers, secrets=[Secret(value=b"another")]) is Reason.SIGNATURE_MISMATCH


def test_an_empty_secret_is_never_tried():
    """Anybody can sign with the empty key."""
    empty = Secret(value=b"")
    assert refusal(GITHUB, GITHUB.sign(BODY, empty, NOW, ""), secrets=[empty]) is Reason.SIGNATURE_MISMATCH


header_lists = st.lists(
    st.tuples(
        st.sampled_from([b"x-sig", b"x-acme-timestamp", b"host"]), st.binary(max_size=80) | st.just(b"1800000000")
    )
)


@given(headers=header_lists, body=st.binary(max_size=50), key=st.binary(max_size=80))
def test_arbitrary_bytes_are_refused_and_nothing_else(headers, body, key):
    """Random headers, bodies and secrets give a VerificationError, never another exception."""
    refusal(STAMPED, headers, body, secrets=[Secret(value=key)])


@pytest.mark.parametrize(
    "scheme", [GITHUB, HmacScheme(header="X-Hub-Signature-256", prefix="sha256=", encoding="base64")]
)
@pytest.mark.parametrize("byte", range(256))
def test_every_byte_value_is_survived_in_the_header(scheme, byte):
    """A signature of the right length made of any one byte is refused."""
    for length in (44, 64):
        refusal(scheme, [(b"x-hub-signature-256", b"sha256=" + bytes([byte]) * length)])


@pytest.mark.parametrize(
    "options",
    [
        {"signed": ""},
        {"signed": "static"},
        {"signed": "{timestamp}", "timestamp_header": "X-T"},
        {"signed": "{body}{body}"},
        {"signed": "{body"},
        {"signed": "{body!r}"},
        {"signed": "{body:>10}"},
        {"signed": "{url}{body}"},
        {"signed": "{}{body}"},
        {"signed": "{header}{body}"},
        {"signed": "{header:X Y}{body}"},
        {"signed": "{timestamp}.{body}"},
        {"signed": "{body}", "timestamp_header": "X-T"},
        {"signed": "{header:X-Other}.{body}", "timestamp_header": "X-T"},
        {"header": ""},
        {"header": "X Sig"},
        {"header": "X-Sig\n"},
        {"header": "Ünicode"},
        {"prefix": "ß"},
        {"algorithm": "md5"},
        {"encoding": "base32"},
        {"timestamp_unit": "us"},
        {"tolerance": 0},
    ],
)
def test_what_cannot_work_fails_at_construction(options):
    """An unsigned body, an unsigned timestamp, unknown parts and impossible names are found before any request."""
    with pytest.raises(ConfigurationError) as caught:
        HmacScheme(**({"header": "X-Sig"} | options))
    assert caught.value.code == "HO101"


def test_knows_which_headers_are_signed():
    """The template says which headers can be trusted."""
    assert STAMPED.signed_headers == {b"x-acme-timestamp"}
    assert GITHUB.signed_headers == set()
    assert header_name("X-Acme-ID") == b"x-acme-id"
