"""Payments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import EACH_ARRIVAL, Profile, Secrets
from hookonce.providers.catalogue.phrases import FROM_DOCUMENTATION
from hookonce.providers.documents import JsonBatch, form
from hookonce.providers.known import Known, types_of
from hookonce.providers.locate import Document, Locators
from hookonce.schemes.adyen import AdyenScheme
from hookonce.schemes.base import Scheme
from hookonce.schemes.braintree import BraintreeScheme, notification
from hookonce.schemes.mercadopago import MercadoPagoScheme, manifest
from hookonce.schemes.paypal import PaypalScheme
from hookonce.schemes.request import fields
from hookonce.schemes.signature import Pieces, SignatureScheme, Stamp, json_behind
from hookonce.schemes.standard_webhooks import WEBHOOK, StandardWebhooksScheme
from hookonce.schemes.stripe import StripeScheme
from hookonce.schemes.token import TokenScheme

API_KEY_PREFIXES = (b"sk_", b"rk_", b"pk_")


class Stripe(Known, id="stripe", title="Stripe"):
    """Stripe: give the endpoint's signing secret (`whsec_...`), and the one of `stripe listen` beside it if you like."""

    scheme = StripeScheme()
    locators = Locators(
        event_id="body:id",
        type="body:type",
        # Thin events name their object beside the data, and their account as a context.
        object_id="body:data.object.id|body:related_object.id",
        account="body:account|body:context",
        event_time="body:created",
        api_version="body:api_version",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the endpoint's signing secret, whsec_..."
    retries_say = "up to 3 days, at growing intervals; any event of the last 30 days can be sent again by hand"
    types = types_of("stripe")
    sample_type = "invoice.paid"

    @staticmethod
    def secret_problem(value: bytes) -> str | None:
        prefix = value[:3]
        if prefix not in API_KEY_PREFIXES:
            return None
        return f'starts with "{prefix.decode()}": that is an API key; a signing secret starts with "whsec_"'


class Paypal(Known, id="paypal", title="PayPal"):
    """PayPal: signed with a key whose certificate a header names; that has to be PayPal's, up to a trusted root.

    `webhook_id` is the webhook's id, which is signed. Without a network give the certificate as the secret, or `certs`
    (addresses and PEM texts); `ca` is a root to check chains against instead of those of this machine.
    """

    scheme = PaypalScheme()
    locators = Locators(
        event_id="body:id",
        delivery_id="header:PAYPAL-TRANSMISSION-ID",
        type="body:event_type",
        object_id="body:resource.id",
        event_time="body:create_time",
        api_version="body:resource_version",
    )
    profile = Profile(horizon_days=30.0)
    secret_is = "nothing, or a certificate or public key (PEM) that is the only one to count"
    secret_optional = True
    retries_say = "25 in 3 days; any event can be sent again by hand"
    note = (
        "Of the body only its CRC-32 is signed, which is a checksum: whoever holds one genuine request can make other bodies "
        "with the same. For what must not be forged, ask PayPal's API for the event or let it verify the signature."
    )
    sample_type = "PAYMENT.CAPTURE.COMPLETED"
    sample = {
        "id": "",
        "event_version": "1.0",
        "create_time": "",
        "resource_type": "capture",
        "resource_version": "2.0",
        "event_type": "",
        "summary": "Payment completed for 14.50 EUR",
        "resource": {"id": "", "amount": {"currency_code": "EUR", "value": "14.50"}, "status": "COMPLETED"},
    }
    sample_options = {"webhook_id": "4TIDE00BOOK000000"}

    def __init__(
        self,
        secret: Secrets = None,
        *,
        webhook_id: str,
        certs: Mapping[str, str] | None = None,
        ca: str | None = None,
        **options: Any,
    ) -> None:
        given = {"webhook_id": webhook_id or "", "certs": certs, "ca": ca, "fetch": secret in (None, (), [])}
        object.__setattr__(self, "_given", given)
        super().__init__(secret, **options)

    def _scheme(self, name: str, **given: Any) -> Scheme:
        return super()._scheme(name, **vars(self)["_given"], **given)


class Braintree(Known, id="braintree", title="Braintree"):
    """Braintree: XML in base64 in a form; the signature names the public key whose private key made it."""

    scheme = BraintreeScheme()
    locators = Locators(
        event_id=("body:subject_id", "body:kind", "body:timestamp"),
        type="body:kind",
        object_id="body:subject_id",
        account="body:merchant",
        event_time="body:timestamp",
    )
    document: ClassVar[Document | None] = notification
    fingerprint = ("body",)
    profile = Profile(horizon_days=1.5, timeout_seconds=30.0)
    secret_is = "the private key of the API; public_key is an option beside it"
    retries_say = "hourly for up to 24 hours (3 in the sandbox)"
    handshake_says = "GET with ?bt_challenge=: answered with the public key and a signature of the challenge"
    note = (
        "There is no event id: it is put together of subject, kind and time, or the digest of the body where there is no "
        "subject. An API key that is renewed needs a source of its own, as both halves change."
    )
    sample_as = "form"
    sample_type = "subscription_charged_successfully"
    sample = {"kind": "", "timestamp": "", "subject": "subscription", "subject_id": ""}
    sample_options = {"public_key": "tide4books8public"}

    def __init__(self, secret: Secrets = None, *, public_key: str, **options: Any) -> None:
        object.__setattr__(self, "_public_key", public_key or "")
        super().__init__(secret, **options)

    def _scheme(self, name: str, **given: Any) -> Scheme:
        return super()._scheme(name, public_key=vars(self)["_public_key"], **given)

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        scheme = self.provider.scheme
        if delivery.method != "GET" or not isinstance(scheme, BraintreeScheme):
            return None
        answer = scheme.answer(dict(fields(delivery.query))[b"bt_challenge"], secrets)
        return None if answer is None else Answer(body=answer)


class AdyenPayments(Known, id="adyen_payments", title="Adyen payments"):
    """Adyen payments: several items a request, each signed by itself; every one is checked."""

    scheme = AdyenScheme()
    split = JsonBatch("notificationItems")
    locators = Locators(
        event_id=(
            "body:NotificationRequestItem.pspReference",
            "body:NotificationRequestItem.eventCode",
            "body:NotificationRequestItem.success",
        ),
        type="body:NotificationRequestItem.eventCode",
        object_id="body:NotificationRequestItem.originalReference|body:NotificationRequestItem.pspReference",
        account="body:NotificationRequestItem.merchantAccountCode",
        event_time="body:NotificationRequestItem.eventDate",
    )
    acknowledge = Answer(body=b"[accepted]")
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0, plain_ok=True)
    secret_is = "the HMAC key of the webhook, in hex"
    retries_say = "for 30 days, at growing intervals up to 8 hours; the oldest message first, all others wait for it"
    note = (
        "Eight fields of each item are signed (references, merchant account, amount, event code, success); whatever else an "
        "item says is not. Choose JSON in the customer area: forms and SOAP are refused."
    )
    sample_type = "AUTHORISATION"
    sample = {
        "live": "false",
        "notificationItems": [
            {
                "NotificationRequestItem": {
                    "additionalData": {},
                    "amount": {"currency": "EUR", "value": 1450},
                    "eventCode": "",
                    "eventDate": "",
                    "merchantAccountCode": "HarbourLaneBooks",
                    "merchantReference": "order 20417: tide tables",
                    "originalReference": "",
                    "pspReference": "",
                    "success": "true",
                }
            }
        ],
    }


class AdyenPlatform(Known, id="adyen_platform", title="Adyen for platforms, management"):
    """Adyen's newer webhooks: one event a request, the whole body signed, and no id of an event."""

    scheme = SignatureScheme(signature="header:HmacSignature", encoding="base64", key="hex")
    locators = Locators(
        type="body:type",
        object_id="body:data.id",
        account="body:data.balancePlatform",
        event_time="body:timestamp",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the HMAC key of the webhook, in hex"
    retries_say = "for 30 days, at growing intervals up to 8 hours"
    note = "There is no event id, so the digest of the body stands for it; " + FROM_DOCUMENTATION
    sample_type = "balancePlatform.transfer.updated"
    sample = {
        "data": {
            "balancePlatform": "HarbourLane",
            "id": "",
            "amount": {"currency": "EUR", "value": 1450},
            "sequenceNumber": 2,
            "status": "booked",
        },
        "environment": "test",
        "timestamp": "",
        "type": "",
    }


def _square_version(document: Any) -> object:
    """The version of the one object that an event is about."""
    (about,) = document["data"]["object"].values()
    version: object = about["version"]
    return version


class Square(Known, id="square", title="Square"):
    """Square: the address it posts to is signed with the body, exactly as it is configured there."""

    scheme = SignatureScheme(signature="header:x-square-hmacsha256-signature", encoding="base64", signed="{url}{body}")
    url_needed = True
    locators = Locators(
        event_id="body:event_id",
        type="body:type",
        object_id="body:data.id",
        account="body:merchant_id",
        event_time="body:created_at",
        version=_square_version,
    )
    profile = Profile(horizon_days=3.0, timeout_seconds=10.0)
    secret_is = "the signature key of the webhook subscription"
    retries_say = "after 1, 2, 4 .. 32 minutes, then hourly, for up to 72 hours"
    sample_type = "payment.updated"
    sample = {
        "merchant_id": "MLTIDES0BOOKS",
        "type": "",
        "event_id": "",
        "created_at": "",
        "data": {
            "type": "payment",
            "id": "",
            "object": {"payment": {"amount_money": {"amount": 1450, "currency": "EUR"}, "version": 3}},
        },
    }


def _razorpay_object(document: Any) -> object:
    """The id of the entity that an event is about; it may bring others with it."""
    return document["payload"][document["contains"][0]]["entity"]["id"]


class Razorpay(Known, id="razorpay", title="Razorpay"):
    """Razorpay: the id is in a header that nobody signs; after a change of the secret, retries still use the old one."""

    scheme = SignatureScheme(signature="header:X-Razorpay-Signature")
    locators = Locators(
        event_id="header:x-razorpay-event-id",
        delivery_id="header:x-razorpay-event-id",
        type="body:event",
        object_id=_razorpay_object,
        account="body:account_id",
        event_time="body:created_at",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=2.0, timeout_seconds=5.0)
    secret_is = "the webhook's secret (not the API's); keep the old one beside it for a day after a change"
    retries_say = "for 24 hours, at growing intervals; then the webhook is disabled"
    sample_type = "payment.captured"
    sample = {
        "entity": "event",
        "account_id": "acc_TideBooks0001",
        "event": "",
        "contains": ["payment"],
        "payload": {"payment": {"entity": {"id": "pay_Tide0000000001", "amount": 145000, "currency": "INR"}}},
        "created_at": 0,
    }


def _gocardless_object(event: Any) -> object:
    """Of all links of an event, the one to what it is about."""
    return event["links"][event["resource_type"].removesuffix("s")]


class GoCardless(Known, id="gocardless", title="GoCardless"):
    """GoCardless: up to 250 events a request, each with an id of its own."""

    scheme = SignatureScheme(signature="header:Webhook-Signature")
    split = JsonBatch("events")
    locators = Locators(
        event_id="body:id",
        delivery_id="outer:meta.webhook_id",
        type=("body:resource_type", "body:action"),
        object_id=_gocardless_object,
        event_time="body:created_at",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook endpoint's secret"
    retries_say = "8 within hours; a webhook can be sent again by hand"
    sample_type = "payments.confirmed"
    sample = {
        "events": [
            {
                "id": "",
                "created_at": "",
                "resource_type": "",
                "action": "",
                "links": {"payment": "PM000TIDES01"},
                "details": {"origin": "gocardless", "cause": "payment_confirmed"},
            }
        ],
        "meta": {"webhook_id": "WB000TIDES01"},
    }


class MollieNextGen(Known, id="mollie_nextgen", title="Mollie (next-gen webhooks)"):
    """Mollie's signed webhooks: events with an id and a type, in full or only with the object's id."""

    scheme = SignatureScheme(signature="header:X-Mollie-Signature", prefix="sha256=")
    locators = Locators(event_id="body:id", type="body:type", object_id="body:entityId", event_time="body:createdAt")
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0, plain_ok=True)
    secret_is = "the webhook's signing secret"
    retries_say = "10 in 26 hours"
    note = FROM_DOCUMENTATION.capitalize()
    sample_type = "payment-link.paid"
    sample = {"resource": "event", "id": "", "type": "", "entityId": "", "createdAt": ""}


MOLLIE_KINDS = {"tr": "payment", "ord": "order", "pl": "payment-link", "sub": "subscription", "stl": "settlement"}


def _mollie_object(document: Any) -> object:
    return document["id"]


def _mollie_kind(document: Any) -> object:
    """What the object is, by the beginning of its id."""
    prefix = document["id"].partition("_")[0]
    return MOLLIE_KINDS.get(prefix, prefix)


class MollieClassic(Known, id="mollie_classic", title="Mollie (classic webhooks)"):
    """Mollie's older webhooks: a form with nothing but the object's id, the same one for each of its changes."""

    scheme = TokenScheme(at="query:token")
    document = form
    locators = Locators(type=_mollie_kind, object_id=_mollie_object)
    fingerprint = (EACH_ARRIVAL,)
    profile = Profile(horizon_days=2.0, timeout_seconds=15.0, plain_ok=True)
    secret_is = "a long random text: put it into the webhook's URL as ?token=..."
    retries_say = "10 in 26 hours"
    note = (
        "Nothing is signed: the secret in the URL says who it is, and the body is not covered. A call says only that an "
        "object has changed, so every call counts as an event of its own, retries too: fetch the object in the handler, "
        "and act on the status it has now."
    )
    sample_as = "form"
    sample_type = "payment"
    sample = {"id": "tr_7TideBooks"}


class CheckoutCom(Known, id="checkout_com", title="Checkout.com"):
    """Checkout.com: one event a request, signed with the key of the workflow's action."""

    scheme = SignatureScheme(signature="header:Cko-Signature")
    locators = Locators(event_id="body:id", type="body:type", object_id="body:data.id", event_time="body:created_on")
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the signature key of the workflow's webhook action"
    retries_say = "8 over about 25 hours; events can be sent again by hand"
    note = FROM_DOCUMENTATION.capitalize()
    sample_type = "payment_captured"
    sample = {
        "id": "",
        "type": "",
        "version": "1.0.4",
        "created_on": "",
        "data": {"id": "", "amount": 1450, "currency": "EUR", "reference": "order 20417"},
    }


class CoinbaseCommerce(Known, id="coinbase_commerce", title="Coinbase Commerce"):
    """Coinbase Commerce: the event is inside an envelope that says which attempt this is."""

    scheme = SignatureScheme(signature="header:X-CC-Webhook-Signature")
    locators = Locators(
        event_id="body:event.id",
        delivery_id="body:id",
        type="body:event.type",
        object_id="body:event.data.code",
        event_time="body:event.created_at",
        api_version="body:event.api_version",
    )
    profile = Profile(horizon_days=30.0, plain_ok=True)
    secret_is = "the webhook's shared secret"
    retries_say = "up to 3 days, at growing intervals"
    note = "A retry counts its attempts in the body, so it is shown as the same event with a different body."
    sample_type = "charge:confirmed"
    sample = {
        "attempt_number": 1,
        "event": {
            "id": "",
            "api_version": "2018-03-22",
            "created_at": "",
            "type": "",
            "data": {"code": "", "name": "Tide tables", "pricing_type": "fixed_price"},
        },
        "id": "",
        "scheduled_for": "2026-03-04T10:11:12Z",
    }


class Paystack(Known, id="paystack", title="Paystack", confidence="likely"):
    """Paystack: signed with the API's secret key (HMAC-SHA512); events have no id of their own."""

    scheme = SignatureScheme(signature="header:x-paystack-signature", digest="sha512")
    locators = Locators(
        event_id=("body:data.id", "body:event"),
        type="body:event",
        object_id="body:data.reference|body:data.id",
        event_time="body:data.paid_at",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, plain_ok=True)
    secret_is = "the API's secret key, sk_..."
    retries_say = "every 3 minutes 4 times, then hourly for 72 hours; by hand from the dashboard"
    note = (
        "The id is put together of the object's and the event's name: of reminders of one dispute only the first counts as "
        "new. Where the data has no id, the digest of the body stands for it."
    )
    sample_type = "charge.success"
    sample = {
        "event": "",
        "data": {
            "id": 4099260516,
            "status": "success",
            "reference": "",
            "amount": 145000,
            "currency": "NGN",
            "paid_at": "",
        },
    }
    sample_id = None


class FlutterwaveV3(Known, id="flutterwave_v3", title="Flutterwave v3", confidence="unsure"):
    """Flutterwave v3: a fixed hash of your choice in a header, nothing signed."""

    scheme = TokenScheme(at="header:verif-hash")
    locators = Locators(
        event_id=("body:data.id", "body:event", "body:data.status"),
        type="body:event",
        object_id="body:data.tx_ref|body:data.reference",
        event_time="body:data.created_at",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=60.0, plain_ok=True)
    secret_is = "the secret hash that you have set in the dashboard"
    retries_say = "3, half an hour apart; by hand through the API"
    note = (
        "Nothing is signed, so the body is not covered: ask the API for the transaction before acting on it. The id is put "
        "together of the object's, the event's name and the status."
    )
    sample_type = "charge.completed"
    sample = {
        "event": "",
        "data": {
            "id": 285959875,
            "tx_ref": "",
            "amount": 1450,
            "currency": "NGN",
            "status": "successful",
            "created_at": "",
        },
    }
    sample_id = None


class FlutterwaveV4(Known, id="flutterwave_v4", title="Flutterwave v4", confidence="unsure"):
    """Flutterwave v4: the body is signed with the secret hash of your choice."""

    scheme = SignatureScheme(signature="header:flutterwave-signature", encoding="base64")
    locators = Locators(
        event_id=("body:id", "body:type", "body:data.id"),
        type="body:type",
        object_id="body:data.id",
        event_time="body:timestamp",
        time_unit="ms",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=60.0, plain_ok=True)
    secret_is = "the secret hash that you have set in the dashboard"
    retries_say = "3; by hand through the API"
    note = (
        "What its `id` counts is not certain, so the event's type and object are part of ours; without them the digest of "
        "the body stands for it."
    )
    sample_type = "charge.completed"
    sample = {
        "id": "",
        "timestamp": 0,
        "type": "",
        "data": {"id": "", "amount": 1450, "currency": "NGN", "status": "succeeded", "reference": "order-20417"},
    }


class Cashfree(Known, id="cashfree", title="Cashfree"):
    """Cashfree: signed over milliseconds and body with the client secret; the id is in a header that nobody signs."""

    scheme = SignatureScheme(
        signature="header:x-webhook-signature",
        encoding="base64",
        signed=json_behind("{ts}{body}"),
        stamp=Stamp("header:x-webhook-timestamp", "ms", past=None),
    )
    locators = Locators(
        event_id="header:x-idempotency-key",
        delivery_id="header:x-idempotency-key",
        type="body:type",
        object_id="body:data.order.order_id",
        event_time="body:event_time",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, plain_ok=True)
    secret_is = "the client secret of the API"
    retries_say = "3"
    note = "Older versions have no idempotency key: then the digest of the body stands for the id."
    sample_type = "PAYMENT_SUCCESS_WEBHOOK"
    sample = {
        "data": {
            "order": {"order_id": "", "order_amount": 145.5, "order_currency": "INR"},
            "payment": {"cf_payment_id": "1453002795", "payment_status": "SUCCESS", "payment_amount": 145.5},
        },
        "event_time": "",
        "type": "",
    }


class MercadoPago(Known, id="mercadopago", title="Mercado Pago"):
    """Mercado Pago: the object's id in the query is signed, the body is not: it says what to fetch."""

    scheme = MercadoPagoScheme(
        signature="header:x-signature",
        pieces=Pieces(key="v1"),
        signed=manifest,
        stamp=Stamp("part:ts", "s-or-ms", past=None),
    )
    locators = Locators(
        event_id="body:id",
        delivery_id="header:x-request-id",
        type=("body:type", "body:action"),
        object_id="query:data.id|body:data.id",
        account="body:user_id",
        event_time="body:date_created",
        api_version="body:api_version",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=22.0, plain_ok=True)
    secret_is = "the secret signature of the application's webhooks"
    retries_say = "every 15 minutes"
    note = (
        "The body is not covered by the signature, not even its id: fetch the object that the query names. Notifications of "
        "QR codes and of the older IPN are not signed, and refused."
    )
    sample_type = "payment.payment.updated"
    sample = {
        "action": "",
        "api_version": "v1",
        "data": {"id": "83104715529"},
        "date_created": "",
        "id": 112233445566,
        "live_mode": False,
        "type": "",
        "user_id": 44444,
    }
    sample_query = "data.id=83104715529&type=payment"
    sample_id = None


class Fintoc(Known, id="fintoc", title="Fintoc"):
    """Fintoc: time and signature in one header."""

    scheme = SignatureScheme(
        signature="header:Fintoc-Signature", pieces=Pieces(key="v1"), signed="{ts}.{body}", stamp=Stamp("part:t")
    )
    locators = Locators(event_id="body:id", type="body:type", object_id="body:data.id", event_time="body:created_at")
    profile = Profile(horizon_days=30.0)
    secret_is = "the webhook endpoint's secret"
    retries_say = "not published"
    note = FROM_DOCUMENTATION.capitalize()
    sample_type = "payment_intent.succeeded"
    sample = {
        "id": "",
        "object": "event",
        "type": "",
        "mode": "test",
        "created_at": "",
        "data": {"id": "", "object": "payment_intent", "amount": 14500, "currency": "CLP", "status": "succeeded"},
    }


class DodoPayments(Known, id="dodopayments", title="Dodo Payments"):
    """Dodo Payments: Standard Webhooks."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        type="body:type",
        object_id="body:data.id|body:data.payment_id|body:data.subscription_id",
        account="body:business_id",
        event_time="body:timestamp",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the endpoint's signing secret, whsec_..."
    retries_say = "several, at growing intervals; by hand from the dashboard"
    note = FROM_DOCUMENTATION.capitalize()
    sample_type = "payment.succeeded"
    sample = {
        "business_id": "bus_TideBooks",
        "type": "",
        "timestamp": "",
        "data": {"payload_type": "Payment", "payment_id": "pay_TideBooks", "total_amount": 1450, "currency": "EUR"},
    }
