"""Shops, orders and shipments."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Any, Literal

from hookonce.errors import ConfigurationError
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import Profile, Secrets
from hookonce.providers.documents import segment
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators
from hookonce.providers.tenants import keys_address, no_keys
from hookonce.schemes.apple import NESTED, AppleScheme, signed_payload
from hookonce.schemes.detached import SaleorScheme
from hookonce.schemes.ebay import EbayScheme
from hookonce.schemes.request import fields
from hookonce.schemes.signature import SignatureScheme
from hookonce.schemes.standard_webhooks import WEBHOOK, StandardWebhooksScheme

CHALLENGE_BYTES_MAX = 1_000

SHOPIFY_TOPIC = "header:X-Shopify-Topic|header:shopify-topic"
SHOPIFY_EVENT = "header:X-Shopify-Event-Id|header:shopify-event-id"
SHOPIFY_WEBHOOK = "header:X-Shopify-Webhook-Id|header:shopify-webhook-id"


class Shopify(Known, id="shopify", title="Shopify"):
    """Shopify: one event comes once for each subscription to it, with the same body under other webhook ids."""

    scheme = SignatureScheme(
        signature=("header:X-Shopify-Hmac-Sha256", "header:shopify-hmac-sha256"), encoding="base64"
    )
    locators = Locators(
        event_id=SHOPIFY_WEBHOOK,
        delivery_id=SHOPIFY_WEBHOOK,
        type=SHOPIFY_TOPIC,
        object_id="body:id|body:admin_graphql_api_id|header:shopify-resource-id",
        account="header:X-Shopify-Shop-Domain|header:shopify-shop-domain",
        event_time="header:X-Shopify-Triggered-At|header:shopify-triggered-at",
        version="body:updated_at",
        api_version="header:X-Shopify-API-Version|header:shopify-api-version",
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=5.0, guard=False)
    secret_is = "the app's client secret; after a rotation the old one beside it for a while"
    retries_say = "8 within 4 hours, at growing intervals; then the subscription may be deleted"
    note = (
        "Only the body is signed: ids, topic and shop stand in headers. The same body under another webhook id is "
        "accepted, because several subscriptions for one event send just that, and cannot be told from a replay. "
        "Take the event's id (X-Shopify-Event-Id) as the key of effects, or set key_by to event_id to have one "
        "receipt for each event and topic. Choose JSON, not XML, as the format."
    )
    sample_type = "orders/updated"
    sample = {
        "id": 5820340011,
        "admin_graphql_api_id": "gid://shopify/Order/5820340011",
        "name": "#1042",
        "currency": "EUR",
        "total_price": "74.50",
        "financial_status": "paid",
        "updated_at": "2026-03-04T11:12:13+01:00",
        "line_items": [{"id": 1400233, "title": "Tide table, bound", "quantity": 2, "price": "37.25"}],
    }

    def __init__(
        self, secret: Secrets = None, *, key_by: Literal["webhook_id", "event_id"] = "webhook_id", **options: Any
    ) -> None:
        if key_by not in ("webhook_id", "event_id"):
            raise ConfigurationError(f'key_by is "webhook_id" or "event_id", not {key_by!r}', code="HO101")
        if key_by == "event_id":
            # One action may set off several topics under one event id: without the topic, all but one would be lost.
            located = dataclasses.replace(self.locators, event_id=(SHOPIFY_EVENT, SHOPIFY_TOPIC))
            object.__setattr__(self, "locators", located)
        super().__init__(secret, **options)


WOOCOMMERCE_PING = re.compile(rb"webhook_id=\d{1,20}")


class WooCommerce(Known, id="woocommerce", title="WooCommerce", confidence="likely"):
    """WooCommerce: a delivery that fails is lost, and five in a row switch the webhook off."""

    scheme = SignatureScheme(signature="header:X-WC-Webhook-Signature", encoding="base64")
    locators = Locators(
        event_id="header:X-WC-Webhook-Delivery-ID",
        delivery_id="header:X-WC-Webhook-Delivery-ID",
        type="header:X-WC-Webhook-Topic",
        object_id="body:id",
        event_time="body:date_modified_gmt",
        version="body:date_modified_gmt",
        time_unit="utc",
    )
    profile = Profile(retries=False, timeout_seconds=5.0)
    secret_is = "the secret of the webhook, as it was entered in the shop"
    retries_say = "none; after 5 failures in a row the webhook is disabled"
    handshake_says = "the unsigned ping when a webhook is saved (a form with webhook_id) is answered with an empty 200"
    note = (
        "The id is in a header that nobody signs: the very same body under another id counts as a replay, also "
        "where a product is deleted, restored and deleted again. The places of the ids are taken from "
        "documentation."
    )
    sample_type = "order.updated"
    sample = {
        "id": 7301,
        "number": "7301",
        "status": "processing",
        "currency": "EUR",
        "total": "31.00",
        "date_modified_gmt": "2026-03-04T10:11:12",
        "billing": {"first_name": "Aoife", "email": "aoife@example.com"},
        "line_items": [{"id": 88, "name": "Harbour map", "quantity": 1, "total": "31.00"}],
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        signed = any(name == b"x-wc-webhook-signature" for name, _ in delivery.headers)
        return None if signed or WOOCOMMERCE_PING.fullmatch(delivery.body) is None else Answer()


class BigCommerce(Known, id="bigcommerce", title="BigCommerce"):
    """BigCommerce: Standard Webhooks with the app's client secret as the key; the body only says what changed."""

    scheme = StandardWebhooksScheme(key="raw", families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        delivery_id="header:webhook-id",
        type="body:scope",
        object_id="body:data.id",
        account="body:producer|body:store_id",
        event_time="body:created_at",
    )
    profile = Profile(horizon_days=3.0)
    secret_is = "the app's client secret, as it is"
    retries_say = "11 within 48 hours, from 1 minute to 24 hours apart; then the webhook is deactivated"
    note = "A domain that refuses more than a tenth of its requests gets none for 3 minutes."
    sample_type = "store/order/updated"
    sample = {
        "scope": "",
        "store_id": "1025646",
        "data": {"type": "order", "id": 250},
        "hash": "5f2b9c0f4f1d6a8cbb1e9c3b7f3d2a10c4d5e6f7",
        "created_at": 0,
        "producer": "stores/harbour1",
    }


class Saleor(Known, id="saleor", title="Saleor"):
    """Saleor: signed with the shop's own key, apart from the body, which holds what the subscription asked for."""

    scheme = SaleorScheme()
    locators = Locators(
        type="header:Saleor-Event",
        object_id="body:id|body:order.id|body:0.id",
        event_time="body:issued_at|body:issuedAt|body:0.meta.issued_at",
        api_version="body:version|body:0.meta.version",
    )
    fingerprint = ("body",)
    profile = Profile(timeout_seconds=20.0)
    secret_is = "the shop's public key, as PEM or JWKS"
    secret_optional = True
    retries_say = "5, at growing intervals; by hand from the dashboard"
    note = (
        "Say domain, and the shop's keys are fetched; or configure them as secrets. Saleor gives no id: the digest "
        "of the body stands for it, so ask for issuedAt in the subscription, or two events that say the same are "
        "one. The event's name stands in a header that nobody signs. A webhook with a secretKey of its own (the old "
        "way) cannot be verified: leave that empty."
    )
    sample_type = "order_updated"
    sample = {
        "id": "",
        "number": "318",
        "status": "UNFULFILLED",
        "total_gross_amount": "54.00",
        "currency": "EUR",
        "issued_at": "2026-03-04T10:11:12+00:00",
        "version": "3.20.4",
    }

    def __init__(self, secret: Secrets = None, *, domain: str | None = None, **options: Any) -> None:
        name = options.get("name") or self.id
        if domain is not None:
            object.__setattr__(self, "scheme", SaleorScheme(keys_at=keys_address(name, domain, "jwks.json")))
        elif not secret:
            raise no_keys(name, 'domain = "shop.example.com"')
        super().__init__(secret, **options)


class EasyPost(Known, id="easypost", title="EasyPost"):
    """EasyPost: the secret is normalised (NFKD) before it is the key; an event says in words what it is."""

    scheme = SignatureScheme(signature="header:X-Hmac-Signature", prefix="hmac-sha256-hex=", key="nfkd")
    locators = Locators(
        event_id="body:id", type="body:description", object_id="body:result.id", event_time="body:created_at"
    )
    profile = Profile(timeout_seconds=7.0)
    secret_is = "the webhook_secret that was given when the webhook was made"
    retries_say = "6 within some hours, at growing intervals"
    sample_type = "tracker.updated"
    sample = {
        "object": "Event",
        "id": "",
        "mode": "test",
        "description": "",
        "created_at": "2026-03-04T10:11:12Z",
        "previous_attributes": {"status": "in_transit"},
        "result": {"id": "", "object": "Tracker", "tracking_code": "EZ3000000003", "status": "delivered"},
        "status": "pending",
    }


class Ebay(Known, id="ebay", title="eBay"):
    """eBay: each signature names its key, which only the holder of an application's credentials can ask eBay for."""

    scheme = EbayScheme()
    locators = Locators(
        event_id="body:notification.notificationId",
        type="body:metadata.topic",
        object_id="body:notification.data.orderId|body:notification.data.itemId|body:notification.data.userId",
        event_time="body:notification.eventDate|body:notification.publishDate",
        api_version="body:metadata.schemaVersion",
    )
    profile = Profile(timeout_seconds=3.0)
    secret_is = "eBay's public key as PEM, or several by their ids: a JWKS, or JSON of ids and PEM texts"
    retries_say = "for 24 hours; then the address is marked down"
    handshake_says = (
        "GET ?challenge_code= is answered with the hash that eBay expects, if verification_token and url are given"
    )
    note = (
        "Fetch the key that the signature's kid names with your credentials (getPublicKey of the Notification API) "
        "and configure it; when eBay changes keys, put the new one beside it. The places of the ids are taken from "
        "documentation."
    )
    sample_type = "MARKETPLACE_ACCOUNT_DELETION"
    sample = {
        "metadata": {"topic": "", "schemaVersion": "1.0", "deprecated": False},
        "notification": {
            "notificationId": "",
            "eventDate": "2026-03-04T10:11:12.345Z",
            "publishDate": "2026-03-04T10:11:13.345Z",
            "publishAttemptCount": 1,
            "data": {"username": "harbour-lane", "userId": "u7Rk2", "eiasToken": "nY+sHZ2PrBmdj6wVnY+s"},
        },
    }
    _answers: tuple[str, str] | None

    def __init__(
        self, secret: Secrets = None, *, verification_token: str | None = None, url: str | None = None, **options: Any
    ) -> None:
        if (verification_token is None) != (url is None):
            raise ConfigurationError(
                f"{options.get('name') or self.id}: eBay's challenge is answered with both verification_token and url",
                code="HO101",
                do='say verification_token="env:NAME" and url="https://example.com/...", both exactly as eBay has them',
            )
        answers = None if verification_token is None or url is None else (verification_token, url)
        object.__setattr__(self, "_answers", answers)
        super().__init__(secret, **options)

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if delivery.method != "GET" or self._answers is None:
            return None
        [code] = [value for name, value in fields(delivery.query) if name == b"challenge_code"]
        if not 0 < len(code) <= CHALLENGE_BYTES_MAX:
            return None
        token, url = self._answers
        digest = hashlib.sha256(code + token.encode() + url.encode()).hexdigest()
        return Answer(body=json.dumps({"challengeResponse": digest}).encode(), content_type="application/json")


def apple_notification(delivery: Delivery) -> Any:
    """What the signed payload says, its transaction and renewal read as well. Whoever asks has verified it."""
    claims = _claims(signed_payload(delivery.body))
    about = claims.get("data") if isinstance(claims, dict) else None
    if isinstance(about, dict):
        for name, nested in NESTED.items():
            if isinstance(about.get(nested), str):
                about[name] = _claims(about[nested].encode())
    return claims


def _claims(token: bytes) -> Any:
    _, _, rest = token.partition(b".")
    return segment(rest.partition(b".")[0])


class AppleAppStore(Known, id="apple_appstore", title="Apple App Store Server Notifications"):
    """Apple: version 2, one signed token that holds everything and its certificates, up to a root that you pin."""

    scheme = AppleScheme()
    locators = Locators(
        event_id="body:notificationUUID",
        type=("body:notificationType", "body:subtype"),
        object_id="body:data.transaction.originalTransactionId|body:data.renewal.originalTransactionId",
        account="body:data.bundleId",
        event_time="body:signedDate",
        time_unit="ms",
        api_version="body:version",
    )
    document = staticmethod(apple_notification)
    secret_is = "none in production; for development a private key (PEM), the key of a root of its own"
    secret_optional = True
    retries_say = "5, after 1, 12, 24, 48 and 72 hours; the history can be asked for"
    note = (
        "Say root: Apple Root CA - G3, from apple.com/certificateauthority, as PEM or base64. It is not shipped, so "
        "that you decide whom to trust. The certificates must have been valid at signedDate; whether they were "
        "revoked is not asked. Transactions and renewals are tokens inside the notification: they are covered by "
        "it."
    )
    sample_type = "DID_CHANGE_RENEWAL_STATUS.AUTO_RENEW_DISABLED"
    sample = {
        "notificationType": "",
        "subtype": "",
        "notificationUUID": "",
        "version": "2.0",
        "signedDate": 0,
        "data": {
            "bundleVersion": "1042",
            "transaction": {
                "originalTransactionId": "",
                "productId": "tides.monthly",
                "price": 2990,
                "currency": "EUR",
            },
        },
    }
    sample_options = {"bundle_id": "com.example.tides"}

    def __init__(
        self,
        secret: Secrets = None,
        *,
        bundle_id: str,
        environment: str = "Production",
        app_apple_id: str | None = None,
        root: str | bytes | None = None,
        **options: Any,
    ) -> None:
        name = options.get("name") or self.id
        if environment not in ("Production", "Sandbox"):
            raise ConfigurationError(
                f'{name}: environment is "Production" or "Sandbox", not {environment!r}', code="HO101"
            )
        pinned = root.encode() if isinstance(root, str) else root
        scheme = AppleScheme(bundle_id=bundle_id, environment=environment, app_apple_id=app_apple_id, root=pinned)
        scheme.require()
        problem = None if pinned is None else scheme.secret_problem(pinned)
        if problem or (pinned is None and not secret):
            raise ConfigurationError(
                f"{name}: the root certificate {problem or 'is missing: nothing could be verified'}",
                code="HO101",
                do='download Apple Root CA - G3, turn it into PEM, and say root = "file:/path/apple-root.pem"',
            )
        object.__setattr__(self, "scheme", scheme)
        super().__init__(secret, **options)
