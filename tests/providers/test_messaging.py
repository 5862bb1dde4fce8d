"""What is peculiar to senders of messages: addresses that are signed, compressed bodies, tokens, challenges, composed ids."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import hmac
import json
import tracemalloc
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hookonce.clock import SetClock
from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.flow.receive import Bounds, Opened, Receiver
from hookonce.flow.verify import verify
from hookonce.model import Answer, Delivery, Facts, Secret
from hookonce.providers import PROVIDERS
from hookonce.providers.base import Endpoint
from hookonce.registry import Registry, Source
from hookonce.schemes.getstream import inflated
from hookonce.schemes.inflate import INFLATED_BYTES_MAX

NOW = 1_800_000_000.0
URL = "https://example.com/webhooks/source"
SECRET = "nine bells over still water, forty of them rung"
KEY = SECRET.encode()
OTHER_KEY = b"not the one that was configured"
FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"content-type": "application/json"}


def sent(
    name: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    query: bytes = b"",
    method: str = "POST",
    path: str = "/webhooks/source",
) -> Delivery:
    pairs = [(key.encode(), value.encode("latin-1")) for key, value in (headers or {}).items()]
    return Delivery(name, pairs, body, path, query, method=method)


def changed(delivery: Delivery, **headers: str) -> Delivery:
    """The request with other values of these headers."""
    new = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return dataclasses.replace(delivery, headers=[(name, new.get(name, value)) for name, value in delivery.headers])


def refusal(endpoint: Endpoint, delivery: Delivery, now: float = NOW) -> Reason:
    """Why it is refused: the scheme says so itself, not the net below it."""
    with pytest.raises(VerificationError) as caught:
        endpoint.provider.scheme.verify(delivery, endpoint.secrets, now)
    return caught.value.reason


def hex_of(text: bytes, key: bytes = KEY, algorithm: str = "sha256") -> str:
    return hmac.new(key, text, algorithm).hexdigest()


def base64_of(text: bytes, key: bytes = KEY, algorithm: str = "sha256") -> str:
    return b64encode(hmac.new(key, text, algorithm).digest()).decode()


def facts_of(endpoint: Endpoint, document: Any, outer: Any = None) -> Facts:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return endpoint.provider.facts(sent(endpoint.name, JSON, body), outer)


def door(endpoint: Endpoint, now: float = NOW) -> Receiver:
    registry = Registry()
    registry.add(Source(endpoint, lambda _: None))
    return Receiver(registry, SetClock(now), Bounds())


def greeted(endpoint: Endpoint, delivery: Delivery) -> Answer | None:
    """The answer to a request that nobody signed."""
    return door(endpoint).greet(delivery)


def opened(endpoint: Endpoint, delivery: Delivery, now: float = NOW) -> Opened:
    """What is in a request, once it is verified."""
    return door(endpoint, now).open(delivery)


def turned_away(endpoint: Endpoint, delivery: Delivery, now: float = NOW) -> Reason:
    """Why the door stays shut: neither as a greeting nor as a signed request is it answered."""
    assert greeted(endpoint, delivery) is None
    with pytest.raises(VerificationError) as caught:
        opened(endpoint, delivery, now)
    return caught.value.reason


def said(answer: Answer | None) -> Any:
    """What an answer says: its status if that is all, its JSON or its text."""
    assert answer is not None
    if answer.content_type == "application/json":
        return json.loads(answer.body)
    assert answer.content_type == "text/plain; charset=utf-8"
    return answer.body.decode() or answer.status


# Twilio

# From twilio/twilio-python, tests/unit/test_request_validator.py: token, address, parameters, body and signatures.
TWILIO_TOKEN = "12345"
TWILIO_URL = "https://mycompany.com/myapp.php?foo=1&bar=2"
TWILIO_CALL = {
    "CallSid": "CA1234567890ABCDE",
    "Digits": "1234",
    "From": "+14158675309",
    "To": "+18005551212",
    "Caller": "+14158675309",
}
TWILIO_CALL_SIGNATURE = "RSOYDt4T1cUTdK1PDd93/VVr8B8="
TWILIO_TWICE = "Sid=CA123&SidAccount=AC123&Digits=5678&Digits=1234"
TWILIO_JSON = b'{"property": "value", "boolean": true}'
TWILIO_JSON_HASH = "0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"


def twilio(url: str = URL, secret: str = SECRET) -> Endpoint:
    return PROVIDERS["twilio"](secret, url=url)


def twilio_form(signature: str, fields: str, *, query: bytes = b"") -> Delivery:
    return sent("twilio", {"x-twilio-signature": signature, **FORM}, fields.encode(), query=query)


@pytest.mark.parametrize(
    ("url", "signature"),
    [
        (TWILIO_URL, TWILIO_CALL_SIGNATURE),
        ("https://mycompany.com:443/myapp.php?foo=1&bar=2", TWILIO_CALL_SIGNATURE),
        ("https://mycompany.com:1234/myapp.php?foo=1&bar=2", TWILIO_CALL_SIGNATURE),
        ("https://mycompany.com/myapp.php", TWILIO_CALL_SIGNATURE),
        ("http://mycompany.com:1234/myapp.php?foo=1&bar=2", "Zmvh+3yNM1Phv2jhDCwEM3q5ebU="),
        (TWILIO_URL, "kvajT1Ptam85bY51eRf/AJRuM3w="),
        ("http://mycompany.com/myapp.php?foo=1&bar=2", "0ZXoZLH/DfblKGATFgpif+LLRf4="),
    ],
)
def test_twilios_published_forms(url: str, signature: str) -> None:
    """With the port or without it, with the query configured or taken as it comes; and never with another field."""
    delivery = twilio_form(signature, urlencode(TWILIO_CALL), query=b"foo=1&bar=2")
    assert verify(twilio(url, TWILIO_TOKEN), delivery, NOW)
    more = dataclasses.replace(delivery, body=delivery.body + b"&Digits=5")
    assert refusal(twilio(url, TWILIO_TOKEN), more) is Reason.SIGNATURE_MISMATCH


def test_twilios_published_form_with_a_field_twice() -> None:
    """Both values are signed, in their order; the same value again changes nothing."""
    for fields in (TWILIO_TWICE, TWILIO_TWICE + "&Digits=1234"):
        assert verify(twilio(TWILIO_URL, TWILIO_TOKEN), twilio_form("IK+Dwps556ElfBT0I3Rgjkr1wJU=", fields), NOW)


def test_twilios_published_json() -> None:
    """The hash in the signed query vouches for the body, and for no other."""
    assert hashlib.sha256(TWILIO_JSON).hexdigest() == TWILIO_JSON_HASH
    headers = {"x-twilio-signature": "a9nBmqA0ju/hNViExpshrM61xv4=", **JSON}
    delivery = sent("twilio", headers, TWILIO_JSON, query=f"foo=1&bar=2&bodySHA256={TWILIO_JSON_HASH}".encode())
    endpoint = twilio(TWILIO_URL, TWILIO_TOKEN)
    assert verify(endpoint, delivery, NOW)
    assert refusal(endpoint, dataclasses.replace(delivery, body=TWILIO_JSON + b" ")) is Reason.SIGNATURE_MISMATCH


def test_twilio_with_a_shared_key() -> None:
    """SHA-256 where the request announces it, SHA-1 where it announces nothing, and no other algorithm."""
    headers = {
        "x-twilio-signature": base64_of(URL.encode() + b"A1B1B2"),
        "x-twilio-webhooks-signature-settings": "key=SK1,algorithm=HMAC_SHA256",
    }
    delivery = sent("twilio", headers, b"A=1&B=2&B=2&B=1")
    assert verify(twilio(), delivery, NOW)
    unannounced = dataclasses.replace(delivery, headers=delivery.headers[:1])
    assert refusal(twilio(), unannounced) is Reason.SIGNATURE_MISMATCH
    other = changed(delivery, x_twilio_webhooks_signature_settings="algorithm=none")
    assert refusal(twilio(), other) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("url", [URL, URL + "?a=1"])
def test_the_text_of_a_message_vouches_for_no_body(url: str) -> None:
    """A form whose text looks like the hash of a body does not become a query that announces it."""
    evil = b'{"a":1}'
    text = "&bodySHA256=" + hashlib.sha256(evil).hexdigest()
    signature = base64_of(f"{URL}?a=1Body{text}To+1".encode(), algorithm="sha1")
    genuine = twilio_form(signature, urlencode({"Body": text, "To": "+1"}), query=b"a=1")
    assert verify(twilio(url), genuine, NOW)
    moved = sent("twilio", {"x-twilio-signature": signature}, evil, query=f"a=1Body{text}To+1".encode())
    assert refusal(twilio(url), moved) in (Reason.SIGNATURE_MISMATCH, Reason.SIGNATURE_MALFORMED)


@pytest.mark.parametrize(
    ("fields", "event_id", "type"),
    [
        ({"MessageSid": "SM1", "MessageStatus": "sent"}, "SM1:sent", "message.sent"),
        ({"MessageSid": "SM1", "SmsStatus": "received"}, "SM1:received", "message.received"),
        ({"CallSid": "CA1", "CallStatus": "ringing"}, None, "call.ringing"),
        (
            {"CallSid": "CA1", "CallStatus": "completed", "SequenceNumber": "3"},
            "CA1:completed:3",
            "call.completed",
        ),
        ({"CallSid": "CA1", "RecordingSid": "RE1", "RecordingStatus": "completed"}, None, "recording.completed"),
    ],
)
def test_twilios_forms_have_composed_ids(fields: dict[str, str], event_id: str | None, type: str) -> None:
    """Of a message and its status or a numbered event of a call; for anything else the body stands for an id."""
    facts = twilio().provider.facts(twilio_form("", urlencode(fields)))
    assert (facts.event_id, facts.type) == (event_id, type)


def test_a_batch_of_twilio_is_one_event() -> None:
    """What Event Streams sends is a list, and is read as one."""
    facts = facts_of(twilio(), [{"id": "1"}])
    assert (facts.type, facts.problem) == ("events", None)


@pytest.mark.parametrize("name", ["twilio", "plivo", "messagebird", "mandrill"])
def test_who_signs_the_address_needs_it(name: str) -> None:
    """Without the public address nothing could be verified, and that is said at the start."""
    with pytest.raises(ConfigurationError) as caught:
        PROVIDERS[name](SECRET)
    assert caught.value.code == "HO101"


# Plivo


def plivo_signature(url: str, params: Mapping[str, list[str]], nonce: str) -> str:
    """As Plivo's own library makes it (plivo/plivo-python, plivo/utils/signature_v3.py)."""
    split = urlsplit(url)
    query = sorted(parse_qs(split.query, keep_blank_values=True).items())
    asked = "&".join(f"{name}={value}" for name, values in query for value in sorted(values))
    posted = "".join(name + value for name, values in sorted(params.items()) for value in sorted(values))
    mark = "?" if asked or posted else ""
    between = "." if asked and posted else ""
    return base64_of(f"{split.scheme}://{split.netloc}{split.path}{mark}{asked}{between}{posted}.{nonce}".encode())


@pytest.mark.parametrize("query", ["", "b=2&a=1&a=0"])
@pytest.mark.parametrize("params", [{}, {"To": ["1"], "From": ["2"]}, {"A": ["2", "1"]}])
def test_plivo_signs_address_parameters_and_nonce(query: str, params: dict[str, list[str]]) -> None:
    """The query configured or taken as it comes, any one of several signatures, and no other parameter."""
    url = URL + "?" * bool(query) + query
    headers = {
        "x-plivo-signature-v3": "AAAA, " + plivo_signature(url, params, "123"),
        "x-plivo-signature-v3-nonce": "123",
    }
    delivery = sent("plivo", headers | FORM, urlencode(params, doseq=True).encode(), query=query.encode())
    for configured in (url, URL):
        endpoint = PROVIDERS["plivo"](SECRET, url=configured)
        assert verify(endpoint, delivery, NOW)
        more = dataclasses.replace(delivery, body=delivery.body + b"&x=1")
        assert refusal(endpoint, more) is Reason.SIGNATURE_MISMATCH
        other = changed(delivery, x_plivo_signature_v3_nonce="124")
        assert refusal(endpoint, other) is Reason.SIGNATURE_MISMATCH


def test_parameters_do_not_move_into_the_nonce() -> None:
    """A nonce with a full stop in it could be the end of the parameters; it is refused, as is an empty one."""
    signature = plivo_signature(URL, {"A": ["1"], "B": ["2"]}, "5")
    endpoint = PROVIDERS["plivo"](SECRET, url=URL)
    for nonce in ("2.5", ""):
        headers = {"x-plivo-signature-v3": signature, "x-plivo-signature-v3-nonce": nonce}
        assert refusal(endpoint, sent("plivo", headers, b"A=1&B=")) is Reason.SIGNATURE_MALFORMED


def test_plivos_second_version_covers_no_body() -> None:
    """It is taken where it is asked for only, and the endpoint knows what it does not cover."""
    second, third = PROVIDERS["plivo"](SECRET, url=URL, signature="v2"), PROVIDERS["plivo"](SECRET, url=URL)
    headers = {"x-plivo-signature-v2": base64_of(f"{URL}5".encode()), "x-plivo-signature-v2-nonce": "5"}
    delivery = sent("plivo", headers, b"a=1", query=b"q=1")
    assert verify(second, delivery, NOW)
    assert refusal(third, delivery) is Reason.SIGNATURE_MISSING
    assert not second.provider.scheme.body_bound and not second.provider.profile.id_signed
    assert third.provider.scheme.body_bound and third.provider.profile.id_signed
    with pytest.raises(ConfigurationError, match="v1"):
        PROVIDERS["plivo"](SECRET, url=URL, signature="v1")


# Sinch

# From developers.sinch.com/docs/voice/api-reference/authentication/callback-signed-request, the example.
SINCH_SECRET = "BeIukql3pTKJ8RGL5zo0DA=="
SINCH_KEY = "669E367E-6BBA-48AB-AF15-266871C28135"
SINCH_BODY = b'{"event":"ace","callid":"822aa4b7-05b4-4d83-87c7-1f835ee0b6f6_257","timestamp":"2014-09-24T10:59:41Z","version":1}'
SINCH_SIGNATURE = "Tg6fMyo8mj9pYfWQ9ssbx3Tc1BNC87IEygAfLbJqZb4="
SINCH_AT = datetime(2014, 9, 24, 10, 59, 41, tzinfo=UTC).timestamp()


def sinch_service(word: str = "Application") -> Delivery:
    headers = {
        "x-timestamp": "2014-09-24T10:59:41Z",
        "authorization": f"{word} {SINCH_KEY}:{SINCH_SIGNATURE}",
        **JSON,
    }
    return sent("sinch_service", headers, SINCH_BODY, path="/sinch/callback/ace")


def test_sinchs_published_callback() -> None:
    """The example in Sinch's documentation verifies, and sealing the same request gives the same signature."""
    endpoint = PROVIDERS["sinch_service"](SINCH_SECRET)
    for word in ("Application", "application", "Service"):
        assert verify(endpoint, sinch_service(word), NOW).signed_at == SINCH_AT
    unsigned = sent("sinch_service", JSON, SINCH_BODY, path="/sinch/callback/ace")
    sealed = dict(endpoint.provider.scheme.seal(unsigned, endpoint.secrets[0], SINCH_AT, "").headers)
    assert sealed[b"x-timestamp"] == b"2014-09-24T10:59:41Z"
    assert sealed[b"authorization"].endswith(b":" + SINCH_SIGNATURE.encode())


def test_sinch_signs_everything_but_the_query() -> None:
    """Another path, method, type, time or body is refused; another query is none of its business."""
    endpoint, genuine = PROVIDERS["sinch_service"](SINCH_SECRET), sinch_service()
    assert verify(endpoint, dataclasses.replace(genuine, query=b"a=1"), NOW)
    for other in (
        dataclasses.replace(genuine, path="/other"),
        dataclasses.replace(genuine, method="PUT"),
        dataclasses.replace(genuine, body=SINCH_BODY + b" "),
        changed(genuine, content_type="text/plain"),
        changed(genuine, x_timestamp="2014-09-24T10:59:42Z"),
    ):
        assert refusal(endpoint, other) is Reason.SIGNATURE_MISMATCH
    assert refusal(endpoint, sinch_service("Bearer")) is Reason.SIGNATURE_MALFORMED


def test_sinch_behind_a_proxy_and_with_a_limit() -> None:
    """The configured address decides the path, and a tolerance how old a callback may be."""
    moved = dataclasses.replace(sinch_service(), path="/inner")
    url = "https://callbacks.yourdomain.com/sinch/callback/ace"
    assert verify(PROVIDERS["sinch_service"](SINCH_SECRET, url=url), moved, NOW)
    limited = PROVIDERS["sinch_service"](SINCH_SECRET, tolerance=60)
    assert verify(limited, sinch_service(), SINCH_AT + 60)
    assert refusal(limited, sinch_service(), SINCH_AT + 61) is Reason.TOO_OLD


def sinch_conversation(body: bytes, nonce: str, signature: str) -> Delivery:
    header = "x-sinch-webhook-signature"
    headers = {header: signature, f"{header}-nonce": nonce, f"{header}-timestamp": "1800000000"}
    return sent("sinch_conversation", headers, body)


def test_a_body_does_not_move_into_sinchs_nonce() -> None:
    """The end of a body, behind a full stop of its own, is no nonce, though the signed bytes are the same."""
    endpoint, body = PROVIDERS["sinch_conversation"](SECRET), b'{"a":1.5,"message":{"id":"m"}}'
    signature = base64_of(body + b".N1.1800000000")
    assert verify(endpoint, sinch_conversation(body, "N1", signature), NOW).signed_at == NOW
    shifted = sinch_conversation(b'{"a":1', '5,"message":{"id":"m"}}.N1', signature)
    assert refusal(endpoint, shifted) is Reason.SIGNATURE_MALFORMED


def test_sinchs_nonce_is_declared_like_any_other_scheme() -> None:
    """A secret can be made for it, and what is signed names the nonce."""
    declared = PROVIDERS["sinch_conversation"]
    assert declared(declared.new_secret())
    assert "nonce" in declared(SECRET).provider.scheme.describe()["signed"]


# Stream

STREAM_BODY = b'{"type":"message.new","message":{"id":"m"},"created_at":"2027-01-15T08:00:00Z"}'


def stream(raw: bytes, signed: bytes = STREAM_BODY) -> Delivery:
    headers = {"x-signature": hex_of(signed), "content-encoding": "gzip", "x-webhook-id": "w1"}
    return sent("getstream_chat", headers, raw)


def test_stream_signs_what_was_compressed() -> None:
    """A compressed body is inflated to be verified and read, and kept as it came."""
    endpoint, raw = PROVIDERS["getstream_chat"](SECRET), gzip.compress(STREAM_BODY)
    arrival = opened(endpoint, stream(raw)).arrivals[0]
    assert (arrival.facts.event_id, arrival.facts.type, arrival.facts.event_time) == ("w1", "message.new", NOW)
    assert arrival.body == raw
    assert refusal(endpoint, stream(gzip.compress(STREAM_BODY + b" "))) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw[:10],
        lambda raw: raw + b"x",
        lambda raw: raw + raw,
        lambda raw: b"",
        lambda raw: STREAM_BODY,
    ],
    ids=["cut", "only a header", "something after it", "twice", "empty", "not compressed"],
)
def test_a_damaged_compressed_body_is_refused(damage: Callable[[bytes], bytes]) -> None:
    """Cut short, with something after its end, or no gzip at all: neither verified nor read."""
    endpoint, delivery = PROVIDERS["getstream_chat"](SECRET), stream(damage(gzip.compress(STREAM_BODY)))
    assert refusal(endpoint, delivery) is Reason.SIGNATURE_MALFORMED
    assert endpoint.provider.facts(delivery).problem == "not_json"


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 131_072, INFLATED_BYTES_MAX])
def test_a_compressed_body_is_inflated_whole(size: int) -> None:
    """Whatever its size against the steps in which it is read, up to the bound and with it."""
    assert inflated(stream(gzip.compress(b"a" * size))) == b"a" * size


def test_a_gzip_bomb_is_refused() -> None:
    """One byte above the bound is too much, be it signed or not, and the door stays shut."""
    endpoint, large = PROVIDERS["getstream_chat"](SECRET), b"0" * (INFLATED_BYTES_MAX + 1)
    bomb = stream(gzip.compress(large), large)
    assert turned_away(endpoint, bomb) is Reason.SIGNATURE_MALFORMED
    assert endpoint.provider.facts(bomb).problem == "not_json"
    unsigned = dataclasses.replace(bomb, headers=bomb.headers[1:])
    assert turned_away(endpoint, unsigned) is Reason.SIGNATURE_MISSING


def test_a_gzip_bomb_takes_no_memory() -> None:
    """What would be eight times the bound is dropped on the way, not after it is there."""
    endpoint, bomb = PROVIDERS["getstream_chat"](SECRET), stream(gzip.compress(b"0" * 8 * INFLATED_BYTES_MAX, 1))
    assert len(bomb.body) < Bounds().body_bytes_max
    tracemalloc.start()
    try:
        assert refusal(endpoint, bomb) is Reason.SIGNATURE_MALFORMED
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * INFLATED_BYTES_MAX


# Klaviyo

KLAVIYO_AT = "Fri, 15 Jan 2027 08:00:00 GMT"


def klaviyo(at: str, body: bytes = b'{"data":[]}') -> Delivery:
    headers = {"klaviyo-timestamp": at, "klaviyo-signature": hex_of(body + at.encode())}
    return sent("klaviyo", headers, body)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (KLAVIYO_AT, NOW),
        ("1800000000", NOW),
        ("1800000000123", NOW + 0.123),
        ("2027-01-15T08:00:00", NOW),
        ("2027-01-15T08:00:00.5+00:00", NOW + 0.5),
    ],
)
def test_klaviyos_times_are_read(text: str, at: float) -> None:
    """As in HTTP, in seconds, in milliseconds and in ISO 8601."""
    assert verify(PROVIDERS["klaviyo"](SECRET), klaviyo(text), NOW).signed_at == at


@pytest.mark.parametrize(
    "text",
    [
        "180000000",
        "Fri, 15 Jan 2027 08:00:00  GMT",
        "fri, 15 Jan 2027 08:00:00 GMT",
        "15 Jan 2027 08:00:00 GMT",
        "x GMT",
        " GMT",
        "",
    ],
)
def test_klaviyos_times_have_one_spelling(text: str) -> None:
    """A time that is written in any other way is none, however it is signed."""
    assert refusal(PROVIDERS["klaviyo"](SECRET), klaviyo(text)) is Reason.TIMESTAMP_MALFORMED


@pytest.mark.parametrize("text", [KLAVIYO_AT, "1800000000", "2027-01-15T08:00:00.5+00:00"])
def test_klaviyos_time_does_not_move_into_the_body(text: str) -> None:
    """Nothing stands between the two: wherever the time is cut, what is left of it is none."""
    endpoint, genuine = PROVIDERS["klaviyo"](SECRET), klaviyo(text)
    for cut in range(1, len(text) + 1):
        shifted = dataclasses.replace(genuine, body=genuine.body + text[:cut].encode())
        assert refusal(endpoint, changed(shifted, klaviyo_timestamp=text[cut:])) is Reason.TIMESTAMP_MALFORMED


def test_klaviyos_window_and_secret() -> None:
    """Of any age unless a tolerance is given, never from the future, and never with a short secret."""
    endpoint = PROVIDERS["klaviyo"](SECRET)
    assert verify(endpoint, klaviyo(KLAVIYO_AT), NOW + 10**6)
    assert refusal(endpoint, klaviyo(KLAVIYO_AT), NOW - 301) is Reason.IN_THE_FUTURE
    assert refusal(PROVIDERS["klaviyo"](SECRET, tolerance=60), klaviyo(KLAVIYO_AT), NOW + 61) is Reason.TOO_OLD
    with pytest.raises(ConfigurationError, match="16 characters"):
        PROVIDERS["klaviyo"]("short")


# Mailgun


def mailgun_proof(at: str = "1800000000", token: str = "tok") -> dict[str, str]:
    return {"timestamp": at, "token": token, "signature": hex_of(f"{at}{token}".encode())}


def mailgun_form(**proof: str) -> Delivery:
    return sent("mailgun", FORM, urlencode({**proof, "recipient": "a@example.com"}).encode())


def test_mailgun_forwards_forms() -> None:
    """The proof stands among the fields, and its token is the only id that forwarded mail has."""
    endpoint, delivery = PROVIDERS["mailgun"](SECRET), mailgun_form(**mailgun_proof())
    assert verify(endpoint, delivery, NOW).signed_at == NOW
    facts = endpoint.provider.facts(delivery)
    assert (facts.event_id, facts.type, facts.event_time) == ("tok", "inbound", NOW)


def test_mailguns_ids_are_told_apart_by_the_day() -> None:
    """An event's id is unique within a day only, so its day is part of it."""
    document = {
        "signature": mailgun_proof(),
        "event-data": {"id": "i", "event": "opened", "timestamp": 1529006854.329574},
    }
    endpoint, delivery = PROVIDERS["mailgun"](SECRET), sent("mailgun", {}, json.dumps(document).encode())
    assert verify(endpoint, delivery, NOW)
    facts = endpoint.provider.facts(delivery)
    assert (facts.event_id, facts.type, facts.delivery_id) == (f"i:{1529006854 // 86_400}", "opened", "tok")


def test_mailguns_window_bounds_what_a_proof_is_good_for() -> None:
    """A quarter of an hour back, five minutes ahead, or as configured."""
    endpoint, delivery = PROVIDERS["mailgun"](SECRET), mailgun_form(**mailgun_proof())
    assert verify(endpoint, delivery, NOW + 900)
    assert refusal(endpoint, delivery, NOW + 901) is Reason.TOO_OLD
    assert refusal(endpoint, delivery, NOW - 301) is Reason.IN_THE_FUTURE
    assert refusal(PROVIDERS["mailgun"](SECRET, tolerance=60), delivery, NOW + 61) is Reason.TOO_OLD


def test_mailguns_time_and_token_share_no_digits() -> None:
    """A digit that moves between the two keeps the signature and makes another time, which is refused."""
    endpoint, proof = PROVIDERS["mailgun"](SECRET), mailgun_proof(token="7tok")
    assert verify(endpoint, mailgun_form(**proof), NOW)
    later = mailgun_form(**{**proof, "timestamp": "18000000007", "token": "tok"})
    assert refusal(endpoint, later) is Reason.IN_THE_FUTURE
    earlier = mailgun_form(**{**proof, "timestamp": "180000000", "token": "07tok"})
    assert refusal(endpoint, earlier) is Reason.TOO_OLD
    assert refusal(endpoint, mailgun_form(**{**proof, "token": ""})) is Reason.SIGNATURE_MALFORMED


# tokens


def token(algorithm: str = "HS256", key: bytes = KEY, **claims: Any) -> str:
    """A JSON web token, by the standard library alone."""

    def segment(part: bytes) -> bytes:
        return urlsafe_b64encode(part).rstrip(b"=")

    head = json.dumps({"alg": algorithm, "typ": "JWT"}).encode()
    text = segment(head) + b"." + segment(json.dumps(claims).encode())
    signature = b"" if algorithm == "none" else hmac.digest(key, text, f"sha{algorithm[2:]}")
    return (text + b"." + segment(signature)).decode()


VONAGE_BODY = b'{"status":"delivered","message_uuid":"u","timestamp":"2027-01-15T08:00:00Z"}'
VONAGE_HASH = hashlib.sha256(VONAGE_BODY).hexdigest()


def vonage(made: str, body: bytes = VONAGE_BODY) -> Delivery:
    return sent("vonage", {"authorization": f"Bearer {made}", **JSON}, body)


def test_vonages_token_names_the_body() -> None:
    """Its id is the event's, whatever the body says of itself, and it has no end."""
    endpoint = PROVIDERS["vonage"](SECRET)
    for at in (int(NOW) - 5, int(NOW) - 10**6):
        delivery = vonage(token(iat=at, jti="j1", payload_hash=VONAGE_HASH))
        assert verify(endpoint, delivery, NOW).signed_at == at
        assert endpoint.provider.facts(delivery).event_id == "j1"
    claiming = dataclasses.replace(delivery, body=b'{"claims":{"jti":"x"}}')
    assert endpoint.provider.facts(claiming).event_id == "j1"
    assert refusal(endpoint, claiming) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (token(iat=int(NOW), jti="j1", payload_hash=VONAGE_HASH[::-1]), Reason.SIGNATURE_MISMATCH),
        (token(iat=int(NOW), jti="j1"), Reason.SIGNATURE_MISMATCH),
        (token(iat=int(NOW) + 1_000, jti="j1", payload_hash=VONAGE_HASH), Reason.IN_THE_FUTURE),
        (token(jti="j1", payload_hash=VONAGE_HASH), Reason.SIGNATURE_MALFORMED),
        (token("none", iat=1, payload_hash=VONAGE_HASH), Reason.SIGNATURE_MALFORMED),
        (token("HS512", iat=1, payload_hash=VONAGE_HASH), Reason.SIGNATURE_MALFORMED),
        (token(key=OTHER_KEY, iat=1, payload_hash=VONAGE_HASH), Reason.SIGNATURE_MISMATCH),
    ],
    ids=["another body", "no body", "the future", "no time", "unsigned", "another algorithm", "another key"],
)
def test_a_token_that_vonage_would_not_send_is_refused(made: str, reason: Reason) -> None:
    """About another body or none, from the future, unsigned, or signed in another way or by somebody else."""
    assert refusal(PROVIDERS["vonage"](SECRET), vonage(made)) is reason


LIVEKIT_BODY = b'{"event":"room_started","id":"E","createdAt":"1800000000"}'


def livekit(**claims: Any) -> Delivery:
    digest = b64encode(hashlib.sha256(LIVEKIT_BODY).digest()).decode()
    return sent("livekit", {"authorization": token(sha256=digest, **claims)}, LIVEKIT_BODY)


def test_livekits_token_is_of_one_api_key() -> None:
    """Only of the key that is configured, and of any where none is."""
    ours = PROVIDERS["livekit"](SECRET, api_key="API1")
    delivery = livekit(iss="API1", exp=int(NOW) + 60)
    assert verify(ours, delivery, NOW)
    assert ours.provider.facts(delivery).event_time == NOW
    other = livekit(iss="API2", exp=int(NOW) + 60)
    assert refusal(ours, other) is Reason.SIGNATURE_MISMATCH
    assert verify(PROVIDERS["livekit"](SECRET), other, NOW)


def test_livekits_token_ends() -> None:
    """One that has expired is refused, and so is one that never would."""
    endpoint = PROVIDERS["livekit"](SECRET, api_key="API1")
    assert refusal(endpoint, livekit(iss="API1", exp=int(NOW) - 120)) is Reason.TOO_OLD
    assert refusal(endpoint, livekit(iss="API1")) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_messagebirds_token_names_body_and_address(algorithm: str) -> None:
    """The query is part of the address, so another one is refused; so are another body and another issuer."""
    claims = {
        "iss": "MessageBird",
        "nbf": int(NOW),
        "exp": int(NOW) + 60,
        "jti": "q",
        "payload_hash": hashlib.sha256(b"{}").hexdigest(),
        "url_hash": hashlib.sha256(f"{URL}?a=1".encode()).hexdigest(),
    }
    endpoint = PROVIDERS["messagebird"](SECRET, url=URL)
    headers = {"messagebird-signature-jwt": token(algorithm, **claims)}
    delivery = sent("messagebird", headers, b"{}", query=b"a=1")
    assert verify(endpoint, delivery, NOW)
    assert endpoint.provider.facts(delivery).event_id == "q"
    assert refusal(endpoint, dataclasses.replace(delivery, query=b"a=2")) is Reason.SIGNATURE_MISMATCH
    assert refusal(endpoint, dataclasses.replace(delivery, body=b"[]")) is Reason.SIGNATURE_MISMATCH
    foreign = changed(delivery, messagebird_signature_jwt=token(algorithm, **{**claims, "iss": "Bird"}))
    assert refusal(endpoint, foreign) is Reason.SIGNATURE_MISMATCH


# handshakes that nobody signs


def meta_asks(token: str = "vt", mode: str = "subscribe", challenge: str = "11<58", method: str = "GET") -> Delivery:
    fields = {"hub.mode": mode, "hub.challenge": challenge, "hub.verify_token": token}
    return sent("whatsapp_meta", query=urlencode(fields).encode(), method=method)


def test_meta_is_answered_with_the_right_token() -> None:
    """The challenge comes back as text, decoded, and as nothing that a browser would run."""
    assert said(greeted(PROVIDERS["whatsapp_meta"](SECRET, verify_token="vt"), meta_asks())) == "11<58"


@pytest.mark.parametrize(
    "delivery",
    [
        meta_asks(token="x"),
        meta_asks(token=""),
        meta_asks(token=SECRET),
        meta_asks(mode="unsubscribe"),
        meta_asks(challenge="1" * 1_001),
        meta_asks(method="POST"),
        meta_asks(method="HEAD"),
        sent("whatsapp_meta", method="GET"),
        sent("whatsapp_meta", query=b"hub.mode=subscribe&hub.challenge=1", method="GET"),
        sent("whatsapp_meta", query=b"hub.mode=subscribe&hub.challenge=%FF&hub.verify_token=vt", method="GET"),
    ],
    ids=lambda delivery: f"{delivery.method} {delivery.query.decode()[:60]}",
)
def test_meta_is_not_answered_otherwise(delivery: Delivery) -> None:
    """Another token or none, another mode or method, a challenge too long or no text: the door stays shut."""
    endpoint = PROVIDERS["whatsapp_meta"](SECRET, verify_token="vt")
    assert turned_away(endpoint, delivery) is Reason.SIGNATURE_MISSING


@pytest.mark.parametrize("token", [None, ""])
def test_meta_is_not_answered_where_no_token_is_configured(token: str | None) -> None:
    """No token, and one that is empty, match nothing: not even nothing."""
    endpoint = PROVIDERS["whatsapp_meta"](SECRET, verify_token=token)
    for asked in ("vt", "", "None"):
        assert greeted(endpoint, meta_asks(asked)) is None


def x_asks(query: bytes, method: str = "GET") -> Delivery:
    return sent("x_twitter", query=query, method=method)


def test_x_hears_its_challenge_signed() -> None:
    """With the secret, and with the first one where there are several."""
    for secrets in (SECRET, [SECRET, "another"]):
        answer = greeted(PROVIDERS["x_twitter"](secrets), x_asks(b"crc_token=abc%3D"))
        assert said(answer) == {"response_token": f"sha256={base64_of(b'abc=')}"}


@pytest.mark.parametrize(
    "delivery",
    [
        x_asks(b""),
        x_asks(b"crc_token="),
        x_asks(b"crc_token=%7B%22a%22%3A1%7D"),
        x_asks(b"crc_token=a%0Ab"),
        x_asks(b"crc_token=" + b"a" * 257),
        x_asks(b"crc_token=abc", "POST"),
        x_asks(b"crc_token=abc", "HEAD"),
    ],
    ids=lambda delivery: f"{delivery.method} {delivery.query.decode()[:60]}",
)
def test_x_has_nothing_signed_but_challenges(delivery: Delivery) -> None:
    """What could be the body of an event, what is too long or no token, and what does not ask gets no signature."""
    assert turned_away(PROVIDERS["x_twitter"](SECRET), delivery) is Reason.SIGNATURE_MISSING


def test_the_answer_to_x_signs_no_event() -> None:
    """Anybody can have a challenge signed; sent back as an event, it is refused."""
    endpoint = PROVIDERS["x_twitter"](SECRET)
    signature = said(greeted(endpoint, x_asks(b"crc_token=abc%3D")))["response_token"]
    forged = sent("x_twitter", {"x-twitter-webhooks-signature": signature}, b"abc=")
    assert turned_away(endpoint, forged) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_mailchimp_probes_with_the_token(method: str) -> None:
    """It is there for whoever knows the token that ends the address, and for nobody else."""
    endpoint = PROVIDERS["mailchimp_marketing"]("sec")
    assert said(greeted(endpoint, sent("mailchimp_marketing", query=b"token=sec", method=method))) == 200
    for query in (b"token=se", b"token=", b"", b"other=sec"):
        assert greeted(endpoint, sent("mailchimp_marketing", query=query, method=method)) is None
    assert greeted(endpoint, sent("mailchimp_marketing", query=b"token=sec")) is None


def test_ringcentral_hears_its_token_back() -> None:
    """In a header, beside our own token or without any."""
    endpoint = PROVIDERS["ringcentral"](SECRET)
    for more in ({}, {"verification-token": SECRET}):
        answer = greeted(endpoint, sent("ringcentral", {"validation-token": "v-1", **more}))
        assert said(answer) == 200
        assert answer is not None and answer.headers == ((b"validation-token", b"v-1"),)


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        ({"validation-token": "v-1", "verification-token": "no"}, b"", Reason.SIGNATURE_MISMATCH),
        ({"validation-token": "v-1", "verification-token": ""}, b"", Reason.SIGNATURE_MISMATCH),
        ({"validation-token": "v-1"}, b'{"event":"x"}', Reason.SIGNATURE_MISSING),
        ({"validation-token": "v\r\nx: 1"}, b"", Reason.SIGNATURE_MISSING),
        ({"validation-token": ""}, b"", Reason.SIGNATURE_MISSING),
        ({"validation-token": "v" * 257}, b"", Reason.SIGNATURE_MISSING),
        ({}, b"", Reason.SIGNATURE_MISSING),
    ],
)
def test_ringcentral_is_not_answered_otherwise(headers: dict[str, str], body: bytes, reason: Reason) -> None:
    """With a wrong token, with an event, or with what is no token, the door stays shut."""
    assert turned_away(PROVIDERS["ringcentral"](SECRET), sent("ringcentral", headers, body)) is reason


@pytest.mark.parametrize(("name", "options"), [("mandrill", {"url": URL}), ("intercom", {})])
def test_who_asks_whether_anybody_is_there_hears_yes(name: str, options: dict[str, str]) -> None:
    """HEAD is answered with nothing but 200; any other method has to be signed."""
    endpoint = PROVIDERS[name](SECRET, **options)
    assert greeted(endpoint, sent(name, method="HEAD")) == Answer()
    for method in ("GET", "POST", "OPTIONS", "head"):
        assert turned_away(endpoint, sent(name, method=method)) is Reason.SIGNATURE_MISSING


# handshakes that are signed


def by_slack(body: bytes, key: bytes = KEY, at: float = NOW) -> Delivery:
    stamp = f"{at:.0f}"
    signature = "v0=" + hex_of(f"v0:{stamp}:".encode() + body, key)
    return sent("slack", {"x-slack-request-timestamp": stamp, "x-slack-signature": signature}, body)


def by_zoom(body: bytes, key: bytes = KEY, at: float = NOW) -> Delivery:
    stamp = f"{at:.0f}"
    signature = "v0=" + hex_of(f"v0:{stamp}:".encode() + body, key)
    return sent("zoom", {"x-zm-request-timestamp": stamp, "x-zm-signature": signature}, body)


def by_twitch(
    body: bytes, key: bytes = KEY, at: float = NOW, kind: str = "webhook_callback_verification", fraction: str = ""
) -> Delivery:
    stamp = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", f"{fraction}Z")
    headers = {
        "twitch-eventsub-message-id": "id1",
        "twitch-eventsub-message-timestamp": stamp,
        "twitch-eventsub-message-type": kind,
        "twitch-eventsub-message-signature": "sha256=" + hex_of(f"id1{stamp}".encode() + body, key),
    }
    return sent("twitch_eventsub", headers, body)


def by_front(body: bytes, key: bytes = KEY, at: float = NOW, **more: str) -> Delivery:
    stamp = f"{at * 1000:.0f}"
    headers = {
        "x-front-request-timestamp": stamp,
        "x-front-signature": base64_of(f"{stamp}:".encode() + body, key),
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return sent("front", headers, body)


def by_front_with_challenge(body: bytes, key: bytes = KEY, at: float = NOW) -> Delivery:
    return by_front(body, key, at, x_front_challenge="a-challenge")


def discord_key(key: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(key).digest())


def by_discord(body: bytes, key: bytes = KEY, at: float = NOW) -> Delivery:
    stamp = f"{at:.0f}"
    signature = discord_key(key).sign(stamp.encode() + body).hex()
    return sent("discord", {"x-signature-timestamp": stamp, "x-signature-ed25519": signature}, body)


def by_viber(body: bytes, key: bytes = KEY, at: float = NOW) -> Delivery:
    return sent("viber", {"x-viber-content-signature": hex_of(body, key)}, body)


Signs = Callable[[bytes, bytes, float], Delivery]
DISCORD_PUBLIC = discord_key(KEY).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
ZOOM_ASKS = b'{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8"},"event_ts":1}'
ZOOM_HEARS = {"plainToken": "qgg8", "encryptedToken": hex_of(b"qgg8")}
SIGNED_CHALLENGES = [
    pytest.param(by_slack, b'{"token":"t","challenge":"3eZbrw1a","type":"url_verification"}', "3eZbrw1a", id="slack"),
    pytest.param(by_zoom, ZOOM_ASKS, ZOOM_HEARS, id="zoom"),
    pytest.param(by_twitch, b'{"challenge":"pog","subscription":{"type":"a.b"}}', "pog", id="twitch"),
    pytest.param(by_front_with_challenge, b"{}", "a-challenge", id="front"),
    pytest.param(by_discord, b'{"type":1,"id":"1"}', {"type": 1}, id="discord interactions"),
    pytest.param(by_discord, b'{"type":0,"id":"1"}', 204, id="discord events"),
    pytest.param(by_viber, b'{"event":"webhook"}', 200, id="viber"),
]


def endpoint_for(delivery: Delivery) -> Endpoint:
    return PROVIDERS[delivery.source](DISCORD_PUBLIC if delivery.source == "discord" else SECRET)


@pytest.mark.parametrize(("signs", "body", "expected"), SIGNED_CHALLENGES)
def test_a_signed_challenge_is_answered(signs: Signs, body: bytes, expected: Any) -> None:
    """And it is no event: nothing of it arrives."""
    delivery = signs(body, KEY, NOW)
    found = opened(endpoint_for(delivery), delivery)
    assert (said(found.answer), found.arrivals) == (expected, ())


@pytest.mark.parametrize(("signs", "body", "expected"), SIGNED_CHALLENGES)
def test_a_challenge_without_the_right_signature_is_refused(signs: Signs, body: bytes, expected: Any) -> None:
    """Signed by somebody else, not signed at all, or changed after it was signed."""
    genuine = signs(body, KEY, NOW)
    endpoint = endpoint_for(genuine)
    assert turned_away(endpoint, signs(body, OTHER_KEY, NOW)) is Reason.SIGNATURE_MISMATCH
    bare = dataclasses.replace(genuine, headers=[pair for pair in genuine.headers if b"signature" not in pair[0]])
    assert turned_away(endpoint, bare) is Reason.SIGNATURE_MISSING
    assert turned_away(endpoint, dataclasses.replace(genuine, body=body + b" ")) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(("signs", "body", "expected"), [SIGNED_CHALLENGES[n] for n in (0, 2, 3)])
def test_a_challenge_that_is_old_is_refused(signs: Signs, body: bytes, expected: Any) -> None:
    """Where the sender documents how old a request may be, that holds for challenges as well."""
    delivery = signs(body, KEY, NOW)
    assert turned_away(endpoint_for(delivery), delivery, NOW + 601) is Reason.TOO_OLD
    assert turned_away(endpoint_for(delivery), delivery, NOW - 601) is Reason.IN_THE_FUTURE


@pytest.mark.parametrize(
    "delivery",
    [
        by_slack(b'{"type":"event_callback","event_id":"E","event":{"type":"url_verification"},"challenge":"c"}'),
        by_zoom(b'{"event":"meeting.started"}'),
        by_zoom(b'{"event":"x","payload":{"plainToken":"endpoint.url_validation"}}'),
        by_twitch(b'{"challenge":"pog","event":{},"subscription":{"type":"a.b"}}', kind="notification"),
        by_front(b'{"type":"x","payload":{"id":"p"}}'),
        by_discord(b'{"type":1,"event":{"type":"ENTITLEMENT_CREATE"}}'),
        by_discord(b'{"type":2,"id":"1"}'),
        by_viber(b'{"event":"seen","message_token":1}'),
    ],
    ids=lambda delivery: delivery.source,
)
def test_an_event_is_no_challenge(delivery: Delivery) -> None:
    """Though the words of one may stand in it: it arrives, and has no answer of its own."""
    found = opened(endpoint_for(delivery), delivery)
    assert found.answer is None
    assert len(found.arrivals) == 1


@pytest.mark.parametrize(
    "delivery",
    [
        by_zoom(ZOOM_ASKS.replace(b"qgg8", b"q" * 1_001)),
        by_zoom(ZOOM_ASKS.replace(b'"qgg8"', b"{}")),
        by_twitch(b'{"challenge":"%b","subscription":{"type":"a.b"}}' % (b"p" * 1_001)),
        by_twitch(b'{"challenge":5,"subscription":{"type":"a.b"}}'),
        by_front(b'{"payload":{"id":"p"}}', x_front_challenge="c" * 1_001),
        by_front(b'{"payload":{"id":"p"}}', x_front_challenge="\xfc"),
    ],
    ids=lambda delivery: delivery.source,
)
def test_a_challenge_that_is_none_does_not_come_back(delivery: Delivery) -> None:
    """Too long, or no text: signed as it may be, nothing is echoed and nothing is made of it."""
    assert opened(endpoint_for(delivery), delivery).answer is None


def test_slacks_forms_are_no_challenges() -> None:
    """A command whose text is that of a challenge is a command."""
    genuine = by_slack(b'command=%2Ftide&trigger_id=T1&text="url_verification"')
    found = opened(
        PROVIDERS["slack"](SECRET), dataclasses.replace(genuine, headers=[*genuine.headers, *sent("", FORM).headers])
    )
    assert found.answer is None
    assert (found.arrivals[0].facts.event_id, found.arrivals[0].facts.type) == ("T1", "/tide")


@pytest.mark.parametrize("used", ["old", "new"])
def test_zoom_is_answered_with_the_secret_that_it_uses(used: str) -> None:
    """Of two, the one that signed the question makes the answer."""
    endpoint = PROVIDERS["zoom"](["old", "new"])
    answer = opened(endpoint, by_zoom(ZOOM_ASKS, used.encode())).answer
    assert said(answer) == {"plainToken": "qgg8", "encryptedToken": hex_of(b"qgg8", used.encode())}


def test_discords_events_are_read() -> None:
    """The type of an event is in it; that of an interaction is a number."""
    endpoint = PROVIDERS["discord"](DISCORD_PUBLIC)
    assert facts_of(endpoint, {"type": 1, "event": {"type": "ENTITLEMENT_CREATE"}}).type == "ENTITLEMENT_CREATE"
    assert facts_of(endpoint, {"type": 2}).type == "application_command"


def test_viber_may_sign_in_the_address() -> None:
    """The signature is taken from the query as well, and is no less checked there."""
    endpoint, body = PROVIDERS["viber"](SECRET), b'{"event":"seen"}'
    delivery = sent("viber", {}, body, query=f"sig={hex_of(body)}".encode())
    assert verify(endpoint, delivery, NOW)
    assert refusal(endpoint, dataclasses.replace(delivery, body=body + b" ")) is Reason.SIGNATURE_MISMATCH


def test_teams_shows_the_answer_that_was_configured() -> None:
    """Each endpoint has its own, and the declaration none."""
    declared = PROVIDERS["microsoft_teams"]
    key = b64encode(b"k" * 32)
    assert said(declared(key, answer="Noted.").provider.acknowledge) == {"type": "message", "text": "Noted."}
    assert said(declared(key).provider.acknowledge)["text"] == "Received."
    assert declared.acknowledge is None


# batches and ids


@pytest.mark.parametrize(
    ("entry", "event_id"),
    [
        ({"changes": [{"field": "messages", "value": {"statuses": [{"id": "w", "status": "read"}]}}]}, "w:read"),
        ({"changes": [{"field": "messages", "value": {"messages": [{"id": "a"}, {"id": "b"}]}}]}, "a:b"),
        ({"messaging": [{"message": {"mid": "m"}}]}, "m"),
        ({"messaging": [{"message": {"mid": "m", "is_deleted": True}}]}, "m:deleted"),
        ({"messaging": [{"read": {}}]}, None),
        ({"changes": [{"field": "feed", "value": {"item": "post"}}]}, None),
    ],
)
def test_metas_entries_have_ids_where_there_are_messages(entry: dict[str, Any], event_id: str | None) -> None:
    """Of all messages in it and of what became of them; anything else in it, and it has none."""
    assert facts_of(PROVIDERS["whatsapp_meta"](SECRET), {"id": "1", **entry}, {"object": "page"}).event_id == event_id


def test_metas_entries_say_what_they_are() -> None:
    """The product stands around them, the field in them, and the time where there is no message."""
    entry = {"id": "1", "time": 5, "changes": [{"field": "feed", "value": {"item": "post"}}]}
    facts = facts_of(PROVIDERS["whatsapp_meta"](SECRET), entry, {"object": "page"})
    assert (facts.type, facts.event_time) == ("page.feed", 5)


def test_mandrills_batch_is_signed_with_the_address() -> None:
    """Each event of the form's field is one of its own, and the address is part of what is signed."""
    events = [
        {"event": "open", "_id": "m", "ts": 1800000000},
        {"type": "whitelist", "action": "add", "reject": {"email": "a@example.com"}, "ts": 1},
    ]
    text = json.dumps(events)
    signature = base64_of(f"{URL}mandrill_events{text}".encode(), algorithm="sha1")
    delivery = sent(
        "mandrill", {"x-mandrill-signature": signature, **FORM}, urlencode({"mandrill_events": text}).encode()
    )
    arrivals = opened(PROVIDERS["mandrill"](SECRET, url=URL), delivery).arrivals
    assert [json.loads(arrival.body) for arrival in arrivals] == events
    assert [arrival.facts.type for arrival in arrivals] == ["open", "whitelist"]
    assert [arrival.facts.object_id for arrival in arrivals] == ["m", "a@example.com"]
    assert refusal(PROVIDERS["mandrill"](SECRET, url=URL + "/"), delivery) is Reason.SIGNATURE_MISMATCH


def test_line_tries_an_address_without_events() -> None:
    """A signed batch of none is taken, and nothing arrives."""
    body = b'{"destination":"x","events":[]}'
    found = opened(PROVIDERS["line"](SECRET), sent("line", {"x-line-signature": base64_of(body)}, body))
    assert found == Opened()


@pytest.mark.parametrize(
    ("document", "event_id", "type"),
    [
        ({"RecordType": "Bounce", "ID": 42}, "Bounce:42", "Bounce"),
        ({"MessageID": "x"}, "Inbound:x", "Inbound"),
        (
            {"RecordType": "Delivery", "MessageID": "x", "Recipient": "a@example.com"},
            "Delivery:x:a@example.com",
            "Delivery",
        ),
        ({"RecordType": "Open", "MessageID": "x"}, None, "Open"),
    ],
)
def test_postmarks_ids_are_of_what_happens_once(document: dict[str, Any], event_id: str | None, type: str) -> None:
    """A message bounces once and can be opened many times."""
    facts = facts_of(PROVIDERS["postmark"]("user:password"), document)
    assert (facts.event_id, facts.type) == (event_id, type)


def test_vibers_token_alone_is_no_id() -> None:
    """What befalls one message shares its token; what happened and to whom tell it apart."""
    endpoint = PROVIDERS["viber"](SECRET)
    ids = [
        facts_of(endpoint, {"event": event, "message_token": 1, "user_id": user}).event_id
        for event, user in (("seen", "a"), ("seen", "b"), ("delivered", "a"))
    ]
    assert ids == ["1:seen:a", "1:seen:b", "1:delivered:a"]
    assert facts_of(endpoint, {"event": "unsubscribed", "message_token": 1}).event_id == "1:unsubscribed:unsubscribed"


def test_xs_posts_have_ids_and_its_follows_have_none() -> None:
    """For whom it is told is part of the id; what has no id is told by its body."""
    endpoint = PROVIDERS["x_twitter"](SECRET)
    post = facts_of(endpoint, {"for_user_id": "1", "tweet_create_events": [{"id_str": "9"}]})
    assert (post.event_id, post.type) == ("1:tweet_create_events:9", "tweet_create_events")
    follow = facts_of(endpoint, {"for_user_id": "1", "follow_events": [{}]})
    assert (follow.event_id, follow.type) == (None, "follow_events")


def test_twitch_signs_nanoseconds() -> None:
    """A time finer than we can hold is signed as it was written, and read as well as we can."""
    endpoint = PROVIDERS["twitch_eventsub"](SECRET)
    body = b'{"subscription":{"type":"x"},"event":{}}'
    delivery = by_twitch(body, kind="notification", fraction=".123456789")
    assert (b"twitch-eventsub-message-timestamp", b"2027-01-15T08:00:00.123456789Z") in delivery.headers
    assert verify(endpoint, delivery, NOW)
    assert refusal(endpoint, delivery, NOW + 700) is Reason.TOO_OLD
    assert endpoint.provider.facts(delivery).event_time == pytest.approx(NOW, abs=1)


def test_twitch_revokes_without_an_event() -> None:
    """A subscription that has ended says so by what is not in it."""
    document = {"subscription": {"type": "a.b", "status": "authorization_revoked"}}
    assert facts_of(PROVIDERS["twitch_eventsub"](SECRET), document).type == "revocation"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("twitch_eventsub", SECRET),
        ("resend", "whsec_bm9ib2R5IGhhcyB0aGlzIHNlY3JldA=="),
        ("loops", "whsec_bm9ib2R5IGhhcyB0aGlzIHNlY3JldA=="),
    ],
)
def test_ids_in_signed_headers_are_signed(name: str, secret: str) -> None:
    """So nobody can send the same event under another id."""
    assert PROVIDERS[name](secret).provider.profile.id_signed


def test_telegrams_updates_are_named_by_their_field() -> None:
    """What an update is about is the name of the field beside its number."""
    facts = facts_of(PROVIDERS["telegram"]("abc"), {"update_id": 5, "poll": {}})
    assert (facts.event_id, facts.type) == ("5", "poll")


def test_the_token_of_a_bot_is_no_secret_token() -> None:
    """Telegram has two: the one with a colon in it is not the one that comes with an update."""
    assert PROVIDERS["telegram"](Secret(value=b"abc_DEF-1"))
    with pytest.raises(ConfigurationError, match="token of the bot"):
        PROVIDERS["telegram"]("123:abc")


# what an attacker could move, cut or write anew


def test_a_message_cannot_vouch_for_a_body() -> None:
    """Twilio: a signed form whose last field ends like a body's hash, moved into the query, verifies no JSON body."""
    forged = b'{"forged": true}'
    fields = {"Body": f"hello&bodySHA256={hashlib.sha256(forged).hexdigest()}"}
    signature = base64_of(
        URL.encode() + b"?q=1" + b"".join((k + v).encode() for k, v in fields.items()), algorithm="sha1"
    )
    moved = f"q=1Body{fields['Body']}".encode()
    delivery = sent("twilio", {**JSON, "x-twilio-signature": signature}, forged, query=moved)
    assert refusal(twilio(), delivery) is Reason.SIGNATURE_MALFORMED


def test_digits_cannot_move_from_the_time_into_the_body() -> None:
    """Klaviyo: of a time in milliseconds the first three digits could stand at the end of the body instead."""
    endpoint = PROVIDERS["klaviyo"](SECRET)
    signature = hex_of(b'{"data":[]}1800000000123')
    whole = {"klaviyo-signature": signature, "klaviyo-timestamp": "1800000000123"}
    assert verify(endpoint, sent("klaviyo", whole, b'{"data":[]}'), NOW)
    cut = {"klaviyo-signature": signature, "klaviyo-timestamp": "0000000123"}
    assert refusal(endpoint, sent("klaviyo", cut, b'{"data":[]}180')) is Reason.SIGNATURE_MALFORMED


def test_a_body_packed_anew_is_the_same_event() -> None:
    """Stream: the signature is of what was packed, so another packing under another id is a replay (F73)."""
    endpoint = PROVIDERS["getstream_chat"](SECRET)
    body = b'{"type": "message.new", "message": {"id": "m1"}}'
    guards = set()
    for level in (1, 9):
        packed = {"content-encoding": "gzip", "x-signature": hex_of(body), "x-webhook-id": f"w{level}"}
        (arrival,) = opened(endpoint, sent("getstream_chat", packed, gzip.compress(body, level, mtime=level))).arrivals
        guards.add(arrival.guard)
    assert len(guards) == 1 and None not in guards


def test_a_form_written_anew_is_the_same_event() -> None:
    """Twilio: the order of the fields is not signed, so another order is no other event."""
    pairs = [("Body", "hello"), ("MessageSid", "SM1"), ("MessageStatus", "sent")]
    signature = base64_of(URL.encode() + b"".join((k + v).encode() for k, v in pairs), algorithm="sha1")
    guards = set()
    for order in (pairs, pairs[::-1]):
        headers = {**FORM, "x-twilio-signature": signature, "i-twilio-idempotency-token": f"t{len(guards)}"}
        (arrival,) = opened(twilio(), sent("twilio", headers, urlencode(order).encode())).arrivals
        guards.add(arrival.guard)
    assert len(guards) == 1 and None not in guards


def test_an_expired_secret_answers_no_handshake() -> None:
    """X: the challenge is answered with a secret that is valid, and with none where none is."""
    ended = Secret(value=KEY, not_after=datetime.fromtimestamp(NOW - 1, UTC))
    question = sent("x_twitter", method="GET", query=b"crc_token=abc")
    assert greeted(PROVIDERS["x_twitter"]([ended]), question) is None
    answered = said(greeted(PROVIDERS["x_twitter"]([ended, Secret(value=OTHER_KEY)]), question))
    assert base64_of(b"abc", OTHER_KEY) in str(answered)


@pytest.mark.parametrize("kind", ["webhook_callback_verification", "notification", "revocation"])
def test_a_signed_challenge_is_one_whatever_an_unsigned_header_says(kind: str) -> None:
    """Twitch: the header with the kind of message is not signed; a challenge is answered, and never an event."""
    endpoint = PROVIDERS["twitch_eventsub"](SECRET)
    scheme: Any = endpoint.provider.scheme
    unsigned = sent(
        "twitch_eventsub", {"twitch-eventsub-message-type": kind}, b'{"challenge": "c1", "subscription": {}}'
    )
    challenge = opened(endpoint, scheme.seal(unsigned, endpoint.secrets[0], NOW, "m1"))
    assert challenge.answer is not None and challenge.answer.body == b"c1"
    event = dataclasses.replace(
        unsigned, body=b'{"challenge": "c1", "event": {}, "subscription": {"type": "channel.follow"}}'
    )
    assert opened(endpoint, scheme.seal(event, endpoint.secrets[0], NOW, "m2")).answer is None
