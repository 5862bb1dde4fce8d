"""Clouds, and what all of them agreed on."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import unquote

from hookonce.errors import ConfigurationError, KeysUnavailable
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import Profile, Secrets
from hookonce.providers.documents import JsonBatch, read_json, split_text
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators, only_header
from hookonce.schemes.adobe import AdobeScheme
from hookonce.schemes.graph import ItemTokenScheme
from hookonce.schemes.jwt import JwtScheme
from hookonce.schemes.remote import https_get
from hookonce.schemes.request import fields
from hookonce.schemes.sns import CONFIRMATION, SnsScheme
from hookonce.schemes.soap import SoapTokenScheme, read_message, split_message
from hookonce.schemes.standard_webhooks import SVIX, WEBHOOK, StandardWebhooksScheme
from hookonce.schemes.token import TokenScheme

ECHO_BYTES_MAX = 1_000
"""What is echoed to a sender that nobody knows yet is short text."""


def asked(delivery: Delivery, name: bytes) -> bytes | None:
    """A field of the query that is to be echoed, if it is there once, and is short."""
    found = [value for key, value in fields(delivery.query) if key == name]
    return found[0] if len(found) == 1 and 0 < len(found[0]) <= ECHO_BYTES_MAX else None


def given(secret: Secrets) -> bool:
    """Whether a key was configured: then none is fetched."""
    return secret not in (None, (), [])


def texts(value: str | Sequence[str]) -> tuple[str, ...]:
    """One text, or several."""
    return (value,) if isinstance(value, str) else tuple(value)


OWN_TYPE = ("type", "detail-type", "eventType", "notificationType", "event")


def sns_type(document: Any) -> str | None:
    """body:Type, and the type that the message itself names"""  # noqa: D415 - shown as it is, beside places
    kind = document["Type"]
    if kind != "Notification":
        return kind if isinstance(kind, str) else None
    try:
        message = read_json(document["Message"].encode())
    except (ValueError, RecursionError):
        return "Notification"
    found = (
        [message[name] for name in OWN_TYPE if isinstance(message.get(name), str)] if isinstance(message, dict) else []
    )
    return f"Notification.{found[0]}" if found and found[0] else "Notification"


class AwsSns(Known, id="aws_sns", title="Amazon SNS"):
    """Amazon SNS: fields of the message are signed, and the certificate is fetched from Amazon's own hosts only."""

    scheme = SnsScheme()
    locators = Locators(event_id="body:MessageId", type=sns_type, account="body:TopicArn", event_time="body:Timestamp")
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "nothing; where nothing can be fetched, the certificate or the public key as PEM"
    secret_optional = True
    retries_say = "50 attempts in 6 hours, unless the topic says otherwise"
    handshake_says = "SubscriptionConfirmation is an event; with confirm = true its SubscribeURL is opened as well"
    note = (
        "anybody can have a topic that Amazon signs for: topics says whose messages are taken. MessageAttributes are not"
        " signed, and raw delivery is not signed at all. Retries keep the time of publishing: messages may be 7 hours old, and"
        " tolerance has to be raised where a topic's own policy goes on for longer; their MessageId tells duplicates"
    )
    sample_type = "Notification.tide.turned"
    sample_options = {"topics": ("arn:aws:sns:eu-west-1:123456789012:tides",)}
    sample = {
        "Type": "Notification",
        "MessageId": "",
        "TopicArn": "arn:aws:sns:eu-west-1:123456789012:tides",
        "Subject": "The tide has turned",
        "Message": '{"type":"tide.turned","station":"Galway","height":4.2}',
        "Timestamp": "2026-03-04T10:11:12.000Z",
        "SignatureVersion": "2",
        "Signature": "",
        "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem",
    }

    def __init__(
        self,
        secret: Secrets = None,
        *,
        topics: Sequence[str] = (),
        certs: Mapping[str, str] | None = None,
        confirm: bool = False,
        **options: Any,
    ) -> None:
        meant = texts(topics)
        if not meant and (confirm or not (given(secret) or certs)):
            raise ConfigurationError(
                f"{options.get('name') or self.id}: Amazon signs for everybody: whose messages are meant?",
                code="HO101",
                do='say topics=["arn:aws:sns:eu-west-1:123456789012:orders"]',
            )
        changed = SnsScheme(topics=meant, certs=dict(certs or {}), offline=given(secret))
        object.__setattr__(self, "scheme", changed)
        object.__setattr__(self, "confirm", confirm)
        super().__init__(secret, **options)

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        """No answer of its own: the confirmation is an event like any other."""
        if getattr(self, "confirm", False) and b"SubscriptionConfirmation" in delivery.body:
            message = json.loads(delivery.body)
            url = message["SubscribeURL"]
            if message["Type"] == "SubscriptionConfirmation" and CONFIRMATION.fullmatch(url):
                threading.Thread(target=confirm_subscription, args=(url,), daemon=True).start()
        return None


def confirm_subscription(url: str) -> None:
    """Open it. If that fails, the event is there, and a person can."""
    with contextlib.suppress(KeysUnavailable):
        https_get(url)


class GooglePubSub(Known, id="google_pubsub", title="Google Cloud Pub/Sub (push)"):
    """Google Cloud Pub/Sub: Google's token says which service account pushes, and to whom; the body is not covered."""

    scheme = JwtScheme(
        at="header:Authorization",
        prefix="Bearer",
        algorithms=("RS256",),
        claims={"iss": ("https://accounts.google.com", "accounts.google.com")},
        requires=("exp", "aud"),
        keys_at="https://www.googleapis.com/oauth2/v3/certs",
    )
    locators = Locators(
        event_id="body:message.messageId|body:message.message_id",
        type="body:message.attributes.eventType|body:message.attributes.ce-type|body:message.attributes.type",
        object_id="body:message.orderingKey|body:message.attributes.objectId",
        account="body:subscription",
        event_time="body:message.publishTime|body:message.publish_time",
    )
    profile = Profile(horizon_days=31.0, timeout_seconds=10.0)
    secret_is = "nothing; where nothing can be fetched, Google's keys (JWKS) or one public key"
    secret_optional = True
    retries_say = "until it is accepted, for up to 7 days; seek and replay send older ones"
    note = (
        "the body is not covered by the token, and a token serves any body for its hour. audience and email pin which"
        " subscription pushes; without email anybody's subscription would do. Deliveries must be wrapped (the default)"
    )
    sample_type = "tide.turned"
    sample_options = {
        "audience": "https://example.com/webhooks/source",
        "email": "pusher@harbour-lane.iam.gserviceaccount.com",
    }
    sample = {
        "message": {
            "attributes": {"eventType": "", "station": "Galway"},
            "data": "eyJoZWlnaHQiOiA0LjJ9",
            "messageId": "",
            "orderingKey": "",
            "publishTime": "2026-03-04T10:11:12.345Z",
        },
        "subscription": "projects/harbour-lane/subscriptions/tides",
        "deliveryAttempt": 1,
    }

    def __init__(
        self, secret: Secrets = None, *, audience: str | None = None, email: str | None = None, **options: Any
    ) -> None:
        if not given(secret) and not (audience and email):
            raise ConfigurationError(
                f"{options.get('name') or self.id}: Google signs for everybody: which service account pushes, and to which audience?",
                code="HO101",
                do='say email="...@....iam.gserviceaccount.com" and audience="...", as the subscription has them',
            )
        claims: dict[str, str | bool | tuple[str, ...]] = dict(type(self).scheme.claims)
        if audience:
            claims["aud"] = audience
        if email:
            claims |= {"email": email, "email_verified": True}
        keys_at = None if given(secret) else type(self).scheme.keys_at
        changed = dataclasses.replace(type(self).scheme, claims=claims, keys_at=keys_at)
        object.__setattr__(self, "scheme", changed)
        super().__init__(secret, **options)


class MicrosoftGraph(Known, id="microsoft_graph", title="Microsoft Graph"):
    """Microsoft Graph: every notice of a batch carries the clientState that you chose; nothing is signed."""

    scheme = ItemTokenScheme(items="value", token="clientState")  # noqa: S106 - the name of a member
    locators = Locators(
        event_id="body:id",
        type="body:changeType|body:lifecycleEvent",
        object_id="body:resourceData.id|body:resource",
        account="body:tenantId",
    )
    fingerprint = ("body",)
    split = JsonBatch("value")
    profile = Profile(horizon_days=30.0, timeout_seconds=3.0)
    secret_is = "the subscription's clientState"
    retries_say = (
        "for up to 4 hours; senders to slow endpoints are delayed, and above 15 % of slow answers notices are dropped"
    )
    handshake_says = "validationToken in the query comes back as text, to anybody who asks"
    note = (
        "nothing is signed, so the body is not covered. Most notices have no id, and the digest of the notice stands for it:"
        " two changes of one object that look alike are run once, so fetch what changed (a delta query), and now and then"
        " without being told. Encrypted content and its validationTokens are kept as they come, and not checked"
    )
    sample_type = "updated"
    sample = {
        "value": [
            {
                "id": "",
                "subscriptionId": "7f105c7d-2dc5-4530-97cd-4e7ae6534c07",
                "subscriptionExpirationDateTime": "2026-03-07T10:11:12.0000000Z",
                "clientState": "",
                "changeType": "",
                "resource": "users/mira/messages/tides",
                "tenantId": "84bd8158-6d4d-4958-8b9f-9d6445542f95",
                "resourceData": {"id": "", "@odata.type": "#Microsoft.Graph.Message", "@odata.etag": 'W/"CQAAABY"'},
            }
        ]
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        token = asked(delivery, b"validationToken")
        return None if token is None or delivery.method not in ("GET", "POST") else Answer(body=token)


class AzureEventGrid(Known, id="azure_event_grid", title="Azure Event Grid"):
    """Azure Event Grid in its own shape: a token in the URL, and an array of events."""

    scheme = TokenScheme(at="query:token")
    locators = Locators(
        event_id="body:id",
        type="body:eventType|body:type",
        object_id="body:subject",
        account="body:topic|body:source",
        event_time="body:eventTime|body:time",
        api_version="body:dataVersion",
    )
    split = JsonBatch()
    profile = Profile(horizon_days=30.0, timeout_seconds=30.0)
    secret_is = "a token of your choice, at the end of the endpoint's URL: ?token=..."
    retries_say = "30 attempts in 24 hours, then they go to where dead letters go"
    handshake_says = "SubscriptionValidation: its code comes back, where the token was right"
    note = "the body is not covered: whoever knows the URL can send anything. For CloudEvents there is the provider cloudevents"
    sample_type = "Harbour.Tides.Turned"
    sample = [
        {
            "id": "",
            "topic": "/subscriptions/5b4b650e/resourceGroups/harbour/providers/Microsoft.EventGrid/topics/tides",
            "subject": "stations/galway",
            "eventType": "",
            "eventTime": "2026-03-04T10:11:12.3456789Z",
            "dataVersion": "1.0",
            "metadataVersion": "1",
            "data": {"height": 4.2},
        }
    ]

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if b"SubscriptionValidationEvent" not in delivery.body:
            return None
        (event,) = json.loads(delivery.body)
        code = event["data"]["validationCode"]
        wanted = event["eventType"] == "Microsoft.EventGrid.SubscriptionValidationEvent"
        if not wanted or not isinstance(code, str) or len(code) > ECHO_BYTES_MAX:
            return None
        return Answer(body=json.dumps({"validationResponse": code}).encode(), content_type="application/json")


BINARY = ("id", "source", "type", "subject", "time", "specversion", "dataschema")


def cloud_event(delivery: Delivery) -> Any:
    """An event in headers (ce-id and so on), or one that is the body."""
    if content_type(delivery).startswith(b"application/cloudevents") or not any(
        name == b"ce-specversion" for name, _ in delivery.headers
    ):
        return read_json(delivery.body)
    found = {name: only_header(delivery.headers, f"ce-{name}".encode()) for name in BINARY}
    return {name: unquote(value) for name, value in found.items() if value is not None}


def cloud_events(delivery: Delivery) -> tuple[list[bytes], Any]:
    """The events of a batch, where the content type says that it is one."""
    if content_type(delivery).startswith(b"application/cloudevents-batch"):
        return split_text(delivery.body.decode(), ())
    return [delivery.body], None


def content_type(delivery: Delivery) -> bytes:
    return next((value.lower() for name, value in delivery.headers if name == b"content-type"), b"")


class CloudEvents(Known, id="cloudevents", title="CloudEvents over HTTP"):
    """CloudEvents from anywhere: in the body, in headers, or several in a batch; a token says who sends."""

    scheme = TokenScheme(at="header:Authorization", prefix="Bearer ")
    locators = Locators(
        event_id="body:id",
        type="body:type",
        object_id="body:subject",
        account="body:source",
        event_time="body:time",
        api_version="body:dataschema",
    )
    document = staticmethod(cloud_event)
    split = staticmethod(cloud_events)
    profile = Profile(horizon_days=30.0, timeout_seconds=30.0)
    secret_is = "the token that the sender shows, Authorization: Bearer ..."
    retries_say = "the sender's choice"
    handshake_says = "OPTIONS with WebHook-Request-Origin is allowed for the one origin that you name"
    note = (
        'the body is not covered. token_at says where else the token is, such as "query:token" or "header:X-Token". An event'
        " is told from another by its id and its source together"
    )
    sample_type = "com.example.tide.turned"
    sample = {
        "specversion": "1.0",
        "id": "",
        "source": "/harbours/galway",
        "type": "",
        "subject": "",
        "time": "2026-03-04T10:11:12Z",
        "datacontenttype": "application/json",
        "data": {"height": 4.2},
    }

    def __init__(
        self, secret: Secrets, *, origin: str | None = None, token_at: str | None = None, **options: Any
    ) -> None:
        if token_at is not None:
            object.__setattr__(self, "scheme", TokenScheme(at=token_at))
        object.__setattr__(self, "origin", origin)
        super().__init__(secret, **options)

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        """Yes to the origin that was configured, at any rate; to nobody else, and no address is called back."""
        origin: str | None = getattr(self, "origin", None)
        wanted = only_header(delivery.headers, b"webhook-request-origin")
        if delivery.method != "OPTIONS" or origin is None or wanted is None or wanted.lower() != origin.lower():
            return None
        allowed = ((b"webhook-allowed-origin", origin.encode("latin-1")), (b"webhook-allowed-rate", b"*"))
        return Answer(headers=allowed)


class Svix(Known, id="svix", title="Svix"):
    """Svix, and whoever sends through it: under its own headers, or under those of Standard Webhooks."""

    scheme = StandardWebhooksScheme(families=(SVIX, WEBHOOK))
    locators = Locators(
        event_id="header:svix-id|header:webhook-id",
        type="body:type",
        object_id="body:data.id",
        event_time="body:timestamp",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the endpoint's signing secret, whsec_..."
    retries_say = "after 5 s, 5 min, 30 min, 2, 5, 10 and 10 hours; any message can be sent again by hand"
    sample_type = "tide.turned"
    sample = {"type": "", "timestamp": "2026-03-04T10:11:12Z", "data": {"id": "", "station": "Galway"}}


class CloudflareNotifications(
    Known, id="cloudflare_notifications", title="Cloudflare Notifications", confidence="likely"
):
    """Cloudflare Notifications: alerts, with a secret in a header."""

    scheme = TokenScheme(at="header:cf-webhook-auth")
    locators = Locators(
        type="body:alert_type",
        object_id="body:alert_correlation_id|body:policy_id",
        account="body:account_id",
        event_time="body:ts",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook's secret"
    retries_say = "few"
    handshake_says = "a test message when the webhook is saved, which is an event without a type"
    note = (
        "the body is not covered: whoever knows the secret can send anything. There is no event id, and the digest of the"
        " body, which has its time in it, stands for it"
    )
    sample_type = "health_check_status_notification"
    sample = {
        "name": "Harbour health",
        "text": "The tide gauge does not answer.",
        "data": {"status": "unhealthy", "hostname": "gauge.example.com"},
        "ts": 0,
        "account_id": "0123456789abcdef0123456789abcdef",
        "policy_id": "",
        "alert_type": "",
        "alert_correlation_id": "",
    }


class AdobeIO(Known, id="adobe_io", title="Adobe I/O Events", confidence="unsure"):
    """Adobe I/O Events: two signatures, of which either may match, with keys from Adobe's own host."""

    scheme = AdobeScheme(
        signature=("header:x-adobe-digital-signature-1", "header:x-adobe-digital-signature-2"),
        digest="rsa-sha256",
        encoding="base64",
    )
    locators = Locators(
        event_id="body:event_id|body:id",
        delivery_id="header:x-adobe-delivery-id",
        type="body:type|header:x-adobe-event-code",
        event_time="body:time",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "nothing; where nothing can be fetched, Adobe's public key as PEM"
    secret_optional = True
    retries_say = "for 24 hours at growing intervals, then the registration is unstable, and at last disabled"
    handshake_says = "GET ?challenge= comes back as text, to anybody who asks"
    note = (
        "Adobe signs for all its customers with the same keys: client_id says that the event is meant for you. One event a"
        " request: batches are not taken, and neither is the older x-adobe-signature. Confirm before relying on it"
    )
    sample_type = "aem.sites.page.published"
    sample_options = {"client_id": "0123456789abcdef0123456789abcdef"}
    sample = {
        "specversion": "1.0",
        "id": "tides-1",
        "source": "acct:harbour@example.com",
        "type": "",
        "time": "2026-03-04T10:11:12Z",
        "data": {"path": "/content/harbour/tides"},
        "event_id": "",
        "recipient_client_id": "0123456789abcdef0123456789abcdef",
    }

    def __init__(self, secret: Secrets = None, *, client_id: str | None = None, **options: Any) -> None:
        if client_id is None and not given(secret):
            raise ConfigurationError(
                f"{options.get('name') or self.id}: Adobe signs for all its customers: which client is meant?",
                code="HO101",
                do='say client_id="...", as the project in the Developer Console has it',
            )
        changed = dataclasses.replace(type(self).scheme, client_id=client_id, offline=given(secret))
        object.__setattr__(self, "scheme", changed)
        super().__init__(secret, **options)

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        challenge = asked(delivery, b"challenge")
        return None if challenge is None or delivery.method != "GET" else Answer(body=challenge)


class GoogleCalendar(Known, id="google_calendar", title="Google Calendar and Drive", confidence="likely"):
    """Google Calendar and Drive: everything stands in headers, the body is empty, and a token says whose channel it is."""

    scheme = TokenScheme(at="header:X-Goog-Channel-Token")
    locators = Locators(
        # Messages are numbered for each channel.
        event_id="header:X-Goog-Message-Number",
        account="header:X-Goog-Channel-Id",
        type="header:X-Goog-Resource-State",
        object_id="header:X-Goog-Resource-Id",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the channel's token, of your choice"
    retries_say = "at growing intervals after a 5xx answer"
    handshake_says = "the first message of a channel has the type sync"
    note = (
        "nothing is signed, and there is no body: a message says that something changed, and not what. A channel must have an"
        " id of its own, never used before: its messages are told apart by channel and number"
    )
    sample_type = "exists"
    sample_id = "42"
    sample: ClassVar[Any] = {}


SOAP_ACK = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b'<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body>'
    b'<notificationsResponse xmlns="http://soap.sforce.com/2005/09/outbound"><Ack>true</Ack></notificationsResponse>'
    b"</soapenv:Body></soapenv:Envelope>"
)


class Salesforce(Known, id="salesforce", title="Salesforce outbound messages", confidence="unsure"):
    """Salesforce outbound messages: SOAP without a signature, up to 100 notifications, and the answer must be SOAP as well."""

    scheme = SoapTokenScheme(at="query:token")
    locators = Locators(
        event_id="body:Notification.Id",
        type="body:Notification.sObject.@type",
        object_id="body:Notification.sObject.Id",
        account="body:OrganizationId",
        version="body:Notification.sObject.SystemModstamp|body:Notification.sObject.LastModifiedDate",
    )
    document = staticmethod(read_message)
    split = staticmethod(split_message)
    acknowledge = Answer(body=SOAP_ACK, content_type="text/xml; charset=utf-8")
    profile = Profile(horizon_days=30.0, timeout_seconds=60.0)
    secret_is = "a token of your choice, at the end of the endpoint's URL: ?token=..."
    retries_say = "for 24 hours, at growing intervals of up to 2 hours; failed ones can be sent again by hand"
    note = (
        "nothing is signed, so the body is not covered: whoever knows the URL can send anything; ask for Salesforce's client"
        " certificate at the proxy as well. Each notification is kept in its own envelope, with the SessionId if one is sent:"
        " leave that out. Confirm before relying on it"
    )
    sample_type = "Account"
    sample = {
        "OrganizationId": "00D000000000062EAA",
        "ActionId": "04k000000000001AAA",
        "Notification": {
            "Id": "",
            "sObject": {
                "@type": "",
                "Id": "",
                "Name": "Harbour Lane & Sons",
                "SystemModstamp": "2026-03-04T10:11:12.000Z",
            },
        },
    }
