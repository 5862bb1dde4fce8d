"""What is peculiar to clouds, developers' tools and models: keys that are fetched, tokens about addresses, batches, SOAP."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from hookonce.errors import ConfigurationError, KeysUnavailable, Reason, VerificationError
from hookonce.flow.verify import verify
from hookonce.model import Delivery
from hookonce.providers import PROVIDERS
from hookonce.providers.base import Endpoint
from hookonce.providers.catalogue import cloud
from hookonce.providers.directory import options_of
from hookonce.providers.known import REGISTERED
from hookonce.providers.samples import sample
from hookonce.schemes.canonical import canonical
from hookonce.schemes.connect import canonical_request
from hookonce.schemes.remote import Published

NOW = 1_800_000_000.0
SECRET = b"two halves of one tide, and more"


def refusal(endpoint: Endpoint, delivery: Delivery, now: float = NOW) -> Reason:
    """Why the scheme itself refuses it; anything but a VerificationError fails the test."""
    with pytest.raises(VerificationError) as caught:
        endpoint.provider.scheme.verify(delivery, endpoint.secrets, now)
    return caught.value.reason


def sealed(endpoint: Endpoint, path: str = "", query: bytes = b"") -> Delivery:
    """The provider's own sample, as `hookonce send` would send it."""
    declared = REGISTERED[endpoint.provider.name]
    made = sample(declared.id, declared.sample_type, event_id=declared.sample_id, seed=1, created=int(NOW))
    unsigned = Delivery(declared.id, made.headers, made.body, path, query or made.query)
    scheme: Any = endpoint.provider.scheme
    found: Delivery = scheme.seal(unsigned, endpoint.secrets[0], NOW, "msg_1")
    return found


def fetching(endpoint: Endpoint, fetch: Callable[[str], bytes], **changed: Any) -> Endpoint:
    """The same endpoint with another way to the network."""
    scheme = dataclasses.replace(endpoint.provider.scheme, published=Published(fetch), **changed)
    return Endpoint(endpoint.name, dataclasses.replace(endpoint.provider, scheme=scheme), endpoint.secrets)


def needed(endpoint: Endpoint, delivery: Delivery) -> Callable[[], None] | None:
    scheme: Any = endpoint.provider.scheme
    found: Callable[[], None] | None = scheme.prepare(delivery)
    return found


def fetch_for(endpoint: Endpoint, delivery: Delivery) -> None:
    need = needed(endpoint, delivery)
    assert need is not None
    need()


@cache
def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def private_pem() -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return new_key().private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).strip()


@cache
def public_pem() -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return new_key().public_key().public_bytes(serialization.Encoding.PEM, form)


@cache
def certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    begins = datetime.fromtimestamp(NOW, UTC) - timedelta(days=30)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(new_key().public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=300))
        .sign(new_key(), hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def rsa_of(text: bytes, digest: hashes.HashAlgorithm) -> bytes:
    return b64encode(new_key().sign(text, padding.PKCS1v15(), digest))


def hex_of(text: bytes, key: bytes = SECRET) -> bytes:
    return hmac.new(key, text, "sha256").hexdigest().encode()


def base64url(text: bytes) -> bytes:
    return urlsafe_b64encode(text).rstrip(b"=")


def token(claims: dict[str, Any], key: bytes | None = None, **header: Any) -> bytes:
    """A JSON web token put together by hand: HS256 with a key of bytes, RS256 with ours."""
    head = {"typ": "JWT", "alg": "RS256" if key is None else "HS256", **header}
    signed = b".".join(base64url(json.dumps(part).encode()) for part in (head, claims))
    if key is None:
        signature = new_key().sign(signed, padding.PKCS1v15(), hashes.SHA256())
    else:
        signature = hmac.digest(key, signed, "sha256")
    return signed + b"." + base64url(signature)


# Amazon SNS

TOPIC = "arn:aws:sns:eu-west-1:123456789012:tides"
ADDRESS = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0a1b2c.pem"
CONFIRM = f"https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t1"


def note(**changed: Any) -> dict[str, Any]:
    return {
        "Type": "Notification",
        "MessageId": "m1",
        "TopicArn": TOPIC,
        "Message": "high water",
        "Timestamp": "2027-01-15T08:00:00.000Z",
        "SignatureVersion": "1",
        "SigningCertURL": ADDRESS,
        **changed,
    }


def invitation(**changed: Any) -> dict[str, Any]:
    return note(**{"Type": "SubscriptionConfirmation", "Token": "t1", "SubscribeURL": CONFIRM, **changed})


def lines_of(fields: dict[str, Any]) -> bytes:
    """What Amazon signs: names and values, in the order of the names, and only those that are there."""
    kept = ("Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
    if fields["Type"] == "Notification":
        kept = tuple(name for name in kept if name not in ("SubscribeURL", "Token"))
    return "".join(f"{name}\n{fields[name]}\n" for name in kept if fields.get(name) is not None).encode()


def sns(fields: dict[str, Any], digest: hashes.HashAlgorithm | None = None) -> Delivery:
    """The message with Amazon's signature, made in the way that its SignatureVersion says."""
    used = digest or {"1": hashes.SHA1(), "2": hashes.SHA256()}[fields["SignatureVersion"]]
    return shown({**fields, "Signature": rsa_of(lines_of(fields), used).decode()})


def shown(document: Any) -> Delivery:
    return Delivery("aws_sns", [], json.dumps(document).encode())


def ours(**options: Any) -> Endpoint:
    return PROVIDERS["aws_sns"](None, **{"topics": [TOPIC], "certs": {ADDRESS: certificate().decode()}, **options})


def pinned(**options: Any) -> Endpoint:
    return PROVIDERS["aws_sns"](private_pem(), **options)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("more", [{}, {"Subject": "The tide"}, {"Subject": None}])
def test_amazon_signs_in_two_ways_with_or_without_a_subject(version: str, more: dict[str, Any]) -> None:
    """SHA-1 or SHA-256 as the message says; a subject that is null is not signed."""
    assert verify(ours(), sns(note(SignatureVersion=version, **more)), NOW).signed_at == NOW


def test_what_amazon_did_not_sign_so_is_refused() -> None:
    """The other digest, another topic, and fields that were changed afterwards."""
    assert refusal(ours(), sns(note(SignatureVersion="2"), hashes.SHA1())) is Reason.SIGNATURE_MISMATCH
    assert refusal(ours(), sns(note(TopicArn=TOPIC + "x"))) is Reason.SIGNATURE_MISMATCH
    genuine = json.loads(sns(note()).body)
    for name in ("Message", "MessageId", "Subject", "Timestamp"):
        assert refusal(ours(), shown({**genuine, name: "2027-01-15T08:00:01.000Z"})) is Reason.SIGNATURE_MISMATCH, name


@pytest.mark.parametrize("address", [
    "https://sns.us-east-1.amazonaws.com.evil.com/a.pem", "http://sns.us-east-1.amazonaws.com/a.pem",
    "https://sns.us-east-1.amazonaws.com:444/a.pem", "https://u@sns.us-east-1.amazonaws.com/a.pem",
    "https://sns.us-east-1.amazonaws.com/a.pem\n", "https://sns.us-east-1.amazonaws.com/a.pem?x",
    "https://sns.us-east-1.amazonaws.com/a.pem#x", "https://s3.amazonaws.com/a.pem",
    "https://xsns.us-east-1.amazonaws.com/a.pem", "https://sns.us-east-1.amazonaws.com/../a.pem",
    "https://SNS.us-east-1.amazonaws.com/a.pem", "https://sns.us-east-1.evil.com/.amazonaws.com/a.pem", 5, None,
])  # fmt: skip
def test_a_certificate_lies_at_amazon_or_nowhere(address: Any) -> None:
    """Another host, port, scheme or user, and whatever only looks like Amazon's address, is refused and not fetched."""
    delivery = sns(note(SigningCertURL=address))
    assert refusal(pinned(topics=[TOPIC]), delivery) is Reason.SIGNATURE_MALFORMED
    assert needed(ours(), delivery) is None


@pytest.mark.parametrize("address", [
    "https://sns.cn-north-1.amazonaws.com.cn/a.pem", "https://sns.us-gov-west-1.amazonaws.com/a-B.pem",
    "https://sns.ap-southeast-2.amazonaws.com/a.pem",
])  # fmt: skip
def test_amazon_has_many_regions(address: str) -> None:
    """In China and for governments as well; a key among the secrets serves all of them."""
    assert verify(pinned(), sns(note(SigningCertURL=address)), NOW)


@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation"])
def test_an_invitation_is_an_event(kind: str) -> None:
    """Its own fields are signed, and none of them may be missing."""
    endpoint = ours()
    delivery = sns(invitation(Type=kind))
    assert verify(endpoint, delivery, NOW)
    assert endpoint.provider.facts(delivery).type == kind
    for name in ("Token", "SubscribeURL"):
        fields = invitation(Type=kind)
        del fields[name]
        assert refusal(endpoint, sns(fields)) is Reason.SIGNATURE_MALFORMED


def test_lines_cannot_move_from_one_field_to_another() -> None:
    """Only the message may have several: two messages with the same signed text would be one signature for both."""
    genuine = note(Message="a\nMessageId\nEVIL\nSubject\nx")
    delivery = sns(genuine)
    assert verify(ours(), delivery, NOW)
    forged = note(Message="a", MessageId="EVIL", Subject="x\nMessageId\nm1")
    assert lines_of(forged) == lines_of(genuine)
    forged["Signature"] = json.loads(delivery.body)["Signature"]
    assert refusal(ours(), shown(forged)) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize(("later", "reason"), [
    (-301, Reason.IN_THE_FUTURE), (-300, None), (0, None), (25_200, None), (25_201, Reason.TOO_OLD),
])  # fmt: skip
def test_a_message_may_be_as_old_as_amazons_last_retry(later: float, reason: Reason | None) -> None:
    """Retries keep the time of publishing, and go on for six hours: seven are allowed for."""
    if reason is None:
        assert verify(ours(), sns(note()), NOW + later).signed_at == NOW
    else:
        assert refusal(ours(), sns(note()), NOW + later) is reason


def test_a_topic_that_retries_for_longer_has_a_tolerance_of_its_own() -> None:
    """A message of almost a day ago."""
    assert verify(pinned(tolerance=86_400.0), sns(note()), NOW + 80_000)


@pytest.mark.parametrize(("body", "reason"), [
    (b"", Reason.SIGNATURE_MISSING), (b"[]", Reason.SIGNATURE_MISSING), (b"{}", Reason.SIGNATURE_MISSING),
    (b'{"Type":["x"],"Signature":"x","SignatureVersion":"1"}', Reason.SIGNATURE_MALFORMED),
    (b'{"Type":"Notification","Signature":"x","SignatureVersion":{}}', Reason.SIGNATURE_MALFORMED),
    (b'{"Type":"Notification","Signature":"x","SignatureVersion":"3"}', Reason.SIGNATURE_MALFORMED),
    (b'{"Type":"Rumour","Signature":"x","SignatureVersion":"1"}', Reason.SIGNATURE_MALFORMED),
])  # fmt: skip
def test_messages_of_another_shape_are_refused(body: bytes, reason: Reason) -> None:
    """Whatever stands where text should be."""
    delivery = Delivery("aws_sns", [], body)
    assert refusal(ours(), delivery) is reason
    assert needed(ours(), delivery) is None


def test_a_name_that_is_there_twice_could_be_read_in_two_ways() -> None:
    """Although the second one is the one that was signed."""
    body = sns(note()).body.replace(b'{"Type"', b'{"Type":"x","Type"', 1)
    assert refusal(ours(), Delivery("aws_sns", [], body)) is Reason.SIGNATURE_MISSING


@pytest.mark.parametrize(("text", "kind"), [
    ("high water", "Notification"), ("[1]", "Notification"), ('{"type":7}', "Notification"), ('{"type":""}', "Notification"),
    ('{"type":"tide.turned"}', "Notification.tide.turned"), ('{"detail-type":"Tide"}', "Notification.Tide"),
    ('{"event":"a","eventType":"b"}', "Notification.b"),
])  # fmt: skip
def test_a_notification_has_the_type_that_its_message_names(text: str, kind: str) -> None:
    """Where the message is JSON and names one."""
    assert ours().provider.facts(sns(note(Message=text))).type == kind


def test_whose_messages_are_meant_has_to_be_said() -> None:
    """Amazon signs for everybody: without topics there must be a key, and nobody's invitation is accepted."""
    with pytest.raises(ConfigurationError, match="whose messages"):
        PROVIDERS["aws_sns"](None)
    with pytest.raises(ConfigurationError, match="whose messages"):
        pinned(confirm=True)


def test_amazons_certificate_is_fetched_once() -> None:
    """For a message of our topic only, and not where a key or a certificate was configured."""
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return certificate()

    endpoint = fetching(ours(topics=TOPIC, certs=None), fetch)
    delivery = sns(note())
    assert not endpoint.provider.plain
    assert refusal(endpoint, delivery) is Reason.SIGNATURE_MISMATCH
    fetch_for(endpoint, delivery)
    assert asked == [ADDRESS]
    assert verify(endpoint, delivery, NOW)
    assert needed(endpoint, delivery) is None
    elsewhere = ADDRESS.replace("0a1b2c", "3d4e5f")
    assert needed(endpoint, sns(note(SigningCertURL=elsewhere))) is not None
    assert needed(endpoint, sns(note(SigningCertURL=elsewhere, TopicArn="another"))) is None
    assert needed(ours(), delivery) is None
    assert needed(pinned(topics=[TOPIC]), delivery) is None


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were opened to confirm."""
    found: list[str] = []

    def fetch(url: str) -> bytes:
        found.append(url)
        return b""

    monkeypatch.setattr(cloud, "https_get", fetch)
    return found


def reply_and_settle(endpoint: Endpoint, delivery: Delivery) -> Any:
    """What is replied, once all threads that were started for it have ended."""
    before = set(threading.enumerate())
    assert endpoint.provider.reply is not None
    answer = endpoint.provider.reply(delivery, endpoint.secrets)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()
    return answer


def test_an_invitation_is_accepted_where_that_was_configured(opened: list[str]) -> None:
    """Its address is opened, and it remains an event; without confirm it is for a person."""
    delivery = sns(invitation())
    assert reply_and_settle(pinned(topics=[TOPIC]), delivery) is None
    assert opened == []
    assert reply_and_settle(pinned(topics=[TOPIC], confirm=True), delivery) is None
    assert opened == [CONFIRM]


@pytest.mark.parametrize("changed", [
    {"SubscribeURL": "https://evil.example/?x"}, {"SubscribeURL": CONFIRM.replace("/?", "/a?")},
    {"SubscribeURL": CONFIRM + "\n"}, {"SubscribeURL": "https://sns.us-east-1.evil.com/.amazonaws.com/?x"},
    {"Type": "UnsubscribeConfirmation"},
    {"Type": "Notification", "Message": "SubscriptionConfirmation"},
])  # fmt: skip
def test_no_other_address_is_opened(opened: list[str], changed: dict[str, Any]) -> None:
    """Only an invitation, and only at Amazon."""
    assert reply_and_settle(pinned(topics=[TOPIC], confirm=True), sns(invitation(**changed))) is None
    assert opened == []


def test_an_invitation_that_cannot_be_accepted_is_left_to_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is there; that the address does not answer disturbs nobody."""
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        raise KeysUnavailable("no network")

    monkeypatch.setattr(cloud, "https_get", fetch)
    cloud.confirm_subscription(CONFIRM)
    assert asked == [CONFIRM]


# Google Cloud Pub/Sub

AUDIENCE, PUSHER = "https://example.com/webhooks/tides", "pusher@harbour-lane.iam.gserviceaccount.com"


def pubsub(*, kid: str | None = None, **changed: Any) -> Delivery:
    claims: dict[str, Any] = {
        "iss": "accounts.google.com",
        "aud": AUDIENCE,
        "email": PUSHER,
        "email_verified": True,
        "iat": int(NOW),
        "exp": int(NOW) + 3_600,
        **changed,
    }
    made = token({name: value for name, value in claims.items() if value is not None}, **({"kid": kid} if kid else {}))
    return Delivery("google_pubsub", [(b"authorization", b"Bearer " + made)], b"{}")


def subscribed(secret: bytes | None = None) -> Endpoint:
    return PROVIDERS["google_pubsub"](private_pem() if secret is None else secret, email=PUSHER, audience=AUDIENCE)


@pytest.mark.parametrize("issuer", ["accounts.google.com", "https://accounts.google.com"])
def test_google_names_itself_in_two_ways(issuer: str) -> None:
    """With or without the scheme; the token's time is the event's."""
    assert verify(subscribed(), pubsub(iss=issuer), NOW).signed_at == NOW


@pytest.mark.parametrize(("changed", "reason"), [
    ({"iss": "evil"}, Reason.SIGNATURE_MISMATCH), ({"aud": "x"}, Reason.SIGNATURE_MISMATCH),
    ({"email": "z@example.com"}, Reason.SIGNATURE_MISMATCH), ({"email_verified": False}, Reason.SIGNATURE_MISMATCH),
    ({"email_verified": "true"}, Reason.SIGNATURE_MISMATCH), ({"email_verified": None}, Reason.SIGNATURE_MISMATCH),
    ({"exp": None}, Reason.SIGNATURE_MALFORMED), ({"aud": None}, Reason.SIGNATURE_MALFORMED),
    ({"exp": int(NOW) - 100}, Reason.TOO_OLD),
])  # fmt: skip
def test_a_token_of_google_is_for_one_subscription(changed: dict[str, Any], reason: Reason) -> None:
    """Another issuer, audience or account, one that is not verified, or no end: a genuine token, and not for us."""
    assert refusal(subscribed(), pubsub(**changed)) is reason


def test_who_pushes_has_to_be_said() -> None:
    """Google signs for everybody: without a key of one's own both the account and the audience are needed."""
    for options in ({}, {"audience": AUDIENCE}, {"email": PUSHER}):
        with pytest.raises(ConfigurationError, match="which service account"):
            PROVIDERS["google_pubsub"](None, **options)


def test_googles_keys_are_fetched_unless_one_was_configured() -> None:
    """By the id in the token; a key among the secrets is the only one."""
    numbers = new_key().public_key().public_numbers()
    key = {
        "kty": "RSA",
        "kid": "k1",
        "n": base64url(numbers.n.to_bytes(256, "big")).decode(),
        "e": base64url(numbers.e.to_bytes(3, "big")).decode(),
    }
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return json.dumps({"keys": [key]}).encode()

    endpoint = fetching(PROVIDERS["google_pubsub"](None, email=PUSHER, audience=AUDIENCE), fetch)
    assert refusal(endpoint, pubsub(kid="k1")) is Reason.SIGNATURE_MISMATCH
    fetch_for(endpoint, pubsub(kid="k1"))
    assert asked == ["https://www.googleapis.com/oauth2/v3/certs"]
    assert verify(endpoint, pubsub(kid="k1"), NOW)
    assert needed(endpoint, pubsub(kid="k1")) is None
    assert refusal(endpoint, pubsub(kid="k2")) is Reason.SIGNATURE_MISMATCH
    assert needed(subscribed(), pubsub(kid="k2")) is None


# Microsoft Graph


def graph(*states: Any) -> Delivery:
    items = [{"clientState": state, "changeType": "updated"} for state in states]
    return Delivery("microsoft_graph", [], json.dumps({"value": items}).encode())


def test_every_notice_of_graph_shows_the_token() -> None:
    """One that does not spoils all; of two tokens that are valid at a time each notice may show another."""
    endpoint = PROVIDERS["microsoft_graph"](b"s1")
    assert verify(endpoint, graph("s1", "s1"), NOW).secret_id == endpoint.secrets[0].id
    for states in (("s1", "s2"), ("s2",), ("",)):
        assert refusal(endpoint, graph(*states)) is Reason.SIGNATURE_MISMATCH
    for states in ((), ("s1", None), (5,)):
        assert refusal(endpoint, graph(*states)) is Reason.SIGNATURE_MISSING
    assert verify(PROVIDERS["microsoft_graph"]([b"s1", b"s2"]), graph("s1", "s2"), NOW)
    assert verify(endpoint, sealed(endpoint), NOW)


def greeting(name: str, secret: Any, *, query: bytes = b"", method: str = "POST", **options: Any) -> Any:
    """What is answered to a handshake that nobody signs."""
    endpoint = PROVIDERS[name](secret, **options)
    assert endpoint.provider.greet is not None
    return endpoint.provider.greet(Delivery(name, [], b"", query=query, method=method), endpoint.secrets)


def test_graphs_token_comes_back_as_text() -> None:
    """Decoded, and as text that no browser runs."""
    answer = greeting("microsoft_graph", b"s1", query=b"validationToken=Validation%3a+Testing+%C3%BC")
    assert answer.body == "Validation: Testing ü".encode()
    assert answer.content_type.startswith("text/plain")


@pytest.mark.parametrize(("query", "method"), [
    (b"validationToken=" + b"a" * 1_001, "POST"), (b"validationToken=a&validationToken=b", "POST"),
    (b"validationToken=", "POST"), (b"", "POST"), (b"validationToken=a", "DELETE"),
])  # fmt: skip
def test_nothing_else_is_echoed(query: bytes, method: str) -> None:
    """Nothing long, nothing that is there twice, and to no other method."""
    assert greeting("microsoft_graph", b"s1", query=query, method=method) is None


# Azure Event Grid


def grid(*events: Any) -> Delivery:
    return Delivery("azure_event_grid", [], json.dumps(events).encode(), query=b"token=t")


def test_event_grids_code_comes_back() -> None:
    """In the shape that it expects; an event that only mentions it is an event."""
    endpoint = PROVIDERS["azure_event_grid"](b"t")
    reply = endpoint.provider.reply
    assert reply is not None
    kind = "Microsoft.EventGrid.SubscriptionValidationEvent"
    asked = {"id": "1", "eventType": kind, "data": {"validationCode": "c"}}
    assert verify(endpoint, grid(asked), NOW)
    answer = reply(grid(asked), endpoint.secrets)
    assert answer is not None
    assert json.loads(answer.body) == {"validationResponse": "c"}
    for event in (
        {"eventType": "x", "data": {"validationCode": "SubscriptionValidationEvent"}},
        {"eventType": kind, "data": {"validationCode": "c" * 1_001}},
        {"eventType": kind, "data": {"validationCode": 5}},
    ):
        assert reply(grid(event), endpoint.secrets) is None


# CloudEvents

BINARY = [
    (b"content-type", b"text/plain"),
    (b"ce-specversion", b"1.0"),
    (b"ce-id", b"1"),
    (b"ce-source", b"/s%20x"),
    (b"ce-type", b"t"),
    (b"ce-time", b"2027-01-15T08:00:00Z"),
]


def event(content_type: bytes, body: bytes) -> Delivery:
    headers = [(b"content-type", content_type), (b"ce-id", b"9"), (b"ce-specversion", b"1.0")]
    return Delivery("cloudevents", headers, body)


def test_a_cloud_event_stands_in_headers() -> None:
    """Percent-decoded, beside a body that may be anything."""
    facts = PROVIDERS["cloudevents"](b"t").provider.facts(Delivery("cloudevents", BINARY, b"\xff"))
    assert (facts.event_id, facts.account, facts.type) == ("1", "/s x", "t")
    assert (facts.event_time, facts.problem) == (NOW, None)


def test_a_cloud_event_stands_in_the_body() -> None:
    """Where the content type says so, whatever the headers say beside it."""
    provider = PROVIDERS["cloudevents"](b"t").provider
    one = event(b"application/cloudevents+json; charset=utf-8", b'{"id":"2","source":"/s","type":"q"}')
    assert provider.facts(one).event_id == "2"
    assert provider.split is not None
    assert provider.split(one) == ([one.body], None)
    body = b'[{"id":"2","source":"/s","type":"q"},{"id":"3","source":"/s"}]'
    several = event(b"application/cloudevents-batch+json", body)
    bodies, outer = provider.split(several)
    facts = [provider.facts(dataclasses.replace(several, body=body), outer) for body in bodies]
    assert [one.event_id for one in facts] == ["2", "3"]


def test_only_the_named_origin_may_send_cloud_events() -> None:
    """The handshake of OPTIONS is answered for the origin that was configured, and for no other."""
    named = PROVIDERS["cloudevents"](b"t", origin="eventgrid.azure.net").provider.greet
    unnamed = PROVIDERS["cloudevents"](b"t").provider.greet
    assert named is not None
    assert unnamed is not None
    asked = Delivery("cloudevents", [(b"webhook-request-origin", b"eventgrid.azure.net")], b"", method="OPTIONS")
    answer = named(asked, ())
    assert answer is not None
    assert dict(answer.headers)[b"webhook-allowed-origin"] == b"eventgrid.azure.net"
    assert named(dataclasses.replace(asked, headers=[(b"webhook-request-origin", b"x")]), ()) is None
    assert named(dataclasses.replace(asked, method="POST"), ()) is None
    assert unnamed(asked, ()) is None


def test_the_token_of_cloud_events_is_where_one_says() -> None:
    """In the query instead of the header, and then not in the header."""
    endpoint = PROVIDERS["cloudevents"](b"t", token_at="query:token")
    bearer = Delivery("cloudevents", [(b"authorization", b"Bearer t")], b"{}")
    assert verify(endpoint, Delivery("cloudevents", [], b"{}", query=b"token=t"), NOW)
    assert refusal(endpoint, bearer) is Reason.SIGNATURE_MISSING
    assert verify(PROVIDERS["cloudevents"](b"t"), bearer, NOW)


# Adobe I/O Events

CLIENT = "0123456789abcdef0123456789abcdef"
ADOBE = json.dumps({"type": "x", "event_id": "1", "recipient_client_id": CLIENT}).encode()
PATHS = (b"/prod/keys/pub-key-aaa.pem", b"/prod/keys/pub-key-bbb.pem")


def adobe(body: bytes = ADOBE, paths: tuple[bytes, bytes] = PATHS) -> Delivery:
    """The second of two signatures is the one that counts."""
    headers = [
        (b"x-adobe-digital-signature-1", b64encode(b"1" * 256)),
        (b"x-adobe-digital-signature-2", rsa_of(body, hashes.SHA256())),
        (b"x-adobe-public-key1-path", paths[0]),
        (b"x-adobe-public-key2-path", paths[1]),
    ]
    return Delivery("adobe_io", headers, body)


def adobe_with_keys(asked: list[str]) -> Endpoint:
    """Of the two keys that are shown one is none."""

    def fetch(url: str) -> bytes:
        asked.append(url)
        return public_pem() if "key-bbb" in url else b"garbage"

    return fetching(PROVIDERS["adobe_io"](None, client_id=CLIENT), fetch)


def test_either_signature_of_adobe_counts() -> None:
    """Under keys from Adobe's own host, which are fetched once."""
    asked: list[str] = []
    endpoint = adobe_with_keys(asked)
    assert refusal(endpoint, adobe()) is Reason.SIGNATURE_MISMATCH
    fetch_for(endpoint, adobe())
    assert asked == [f"https://static.adobeioevents.com{path.decode()}" for path in PATHS]
    assert verify(endpoint, adobe(), NOW)
    assert needed(endpoint, adobe()) is None
    assert refusal(endpoint, dataclasses.replace(adobe(), body=ADOBE + b" ")) is Reason.SIGNATURE_MISMATCH


def test_adobes_event_for_another_client_is_refused() -> None:
    """Adobe signs for all its customers with the same keys; nothing is fetched for the others."""
    endpoint = adobe_with_keys([])
    other = adobe(ADOBE.replace(b"0123", b"9999", 1))
    assert needed(endpoint, other) is None
    fetch_for(endpoint, adobe())
    assert refusal(endpoint, other) is Reason.SIGNATURE_MISMATCH


def test_adobes_keys_lie_at_adobe() -> None:
    """A path that leaves the folder or the host is not fetched; nor is anything where a key was configured."""
    endpoint = adobe_with_keys([])
    astray = adobe(paths=(b"/../x.pem", b"@evil.com/keys/pub-key-b.pem"))
    assert needed(endpoint, astray) is None
    assert refusal(endpoint, astray) is Reason.SIGNATURE_MISMATCH
    configured = PROVIDERS["adobe_io"](public_pem().strip(), client_id=CLIENT)
    assert needed(configured, adobe()) is None
    assert verify(configured, adobe(), NOW)


def test_adobes_client_has_to_be_said() -> None:
    """Without a key of one's own anybody's events would be taken."""
    with pytest.raises(ConfigurationError, match="which client"):
        PROVIDERS["adobe_io"](None)


def test_adobes_challenge_comes_back() -> None:
    """To GET and to no other method."""
    answer = greeting("adobe_io", None, query=b"challenge=abc", method="GET", client_id=CLIENT)
    assert answer.body == b"abc"
    assert greeting("adobe_io", None, query=b"challenge=abc", client_id=CLIENT) is None


# Salesforce

SOAP = b"""<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/">
 <soapenv:Body>
  <notifications xmlns="http://soap.sforce.com/2005/09/outbound">
   <OrganizationId>00D000000000062EAA</OrganizationId>
   %b
  </notifications>
 </soapenv:Body>
</soapenv:Envelope>
"""
CHANGE = b"""<Notification><Id>04l%b</Id>
    <sObject xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:sf="urn:sobject.enterprise.soap.sforce.com"
     xsi:type="sf:Account"><sf:Id>001%b</sf:Id><sf:Name>Harbour Lane &amp; Sons</sf:Name></sObject></Notification>"""


def soap(body: bytes) -> Delivery:
    return Delivery("salesforce", [(b"content-type", b"text/xml; charset=utf-8")], body, query=b"token=tok")


def test_each_notification_of_salesforce_is_an_event() -> None:
    """In an envelope of its own, as if it had come alone, and read without its namespaces."""
    endpoint = PROVIDERS["salesforce"](b"tok")
    provider = endpoint.provider
    assert provider.split is not None
    first, second = CHANGE % (b"A", b"A"), CHANGE % (b"B", b"B")
    delivery = soap(SOAP % (first + b"\n " + second))
    assert verify(endpoint, delivery, NOW)
    bodies, outer = provider.split(delivery)
    assert bodies == [SOAP % first, SOAP % second]
    facts = [provider.facts(soap(body), outer) for body in bodies]
    assert [one.event_id for one in facts] == ["04lA", "04lB"]
    assert [one.object_id for one in facts] == ["001A", "001B"]
    assert {(one.type, one.account) for one in facts} == {("Account", "00D000000000062EAA")}


def test_a_sample_of_salesforce_is_soap() -> None:
    """One notification, with the token in the query; what is split is what came."""
    endpoint = PROVIDERS["salesforce"](b"tok")
    delivery = sealed(endpoint)
    assert verify(endpoint, delivery, NOW)
    assert delivery.query == b"token=tok"
    provider = endpoint.provider
    assert provider.split is not None
    start, end = delivery.body.index(b"<Notification>"), delivery.body.index(b"</Notification>") + 15
    one = delivery.body[start:end]
    twice = delivery.body[:end] + b"\n " + one.replace(b"evt_0", b"evt_1") + delivery.body[end:]
    bodies, _ = provider.split(dataclasses.replace(delivery, body=twice))
    assert bodies[0] == delivery.body
    facts = [provider.facts(dataclasses.replace(delivery, body=body)) for body in bodies]
    assert [fact.event_id for fact in facts] == ["evt_0123456789", "evt_1123456789"]
    assert {fact.type for fact in facts} == {"Account"}
    assert all(fact.object_id for fact in facts)


@pytest.mark.parametrize("body", [
    b"<!DOCTYPE a [<!ENTITY b 'x'>]><a>&b;</a>", b"<a>" * 100, b"", b"<a/>", b"{}", b"\x00", SOAP % (b"<a>" * 40 + b"</a>" * 40),
    SOAP.replace(b"<soapenv:Envelope", b"<!DOCTYPE a [<!ENTITY b 'x'>]><soapenv:Envelope", 1) % (CHANGE % (b"&b;", b"A")),
    SOAP.replace(b"UTF-8", b"ISO-8859-1", 1) % (CHANGE % (b"A", b"\xe9")),
    '<?xml version="1.0" encoding="utf-16"?><a/>'.encode("utf-16"),
])  # fmt: skip
def test_what_is_no_outbound_message_is_not_split(body: bytes) -> None:
    """Entities, depth, other documents and other encodings: kept as unreadable, if at all."""
    provider = PROVIDERS["salesforce"](b"tok").provider
    assert provider.split is not None
    with pytest.raises(ValueError):
        provider.split(soap(body))
    assert provider.facts(soap(body)).problem is not None


def test_a_message_without_notifications_is_not_split() -> None:
    """There is nothing in it that could be an event."""
    provider = PROVIDERS["salesforce"](b"tok").provider
    assert provider.split is not None
    with pytest.raises(ValueError):
        provider.split(soap(SOAP % b""))


def test_salesforce_is_told_in_soap() -> None:
    """Anything else would be sent again."""
    acknowledge = PROVIDERS["salesforce"](b"tok").provider.acknowledge
    assert acknowledge is not None
    assert b"<Ack>true</Ack>" in acknowledge.body
    assert acknowledge.content_type.startswith("text/xml")


# Atlassian Connect

# The hashes are test data of github.com/rbriski/atlassian-jwt (jwt_test.go), which follows
# developer.atlassian.com/cloud/bitbucket/query-string-hash/.
HASHES = [
    ("GET", "/", "c88caad15a1c1a900b8ac08aa9686f4e8184539bea1deda36e2f649430df3239"),
    ("GET", "/something", "90b8cc6920375d6a6d133bd65be2d802a20e3544bf5704a1a80151210078798d"),
    ("POST", "/something?simple=key", "eafb48e8c78a5b09bc2ce7b0b86289ee4a7bd58179e47006d0141b33d5165af7"),
    ("GET", "/something?simple=key&another=one", "fc039e8c582c0ee90af182a3d29f37ecf1cb368f37b73d5fbd6c5bb66482dda9"),
    ("GET", "/something?jwt=ABC.DEF.GHI", "90b8cc6920375d6a6d133bd65be2d802a20e3544bf5704a1a80151210078798d"),
    (
        "GET",
        "/something?some+spaces+in+this+parameter=yes",
        "f73fed24415974607a19ddf9af6f862d9da572ed71bbeb15ae2c64c3aec95317",
    ),
    ("GET", "/something?connect*=yes", "4ce3c840740a86e20beafc1d50b106996eaa844de89e879e85c92398cbfb131d"),
    (
        "GET",
        "/something?director=%e5%ae%ae%e5%b4%8e%20%e9%a7%bf",
        "459b64741b7a3f0c1fe713a4b796f3a1210402729598179b016fd97aec00b4a8",
    ),
    ("GET", "/something?a10=1&a1=2&b1=3&b10=4", "31e1a2db664e96b08862145f45e290f4045fa894886afbb020e64437dabab07e"),
    (
        "GET",
        "/something?tuples=1%2C2%2C3&tuples=6%2C5%2C4&tuples=7%2C9%2C8",
        "4f6da3fce3772b2b1958f7b97f9f7e8e0919ffc777bb74a892418faedf2fe15b",
    ),
    (
        "GET",
        "/something?ids=-1&ids=1&ids=20&ids=2&ids=10",
        "cfb9607f936f9523743b25897bd3a4ae822536fd18678b984b9dc0b31bfd8c46",
    ),
]


@pytest.mark.parametrize(("method", "address", "expected"), HASHES)
def test_atlassian_hashes_a_request_in_one_spelling(method: str, address: str, expected: str) -> None:
    """Sorted, and with the values of a name together; the app's own path does not count."""
    for text, base in ((address.encode(), ""), (b"/app/v1" + address.encode(), "/app/v1/")):
        assert hashlib.sha256(canonical_request(method, text, base)).hexdigest() == expected


@pytest.mark.parametrize(("method", "address", "base", "expected"), [
    ("post", b"/a&b/", "", b"POST&/a%26b&"), ("POST", b"/application", "/app", b"POST&/application&"),
    ("POST", b"/app", "/app", b"POST&/&"),
])  # fmt: skip
def test_the_edges_of_an_address(method: str, address: bytes, base: str, expected: bytes) -> None:
    """An ampersand, a slash at the end, and a path that only begins like the app's."""
    assert canonical_request(method, address, base) == expected


BASE = {"base_url": "https://h.example/webhooks"}
CANONICAL = b"POST&/x&a=1&b=2"


def connect(**changed: Any) -> Delivery:
    """A call of /webhooks/x?a=1&b=2, where the app begins at /webhooks."""
    claims: dict[str, Any] = {
        "iss": "harbour",
        "iat": int(NOW),
        "exp": int(NOW) + 180,
        "qsh": hashlib.sha256(CANONICAL).hexdigest(),
        **changed,
    }
    made = token({name: value for name, value in claims.items() if value is not None}, SECRET)
    headers = [(b"authorization", b"JWT " + made)]
    return Delivery("atlassian_connect", headers, b"{}", "/webhooks/x", b"a=1&b=2")


def test_a_token_of_atlassian_is_about_an_address() -> None:
    """In any order of the query and with any body, but for no other query and no other method."""
    endpoint = PROVIDERS["atlassian_connect"](SECRET, **BASE)
    assert verify(endpoint, connect(), NOW).signed_at == NOW
    for same in ({"query": b"b=2&a=1"}, {"body": b"zz"}):
        assert verify(endpoint, dataclasses.replace(connect(), **same), NOW)
    for other in ({"query": b"b=2&a=2"}, {"method": "PUT"}, {"path": "/webhooks/y"}):
        assert refusal(endpoint, dataclasses.replace(connect(), **other)) is Reason.SIGNATURE_MISMATCH
    assert refusal(PROVIDERS["atlassian_connect"](SECRET), connect()) is Reason.SIGNATURE_MISMATCH


def test_a_sample_of_atlassian_is_about_its_address() -> None:
    """What `hookonce send` makes has the same claims."""
    endpoint = PROVIDERS["atlassian_connect"](SECRET, **BASE, client_key="development")
    delivery = sealed(endpoint, "/webhooks/x", b"a=1&b=2")
    assert verify(endpoint, delivery, NOW)
    assert refusal(endpoint, dataclasses.replace(delivery, query=b"a=1")) is Reason.SIGNATURE_MISMATCH


def test_one_installation_can_be_pinned() -> None:
    """By the key of its client."""
    assert verify(PROVIDERS["atlassian_connect"](SECRET, **BASE, client_key="harbour"), connect(), NOW)
    other = PROVIDERS["atlassian_connect"](SECRET, **BASE, client_key="k")
    assert refusal(other, connect()) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(("changed", "reason"), [
    # What a browser may use inside of a page, and anybody who looks at the page has.
    ({"qsh": "context-qsh"}, Reason.SIGNATURE_MISMATCH), ({"qsh": 7}, Reason.SIGNATURE_MISMATCH),
    ({"qsh": None}, Reason.SIGNATURE_MALFORMED), ({"exp": None}, Reason.SIGNATURE_MALFORMED),
    ({"exp": int(NOW) - 61}, Reason.TOO_OLD),
])  # fmt: skip
def test_tokens_about_no_address_are_refused(changed: dict[str, Any], reason: Reason) -> None:
    """Those of pages, and those that never end."""
    assert refusal(PROVIDERS["atlassian_connect"](SECRET, **BASE), connect(**changed)) is reason


# Inngest


@pytest.mark.parametrize(("body", "expected"), [
    (
        b'{"b":1,"a":[1.0,1e2,0.5,-0.0,1E20,9007199254740993,1152921504606846976,0.0001]}',
        '{"a":[1,100,0.5,0,100000000000000000000,9007199254740992,1152921504606847000,0.0001],"b":1}',
    ),
    ('{"é":"ü\\u00e9\\u000f\\n\\/","":null,"t":true}'.encode(), '{"":null,"t":true,"é":"üé\\u000f\\n/"}'),
])  # fmt: skip
def test_json_has_one_canonical_spelling(body: bytes, expected: str) -> None:
    """Names sorted, numbers and text as JavaScript writes them."""
    assert canonical(body).decode() == expected


@pytest.mark.parametrize("body", [b"1e400", b"NaN", b"1e-7", b'{"a":"\\ud800"}', b"\xff", b"{", b"1" * 5_000])
def test_what_has_no_canonical_spelling(body: bytes) -> None:
    """Numbers that are none, text that is none, and what is no JSON."""
    with pytest.raises(ValueError):
        canonical(body)


def inngest(body: bytes, signed: bytes, at: bytes | None = b"1800000000") -> Delivery:
    """Signed with the key without the name of its environment."""
    stamp = b"" if at is None else b"t=" + at + b"&"
    signature = stamp + b"s=" + hex_of(signed + (at or b""), b"abc123")
    return Delivery("inngest", [(b"x-inngest-signature", signature)], body)


def test_inngest_signs_the_body_or_its_canonical_spelling() -> None:
    """Either of them with the time after it, which is required and grows old."""
    endpoint = PROVIDERS["inngest"](b"signkey-prod-abc123")
    body = b'{ "z": 1.50, "a": {"y":2,"x":1} }'
    for signed in (body, b'{"a":{"x":1,"y":2},"z":1.5}'):
        assert verify(endpoint, inngest(body, signed), NOW).signed_at == NOW
    assert refusal(endpoint, inngest(body, b'{"a":{"x":1,"y":2},"z":1.50}')) is Reason.SIGNATURE_MISMATCH
    assert refusal(endpoint, inngest(body, body, None)) is Reason.TIMESTAMP_MISSING
    assert refusal(endpoint, inngest(body, body), NOW + 301) is Reason.TOO_OLD
    assert verify(endpoint, inngest(b"\xff", b"\xff"), NOW)
    scheme: Any = endpoint.provider.scheme
    assert "canonical JSON" in scheme.describe()["signed"]


# Pusher Channels


def pusher(body: bytes, key: bytes | None = b"harbourlane") -> Delivery:
    headers = [] if key is None else [(b"x-pusher-key", key)]
    return Delivery("pusher", [*headers, (b"x-pusher-signature", hex_of(body))], body)


def test_pusher_signs_with_the_key_that_a_header_names() -> None:
    """Another one's signature is not looked at; the time is inside the signed body."""
    endpoint = PROVIDERS["pusher"](SECRET, app_key="harbourlane")
    body = b'{"time_ms":1800000000000,"events":[{"name":"channel_vacated","channel":"c"}]}'
    assert verify(endpoint, pusher(body), NOW).signed_at == NOW
    for key in (None, b"another"):
        assert refusal(endpoint, pusher(body, key)) is Reason.SIGNATURE_MALFORMED
    assert verify(PROVIDERS["pusher"](SECRET), pusher(body, None), NOW)
    assert refusal(endpoint, pusher(body), NOW + 86_400) is Reason.TOO_OLD
    delivery = sealed(endpoint)
    assert json.loads(delivery.body)["time_ms"] == NOW * 1_000
    assert dict(delivery.headers)[b"x-pusher-signature"] == hex_of(delivery.body)
    assert verify(endpoint, delivery, NOW)


def test_events_of_one_batch_are_told_apart() -> None:
    """By all that each of them says: none of them has an id."""
    provider = PROVIDERS["pusher"](SECRET).provider
    events = [
        {
            "name": "client_event",
            "channel": "c",
            "event": "client-x",
            "data": "{1}",
            "socket_id": "1.2",
            "user_id": "u",
        },
        {"name": "client_event", "channel": "c", "event": "client-x", "data": "{2}", "socket_id": "1.2"},
        {"name": "client_event", "channel": "c", "event": "client-x", "data": "{1}", "socket_id": "1.3"},
        {"name": "member_added", "channel": "c", "user_id": "u"},
        {"name": "member_added", "channel": "c", "user_id": "v"},
        {"name": "channel_vacated", "channel": "c"},
        {"name": "channel_vacated", "channel": "d"},
        {"name": "subscription_count", "channel": "c", "subscription_count": 3},
        {"name": "subscription_count", "channel": "c", "subscription_count": 4},
    ]
    assert provider.split is not None
    bodies, outer = provider.split(pusher(json.dumps({"time_ms": 1_800_000_000_000, "events": events}).encode()))
    facts = [provider.facts(Delivery("pusher", [], body), outer) for body in bodies]
    ids = {one.event_id for one in facts}
    assert None not in ids
    assert len(ids) == len(events)
    assert [one.type for one in facts] == [one["name"] for one in events]


# others


@pytest.mark.parametrize(("body", "expected"), [
    (b'{"event":"call_ended","call":{"call_id":"c"}}', "c:call_ended"),
    (b'{"event":"chat_ended","chat":{"chat_id":"d"}}', "d:chat_ended"),
    (b'{"event":"transcript_updated","call":{"call_id":"c"}}', None),
    (b"[1]", None),
])  # fmt: skip
def test_what_happens_once_in_a_call_has_an_id(body: bytes, expected: str | None) -> None:
    """What may happen again has none, and the digest of its body stands for it."""
    provider = PROVIDERS["retell"](SECRET).provider
    assert provider.facts(Delivery("retell", [], body)).event_id == expected
    assert provider.fingerprint == ("body",)


@pytest.mark.parametrize("name", ["replicate", "liveblocks"])
def test_secrets_that_always_begin_with_whsec(name: str) -> None:
    """One that does not is something else."""
    with pytest.raises(ConfigurationError, match="whsec_"):
        PROVIDERS[name]("bm9ib2R5IGhhcyB0aGlzIHNlY3JldA==")
    assert PROVIDERS[name]("whsec_bm9ib2R5IGhhcyB0aGlzIHNlY3JldA==")


def test_qstash_delivers_whatever_was_published() -> None:
    """A body that is no JSON is no mistake."""
    provider = PROVIDERS["upstash_qstash"](SECRET, url="https://example.com/x").provider
    facts = provider.facts(Delivery("upstash_qstash", [(b"upstash-message-id", b"m")], b"\xffhello"))
    assert (facts.event_id, facts.problem) == ("m", None)


NAMES = [
    "gitlab_signing_token", "gitlab_token", "bitbucket_cloud", "gitea", "buildkite", "buildkite_token", "circleci",
    "vercel", "netlify", "heroku", "sentry", "snyk", "doppler", "pagerduty", "jira_cloud", "atlassian_connect",
    "upstash_qstash", "inngest", "liveblocks", "pusher", "hugging_face", "render", "openai", "anthropic", "replicate",
    "elevenlabs", "retell", "recall_ai", "browserbase", "aws_sns", "google_pubsub", "microsoft_graph",
    "azure_event_grid", "cloudevents", "svix", "cloudflare_notifications", "adobe_io", "google_calendar",
    "salesforce",
]  # fmt: skip
OPTIONS = {
    "adobe_io": {"client_id"},
    "atlassian_connect": {"base_url", "client_key"},
    "aws_sns": {"topics", "certs", "confirm"},
    "cloudevents": {"origin", "token_at"},
    "google_pubsub": {"audience", "email"},
    "pusher": {"app_key"},
}
FETCHES = {"adobe_io", "aws_sns", "google_pubsub"}


@pytest.mark.parametrize("name", NAMES)
def test_what_can_be_said_of_each(name: str) -> None:
    """Options of their own are few; only where keys are fetched may there be no secret."""
    assert options_of(name).keys() - options_of("stripe").keys() == OPTIONS.get(name, set())
    assert REGISTERED[name].secret_optional == (name in FETCHES)
