"""Tasks, calendars, support and customers."""

from __future__ import annotations

import json
from typing import Any

from hookonce.errors import Reason, VerificationError
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import Profile, Secrets
from hookonce.providers.catalogue.content import PLACES, SAME_BYTES, BatchOrOne
from hookonce.providers.documents import JsonBatch, form, read_json
from hookonce.providers.handshakes import (
    check_file,
    check_token,
    echo_query,
    holds,
    keep_once,
    matches,
    printable,
    printable_header,
    query_field,
)
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators, only_header
from hookonce.schemes.hubspot import SecretFirstScheme, request_line_first
from hookonce.schemes.inflate import inflate
from hookonce.schemes.signature import Pieces, SignatureScheme, Stamp
from hookonce.schemes.token import TokenScheme


class Asana(Known, id="asana", title="Asana"):
    """Asana: each webhook has a secret of its own, which comes to the endpoint when the webhook is made."""

    scheme = SignatureScheme(signature="header:X-Hook-Signature")
    locators = Locators(
        type=("body:resource.resource_type", "body:action"),
        object_id="body:resource.gid",
        event_time="body:created_at",
    )
    fingerprint = ("body",)
    split = JsonBatch("events")
    profile = Profile(horizon_days=2.0)
    secret_is = "the X-Hook-Secret of the webhook (any text until you have it), of up to four webhooks"
    retries_say = "for 24 hours, then the webhook is deleted; in rare cases an event is not sent at all"
    handshake_says = (
        "POST with X-Hook-Secret: it comes back, if ?token= in the address is the handshake_token that you configured."
        " The secret has to be configured afterwards: it is not kept, unless handshake_file names a file"
        " that does not exist"
    )
    note = (
        f"{PLACES} {SAME_BYTES} To get the secret: create the webhook with the API, for the address of this source with"
        " ?token= and your handshake_token; the X-Hook-Secret is in the answer of that call, or in handshake_file."
        " Every 8 hours an empty request comes: it is answered, and no event."
    )
    sample_type = "task.changed"
    sample = {
        "events": [
            {
                "user": {"gid": "1203004005006001", "resource_type": "user"},
                "created_at": "2026-03-04T10:11:12.000Z",
                "action": "",
                "resource": {"gid": "", "resource_type": "", "resource_subtype": "default_task"},
                "parent": None,
                "change": {"field": "due_on", "action": "changed"},
            }
        ]
    }

    def __init__(
        self,
        secret: Secrets = None,
        *,
        handshake_token: str | None = None,
        handshake_file: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(secret, **options)
        object.__setattr__(self, "_token", check_token(self.name, "handshake_token", handshake_token))
        object.__setattr__(self, "_file", check_file(self.name, "handshake_file", handshake_file))

    _token: str | None
    _file: str | None

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        given = printable_header(delivery, b"x-hook-secret")
        signed = any(name == b"x-hook-signature" for name, _ in delivery.headers)
        if (
            given is None
            or signed
            or delivery.method != "POST"
            or not matches(self._token, query_field(delivery, "token"))
        ):
            return None
        if self._file is not None and not (keep_once(self._file, given) or holds(self._file, given)):
            raise VerificationError(
                Reason.SIGNATURE_MISSING, "a handshake, but handshake_file is there already, with another secret"
            )
        return Answer(headers=((b"x-hook-secret", given.encode()),))


class Trello(Known, id="trello", title="Trello", confidence="likely"):
    """Trello: the address follows the body in what is signed; before a webhook is made, HEAD has to be answered."""

    scheme = SignatureScheme(
        signature="header:X-Trello-Webhook", digest="sha1", encoding="base64", signed="{body}{url}"
    )
    locators = Locators(
        event_id="body:action.id", type="body:action.type", object_id="body:model.id", event_time="body:action.date"
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=30.0)
    url_needed = True
    secret_is = "the secret of the app (the OAuth secret beside its API key)"
    retries_say = "3, after 30, 60 and 120 seconds; disabled after 30 days of failures"
    handshake_says = "HEAD: 200"
    note = PLACES
    sample_type = "updateCard"
    sample = {
        "model": {"id": "", "name": "Quay works", "closed": False},
        "action": {
            "id": "",
            "idMemberCreator": "64f0c1d2e3a4b5c697881122",
            "data": {
                "card": {"id": "65a0b1c2d3e4f50617283940", "name": "Mend the eastern bollard", "idShort": 12},
                "listBefore": {"id": "65a0b1c2d3e4f50617283951", "name": "Next"},
                "listAfter": {"id": "65a0b1c2d3e4f50617283952", "name": "Under way"},
            },
            "type": "",
            "date": "2026-03-04T10:11:12.000Z",
        },
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        return Answer() if delivery.method == "HEAD" else None


class Calendly(Known, id="calendly", title="Calendly", confidence="likely"):
    """Calendly: no id; what happened, to which resource, and when, together are one."""

    scheme = SignatureScheme(
        signature="header:Calendly-Webhook-Signature",
        pieces=Pieces(key="v1"),
        signed="{ts}.{body}",
        stamp=Stamp("part:t", past=180.0),
    )
    locators = Locators(
        event_id=("body:payload.uri", "body:event", "body:created_at"),
        type="body:event",
        object_id="body:payload.uri",
        account="body:created_by",
        event_time="body:created_at",
    )
    profile = Profile(horizon_days=2.0)
    secret_is = "the signing key of the subscription"
    retries_say = "25 over 24 hours, then the subscription is disabled"
    note = f"{PLACES} The id is made of the event's name, its resource and its time."
    sample_type = "invitee.created"
    sample = {
        "event": "",
        "created_at": "2026-03-04T10:11:12.000000Z",
        "created_by": "https://calendly.example.com/users/HARBOURMASTER",
        "payload": {
            "uri": "",
            "name": "Sadia Rahman",
            "email": "sadia@example.com",
            "status": "active",
            "timezone": "Europe/Dublin",
            "rescheduled": False,
            "questions_and_answers": [],
        },
    }


class CalCom(Known, id="cal_com", title="Cal.com", confidence="likely"):
    """Cal.com: no id; trigger, booking and time together are one, unless you have changed the template of the body."""

    scheme = SignatureScheme(signature="header:X-Cal-Signature-256")
    locators = Locators(
        event_id=("body:payload.uid", "body:triggerEvent", "body:createdAt"),
        type="body:triggerEvent",
        object_id="body:payload.uid",
        event_time="body:createdAt",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=3.0)
    secret_is = "the secret of the webhook, as you chose it"
    retries_say = "a few"
    note = (
        f"{PLACES} Where booking or time are missing the digest of the body stands for the id: a template of your own"
        " should hold something that differs. PING is an event like any other."
    )
    sample_type = "BOOKING_CREATED"
    sample = {
        "triggerEvent": "",
        "createdAt": "2026-03-04T10:11:12.000Z",
        "payload": {
            "type": "harbour-tour",
            "title": "Harbour tour with Mira",
            "startTime": "2026-03-09T09:00:00Z",
            "endTime": "2026-03-09T09:30:00Z",
            "organizer": {"name": "Mira Castellan", "email": "mira@example.com", "timeZone": "Europe/Dublin"},
            "attendees": [{"name": "Oisín Brady", "email": "oisin@example.com", "timeZone": "Europe/Dublin"}],
            "uid": "",
            "status": "ACCEPTED",
        },
    }


def what_the_trigger_says(delivery: Delivery) -> Any:
    """JSON or a form, as the content type says; XML and the empty body are left to the handler."""
    kind = (only_header(delivery.headers, b"content-type") or "").lower()
    if kind.startswith("application/x-www-form-urlencoded"):
        return form(delivery)
    return read_json(delivery.body) if "json" in kind else {}


class Zendesk(Known, id="zendesk", title="Zendesk"):
    """Zendesk: bodies of any kind, so what tells one call from another is a header, which nobody signs."""

    scheme = SignatureScheme(
        signature="header:X-Zendesk-Webhook-Signature",
        encoding="base64",
        signed="{ts}{body}",
        stamp=Stamp("header:X-Zendesk-Webhook-Signature-Timestamp", "iso", past=None),
    )
    locators = Locators(
        event_id="header:X-Zendesk-Webhook-Invocation-Id",
        type="body:type",
        object_id="body:detail.id",
        account="body:account_id",
        event_time="body:time",
    )
    document = staticmethod(what_the_trigger_says)
    profile = Profile(horizon_days=1.0, timeout_seconds=12.0)
    secret_is = "the signing secret of the webhook"
    retries_say = "3 after 409, and after 429 and 503 if they say retry-after; paused where most calls fail"
    note = (
        f"{PLACES} The id is in a header that the signature does not cover: a body signed in the same second that comes"
        " under another id is taken for a replay. Only POST is taken."
    )
    sample_type = "zen:event-type:ticket.status_changed"
    sample = {
        "account_id": 10904112,
        "type": "",
        "id": "a3f1c0de-7b52-4e96-8d41-5c0b9e7f2a18",
        "time": "2026-03-04T10:11:12.123456789Z",
        "zendesk_event_version": "2022-11-06",
        "subject": "zen:ticket:4021",
        "event": {"current": "SOLVED", "previous": "OPEN"},
        "detail": {"id": "", "subject": "The gate at berth 4 does not close", "priority": "NORMAL", "status": "SOLVED"},
    }


class ClickUp(Known, id="clickup", title="ClickUp"):
    """ClickUp: no id of its own; the webhook and the first entry of the history together are one."""

    scheme = SignatureScheme(signature="header:X-Signature")
    locators = Locators(
        event_id=("body:webhook_id", "body:history_items.0.id"),
        type="body:event",
        object_id="body:task_id|body:list_id|body:folder_id|body:space_id|body:goal_id",
        event_time="body:history_items.0.date",
        time_unit="ms",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=1.0, timeout_seconds=7.0)
    secret_is = "webhook.secret, as the API answered when the webhook was made"
    retries_say = "5, then the webhook counts as failing, and is suspended after too many"
    note = (
        f"{PLACES} An event without a history has the digest of its body as its id: a later one that looks the same,"
        " such as the next change of the same space, counts as a repetition."
    )
    sample_type = "taskStatusUpdated"
    sample = {
        "event": "",
        "history_items": [
            {
                "id": "4030201009080706050",
                "type": 1,
                "date": "0",
                "field": "status",
                "parent_id": "90120455",
                "user": {"id": 51102, "username": "Mira Castellan", "email": "mira@example.com"},
                "before": {"status": "to do"},
                "after": {"status": "in progress"},
            }
        ],
        "task_id": "",
        "webhook_id": "b7d0a4e2-51c9-4f38-9e6a-2c1d0f8b7a53",
    }


class Strava(Known, id="strava", title="Strava", confidence="unsure"):
    """Strava: signs nothing; a token of your own in the address is all that tells its requests from others."""

    scheme = TokenScheme(at="query:token")
    locators = Locators(
        type=("body:object_type", "body:aspect_type"),
        object_id="body:object_id",
        account="body:owner_id",
        event_time="body:event_time",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=1.0, timeout_seconds=2.0, plain_ok=True)
    secret_is = "a long random text of your own, in the address that you give to Strava: ?token=..."
    retries_say = "3"
    handshake_says = "GET with hub.challenge: it comes back as JSON, if hub.verify_token is the verify_token configured"
    note = (
        f"{PLACES} Nothing is signed: whoever knows the address can send any body, so fetch what it is about from the"
        f" API before you act on it. {SAME_BYTES}"
    )
    sample_type = "activity.create"
    sample = {
        "aspect_type": "",
        "event_time": 0,
        "object_id": 10400500600,
        "object_type": "",
        "owner_id": 4815162,
        "subscription_id": 230815,
        "updates": {},
    }

    def __init__(self, secret: Secrets = None, *, verify_token: str | None = None, **options: Any) -> None:
        super().__init__(secret, **options)
        object.__setattr__(self, "_verify_token", check_token(self.name, "verify_token", verify_token))

    _verify_token: str | None

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if delivery.method != "GET" or not matches(self._verify_token, query_field(delivery, "hub.verify_token")):
            return None
        challenge = printable(query_field(delivery, "hub.challenge"))
        if challenge is None or query_field(delivery, "hub.mode") != "subscribe":
            return None
        return Answer(body=json.dumps({"hub.challenge": challenge}).encode(), content_type="application/json")


ATTIO_THING = "|".join(
    f"body:id.{name}_id"
    for name in (
        *("record", "entry", "note", "task", "comment", "call_recording", "workspace_member"),
        *("list", "object", "workspace"),
    )
)


class Attio(Known, id="attio", title="Attio", confidence="likely"):
    """Attio: several events a request, in a few words each; the id of the request is in a header that nobody signs."""

    scheme = SignatureScheme(signature=("header:Attio-Signature", "header:X-Attio-Signature"))
    locators = Locators(
        event_id=(
            "header:Idempotency-Key",
            "body:event_type",
            ATTIO_THING,
            "body:id.attribute_id|body:id.workspace_id",
        ),
        type="body:event_type",
        object_id=ATTIO_THING,
        account="body:id.workspace_id",
    )
    split = JsonBatch("events")
    # Two changes of one record are the same bytes, and so is their signature: no sign of a replay.
    profile = Profile(horizon_days=7.0, guard=False)
    secret_is = "the secret of the webhook, as the API answered when it was made"
    retries_say = "10 over 3 days"
    note = (
        f"{PLACES} The id is made of a header that the signature does not cover and of what changed. As two changes"
        " of one record look alike, a replay under another id cannot be told from a new event."
    )
    sample_type = "record.updated"
    sample = {
        "webhook_id": "6c0f9a21-4d7e-4b83-a5f0-9e1b2c3d4f58",
        "events": [
            {
                "event_type": "",
                "id": {
                    "workspace_id": "1e5b7c90-8a2d-4f61-b3c4-0d9e8f7a6b52",
                    "object_id": "9d3a1f46-2c5e-4780-8b6d-7f0e1c2a3b49",
                    "record_id": "",
                    "attribute_id": "4f8c2d17-6b0a-49e5-9c31-5e7d8a9b0c26",
                },
                "actor": {"type": "workspace-member", "id": "7b2e4d60-1f9c-4a35-8e07-3c6d5a4b9f81"},
            }
        ],
    }


HUBSPOT_IDS = "eventId alone is not unique: the id is made of it, of the type, the object and the time."
HUBSPOT_PLAIN = "A plain hash, without a time: the third version is the better one where you have the choice."
HUBSPOT_ONE = "A request of a workflow or a card is one event, with the digest of its body as id."


class HubSpot(Known):
    """What the versions of its signature have in common: up to 100 events a request."""

    locators = Locators(
        event_id=(
            "body:eventId",
            "body:subscriptionType",
            "body:objectId|body:fromObjectId|body:primaryObjectId",
            "body:occurredAt",
        ),
        type="body:subscriptionType",
        object_id="body:objectId|body:fromObjectId|body:primaryObjectId",
        account="body:portalId",
        event_time="body:occurredAt",
        time_unit="ms",
    )
    fingerprint = ("body",)
    split = BatchOrOne()
    profile = Profile(horizon_days=3.0, timeout_seconds=5.0)
    secret_is = "the client secret of the app"
    retries_say = "10 within 24 hours; after a 4xx other than 429 perhaps none"
    note = f"{HUBSPOT_IDS} {HUBSPOT_ONE}"
    sample_type = "contact.propertyChange"
    sample = [
        {
            "eventId": 4102893,
            "subscriptionId": 730041,
            "portalId": 4815162,
            "appId": 230815,
            "occurredAt": 0,
            "subscriptionType": "",
            "attemptNumber": 0,
            "objectId": 51102,
            "propertyName": "lifecyclestage",
            "propertyValue": "customer",
            "changeSource": "CRM_UI",
        }
    ]
    sample_id = None


class HubSpotV1(HubSpot, id="hubspot_v1", title="HubSpot (signature v1)"):
    """HubSpot, first version: a hash of the client secret and the body."""

    scheme = SecretFirstScheme(
        signature="header:X-HubSpot-Signature",
        digest="plain-sha256",
        signed="{secret}{body}",
        requires=(("X-HubSpot-Signature-Version", "v1"),),
    )
    note = f"{HUBSPOT_IDS} {HUBSPOT_PLAIN}"


class HubSpotV2(HubSpot, id="hubspot_v2", title="HubSpot (signature v2)"):
    """HubSpot, second version, as workflows and cards use it: method and address are hashed as well."""

    scheme = SecretFirstScheme(
        signature="header:X-HubSpot-Signature",
        digest="plain-sha256",
        signed="{secret}{method}{url}{body}",
        requires=(("X-HubSpot-Signature-Version", "v2"),),
    )
    url_needed = True
    note = f"{HUBSPOT_IDS} {HUBSPOT_ONE} {HUBSPOT_PLAIN}"


class HubSpotV3(HubSpot, id="hubspot_v3", title="HubSpot (signature v3)"):
    """HubSpot, third version: an HMAC with a time, over an address of which some percent-escapes are undone."""

    scheme = SignatureScheme(
        signature="header:X-HubSpot-Signature-v3",
        encoding="base64",
        signed=request_line_first,
        stamp=Stamp("header:X-HubSpot-Request-Timestamp", "ms"),
    )
    url_needed = True


class Pipedrive(Known, id="pipedrive", title="Pipedrive", confidence="likely"):
    """Pipedrive: user and password; one correlation id for all that one action has changed."""

    scheme = TokenScheme(at="header:Authorization", basic=True)
    locators = Locators(
        event_id=(
            "body:meta.correlation_id|body:meta.timestamp_micro",
            "body:meta.entity|body:meta.object",
            "body:meta.entity_id|body:meta.id",
            "body:meta.action",
        ),
        type=("body:meta.entity|body:meta.object", "body:meta.action"),
        object_id="body:meta.entity_id|body:meta.id",
        account="body:meta.company_id",
        event_time="body:meta.timestamp",
    )
    profile = Profile(horizon_days=1.0)
    secret_is = 'user and password of the webhook, as "user:password"'
    retries_say = "3, after 3, 30 and 150 seconds; after 10 failures none for 30 minutes"
    note = (
        f"{PLACES} The body is not covered: whoever has the password can send any. The id is made of the correlation id,"
        " the object and the action; of the time in microseconds in place of the first with version 1."
    )
    sample_type = "deal.change"
    sample = {
        "meta": {
            "action": "",
            "company_id": "4815162",
            "correlation_id": "",
            "entity": "",
            "entity_id": "",
            "is_bulk_edit": False,
            "timestamp": "2026-03-04T10:11:12.000Z",
            "type": "general",
            "version": "2.0",
            "webhook_id": "230815",
            "attempt": 1,
        },
        "data": {
            "id": 412,
            "title": "Winter berth for the Grainne",
            "value": 1800,
            "currency": "EUR",
            "status": "open",
        },
        "previous": {"value": 1500},
    }


def inflated(delivery: Delivery) -> Any:
    """The body as JSON, also where it is compressed; ValueError where it is neither, or too large."""
    packed = (only_header(delivery.headers, b"content-encoding") or "").lower() == "gzip"
    return read_json(inflate(delivery.body) if packed else delivery.body)


class Nylas(Known, id="nylas", title="Nylas", confidence="likely"):
    """Nylas: the bytes that are sent are signed, compressed or not."""

    scheme = SignatureScheme(signature="header:X-Nylas-Signature")
    locators = Locators(
        event_id="body:id",
        type="body:type",
        object_id="body:data.object.id",
        account="body:data.object.grant_id",
        event_time="body:time",
    )
    document = staticmethod(inflated)
    profile = Profile(horizon_days=3.0, content_encodings=("gzip",), plain_ok=True)
    secret_is = "the webhook secret, as the API answered when the webhook was made"
    retries_say = "3 or more over some hours, then the webhook counts as failing, and later as failed"
    handshake_says = "GET with ?challenge=: it comes back as text"
    note = (
        f"{PLACES} A compressed body is kept as it came, and the handler gets it so: turn compression off, or inflate it"
        " there. A type that ends in .truncated says that the object has to be fetched."
    )
    sample_type = "message.created"
    sample = {
        "specversion": "1.0",
        "type": "",
        "source": "/google/emails/realtime",
        "id": "",
        "time": 0,
        "webhook_delivery_attempt": 1,
        "data": {
            "application_id": "c1d0e9f8-27a6-4b35-94c4-d3e2f1a0b987",
            "object": {
                "id": "",
                "object": "message",
                "grant_id": "0b9a8c7d-6e5f-4a3b-82c1-d0e9f8a7b6c5",
                "subject": "The lock opens later on Thursday",
                "from": [{"name": "Aoife", "email": "aoife@example.com"}],
                "unread": True,
            },
        },
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        return echo_query(delivery, "challenge")
