"""Content, media, forms, files, tables and boards."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from hookonce.errors import ConfigurationError
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import EACH_ARRIVAL, Profile, Secrets
from hookonce.providers.documents import JsonBatch, read_json
from hookonce.providers.handshakes import check_file, echo_query, holds, keep_once, printable, printable_header
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators
from hookonce.schemes.base import Scheme
from hookonce.schemes.contentful import ContentfulScheme
from hookonce.schemes.hygraph import HygraphScheme
from hookonce.schemes.jwt import JwtScheme
from hookonce.schemes.signature import Pieces, SignatureScheme, Stamp

PLACES = "Where the id and the type stand is taken from its documentation."
SAME_BYTES = "It gives no id: the same bytes once more count as the same event."


@dataclass(frozen=True, slots=True)
class BatchOrOne(JsonBatch):
    """The events of a batch, or the one event that a body is which holds no such list."""

    def __call__(self, delivery: Delivery) -> tuple[list[bytes], Any]:
        try:
            return JsonBatch.__call__(self, delivery)
        except ValueError:
            return [delivery.body], read_json(delivery.body)


class Contentful(Known, id="contentful", title="Contentful"):
    """Contentful: the whole request is signed, with the headers that it lists, and is good for 30 seconds."""

    scheme = ContentfulScheme()
    locators = Locators(
        event_id="header:X-Contentful-Idempotency-Key",
        type="header:X-Contentful-Topic",
        object_id="body:sys.id",
        account="body:sys.space.sys.id",
        event_time="body:sys.updatedAt|body:sys.deletedAt",
        version="body:sys.revision",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=1.0, timeout_seconds=30.0)
    secret_is = "the signing secret, 64 characters"
    retries_say = "3, 30 seconds apart, after 429 and 5xx"
    note = (
        f"{PLACES} Without an idempotency key the digest of the body stands for the id. Say url= if a proxy changes the"
        " path, or if it has percent-escapes: the path is signed as it was sent."
    )
    sample_type = "ContentManagement.Entry.publish"
    sample = {
        "sys": {
            "type": "Entry",
            "id": "",
            "space": {"sys": {"type": "Link", "linkType": "Space", "id": "harbourspace"}},
            "environment": {"sys": {"type": "Link", "linkType": "Environment", "id": "master"}},
            "contentType": {"sys": {"type": "Link", "linkType": "ContentType", "id": "tideTable"}},
            "revision": 7,
            "createdAt": "2026-01-20T08:00:00.000Z",
            "updatedAt": "2026-03-04T10:11:12.000Z",
        },
        "fields": {"title": {"en-GB": "Tides of the week"}, "harbour": {"en-GB": "Kinvara"}},
    }


class Sanity(Known, id="sanity", title="Sanity"):
    """Sanity: the body is what your projection says, so id, type and time stand in headers, and nobody signs those."""

    scheme = SignatureScheme(
        signature="header:sanity-webhook-signature",
        pieces=Pieces(key="v1"),
        encoding="base64url",
        signed="{ts}.{body}",
        stamp=Stamp("part:t", "ms", past=None),
    )
    locators = Locators(
        event_id="header:idempotency-key",
        type="header:sanity-operation",
        object_id="header:sanity-document-id",
        event_time="header:sanity-transaction-time",
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=30.0)
    secret_is = "the secret of the webhook, as you chose it"
    retries_say = "for 30 minutes, at growing intervals"
    note = f"{PLACES} They are headers, which the signature does not cover: only body and time are certain."
    sample_type = "update"
    sample = {
        "_id": "harbour-kinvara",
        "_type": "harbour",
        "_rev": "tR4wQ0v9kYb2",
        "name": "Kinvara",
        "berths": 14,
        "depth": 3.5,
        "notes": "The eastern quay falls dry",
    }


class Hygraph(Known, id="hygraph", title="Hygraph"):
    """Hygraph: what is signed is a JSON text in which the body is a string, beside the environment and the time."""

    scheme = HygraphScheme()
    locators = Locators(type="body:operation", object_id="body:data.id")
    fingerprint = ("body",)
    profile = Profile(horizon_days=3.0)
    secret_is = "the secret key of the webhook"
    retries_say = "not documented"
    note = f"{PLACES} {SAME_BYTES} Let the webhook include the payload, so that each change looks different."
    sample_type = "publish"
    sample = {
        "operation": "",
        "data": {
            "__typename": "Harbour",
            "id": "",
            "name": "Port Ellen",
            "stage": "PUBLISHED",
            "createdAt": "2026-01-20T08:00:00.000000+00:00",
            "publishedAt": "2026-03-04T10:11:12.000000+00:00",
            "updatedAt": "2026-03-04T10:11:10.000000+00:00",
        },
    }


class KontentAi(Known, id="kontent_ai", title="Kontent.ai"):
    """Kontent.ai: several notifications a request, none with an id; the header's older name is taken as well."""

    scheme = SignatureScheme(signature=("header:X-Kontent-ai-Signature", "header:X-KC-Signature"), encoding="base64")
    locators = Locators(
        type=("body:message.object_type", "body:message.action"),
        object_id="body:data.system.id",
        account="body:message.environment_id",
    )
    fingerprint = ("body",)
    split = JsonBatch("notifications")
    profile = Profile(horizon_days=7.0)
    secret_is = "the secret of the webhook"
    retries_say = "for up to some days, at growing intervals"
    note = f"{PLACES} {SAME_BYTES} An item published a second time without a change may look the same."
    sample_type = "content_item.published"
    sample = {
        "notifications": [
            {
                "data": {
                    "system": {
                        "id": "",
                        "name": "Opening hours of the lock",
                        "codename": "opening_hours",
                        "collection": "default",
                        "workflow": "default",
                        "language": "en-IE",
                        "type": "article",
                        "last_modified": "2026-03-04T10:11:12.1234567Z",
                    }
                },
                "message": {
                    "environment_id": "3c9d2f1e-70aa-4b6e-8f35-1d0c6b7e2a94",
                    "object_type": "content_item",
                    "action": "published",
                    "delivery_slot": "published",
                },
            }
        ]
    }


class Webflow(Known, id="webflow", title="Webflow"):
    """Webflow: signed with the secret of the webhook, or with the client secret where an app has made it; no ids."""

    scheme = SignatureScheme(
        signature="header:x-webflow-signature", signed="{ts}:{body}", stamp=Stamp("header:x-webflow-timestamp", "ms")
    )
    locators = Locators(type="body:triggerType", object_id="body:payload.id")
    fingerprint = ("body",)
    profile = Profile(horizon_days=1.0)
    secret_is = "the secret key of the webhook, or the app's client secret if the app made the webhook"
    retries_say = "3, about 10 minutes apart"
    note = f"{PLACES} {SAME_BYTES}"
    sample_type = "form_submission"
    sample = {
        "triggerType": "",
        "payload": {
            "name": "Ask the harbour master",
            "siteId": "66f1a0c2d4e5b6a7988f0011",
            "data": {"name": "Oisín Brady", "email": "oisin@example.com", "question": "When does the lock open?"},
            "submittedAt": "2026-03-04T10:11:12.000Z",
            "id": "",
            "formId": "66f1a0c2d4e5b6a7988f0022",
        },
    }


class Cloudinary(Known, id="cloudinary", title="Cloudinary"):
    """Cloudinary: no HMAC but a hash of body, time and API secret, SHA-1 unless your account is set to SHA-256."""

    scheme = SignatureScheme(
        signature="header:X-Cld-Signature",
        digest="plain-sha1",
        signed="{body}{ts}{secret}",
        stamp=Stamp("header:X-Cld-Timestamp", past=7200.0),
    )
    locators = Locators(
        event_id=("body:request_id", "body:notification_type", "body:asset_id|body:public_id|body:batch_id"),
        type="body:notification_type",
        object_id="body:asset_id|body:public_id",
        event_time="body:timestamp",
        version="body:version",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=1.0)
    secret_is = "the API secret of the product environment"
    retries_say = "3"
    note = (
        f"{PLACES} Where there is no request_id the digest of the body stands for the id."
        ' Set the account to SHA-256 and say algorithm="sha256": SHA-1 is no longer safe where others choose what is hashed.'
    )
    sample_type = "upload"
    sample = {
        "notification_type": "",
        "timestamp": "2026-03-04T10:11:12+00:00",
        "request_id": "",
        "asset_id": "",
        "public_id": "quays/east",
        "version": 1767225600,
        "width": 1600,
        "height": 900,
        "format": "jpg",
        "resource_type": "image",
        "bytes": 220413,
        "notification_context": {"triggered_by": {"source": "API", "id": "481516234"}},
    }

    def __init__(self, secret: Secrets = None, *, algorithm: str = "sha1", **options: Any) -> None:
        object.__setattr__(self, "_algorithm", algorithm)
        super().__init__(secret, **options)

    _algorithm: str

    def _scheme(self, name: str, **given: Any) -> Scheme:
        if self._algorithm not in ("sha1", "sha256"):
            raise ConfigurationError(f'{name}: algorithm is "sha1" or "sha256", not {self._algorithm!r}', code="HO101")
        scheme: Any = super()._scheme(name, **given)
        changed: Scheme = dataclasses.replace(scheme, digest=f"plain-{self._algorithm}")
        return changed


class Mux(Known, id="mux", title="Mux"):
    """Mux: as plain as it gets, with a time and any number of signatures in one header."""

    scheme = SignatureScheme(
        signature="header:Mux-Signature", pieces=Pieces(key="v1"), signed="{ts}.{body}", stamp=Stamp("part:t")
    )
    locators = Locators(
        event_id="body:id",
        type="body:type",
        object_id="body:object.id",
        account="body:environment.id",
        event_time="body:created_at",
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=5.0)
    secret_is = "the signing secret of the webhook"
    retries_say = "for 24 hours, at growing intervals"
    note = PLACES
    sample_type = "video.asset.ready"
    sample = {
        "type": "",
        "id": "",
        "created_at": "2026-03-04T10:11:12.000000Z",
        "object": {"type": "asset", "id": ""},
        "environment": {"name": "Production", "id": "hb1lne"},
        "data": {"status": "ready", "duration": 61.5, "aspect_ratio": "16:9", "max_stored_resolution": "HD"},
        "attempts": [],
        "accessor": None,
        "request_id": None,
    }


class Notion(Known, id="notion", title="Notion"):
    """Notion: the secret comes to the endpoint itself, in one request that nobody signs, and only once."""

    scheme = SignatureScheme(signature="header:X-Notion-Signature", prefix="sha256=")
    locators = Locators(
        event_id="body:id",
        type="body:type",
        object_id="body:entity.id",
        account="body:workspace_id",
        event_time="body:timestamp",
    )
    profile = Profile(horizon_days=3.0)
    secret_is = "the verification token (any text until you have it)"
    retries_say = "8 over about 24 hours"
    handshake_says = (
        "one unsigned POST with a verification_token, taken only while handshake_file names a file that does not exist:"
        " it is written there, readable by this user only"
    )
    note = (
        f"{PLACES} To set up: say handshake_file=, create the subscription, copy the token from that file into Notion,"
        " configure it here as the secret, and leave handshake_file out again."
    )
    sample_type = "page.content_updated"
    sample = {
        "id": "",
        "timestamp": "2026-03-04T10:11:12.000Z",
        "workspace_id": "5a1c7e90-3d2b-4f68-9b0e-6c4d8e2f1a37",
        "workspace_name": "Harbour Lane",
        "subscription_id": "8d0e6b52-1f47-4c3a-a2d9-7b5e9c1f0a64",
        "integration_id": "2b9f4d71-6e0c-4a85-8c13-0d7a5e3b9f26",
        "type": "",
        "authors": [{"id": "c70fd2a4-95b1-4e3d-b6f8-1a2c3d4e5f60", "type": "person"}],
        "attempt_number": 1,
        "entity": {"id": "", "type": "page"},
        "data": {"updated_blocks": []},
    }

    def __init__(self, secret: Secrets = None, *, handshake_file: str | None = None, **options: Any) -> None:
        super().__init__(secret, **options)
        object.__setattr__(self, "_file", check_file(self.name, "handshake_file", handshake_file))

    _file: str | None

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        signed = any(name == b"x-notion-signature" for name, _ in delivery.headers)
        if self._file is None or signed or b'"verification_token"' not in delivery.body:
            return None
        token = json.loads(delivery.body)["verification_token"]
        if not isinstance(token, str) or printable(token) is None:
            return None
        return Answer() if keep_once(self._file, token) or holds(self._file, token) else None


def always_a_ping(document: Any) -> str:
    """Always "ping"."""
    del document
    return "ping"


class Airtable(Known, id="airtable", title="Airtable", confidence="likely"):
    """Airtable: says only that something has changed in a base; the changes themselves are fetched with a cursor."""

    scheme = SignatureScheme(signature="header:X-Airtable-Content-MAC", prefix="hmac-sha256=", key="base64")
    locators = Locators(
        type=always_a_ping, object_id="body:webhook.id", account="body:base.id", event_time="body:timestamp"
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=7.0, timeout_seconds=25.0)
    secret_is = "macSecretBase64, as the API answered when the webhook was made"
    retries_say = "for a day, then notifications are turned off; the webhook itself expires after 7 days"
    note = f"{PLACES} {SAME_BYTES} Its time makes each one different. Fetch the payloads of the webhook in the handler."
    sample_type = "ping"
    sample = {
        "base": {"id": "appHarbourLane001"},
        "webhook": {"id": ""},
        "timestamp": "2026-03-04T10:11:12.000Z",
    }


class Typeform(Known, id="typeform", title="Typeform", confidence="likely"):
    """Typeform: base64 behind the prefix that elsewhere announces hex."""

    scheme = SignatureScheme(signature="header:Typeform-Signature", prefix="sha256=", encoding="base64")
    locators = Locators(
        event_id="body:event_id",
        type="body:event_type",
        object_id="body:form_response.token",
        event_time="body:form_response.submitted_at",
    )
    profile = Profile(horizon_days=2.0, timeout_seconds=30.0)
    secret_is = "the secret of the webhook, as you chose it"
    retries_say = "several over about 10 hours; 404 and 410 disable the webhook"
    note = PLACES
    sample_type = "form_response"
    sample = {
        "event_id": "",
        "event_type": "",
        "form_response": {
            "form_id": "hArb0Ur",
            "token": "",
            "landed_at": "2026-03-04T10:09:00Z",
            "submitted_at": "2026-03-04T10:11:12Z",
            "definition": {"id": "hArb0Ur", "title": "A berth for the summer", "fields": []},
            "answers": [
                {"type": "text", "text": "From May to August", "field": {"id": "fLd001", "type": "short_text"}}
            ],
        },
    }


def which_list(document: Any) -> str | None:
    """The kind of list that is there."""
    return next((name for name in ("list_folder", "delta") if name in document), None)


class Dropbox(Known, id="dropbox", title="Dropbox", confidence="likely"):
    """Dropbox: only the accounts in which something has changed; what has is fetched with a cursor."""

    scheme = SignatureScheme(signature="header:X-Dropbox-Signature")
    locators = Locators(type=which_list, object_id="body:list_folder.accounts.0")
    fingerprint = (EACH_ARRIVAL,)
    # Equal bytes are no sign of a replay: later changes of the same accounts are written in the same way.
    profile = Profile(horizon_days=1.0, guard=False)
    secret_is = "the app secret"
    retries_say = "at growing intervals; disabled where most answers are failures"
    handshake_says = "GET with ?challenge=: it comes back as text"
    note = (
        "Notifications of the same accounts are the same bytes and carry no id, so every arrival counts as an event of its"
        " own, retries too: fetch with the cursor in the handler, which finds nothing new the second time."
    )
    sample_type = "list_folder"
    sample = {"list_folder": {"accounts": [""]}, "delta": {"users": [41025517]}}

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        return echo_query(delivery, "challenge")


class Box(Known, id="box", title="Box"):
    """Box: two keys and two signatures, of which one has to fit; the time of the delivery is signed."""

    scheme = SignatureScheme(
        signature=("header:BOX-SIGNATURE-PRIMARY", "header:BOX-SIGNATURE-SECONDARY"),
        encoding="base64",
        signed="{body}{ts}",
        stamp=Stamp("header:BOX-DELIVERY-TIMESTAMP", "iso", past=600.0, future=60.0),
        requires=(("BOX-SIGNATURE-VERSION", "1"), ("BOX-SIGNATURE-ALGORITHM", "HmacSHA256")),
    )
    locators = Locators(
        event_id="body:id",
        delivery_id="header:BOX-DELIVERY-ID",
        type="body:trigger",
        object_id="body:source.id",
        event_time="body:created_at",
        version="body:source.etag",
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=30.0)
    secret_is = "the primary and the secondary signature key, both of them while you rotate"
    retries_say = "10 over about 2 hours"
    note = PLACES
    sample_type = "FILE.UPLOADED"
    sample = {
        "type": "webhook_event",
        "id": "",
        "created_at": "2026-03-04T02:11:12-08:00",
        "trigger": "",
        "webhook": {"id": "90417", "type": "webhook"},
        "created_by": {"type": "user", "id": "730215", "name": "Mira Castellan", "login": "mira@example.com"},
        "source": {
            "id": "",
            "type": "file",
            "name": "tides-march.csv",
            "etag": "3",
            "size": 18223,
            "parent": {"type": "folder", "id": "51004", "name": "Tide tables"},
        },
        "additional_info": {},
    }


class Smartsheet(Known, id="smartsheet", title="Smartsheet"):
    """Smartsheet: says what changed and never to what; asks again and again whether it may go on."""

    scheme = SignatureScheme(signature="header:Smartsheet-Hmac-SHA256")
    locators = Locators(
        event_id=(
            "outer:nonce",
            "body:objectType",
            "body:eventType",
            "body:id|body:rowId",
            "body:columnId|outer:scopeObjectId",
        ),
        type=("body:objectType|body:newWebhookStatus", "body:eventType"),
        object_id="body:id|body:rowId",
        event_time="body:timestamp|outer:timestamp",
    )
    fingerprint = ("body",)
    split = BatchOrOne("events")
    profile = Profile(horizon_days=1.0, plain_ok=True)
    secret_is = "the sharedSecret of the webhook"
    retries_say = "14 over 3 hours, then the webhook is disabled"
    handshake_says = (
        "POST with Smartsheet-Hook-Challenge: it comes back as Smartsheet-Hook-Response, every time it asks"
    )
    note = (
        f"{PLACES} The id is made of the callback's nonce and of what changed. A change of the webhook's own status is"
        " an event with that status as its type."
    )
    sample_type = "row.updated"
    sample = {
        "nonce": "0f6e1c52-93ab-4d70-8e21-b5d4c3a29f18",
        "timestamp": "2026-03-04T10:11:12.000+00:00",
        "webhookId": 4503604829677444,
        "scope": "sheet",
        "scopeObjectId": 4509506114742148,
        "events": [
            {"objectType": "", "eventType": "", "id": 0, "userId": 90143, "timestamp": "2026-03-04T10:11:12.000+00:00"}
        ],
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        challenge = printable_header(delivery, b"smartsheet-hook-challenge")
        if challenge is None or delivery.method != "POST" or b'"events"' in delivery.body:
            return None
        return Answer(headers=((b"smartsheet-hook-response", challenge.encode()),))


class Monday(Known, id="monday", title="monday.com", confidence="likely"):
    """monday.com: a token says who sends, and nothing about what; only webhooks that an app has made carry one."""

    scheme = JwtScheme(at="header:Authorization", algorithms=("HS256",), requires=("exp",))
    locators = Locators(
        event_id="body:event.triggerUuid",
        type="body:event.type",
        object_id="body:event.pulseId",
        event_time="body:event.triggerTime",
    )
    profile = Profile(horizon_days=1.0)
    secret_is = "the signing secret of the app"
    retries_say = "every minute for 30 minutes"
    handshake_says = "POST with a challenge: it comes back as JSON, if the request's token is genuine"
    note = (
        f"{PLACES} The body is not covered: whoever has a token that is still valid can send any. Say url= as it is"
        " configured there, and the token has to be for this address. The address of a webhook without a token"
        " cannot be confirmed here."
    )
    sample_type = "update_column_value"
    sample = {
        "event": {
            "app": "monday",
            "type": "",
            "triggerTime": "2026-03-04T10:11:12.000Z",
            "subscriptionId": 7300415,
            "userId": 51102,
            "boardId": 880012345,
            "pulseId": 880054321,
            "pulseName": "Dredge the channel",
            "columnId": "status",
            "value": {"label": {"index": 1, "text": "Done"}},
            "triggerUuid": "",
        }
    }

    def _scheme(self, name: str, **given: Any) -> Scheme:
        scheme: Any = super()._scheme(name, **given)
        bound: Scheme = dataclasses.replace(scheme, claims={"aud": "{url}"}) if given["url"] else scheme
        return bound

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if b'"challenge"' not in delivery.body:
            return None
        document = json.loads(delivery.body)
        challenge = document["challenge"]
        if "event" in document or not isinstance(challenge, str) or printable(challenge) is None:
            return None
        return Answer(body=json.dumps({"challenge": challenge}).encode(), content_type="application/json")
