"""Mail and campaigns."""

from __future__ import annotations

from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import Profile
from hookonce.providers.catalogue.phrases import DIGEST, SVIX_RETRIES
from hookonce.providers.documents import FormBatch, Json, JsonBatch, form, form_or_json
from hookonce.providers.handshakes import is_secret, query_of
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators
from hookonce.schemes.klaviyo import KlaviyoScheme
from hookonce.schemes.mailgun import MailgunScheme
from hookonce.schemes.request import Request
from hookonce.schemes.signature import SignatureScheme, Stamp
from hookonce.schemes.standard_webhooks import SVIX, WEBHOOK, StandardWebhooksScheme
from hookonce.schemes.token import TokenScheme
from hookonce.schemes.twilio import sorted_fields


class SendGrid(Known, id="sendgrid", title="SendGrid Event Webhook"):
    """SendGrid: an array of events a request, signed with a key of which you have the public half."""

    scheme = SignatureScheme(
        signature="header:X-Twilio-Email-Event-Webhook-Signature",
        digest="ecdsa-sha256",
        encoding="base64",
        signed="{ts}{body}",
        stamp=Stamp("header:X-Twilio-Email-Event-Webhook-Timestamp", past=None),
    )
    locators = Locators(
        event_id="body:sg_event_id", type="body:event", object_id="body:sg_message_id", event_time="body:timestamp"
    )
    split = JsonBatch()
    profile = Profile(horizon_days=3.0, timeout_seconds=3.0)
    secret_is = "the verification key, as shown (base64)"
    retries_say = "for 24 hours"
    sample_type = "delivered"
    sample = [
        {"email": "aoife@example.com", "timestamp": 0, "smtp-id": "<tides@example.com>", "event": "", "sg_event_id": ""}
    ]


def _mailgun_id(document: Json) -> object:
    """Its ids are unique within a day only. What a route forwards has none but its token."""
    if "event-data" not in document:
        return document["token"]
    data = document["event-data"]
    return f"{data['id']}:{int(data['timestamp'] // 86_400)}"


def _mailgun_type(document: Json) -> object:
    return document["event-data"]["event"] if "event-data" in document else document.get("event", "inbound")


class Mailgun(Known, id="mailgun", title="Mailgun"):
    """Mailgun: the proof stands in the body, signs a time and a one-time token, and covers nothing else of it."""

    scheme = MailgunScheme()
    locators = Locators(
        event_id=_mailgun_id,
        delivery_id="body:signature.token|body:token",
        type=_mailgun_type,
        object_id="body:event-data.message.headers.message-id|body:Message-Id",
        event_time="body:event-data.timestamp|body:timestamp",
        time_unit="s",
    )
    fingerprint = ("body",)
    document = form_or_json
    profile = Profile(horizon_days=1.0, plain_ok=True)
    secret_is = "the HTTP webhook signing key"
    retries_say = "about 7, at growing intervals over 8 hours; 406 stops them"
    note = (
        "The signature does not cover the event: whoever has seen one request can send another event with its proof for 15 "
        "minutes (tolerance). The token is meant for one use, and shows as the delivery id. Forms are taken, multipart is not."
    )
    sample_type = "delivered"
    sample = {
        "event-data": {
            "id": "0lX8pQ2vR5mT9sWzYc4Nbg",
            "event": "delivered",
            "timestamp": 0,
            "log-level": "info",
            "recipient": "aoife@example.com",
            "message": {"headers": {"message-id": "", "subject": "The tide table", "from": "tides@example.com"}},
            "delivery-status": {"code": 250, "attempt-no": 1},
        }
    }


def _mandrill_signed(request: Request, timestamp: bytes) -> bytes:
    """{url}{sorted_form}."""
    del timestamp
    return request.public_url() + sorted_fields(request)


class Mandrill(Known, id="mandrill", title="Mailchimp Transactional (Mandrill)", confidence="likely"):
    """Mandrill: up to a thousand events in a field of a form, signed together with the address."""

    scheme = SignatureScheme(
        signature="header:X-Mandrill-Signature", digest="sha1", encoding="base64", signed=_mandrill_signed
    )
    locators = Locators(
        type="body:event|body:type", object_id="body:_id|body:msg._id|body:reject.email", event_time="body:ts"
    )
    fingerprint = ("body",)
    split = FormBatch("mandrill_events")
    profile = Profile()
    url_needed = True
    secret_is = "the key of the webhook"
    retries_say = "repeated; a batch stays together"
    handshake_says = "HEAD: 200"
    note = "Its _id is the message's, and many events share it: the digest of each event stands for an id."
    sample_type = "send"
    sample = [
        {
            "event": "",
            "_id": "",
            "msg": {"ts": 1755517523, "subject": "The tide table", "email": "aoife@example.com", "state": "sent"},
            "ts": 0,
        }
    ]
    sample_as = "form"

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        return Answer() if delivery.method == "HEAD" else None


def _postmark_id(document: Json) -> object:
    """What happens once to a message has an id; it can be opened, clicked and unsubscribed from many times."""
    kind = document.get("RecordType", "Inbound")
    match kind:
        case "Bounce" | "SpamComplaint":
            return f"{kind}:{document['ID']}"
        case "Delivery":
            return f"{kind}:{document['MessageID']}:{document['Recipient']}"
        case "Inbound":
            return f"{kind}:{document['MessageID']}"
        case _:
            return None


def _postmark_type(document: Json) -> object:
    return document.get("RecordType", "Inbound")


class Postmark(Known, id="postmark", title="Postmark", confidence="likely"):
    """Postmark: nothing is signed; put user and password into the address that it posts to."""

    scheme = TokenScheme(at="header:Authorization", basic=True)
    locators = Locators(
        event_id=_postmark_id,
        type=_postmark_type,
        object_id="body:MessageID",
        event_time="body:DeliveredAt|body:BouncedAt|body:ReceivedAt|body:ChangedAt|body:Date",
    )
    fingerprint = ("body",)
    profile = Profile(plain_ok=True)
    secret_is = "user:password, as in https://user:password@example.com/..."
    retries_say = "10 over about 10 hours for bounces and inbound mail, fewer for others; 403 stops them"
    note = (
        "Nothing is signed: whoever knows the password can send anything. For opens, clicks and changes of subscription the "
        "digest of the body stands for an id."
    )
    sample_type = "Delivery"
    sample = {
        "RecordType": "Delivery",
        "ServerID": 23,
        "MessageStream": "outbound",
        "MessageID": "",
        "Recipient": "aoife@example.com",
        "Tag": "tide-table",
        "DeliveredAt": "2026-03-04T10:11:12Z",
        "Details": "250 OK",
    }


class MailchimpMarketing(Known, id="mailchimp_marketing", title="Mailchimp Marketing", confidence="likely"):
    """Mailchimp Marketing: nothing is signed; the address ends in `?token=...`, and is probed before it is taken."""

    scheme = TokenScheme(at="query:token")
    locators = Locators(
        type="body:type",
        object_id="body:data[id]",
        account="body:data[list_id]",
        event_time="body:fired_at",
        time_unit="utc",
    )
    fingerprint = ("body",)
    document = form
    profile = Profile(horizon_days=1.0)
    secret_is = "a long random text of your own, which you append to the address: ?token=..."
    retries_say = "about 20 over an hour or more, then the webhook is disabled"
    handshake_says = "GET or HEAD with the token: 200"
    note = f"Nothing is signed: whoever knows the address can send anything. {DIGEST}"
    sample_type = "subscribe"
    sample = {
        "type": "",
        "fired_at": "2026-03-04 10:11:12",
        "data[id]": "",
        "data[list_id]": "a6b5da1054",
        "data[email]": "aoife@example.com",
        "data[email_type]": "html",
        "data[merges][FNAME]": "Aoife",
    }
    sample_as = "form"

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if delivery.method not in ("GET", "HEAD"):
            return None
        token = query_of(delivery)[b"token"]
        return Answer() if is_secret(token, secrets) else None


class Resend(Known, id="resend", title="Resend"):
    """Resend: sends through Svix, and names its headers so."""

    scheme = StandardWebhooksScheme(families=(SVIX,))
    locators = Locators(
        event_id="header:svix-id",
        type="body:type",
        object_id="body:data.email_id|body:data.id",
        event_time="body:created_at",
    )
    profile = Profile(timeout_seconds=15.0)
    secret_is = "the signing secret of the webhook, whsec_..."
    retries_say = SVIX_RETRIES
    sample_type = "email.delivered"
    sample = {
        "type": "",
        "created_at": "2026-03-04T10:11:12.000Z",
        "data": {
            "email_id": "",
            "from": "Tides <tides@example.com>",
            "to": ["aoife@example.com"],
            "subject": "The tide table",
        },
    }


class Loops(Known, id="loops", title="Loops", confidence="likely"):
    """Loops: Standard Webhooks, with names of its own in the body."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        type="body:eventName|body:type",
        object_id="body:contactIdentity.id|body:data.id",
        event_time="body:eventTime|body:timestamp",
    )
    profile = Profile(timeout_seconds=15.0)
    secret_is = "the signing secret of the webhook"
    retries_say = SVIX_RETRIES
    sample_type = "contact.created"
    sample = {
        "eventName": "",
        "eventTime": 0,
        "webhookSchemaVersion": "1.0.0",
        "contactIdentity": {"id": "", "email": "aoife@example.com", "userId": None},
    }


class CustomerIo(Known, id="customerio", title="Customer.io", confidence="likely"):
    """Customer.io: what happened to messages, told within four seconds or again."""

    scheme = SignatureScheme(
        signature="header:X-CIO-Signature", signed="v0:{ts}:{body}", stamp=Stamp("header:X-CIO-Timestamp", past=None)
    )
    locators = Locators(
        event_id="body:event_id",
        type=("body:object_type", "body:metric"),
        object_id="body:data.delivery_id|body:data.identifiers.id|body:data.customer_id",
        event_time="body:timestamp",
    )
    profile = Profile(horizon_days=8.0, timeout_seconds=4.0)
    secret_is = "the signing key of the reporting webhook"
    retries_say = "at growing intervals for 7 days"
    sample_type = "email.delivered"
    sample = {
        "event_id": "",
        "object_type": "",
        "metric": "",
        "timestamp": 0,
        "data": {
            "delivery_id": "",
            "identifiers": {"id": "aoife-17"},
            "recipient": "aoife@example.com",
            "campaign_id": 4,
        },
    }


class Klaviyo(Known, id="klaviyo", title="Klaviyo", confidence="likely"):
    """Klaviyo: events in batches; body and time are signed, with nothing between them."""

    scheme = KlaviyoScheme()
    locators = Locators(
        event_id="body:external_id",
        delivery_id="header:Klaviyo-Webhook-Id",
        type="body:topic",
        object_id="body:payload.data.id",
        account="outer:meta.klaviyo_account_id",
        event_time="body:payload.data.attributes.timestamp|body:payload.data.attributes.datetime",
    )
    split = JsonBatch("data")
    profile = Profile(horizon_days=3.0, timeout_seconds=5.0)
    secret_is = "the secret of the webhook, 16 characters or more"
    retries_say = "for 12 hours and more"
    note = "How it writes the time is taken from others' code: dates as in HTTP, ISO 8601 and numbers are read."
    sample_type = "event:klaviyo.email_delivered"
    sample = {
        "data": [
            {
                "external_id": "",
                "topic": "",
                "payload": {
                    "data": {"type": "event", "id": "", "attributes": {"timestamp": 0, "event_properties": {}}}
                },
            }
        ],
        "meta": {"klaviyo_account_id": "HbrLn7", "klaviyo_webhook_id": "01JHARBOURLANE", "version": "2025-07-15"},
    }
