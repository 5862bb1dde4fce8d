"""Banks, cards, payroll and books."""

from __future__ import annotations

from typing import Any

from hookonce.errors import ConfigurationError
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import Profile, Secrets
from hookonce.providers.documents import Json, JsonBatch, read_json, segment, split_text
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators, only_header
from hookonce.schemes.detached import TrueLayerScheme
from hookonce.schemes.jwt import Bound, JwtScheme
from hookonce.schemes.signature import Pieces, SignatureScheme, Stamp
from hookonce.schemes.standard_webhooks import WEBHOOK, Family, StandardWebhooksScheme


def plaid_notice(delivery: Delivery) -> Json:
    """The body, and beside it as `verification` what the token claims. Whoever asks has verified it."""
    document = read_json(delivery.body)
    token = only_header(delivery.headers, b"plaid-verification") or ""
    _, _, rest = token.encode("latin-1").partition(b".")
    if not isinstance(document, dict) or not rest:
        raise ValueError("a body and a token that are none of Plaid's")
    return {**document, "verification": segment(rest.partition(b".")[0])}


class Plaid(Known, id="plaid", title="Plaid"):
    """Plaid: a token holds the hash of the body; a notice has no id, and the next one may be the same text."""

    scheme = JwtScheme(
        at="header:Plaid-Verification",
        algorithms=("ES256",),
        bound=(Bound("request_body_sha256"),),
        requires=("iat",),
        age=300.0,
    )
    locators = Locators(type=("body:webhook_type", "body:webhook_code"), object_id="body:item_id")
    document = staticmethod(plaid_notice)
    fingerprint = ("body:verification.request_body_sha256", "body:verification.iat")
    profile = Profile(horizon_days=2.0)
    secret_is = "the key that Plaid signs with: a JWK, a JWKS of several, or PEM"
    retries_say = "for 24 hours, from 30 seconds apart; stops while more than 90 % of the requests are refused"
    note = (
        "Plaid publishes no keys: ask /webhook_verification_key/get for the kid of the token, and configure its "
        "answer's key; when Plaid changes keys, put the new one beside it. Plaid gives no id, and says the same "
        "words about an item each time: the body together with the moment of signing stands for it, so that none is "
        "lost; a notice that is sent again may count as a new one, which does no harm where handlers fetch what is "
        "new."
    )
    sample_type = "TRANSACTIONS.SYNC_UPDATES_AVAILABLE"
    sample = {
        "webhook_type": "",
        "webhook_code": "",
        "item_id": "",
        "initial_update_complete": True,
        "historical_update_complete": True,
        "environment": "production",
    }
    sample_id = None


class ModernTreasury(Known, id="modern_treasury", title="Modern Treasury"):
    """Modern Treasury: what happened is in the body, to which kind of object in a header."""

    scheme = SignatureScheme(signature="header:X-Signature")
    locators = Locators(
        event_id="header:X-Event-ID",
        delivery_id="header:X-Delivery-ID",
        type=("header:X-Topic", "body:event"),
        object_id="body:data.id",
        event_time="body:data.updated_at",
        version="body:data.updated_at",
    )
    profile = Profile(timeout_seconds=30.0)
    secret_is = "the webhook key"
    retries_say = "about 10 within 24 hours"
    note = "The ids and the topic stand in headers that nobody signs; their places are taken from documentation."
    sample_type = "payment_order.completed"
    sample = {
        "event": "",
        "data": {
            "id": "",
            "object": "payment_order",
            "amount": 125000,
            "currency": "USD",
            "direction": "credit",
            "status": "completed",
            "updated_at": "2026-03-04T10:11:12Z",
        },
    }


class Increase(Known, id="increase", title="Increase"):
    """Increase: Standard Webhooks with the secret's text itself as the key; the body only says which object changed."""

    scheme = StandardWebhooksScheme(key="raw", families=(WEBHOOK,))
    locators = Locators(
        event_id="body:id|header:webhook-id",
        delivery_id="header:webhook-id",
        type="body:category",
        object_id="body:associated_object_id",
        event_time="body:created_at",
    )
    profile = Profile()
    secret_is = "the shared secret of the subscription, as it is"
    retries_say = "not published; all events can be listed"
    sample_type = "ach_transfer.updated"
    sample = {
        "id": "",
        "category": "",
        "created_at": "2026-03-04T10:11:12Z",
        "associated_object_id": "",
        "associated_object_type": "ach_transfer",
        "type": "event",
    }


class Lithic(Known, id="lithic", title="Lithic"):
    """Lithic: Standard Webhooks; what an event is about stands in a token field, of another name for each kind."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        delivery_id="header:webhook-id",
        type="body:event_type",
        object_id="body:token|body:card_token|body:financial_account_token|body:account_token",
        event_time="body:timestamp",
    )
    profile = Profile(timeout_seconds=15.0)
    secret_is = "the signing secret of the subscription, whsec_..."
    retries_say = "not published"
    sample_type = "card_transaction.updated"
    sample = {
        "event_type": "",
        "token": "",
        "card_token": "0f2c1c9e-5b52-4b0e-93a1-6f3f1d8c7e55",
        "status": "SETTLED",
        "amount": 1830,
        "currency": "EUR",
        "merchant": {"descriptor": "HARBOUR LANE BOOKS", "country": "IRL", "mcc": "5942"},
        "timestamp": "2026-03-04T10:11:12Z",
    }


class Brex(Known, id="brex", title="Brex", confidence="likely"):
    """Brex: Standard Webhooks; several secrets may be active, and the API lists them."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        delivery_id="header:webhook-id",
        type="body:event_type",
        object_id="body:transfer_id|body:expense_id|body:referral_id|body:card_id|body:user_id",
        account="body:company_id",
        event_time="body:timestamp",
    )
    profile = Profile(timeout_seconds=15.0)
    secret_is = "the signing secrets that the API lists, base64"
    retries_say = "after 5 seconds, 5 and 30 minutes, 2, 5, 10 and 10 hours"
    note = "The places of the ids are taken from documentation."
    sample_type = "TRANSFER_PROCESSED"
    sample = {
        "event_type": "",
        "transfer_id": "",
        "payment_type": "ACH",
        "company_id": "cuacc_harbour",
        "timestamp": "2026-03-04T10:11:12Z",
    }


class Ramp(Known, id="ramp", title="Ramp", confidence="likely"):
    """Ramp: a subscription is pending until the challenge that it sends has been given back to the API."""

    scheme = SignatureScheme(signature="header:X-Ramp-Signature")
    locators = Locators(
        event_id="body:id|body:challenge",
        delivery_id="header:X-Ramp-Webhook-ID",
        type="body:type",
        object_id="body:object.id",
        account="body:business_id",
        event_time="body:created_at",
    )
    profile = Profile()
    secret_is = "the secret of the subscription"
    retries_say = "up to 10 attempts, on time-outs and the answers 429 and 5xx; in any order"
    handshake_says = (
        "the challenge comes as an event (webhooks.verification): give it back to the API by hand or in a handler"
    )
    note = "Only a signed challenge is taken: configure the subscription's secret before it is verified."
    sample_type = "transactions.cleared"
    sample = {
        "id": "",
        "type": "",
        "created_at": "2026-03-04T10:11:12Z",
        "business_id": "5f0c6d5c-3b0a-4f1b-8d5b-1f4a4f0e2a10",
        "object": {"id": ""},
    }


class Wise(Known, id="wise", title="Wise", confidence="likely"):
    """Wise: signed with Wise's own key, of which there is one for each environment."""

    scheme = SignatureScheme(signature="header:X-Signature-SHA256", digest="rsa-sha256", encoding="base64")
    locators = Locators(
        event_id="header:X-Delivery-Id",
        delivery_id="header:X-Delivery-Id",
        type="body:event_type",
        object_id="body:data.resource.id",
        account="body:data.resource.profile_id",
        event_time="body:data.occurred_at",
        version="body:data.occurred_at",
        api_version="body:schema_version",
    )
    profile = Profile(horizon_days=15.0, timeout_seconds=5.0)
    secret_is = "Wise's public key of the environment (PEM)"
    retries_say = "25 within 2 weeks, from 1 minute to a day apart"
    handshake_says = "a signed test notification (X-Test-Notification: true) is answered with 200 and not stored"
    note = "The id is in a header that nobody signs; the places of the ids are taken from documentation."
    sample_type = "transfers#state-change"
    sample = {
        "data": {
            "resource": {"type": "transfer", "id": 111, "profile_id": 222, "account_id": 333},
            "current_state": "outgoing_payment_sent",
            "previous_state": "processing",
            "occurred_at": "2026-03-04T10:11:12Z",
        },
        "subscription_id": "01234567-89ab-cdef-0123-456789abcdef",
        "event_type": "",
        "schema_version": "2.0.0",
        "sent_at": "2026-03-04T10:11:13Z",
    }

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        return Answer() if only_header(delivery.headers, b"x-test-notification") == "true" else None


class Dwolla(Known, id="dwolla", title="Dwolla", confidence="likely"):
    """Dwolla: events link to what they are about; after 400 failures in a row the subscription is paused."""

    scheme = SignatureScheme(signature="header:X-Request-Signature-SHA-256")
    locators = Locators(
        event_id="body:id",
        type="body:topic|header:X-Dwolla-Topic",
        object_id="body:resourceId",
        event_time="body:timestamp",
    )
    profile = Profile()
    secret_is = "the secret of the subscription"
    retries_say = "8 within 72 hours; by hand through the API"
    note = "The places of the ids are taken from documentation."
    sample_type = "customer_transfer_completed"
    sample = {
        "id": "",
        "resourceId": "",
        "topic": "",
        "timestamp": "2026-03-04T10:11:12.123Z",
        "created": "2026-03-04T10:11:12.123Z",
        "_links": {"resource": {"href": "https://api.example.com/transfers/1", "resource-type": "transfer"}},
    }


class Finch(Known, id="finch", title="Finch"):
    """Finch: as Standard Webhooks, with headers of its own names and a secret without a prefix."""

    scheme = StandardWebhooksScheme(families=(Family(b"finch-event-id", b"finch-timestamp", b"finch-signature"),))
    locators = Locators(
        event_id="header:Finch-Event-Id",
        delivery_id="header:Finch-Event-Id",
        type="body:event_type",
        object_id="body:data.individual_id|body:data.pay_run_id|body:data.job_id",
        account="body:connection_id|body:company_id",
    )
    profile = Profile()
    secret_is = "the webhook secret, base64"
    retries_say = "not published"
    sample_type = "employment.updated"
    sample = {
        "company_id": "0c4e4f83-1d0f-4f1c-8d9b-3a3f5a4cbb01",
        "connection_id": "6f7d3c46-9b4e-4a0c-9b0c-6c2f0d6f2e02",
        "event_type": "",
        "data": {"individual_id": ""},
    }


LIVE = "https://webhooks.truelayer.com/.well-known/jwks"
SANDBOX = "https://webhooks.truelayer-sandbox.com/.well-known/jwks"


class TrueLayer(Known, id="truelayer", title="TrueLayer"):
    """TrueLayer: the path that it posts to and some headers are signed together with the body."""

    scheme = TrueLayerScheme(keys_at=LIVE)
    locators = Locators(
        event_id="body:event_id",
        type="body:type",
        object_id="body:payment_id|body:payout_id|body:mandate_id|body:refund_id|body:transaction_id",
        event_time="body:executed_at|body:settled_at|body:failed_at|body:authorized_at|header:X-TL-Webhook-Timestamp",
        api_version="body:event_version",
    )
    profile = Profile(horizon_days=4.0)
    secret_is = "none in production: TrueLayer publishes its keys; for development a private key (PEM)"
    secret_optional = True
    retries_say = "for 72 hours"
    note = (
        "For the sandbox set environment to sandbox. Say url if a proxy in front changes the path: the path that "
        "TrueLayer was given is the one that is signed."
    )
    sample_type = "payment_executed"
    sample = {
        "type": "",
        "event_version": 1,
        "event_id": "",
        "payment_id": "",
        "payment_method": {"type": "bank_transfer", "provider_id": "ob-harbour-bank"},
        "executed_at": "2026-03-04T10:11:12.123Z",
    }

    def __init__(self, secret: Secrets = None, *, environment: str = "live", **options: Any) -> None:
        addresses = {"live": LIVE, "sandbox": SANDBOX}
        if environment not in addresses:
            raise ConfigurationError(f'environment is "live" or "sandbox", not {environment!r}', code="HO101")
        object.__setattr__(self, "scheme", TrueLayerScheme(keys_at=addresses[environment]))
        super().__init__(secret, **options)


class Xero(Known, id="xero", title="Xero"):
    """Xero: many events a request; first it sends some with wrong signatures, and wants exactly 401 for them."""

    scheme = SignatureScheme(signature="header:x-xero-signature", encoding="base64")
    locators = Locators(
        event_id=("body:resourceId", "body:eventCategory", "body:eventType", "body:eventDateUtc"),
        type=("body:eventCategory", "body:eventType"),
        object_id="body:resourceId",
        account="body:tenantId",
        event_time="body:eventDateUtc",
        version="body:eventDateUtc",
        time_unit="utc",
    )
    split = JsonBatch("events")
    acknowledge = Answer()
    profile = Profile(horizon_days=3.0, timeout_seconds=5.0, bare=True)
    secret_is = "the webhooks key of the app"
    retries_say = "for up to 24 hours, ever less often; then the webhook is disabled"
    handshake_says = "intent to receive: an empty 200 for what is signed rightly, an empty 401 for what is not"
    note = "Xero gives no id for an event: its object, what happened to it and when stand for it."
    sample_type = "INVOICE.UPDATE"
    sample = {
        "events": [
            {
                "resourceUrl": "https://api.example.com/invoices/1",
                "resourceId": "",
                "tenantId": "c2cc9b6e-9458-4c7d-93cc-f02b81b0594f",
                "tenantType": "ORGANISATION",
                "eventCategory": "",
                "eventType": "",
                "eventDateUtc": "2026-03-04T10:11:12.123",
            }
        ],
        "firstEventSequence": 41,
        "lastEventSequence": 41,
        "entropy": "KQWPMZXJRTBVHGFDLSNY",
    }


def split_quickbooks(delivery: Delivery) -> tuple[list[bytes], Json]:
    """CloudEvents in an array or one alone; or, as it was before, one notification for each company."""
    document = read_json(delivery.body)
    if isinstance(document, list):
        return split_text(delivery.body.decode(), ())
    if isinstance(document, dict) and "eventNotifications" in document:
        return split_text(delivery.body.decode(), ("eventNotifications",))
    return [delivery.body], None


def quickbooks_type(event: Any) -> object:
    """body:type; of the older form entity and operation, such as Invoice.Update."""
    if "type" in event:
        return event["type"]
    first = event["dataChangeEvent"]["entities"][0]
    return f"{first['name']}.{first['operation']}"


class QuickBooks(Known, id="quickbooks", title="QuickBooks Online"):
    """QuickBooks: CloudEvents, several a request; the older form, one notice for each company, is read as well."""

    scheme = SignatureScheme(signature="header:intuit-signature", encoding="base64")
    locators = Locators(
        event_id="body:id",
        type=quickbooks_type,
        object_id="body:intuitentityid|body:dataChangeEvent.entities.0.id",
        account="body:intuitaccountid|body:realmId",
        event_time="body:time|body:dataChangeEvent.entities.0.lastUpdated",
        version="body:time|body:dataChangeEvent.entities.0.lastUpdated",
    )
    fingerprint = ("body",)
    split = staticmethod(split_quickbooks)
    profile = Profile(timeout_seconds=3.0)
    secret_is = "the verifier token of the app"
    retries_say = "some, then the address is suspended; what was missed is in the change data capture API"
    note = (
        "Where a notification has no id (the older form), the digest of its text stands for it; one that names "
        "several entities is one event, of the type of the first."
    )
    sample_type = "qbo.invoice.updated.v1"
    sample = [
        {
            "specversion": "1.0",
            "id": "",
            "source": "intuit.harbour",
            "type": "qbo.invoice.updated.v1",
            "datacontenttype": "application/json",
            "time": "2026-03-04T10:11:12Z",
            "intuitentityid": "",
            "intuitaccountid": "310687",
            "data": {},
        }
    ]


class Mercury(Known, id="mercury", title="Mercury", confidence="unsure"):
    """Mercury: one event a request; the signed time stands in the same header as the signature."""

    scheme = SignatureScheme(
        signature="header:Mercury-Signature", pieces=Pieces("v1"), signed="{ts}.{body}", stamp=Stamp("part:t")
    )
    locators = Locators(
        event_id="body:id",
        type=("body:resourceType", "body:operationType"),
        object_id="body:resourceId",
        event_time="body:occurredAt",
        version="body:resourceVersion",
    )
    profile = Profile(timeout_seconds=15.0)
    secret_is = "the signing secret of the endpoint, as it is shown"
    retries_say = "after 5 seconds, 5 and 30 minutes, 2, 5, 10 and 10 hours"
    note = (
        "Built from Mercury's documentation; whether the secret is the text itself or base64 is not said there: confirm "
        "with a real delivery first."
    )
    sample_type = "transaction.update"
    sample = {
        "id": "",
        "resourceType": "transaction",
        "operationType": "update",
        "resourceId": "",
        "resourceVersion": 3,
        "occurredAt": "2026-03-04T10:11:12Z",
        "changedPaths": ["status"],
        "mergePatch": {"status": "sent"},
    }
