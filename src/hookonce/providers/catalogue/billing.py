"""Subscriptions, invoices and billing."""

from __future__ import annotations

import secrets as random_bytes
from typing import Any

from hookonce.providers.base import Profile
from hookonce.providers.catalogue.phrases import FROM_DOCUMENTATION
from hookonce.providers.documents import form
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators
from hookonce.schemes.either import EitherScheme
from hookonce.schemes.paddle_classic import PaddleClassicScheme, sorted_fields
from hookonce.schemes.recurly import RecurlyScheme
from hookonce.schemes.signature import Pieces, SignatureScheme, Stamp, json_behind
from hookonce.schemes.standard_webhooks import WEBHOOK, StandardWebhooksScheme
from hookonce.schemes.token import TokenScheme


class PaddleBilling(Known, id="paddle_billing", title="Paddle Billing"):
    """Paddle Billing: its own libraries allow 5 seconds between signing and arriving, which a busy relay exceeds; we 300."""

    scheme = SignatureScheme(
        signature="header:Paddle-Signature",
        pieces=Pieces(key="h1", sep=";"),
        signed="{ts}:{body}",
        stamp=Stamp("part:ts"),
    )
    locators = Locators(
        event_id="body:event_id",
        delivery_id="body:notification_id",
        type="body:event_type",
        object_id="body:data.id",
        event_time="body:occurred_at",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=5.0, plain_ok=True)
    secret_is = "the notification destination's secret key, pdl_ntfset_..."
    retries_say = "60 in 3 days (3 in 15 minutes in the sandbox); any notification can be replayed by hand"
    sample_type = "transaction.completed"
    sample = {
        "event_id": "",
        "event_type": "",
        "occurred_at": "",
        "notification_id": "",
        "data": {"id": "", "status": "completed", "currency_code": "EUR", "customer_id": "ctm_tidebooks"},
    }


class PaddleClassic(Known, id="paddle_classic", title="Paddle Classic", confidence="unsure"):
    """Paddle Classic: a form, signed as PHP would serialise it, with a key of which you have the public half."""

    scheme = PaddleClassicScheme(
        signature="form:p_signature", digest="rsa-sha1", encoding="base64", signed=sorted_fields
    )
    document = form
    locators = Locators(
        event_id="body:alert_id",
        type="body:alert_name",
        object_id="body:subscription_id|body:order_id",
        event_time="body:event_time",
        time_unit="utc",
    )
    profile = Profile(horizon_days=30.0, plain_ok=True)
    secret_is = "the account's public key (PEM)"
    retries_say = "every hour for 3 days"
    sample_as = "form"
    sample_type = "subscription_payment_succeeded"
    sample = {
        "alert_id": "",
        "alert_name": "",
        "currency": "EUR",
        "email": "aoife@example.com",
        "event_time": "",
        "passthrough": '{"order": "Mná na mara"}',
        "sale_gross": "14.50",
        "subscription_id": "",
    }


class LemonSqueezy(Known, id="lemon_squeezy", title="Lemon Squeezy", confidence="likely"):
    """Lemon Squeezy: JSON:API, with the event's name and number beside the data."""

    scheme = SignatureScheme(signature="header:X-Signature")
    locators = Locators(
        event_id=("body:meta.webhook_id", "body:meta.event_name", "body:data.id", "body:data.attributes.updated_at"),
        type="body:meta.event_name|header:X-Event-Name",
        object_id="body:data.id",
        event_time="body:data.attributes.updated_at",
        version="body:data.attributes.updated_at",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, plain_ok=True)
    secret_is = "the webhook's signing secret"
    retries_say = "3, after 5, 25 and 125 seconds; by hand from the dashboard"
    note = (
        "What meta.webhook_id counts is not certain, so the event's name, object and time are part of the id; without one of "
        "them the digest of the body stands for it."
    )
    sample_type = "subscription_updated"
    sample = {
        "meta": {"test_mode": True, "event_name": "", "webhook_id": "", "custom_data": {"order": "20417"}},
        "data": {
            "type": "subscriptions",
            "id": "",
            "attributes": {"status": "active", "user_name": "Aoife Byrne", "updated_at": ""},
        },
    }


class AuthorizeNet(Known, id="authorize_net", title="Authorize.Net", confidence="likely"):
    """Authorize.Net: HMAC-SHA512 in upper-case hex; the signature key is hex, and both its text and its bytes are tried."""

    scheme = EitherScheme(
        first=SignatureScheme(signature="header:X-ANET-Signature", prefix="sha512=", digest="sha512", encoding="HEX"),
        second=SignatureScheme(
            signature="header:X-ANET-Signature", prefix="sha512=", digest="sha512", encoding="HEX", key="hex"
        ),
    )
    locators = Locators(
        event_id="body:notificationId", type="body:eventType", object_id="body:payload.id", event_time="body:eventDate"
    )
    profile = Profile(horizon_days=30.0, plain_ok=True)
    secret_is = "the signature key (hex)"
    retries_say = "10 over days; by hand through the API"
    note = FROM_DOCUMENTATION.capitalize()
    sample_type = "net.authorize.payment.authcapture.created"
    sample = {
        "notificationId": "",
        "eventType": "",
        "eventDate": "",
        "webhookId": "3f1c2a44-71de-4b8e-9a3c-0a5b6c7d8e9f",
        "payload": {"responseCode": 1, "authAmount": 14.5, "entityName": "transaction", "id": ""},
    }

    @classmethod
    def new_secret(cls) -> bytes:
        return random_bytes.token_hex(64).upper().encode()


class Recurly(Known, id="recurly", title="Recurly"):
    """Recurly: the ids in the body are those of the object; the notification's own is in a header that nobody signs."""

    scheme = RecurlyScheme(signature="header:recurly-signature", signed="{ts}.{body}", stamp=Stamp("part:t", "ms"))
    locators = Locators(
        event_id="header:recurly-notification-id",
        delivery_id="header:recurly-notification-id",
        type=("body:object_type", "body:event_type"),
        object_id="body:uuid|body:id|body:account_code",
        account="body:site_id",
        event_time="body:event_time",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=5.0)
    secret_is = "the webhook endpoint's secret key"
    retries_say = "10, at growing intervals from seconds to hours; by hand from the admin pages"
    note = (
        "Choose JSON: XML is not signed. The places of ids are taken from its documentation; without the header the digest "
        "of the body stands for the id."
    )
    sample_type = "subscription.created"
    sample = {
        "id": "tide4books8id",
        "object_type": "",
        "site_id": "harbourlane",
        "event_type": "",
        "event_time": "",
        "uuid": "",
    }


def _chargebee_resource(document: Any) -> Any:
    """Of all resources that came with an event, the one it is named after; otherwise the first."""
    content = document["content"]
    named = sorted((name for name in content if document["event_type"].startswith(name)), key=len)
    return content[named[-1]] if named else next(iter(content.values()), {})


def _chargebee_object(document: Any) -> object:
    resource = _chargebee_resource(document)
    return resource["id"]


def _chargebee_version(document: Any) -> object:
    resource = _chargebee_resource(document)
    return resource["resource_version"]


class Chargebee(Known, id="chargebee_basic", title="Chargebee", confidence="likely"):
    """Chargebee: user and password (HTTP Basic), nothing signed."""

    scheme = TokenScheme(at="header:Authorization", basic=True)
    locators = Locators(
        event_id="body:id",
        type="body:event_type",
        object_id=_chargebee_object,
        event_time="body:occurred_at",
        version=_chargebee_version,
        api_version="body:api_version",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=60.0)
    secret_is = 'user and password as "user:password", as you set them for the webhook'
    retries_say = "7 or more, after 2 minutes up to more than 2 days"
    note = "Nothing is signed, so the body is not covered; " + FROM_DOCUMENTATION
    sample_type = "subscription_changed"
    sample = {
        "id": "",
        "occurred_at": 0,
        "source": "admin_console",
        "object": "event",
        "api_version": "v2",
        "content": {
            "subscription": {"id": "TideBooks01", "status": "active", "resource_version": 1760000000123},
            "customer": {"id": "aoife", "resource_version": 1760000000001},
        },
        "event_type": "",
    }


REVENUECAT = Locators(
    event_id="body:event.id",
    type="body:event.type",
    object_id="body:event.app_user_id|body:event.transaction_id",
    event_time="body:event.event_timestamp_ms",
    time_unit="ms",
    api_version="body:api_version",
)
REVENUECAT_PROFILE = Profile(horizon_days=30.0, timeout_seconds=60.0, plain_ok=True)
REVENUECAT_RETRIES = "5, after 5, 10, 20, 40 and 80 minutes; by hand from the dashboard"
REVENUECAT_SAMPLE: Any = {
    "api_version": "1.0",
    "event": {
        "id": "",
        "type": "",
        "app_id": "app_tidebooks",
        "app_user_id": "",
        "environment": "SANDBOX",
        "event_timestamp_ms": 0,
        "product_id": "reading_circle_monthly",
        "store": "APP_STORE",
    },
}


class RevenueCatHmac(Known, id="revenuecat_hmac", title="RevenueCat (signed)", confidence="likely"):
    """RevenueCat with signing switched on for the webhook: time and signature in one header."""

    scheme = SignatureScheme(
        signature="header:X-RevenueCat-Webhook-Signature",
        pieces=Pieces(key="v1"),
        signed="{ts}.{body}",
        stamp=Stamp("part:t", past=None),
    )
    locators = REVENUECAT
    profile = REVENUECAT_PROFILE
    secret_is = "the webhook's signing secret"
    retries_say = REVENUECAT_RETRIES
    note = "How old a signature may be is not documented, so any age is accepted: say tolerance to bound it."
    sample_type = "RENEWAL"
    sample = REVENUECAT_SAMPLE


class RevenueCat(Known, id="revenuecat", title="RevenueCat", confidence="likely"):
    """RevenueCat: a fixed value of your choice in the Authorization header, nothing signed."""

    scheme = TokenScheme(at="header:Authorization")
    locators = REVENUECAT
    profile = REVENUECAT_PROFILE
    secret_is = "the whole value of the Authorization header, as you set it for the webhook"
    retries_say = REVENUECAT_RETRIES
    note = "Nothing is signed, so the body is not covered: switch on signing and use revenuecat_hmac."
    sample_type = "RENEWAL"
    sample = REVENUECAT_SAMPLE


class Polar(Known, id="polar", title="Polar"):
    """Polar: Standard Webhooks, but the secret's text itself is the key; base64 is tried as well, as its library does."""

    scheme = EitherScheme(
        first=StandardWebhooksScheme(key="raw", families=(WEBHOOK,)), second=StandardWebhooksScheme(families=(WEBHOOK,))
    )
    locators = Locators(
        event_id="header:webhook-id", type="body:type", object_id="body:data.id", event_time="body:timestamp"
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the endpoint's secret, as shown"
    retries_say = "10, at growing intervals; by hand from the delivery list"
    note = FROM_DOCUMENTATION.capitalize()
    sample_type = "order.paid"
    sample = {
        "type": "",
        "timestamp": "",
        "data": {"id": "", "status": "paid", "total_amount": 1450, "currency": "eur"},
    }


def _klarna_object(document: Any) -> object:
    """The first id in the payload: what it is called depends on the event."""
    return next((value for name, value in document["payload"].items() if name.endswith("_id")), None)


class Klarna(Known, id="klarna", title="Klarna", confidence="likely"):
    """Klarna: signed with one of your signing keys; a header says which, and all configured ones are tried."""

    scheme = SignatureScheme(signature="header:Klarna-Signature")
    locators = Locators(
        event_id="body:metadata.event_id",
        type="body:metadata.event_type",
        object_id=_klarna_object,
        event_time="body:metadata.occurred_at",
        api_version="body:metadata.event_version",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the signing key that was shown when it was made"
    retries_say = "for 48 to 72 hours, at growing intervals"
    note = FROM_DOCUMENTATION.capitalize()
    sample_type = "payment.request.state-change.completed"
    sample = {
        "metadata": {"event_type": "", "event_id": "", "event_version": "v2", "occurred_at": ""},
        "payload": {"payment_request_id": "krn:payment:eu1:request:tide-books", "state": "COMPLETED"},
    }


def _orb_object(document: Any) -> object:
    """The id of the first object in an event, whatever it is called."""
    return next((value["id"] for value in document.values() if isinstance(value, dict) and "id" in value), None)


class Orb(Known, id="orb", title="Orb"):
    """Orb: the time is ISO 8601, at times without a zone: then it is UTC."""

    scheme = SignatureScheme(
        signature="header:X-Orb-Signature",
        prefix="v1=",
        separator=" ",
        signed=json_behind("v1:{ts}:{body}"),
        stamp=Stamp("header:X-Orb-Timestamp", "iso", zone=False),
    )
    locators = Locators(event_id="body:id", type="body:type", object_id=_orb_object, event_time="body:created_at")
    profile = Profile(horizon_days=30.0)
    secret_is = "the webhook endpoint's secret"
    retries_say = "not published"
    note = FROM_DOCUMENTATION.capitalize()
    sample_type = "subscription.started"
    sample = {
        "id": "",
        "created_at": "",
        "type": "",
        "properties": {},
        "subscription": {"id": "sub_TideBooks", "status": "active", "customer": {"id": "cus_Aoife"}},
    }
