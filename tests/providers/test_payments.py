"""What is peculiar to senders in payments: certificates, signatures per item, forms, and secrets that are keys in two ways."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import zlib
from base64 import b64encode, encodebytes
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlencode

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
from hookonce.schemes.paypal import is_trusted
from hookonce.schemes.remote import Published

NOW = 1_800_000_000.0
SECRET = "two halves of one tide"
ADDRESS = "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-tides"
SIGNER = "messageverificationcerts.paypal.com"
WEBHOOK = "4TIDE00BOOK000000"


def refusal(endpoint: Endpoint, delivery: Delivery, now: float = NOW) -> Reason:
    with pytest.raises(VerificationError) as caught:
        verify(endpoint, delivery, now)
    return caught.value.reason


def hex_of(text: bytes, key: bytes = SECRET.encode(), algorithm: str = "sha256") -> bytes:
    return hmac.new(key, text, algorithm).hexdigest().encode()


def base64_of(text: bytes, key: bytes, algorithm: str = "sha256") -> bytes:
    return b64encode(hmac.new(key, text, algorithm).digest())


# PayPal


@cache
def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def root() -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Harbour Lane Root")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made, key


def _builder(subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    begins = datetime.fromtimestamp(NOW, UTC) - timedelta(days=30)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=300))
    )


@cache
def certificate(name: str = SIGNER) -> str:
    """A certificate of this name, issued by a root of our own, as PEM."""
    issuer, issuer_key = root()
    made = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), issuer.subject, new_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def root_pem() -> str:
    return root()[0].public_bytes(serialization.Encoding.PEM).decode()


def paypal(body: bytes = b'{"id":"WH-1"}', *, webhook: str = WEBHOOK, **changed: str) -> Delivery:
    at = datetime.fromtimestamp(NOW, UTC).isoformat().replace("+00:00", "Z")
    signed = f"b1c2|{at}|{webhook}|{zlib.crc32(body)}".encode()
    headers = {
        "paypal-auth-algo": "SHA256withRSA",
        "paypal-cert-url": ADDRESS,
        "paypal-transmission-id": "b1c2",
        "paypal-transmission-time": at,
        "paypal-transmission-sig": b64encode(new_key().sign(signed, padding.PKCS1v15(), hashes.SHA256())).decode(),
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    return Delivery("paypal", [(name.encode(), value.encode()) for name, value in headers.items()], body)


def our_paypal(**options: Any) -> Endpoint:
    given = {"webhook_id": WEBHOOK, "certs": {ADDRESS: certificate()}, "ca": root_pem(), **options}
    return PROVIDERS["paypal"](None, **given)


def test_paypal_is_believed_by_a_chain_to_a_root() -> None:
    """The certificate at the address, issued by the configured root under PayPal's name, verifies the request."""
    assert verify(our_paypal(), paypal(), NOW).signed_at == NOW
    assert refusal(our_paypal(), paypal(webhook="another")) is Reason.SIGNATURE_MISMATCH
    assert refusal(our_paypal(), paypal(paypal_auth_algo="SHA1withRSA")) is Reason.SIGNATURE_MALFORMED


def test_a_certificate_that_is_not_paypals_is_refused() -> None:
    """One of another name, one of another root, one that has expired, and text that is none."""
    for name in ("example.com", "paypal.com.example.com", "www.paypal.com"):
        assert refusal(our_paypal(certs={ADDRESS: certificate(name)}), paypal()) is Reason.SIGNATURE_MISMATCH
    assert refusal(our_paypal(ca=None), paypal()) is Reason.SIGNATURE_MISMATCH
    assert refusal(our_paypal(), paypal(), NOW + 400 * 86_400) is Reason.SIGNATURE_MISMATCH
    assert refusal(our_paypal(certs={ADDRESS: "no certificate"}), paypal()) is Reason.SIGNATURE_MISMATCH
    assert verify(
        our_paypal(certs={ADDRESS: certificate(f"messageverificationcerts.sandbox{SIGNER[24:]}")}), paypal(), NOW
    )


def test_a_certificate_among_the_secrets_is_the_only_one() -> None:
    """With it nothing is fetched and no chain is needed; without any there is something to fetch."""
    pinned = PROVIDERS["paypal"](certificate().strip(), webhook_id=WEBHOOK)
    assert verify(pinned, paypal(paypal_cert_url="https://api.paypal.com/other"), NOW)
    assert pinned.provider.scheme.prepare(paypal()) is None
    assert our_paypal().provider.scheme.prepare(paypal()) is None
    assert our_paypal(certs=None).provider.scheme.prepare(paypal()) is not None
    assert refusal(our_paypal(certs=None), paypal()) is Reason.SIGNATURE_MISMATCH


def test_the_certificate_is_fetched_from_paypal_only() -> None:
    """From hosts below paypal.com over HTTPS, and from nowhere else, however it is written."""
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        return certificate().encode()

    endpoint = our_paypal(certs=None)
    scheme = dataclasses.replace(endpoint.provider.scheme, published=Published(fetch))
    need = scheme.prepare(paypal())
    assert need is not None
    need()
    assert asked == [ADDRESS]
    assert scheme.verify(paypal(), (), NOW)
    assert scheme.prepare(paypal(paypal_cert_url="https://paypal.com.example.com/cert")) is None
    for address in (
        "http://api.paypal.com/cert",
        "https://evilpaypal.com/cert",
        "https://api.paypal.com@example.com/cert",
        "https://example.com/?.paypal.com/cert",
        "https://example.com#.paypal.com/",
        "https://api.paypal.com:8443/cert",
        "https://example.com\\.paypal.com/",
        "https://api.paypal.com/cert\n",
        "https://.paypal.com.",
    ):
        assert not is_trusted(address), address
        assert refusal(our_paypal(), paypal(paypal_cert_url=address)) is Reason.SIGNATURE_MALFORMED


def test_a_certificate_that_cannot_be_fetched_is_nobodys_forgery() -> None:
    """Fetching tells of it, so that the sender comes again."""

    def fetch(url: str) -> bytes:
        raise KeysUnavailable("no network")

    scheme = dataclasses.replace(our_paypal(certs=None).provider.scheme, published=Published(fetch))
    need = scheme.prepare(paypal())
    with pytest.raises(KeysUnavailable):
        need()


def test_paypal_says_what_is_missing_at_the_start() -> None:
    """A webhook id that is not there, an address that is not PayPal's, a root that is none: all in one error."""
    with pytest.raises(ConfigurationError) as caught:
        PROVIDERS["paypal"](None, webhook_id="", certs={"https://example.com/c": ""}, ca="no root")
    assert len(caught.value.problems) == 3


# Adyen

ADYEN_KEY = "0a1B" * 16


def item(**changed: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "pspReference": "TIDE1",
        "merchantAccountCode": "HarbourLane",
        "merchantReference": "order:20417",
        "amount": {"value": 1450, "currency": "EUR"},
        "eventCode": "CAPTURE",
        "success": "true",
    }
    signed = b"TIDE1::HarbourLane:order:20417:1450:EUR:CAPTURE:true"
    fields["additionalData"] = {"hmacSignature": base64_of(signed, bytes.fromhex(ADYEN_KEY)).decode()}
    return {"NotificationRequestItem": {**fields, **changed}}


def adyen(*items: Any) -> Delivery:
    return Delivery("adyen_payments", [], json.dumps({"live": "false", "notificationItems": list(items)}).encode())


def test_every_item_of_adyen_is_checked() -> None:
    """A second item that nobody signed spoils the first; so does one that moves text from one field to the next."""
    endpoint = PROVIDERS["adyen_payments"](ADYEN_KEY)
    assert verify(endpoint, adyen(item(), item()), NOW)
    assert refusal(endpoint, adyen(item(), item(success="false"))) is Reason.SIGNATURE_MISMATCH
    assert refusal(endpoint, adyen(item(), item(additionalData={}))) is Reason.SIGNATURE_MISSING
    moved = item(merchantAccountCode="HarbourLane:order", merchantReference="20417")
    assert refusal(endpoint, adyen(moved)) is Reason.SIGNATURE_MALFORMED
    assert refusal(endpoint, adyen(item(amount={"value": 14.5}))) is Reason.SIGNATURE_MALFORMED
    for odd in ((), (None,), ({},), ([],), *[(item(),) * 1_001]):
        assert refusal(endpoint, adyen(*odd)) in (Reason.SIGNATURE_MISSING, Reason.SIGNATURE_MALFORMED)


# Braintree

PUBLIC = "tide4books8public"


def braintree(payload: bytes, signed: bytes | None = None, *, public: str = PUBLIC, more: bytes = b"") -> Delivery:
    key = hashlib.sha1(SECRET.encode()).digest()
    pairs = f"other|{'0' * 40}&{public}|".encode() + hex_of(payload if signed is None else signed, key, "sha1")
    return Delivery("braintree", [], urlencode([("bt_signature", pairs), ("bt_payload", payload)]).encode() + more)


XML = (
    b'<notification><timestamp type="datetime">2027-01-15T08:00:00Z</timestamp><kind>dispute_opened</kind>'
    b"<subject><dispute><id>tide9</id></dispute></subject></notification>"
)


def test_braintree_is_verified_and_read() -> None:
    """The pair of our public key counts, with or without the line break at the end; the XML says what happened."""
    endpoint = PROVIDERS["braintree"](SECRET, public_key=PUBLIC)
    delivery = braintree(encodebytes(XML))
    assert verify(endpoint, delivery, NOW)
    assert verify(endpoint, braintree(encodebytes(XML).rstrip(), encodebytes(XML)), NOW)
    facts = endpoint.provider.facts(delivery)
    assert (facts.event_id, facts.type) == ("tide9:dispute_opened:2027-01-15T08:00:00Z", "dispute_opened")
    assert refusal(endpoint, braintree(encodebytes(XML), public="another")) is Reason.SIGNATURE_MALFORMED
    assert refusal(endpoint, braintree(encodebytes(XML), more=b"&" * 3_000)) is Reason.SIGNATURE_MALFORMED
    assert refusal(endpoint, braintree(encodebytes(XML), more=b"&bt_payload=x")) is Reason.SIGNATURE_MALFORMED


def test_xml_with_declarations_is_not_read() -> None:
    """Entities are how small XML becomes large; such a body is kept as unreadable."""
    endpoint = PROVIDERS["braintree"](SECRET, public_key=PUBLIC)
    bomb = b'<!DOCTYPE n [<!ENTITY a "aaaa">]><notification><kind>&a;</kind></notification>'
    for payload in (bomb, b"<notification>", b"\xff\xfe" * 40):
        assert endpoint.provider.facts(braintree(encodebytes(payload))).problem is not None


def test_braintrees_challenge_is_answered_and_nothing_else_is_signed() -> None:
    """The answer is a signature under our key, so it is given for challenges only, and passes for no event."""
    endpoint = PROVIDERS["braintree"](SECRET, public_key=PUBLIC)
    greet = endpoint.provider.greet
    assert greet is not None
    key = hashlib.sha1(SECRET.encode()).digest()

    def asked(challenge: bytes, method: str = "GET") -> Delivery:
        return Delivery("braintree", [], b"", "/", b"bt_challenge=" + challenge, method=method)

    challenge = b"20f9f8ed05f77439fe955c977e4c8a53"
    answer = greet(asked(challenge), endpoint.secrets)
    assert answer is not None
    assert answer.body == PUBLIC.encode() + b"|" + hex_of(challenge, key, "sha1")
    assert greet(asked(challenge, "POST"), endpoint.secrets) is None
    for other in (b"", b"A" * 32, challenge * 2, encodebytes(XML)):
        assert greet(asked(other), endpoint.secrets) is None
    assert refusal(endpoint, braintree(challenge)) is Reason.SIGNATURE_MALFORMED


def test_braintree_needs_its_public_key() -> None:
    """Without it no pair of a signature could be ours."""
    with pytest.raises(ConfigurationError, match="public key"):
        PROVIDERS["braintree"](SECRET, public_key="")


# others


def mercadopago(query: bytes, manifest: bytes, *, ts: str = "1800000000") -> Delivery:
    signature = f"ts={ts},v1=".encode() + hex_of(manifest)
    headers = [(b"x-request-id", b"7f3a")] if b"request-id" in manifest else []
    return Delivery("mercadopago", [(b"x-signature", signature), *headers], b'{"id":1,"type":"order"}', "/", query)


def test_mercado_pago_signs_what_is_there() -> None:
    """Absent parts are left out, ids are signed in lower case, times are seconds or milliseconds."""
    endpoint = PROVIDERS["mercadopago"](SECRET)
    for delivery in (
        mercadopago(b"data.id=83&type=payment", b"id:83;request-id:7f3a;ts:1800000000;"),
        mercadopago(b"data.id=ORD01&type=order", b"id:ord01;request-id:7f3a;ts:1800000000;"),
        mercadopago(b"data.id=ORD01", b"id:ORD01;request-id:7f3a;ts:1800000000;"),
        mercadopago(b"data.id=83", b"id:83;ts:1800000000;"),
        mercadopago(b"", b"request-id:7f3a;ts:1800000000;"),
        mercadopago(b"data.id=83", b"id:83;ts:1800000000123;", ts="1800000000123"),
    ):
        assert verify(endpoint, delivery, NOW).signed_at == pytest.approx(NOW, abs=1)


def test_mercado_pago_cannot_be_shifted() -> None:
    """Another object under the same signature: by a semicolon in the id, by leaving parts out, by naming it twice."""
    endpoint = PROVIDERS["mercadopago"](SECRET)
    signed = b"id:83;request-id:7f3a;ts:1800000000;"
    genuine = mercadopago(b"data.id=83", signed)
    for query in (b"data.id=84", b"", b"data.id=83&data.id=84"):
        assert refusal(endpoint, dataclasses.replace(genuine, query=query))
    shifted = dataclasses.replace(genuine, query=b"data.id=83;request-id:7f3a", headers=genuine.headers[:1])
    assert refusal(endpoint, shifted) is Reason.SIGNATURE_MALFORMED
    assert refusal(endpoint, mercadopago(b"", b"ts:1800000000;")) is Reason.SIGNATURE_MALFORMED


def test_polar_takes_the_text_of_the_secret_or_its_base64() -> None:
    """Its library tries both; a stale request stays stale."""
    secret = "polar_" + "whs" + "a" * 40
    body = b'{"type":"order.paid"}'

    def sent(key: bytes, at: int = int(NOW)) -> Delivery:
        signature = b"v1," + base64_of(f"msg_1.{at}.".encode() + body, key)
        pairs = [(b"webhook-id", b"msg_1"), (b"webhook-timestamp", str(at).encode()), (b"webhook-signature", signature)]
        return Delivery("polar", pairs, body)

    endpoint = PROVIDERS["polar"](secret)
    assert verify(endpoint, sent(secret.encode()), NOW)
    assert refusal(endpoint, sent(secret.encode(), int(NOW) - 400)) is Reason.TOO_OLD
    assert verify(PROVIDERS["polar"](secret, tolerance=500.0), sent(secret.encode(), int(NOW) - 400), NOW)
    inner = b"another thirty-two bytes of key!"
    endpoint = PROVIDERS["polar"]("whsec_" + b64encode(inner).decode())
    assert verify(endpoint, sent(inner), NOW)
    assert refusal(endpoint, sent(b"neither of them")) is Reason.SIGNATURE_MISMATCH


def test_authorize_net_takes_the_text_of_the_key_or_its_bytes() -> None:
    """In upper-case hex, and in no other."""
    key, body = "AB12" * 32, b'{"notificationId":"n1"}'
    endpoint = PROVIDERS["authorize_net"](key)
    for one in (key.encode(), bytes.fromhex(key)):
        text = b"sha512=" + hex_of(body, one, "sha512").upper()
        assert verify(endpoint, Delivery("authorize_net", [(b"x-anet-signature", text)], body), NOW)
        lower = Delivery("authorize_net", [(b"x-anet-signature", text.lower())], body)
        assert refusal(endpoint, lower) is Reason.SIGNATURE_MISMATCH


def test_recurly_may_sign_with_two_keys_at_once() -> None:
    """The first entry is the time, each of the others a signature; without any there is none."""
    endpoint, body = PROVIDERS["recurly"](SECRET), b'{"id":"x"}'
    good = hex_of(b"1800000000123." + body)

    def sent(text: bytes) -> Delivery:
        return Delivery("recurly", [(b"recurly-signature", text)], body)

    assert verify(endpoint, sent(b"1800000000123," + b"0" * 64 + b"," + good), NOW).signed_at == 1_800_000_000.123
    for text in (b"1800000000123", b"1800000000123,", good, b",".join([b"1800000000123", *[good] * 9]), b"x," + good):
        assert refusal(endpoint, sent(text))


@pytest.mark.parametrize(
    ("name", "header", "template"),
    [("cashfree", b"x-webhook-timestamp", b"%b%b"), ("orb", b"x-orb-timestamp", b"v1:%b:%b")],
)
def test_the_end_of_a_time_is_not_the_beginning_of_a_body(name: str, header: bytes, template: bytes) -> None:
    """Digits that move from the time into the body keep the signature; they are refused all the same."""
    endpoint, scheme = PROVIDERS[name](SECRET), PROVIDERS[name](SECRET).provider.scheme
    genuine = scheme.seal(Delivery(name, [], b'{"type":"x"}'), endpoint.secrets[0], NOW, "m")
    assert verify(endpoint, genuine, NOW)
    time = dict(genuine.headers)[header]
    cut = time.rfind(b":") if b":" in time else 10
    rest = time[cut + 1 :] if b":" in time else time[cut:]
    moved = [(key, time[:cut] if key == header else value) for key, value in genuine.headers]
    body = rest + (b":" if b":" in time else b"") + genuine.body
    assert template % (time[:cut], body) == template % (time, genuine.body)
    assert refusal(endpoint, dataclasses.replace(genuine, headers=moved, body=body)) is not Reason.SIGNATURE_MISMATCH


def test_paddle_classic_signs_what_php_would_write() -> None:
    """Names in their order, lengths in bytes; nothing may be added, named twice, or hidden behind empty fields."""
    key = new_key()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    endpoint = PROVIDERS["paddle_classic"](public.strip())
    written = 'a:2:{s:8:"alert_id";s:1:"7";s:4:"name";s:5:"Nóra";}'.encode()
    signature = b64encode(key.sign(written, padding.PKCS1v15(), hashes.SHA1()))
    body = urlencode([("name", "Nóra"), ("p_signature", signature), ("alert_id", "7")]).encode()
    delivery = Delivery("paddle_classic", [], body)
    assert verify(endpoint, delivery, NOW)
    for more in (b"&x=1", b"&alert_id=7", b"&" * 2_100 + b"&alert_id=8", b"&p_signature=x"):
        assert refusal(endpoint, dataclasses.replace(delivery, body=body + more))


def test_each_call_of_mollie_is_an_event() -> None:
    """A payment is paid, and later refunded: both calls have the same body, and neither may be lost."""
    provider = PROVIDERS["mollie_classic"](SECRET).provider
    call = Delivery("mollie_classic", [], b"id=tr_8")
    assert provider.print_of(call) != provider.print_of(call)
    assert (provider.facts(call).type, provider.facts(call).object_id) == ("payment", "tr_8")


def test_square_signs_the_address_as_configured() -> None:
    """Whatever address the request came in by."""
    body, url = b'{"event_id":"e1"}', "https://shop.example.com/hooks/square"
    delivery = Delivery(
        "square", [(b"x-square-hmacsha256-signature", base64_of(url.encode() + body, SECRET.encode()))], body
    )
    assert verify(PROVIDERS["square"](SECRET, url=url), delivery, NOW)
    assert refusal(PROVIDERS["square"](SECRET, url=url + "/"), delivery) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize("name", ["gocardless", "square", "razorpay", "chargebee_basic", "klarna", "orb"])
def test_odd_bodies_have_no_object(name: str) -> None:
    """Bodies that are shaped otherwise than expected are read without an error."""
    options: dict[str, Any] = {"url": "https://example.com"} if name == "square" else {}
    provider = PROVIDERS[name]("user:password", **options).provider
    odd = [
        b"[]",
        b"null",
        b"{}",
        b'{"content":{},"event_type":"x"}',
        b'{"content":{"x":1},"event_type":"x"}',
        b'{"data":{"object":{}}}',
        b'{"payload":{},"contains":[]}',
        b'{"payload":[],"contains":["x"]}',
        b'{"links":{},"resource_type":7}',
        b'{"subscription":{"id":{}}}',
    ]
    for body in odd:
        facts = provider.facts(Delivery(name, [], body))
        assert facts.object_id is None
        assert facts.version_key is None
