"""People, access, checks and signatures on paper."""

from __future__ import annotations

import hmac
import json
import re
import time
from typing import Any

from hookonce.errors import VerificationError
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import Profile, Secrets
from hookonce.providers.documents import Json, JsonBatch, read_json, segment, split_lines, split_text
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators, only_header
from hookonce.providers.tenants import keys_address, no_keys
from hookonce.schemes.base import active
from hookonce.schemes.body_token import BodyTokenScheme
from hookonce.schemes.dropbox_sign import DropboxSignScheme, json_part
from hookonce.schemes.jwt import JwtScheme
from hookonce.schemes.signature import Pieces, SignatureScheme, Stamp
from hookonce.schemes.standard_webhooks import SVIX, StandardWebhooksScheme
from hookonce.schemes.token import TokenScheme

CHALLENGE_CHARACTERS_MAX = 1_000


class Clerk(Known, id="clerk", title="Clerk"):
    """Clerk: sent through Svix, with times in milliseconds."""

    scheme = StandardWebhooksScheme(families=(SVIX,))
    locators = Locators(
        event_id="header:svix-id",
        delivery_id="header:svix-id",
        type="body:type",
        object_id="body:data.id",
        event_time="body:timestamp",
        time_unit="ms",
        version="body:data.updated_at",
    )
    profile = Profile(timeout_seconds=15.0)
    secret_is = "the signing secret of the endpoint, whsec_..."
    retries_say = "after 5 seconds, 5 and 30 minutes, 2, 5, 10 and 10 hours; by hand from the dashboard"
    sample_type = "user.updated"
    sample = {
        "type": "",
        "object": "event",
        "timestamp": 0,
        "instance_id": "ins_harbour",
        "data": {
            "id": "",
            "object": "user",
            "first_name": "Sadia",
            "last_name": "Rahman",
            "created_at": 1754006400000,
            "updated_at": 1772619072000,
        },
    }


class WorkOS(Known, id="workos", title="WorkOS"):
    """WorkOS: a time in milliseconds and one signature in a header, over the text as it was sent."""

    scheme = SignatureScheme(
        signature="header:WorkOS-Signature",
        pieces=Pieces("v1", sep=", "),
        signed="{ts}.{body}",
        stamp=Stamp("part:t", "ms", past=180.0),
    )
    locators = Locators(event_id="body:id", type="body:event", object_id="body:data.id", event_time="body:created_at")
    profile = Profile()
    secret_is = "the secret of the webhook endpoint"
    retries_say = "6 within 3 days; all events can be listed"
    sample_type = "dsync.user.updated"
    sample = {
        "id": "",
        "event": "",
        "created_at": "2026-03-04T10:11:12.123Z",
        "data": {
            "object": "directory_user",
            "id": "",
            "directory_id": "directory_01HARBOUR",
            "first_name": "Mira",
            "state": "active",
        },
    }


def kinde_claims(delivery: Delivery) -> Json:
    """What the token says that the body is. Whoever asks has verified it."""
    parts = delivery.body.split(b".")
    if len(parts) != 3:
        raise ValueError("the body is no token")
    return segment(parts[1])


def kinde_object(claims: Any) -> object:
    """body:data.*.id, or what else names it: one member of data is what the event is about."""
    about = next((one for one in claims["data"].values() if isinstance(one, dict)), {})
    return about.get("id") or about.get("code") or about.get("user_id")


class Kinde(Known, id="kinde", title="Kinde"):
    """Kinde: the whole body is a token, signed with the key with which your users' tokens are signed as well."""

    scheme = BodyTokenScheme(algorithms=("RS256",), requires=("event_id", "type", "data"))
    locators = Locators(
        event_id="body:event_id",
        type="body:type",
        object_id=kinde_object,
        event_time="body:event_timestamp|body:timestamp",
    )
    document = staticmethod(kinde_claims)
    profile = Profile(horizon_days=3.0)
    secret_is = "the tenant's public key, as PEM or JWKS"
    secret_optional = True
    retries_say = "for 48 hours"
    note = (
        "Say domain (yours.kinde.com), and the tenant's keys are fetched; or configure them as secrets. Kinde's "
        "tokens do not expire, so any age is taken. A token that is no event, such as a user's own, is refused: it "
        "lacks event_id, type and data."
    )
    sample_type = "user.updated"
    sample = {
        "event_id": "",
        "type": "",
        "event_timestamp": "2026-03-04T10:11:12.123456+00:00",
        "source": "admin",
        "data": {"user": {"id": "kp_0harbour", "email": "sadia@example.com", "first_name": "Sadia"}},
    }

    def __init__(self, secret: Secrets = None, *, domain: str | None = None, **options: Any) -> None:
        name = options.get("name") or self.id
        if domain is not None:
            address = keys_address(name, domain, "jwks")
            scheme = BodyTokenScheme(algorithms=self.scheme.algorithms, requires=self.scheme.requires, keys_at=address)
            object.__setattr__(self, "scheme", scheme)
        elif not secret:
            raise no_keys(name, 'domain = "yours.kinde.com"')
        super().__init__(secret, **options)


STATIC = "the whole value of the Authorization header that you told it to send"


class Okta(Known, id="okta_authorization", title="Okta event hooks"):
    """Okta: a fixed header says who sends; nothing is signed. Many events a request; a failed one comes once more."""

    scheme = TokenScheme(at="header:Authorization")
    locators = Locators(
        event_id="body:uuid",
        delivery_id="outer:eventId",
        type="body:eventType",
        object_id="body:target.0.id",
        event_time="body:published",
    )
    split = JsonBatch("data.events")
    profile = Profile(horizon_days=1.0, timeout_seconds=3.0)
    secret_is = STATIC
    retries_say = "1, and none where the answer was 4xx; what was missed is in the System Log API"
    handshake_says = (
        "GET with x-okta-verification-challenge: its value comes back as JSON, if the fixed header is right"
    )
    note = "The body is not covered: whoever learns the header's value can send anything."
    sample_type = "user.lifecycle.activate"
    sample = {
        "eventType": "com.okta.event_hook",
        "eventId": "b5a188b9-5ece-4636-b041-482ffda96311",
        "eventTime": "2026-03-04T10:11:13.000Z",
        "data": {
            "events": [
                {
                    "uuid": "",
                    "published": "2026-03-04T10:11:12.123Z",
                    "eventType": "",
                    "displayMessage": "Activate a user",
                    "target": [{"id": "", "type": "User", "alternateId": "sadia@example.com"}],
                }
            ]
        },
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        asked = only_header(delivery.headers, b"x-okta-verification-challenge")
        if delivery.method != "GET" or not asked or len(asked) > CHALLENGE_CHARACTERS_MAX:
            return None
        try:
            self.provider.scheme.verify(delivery, secrets, time.time())
        except VerificationError:
            return None
        return Answer(body=json.dumps({"verification": asked}).encode(), content_type="application/json")


def split_auth0(delivery: Delivery) -> tuple[list[bytes], Json]:
    """One event, an array of them, or one a line: how they come is chosen when the stream is made."""
    text = delivery.body.decode()
    if text.lstrip().startswith("["):
        return split_text(text, ())
    try:
        read_json(delivery.body)
    except ValueError:
        return split_lines(delivery)
    return [delivery.body], None


class Auth0(Known, id="auth0", title="Auth0 log and event streams"):
    """Auth0: a fixed header says who sends; nothing is signed. Log streams and event streams differ in form."""

    scheme = TokenScheme(at="header:Authorization")
    locators = Locators(
        event_id="body:log_id|body:id|body:data.log_id",
        type="body:type|body:data.type",
        object_id="body:data.user_id|body:data.object.user_id|body:data.object.id",
        event_time="body:data.date|body:time",
    )
    split = staticmethod(split_auth0)
    profile = Profile()
    secret_is = STATIC
    retries_say = "event streams: 3, after 1, 2 and 4 seconds, none where the answer was 4xx; by hand through the API"
    note = (
        "The body is not covered: whoever learns the header's value can send anything. Places are taken from "
        "documentation."
    )
    sample_type = "s"
    sample = [
        {
            "log_id": "",
            "data": {
                "date": "2026-03-04T10:11:12.123Z",
                "type": "s",
                "client_id": "c0harbour",
                "user_id": "",
                "user_name": "sadia@example.com",
            },
        }
    ]


class Persona(Known, id="persona", title="Persona", confidence="likely"):
    """Persona: while a secret is rotated the header holds complete sets, each with its own time, apart by a space."""

    scheme = SignatureScheme(
        signature="header:Persona-Signature",
        pieces=Pieces("v1", groups=" "),
        signed="{ts}.{body}",
        stamp=Stamp("part:t", past=None),
    )
    locators = Locators(
        event_id="body:data.id",
        type="body:data.attributes.name",
        object_id="body:data.attributes.payload.data.id",
        event_time="body:data.attributes.created-at",
    )
    profile = Profile(timeout_seconds=5.0)
    secret_is = "the whole secret of the webhook, wbhsec_..."
    retries_say = "8, at growing intervals, in any order; all events can be listed"
    sample_type = "inquiry.completed"
    sample = {
        "data": {
            "type": "event",
            "id": "",
            "attributes": {
                "name": "",
                "created-at": "2026-03-04T10:11:12.123Z",
                "payload": {"data": {"type": "inquiry", "id": "", "attributes": {"status": "completed"}}},
            },
        }
    }


class Onfido(Known, id="onfido", title="Onfido"):
    """Onfido: an event has no id; which object it is about, what happened to it and when stand for one."""

    scheme = SignatureScheme(signature="header:X-SHA2-Signature")
    locators = Locators(
        event_id=(
            "body:payload.object.id",
            "body:payload.action",
            "body:payload.object.completed_at_iso8601|body:payload.object.status",
        ),
        type="body:payload.action",
        object_id="body:payload.object.id",
        event_time="body:payload.object.completed_at_iso8601",
    )
    fingerprint = ("body",)
    profile = Profile()
    secret_is = "the token of the webhook"
    retries_say = "5, after 30 seconds, 2 and 15 minutes, 2 and 10 hours, then a day; by hand through the API"
    note = "Where an object has neither a time of completion nor a status, the digest of the body stands for the id."
    sample_type = "workflow_run.completed"
    sample = {
        "payload": {
            "resource_type": "workflow_run",
            "action": "",
            "object": {
                "id": "",
                "status": "approved",
                "completed_at_iso8601": "2026-03-04T10:11:12Z",
                "href": "https://api.example.com/v3.6/workflow_runs/1",
            },
        }
    }


class Frontegg(Known, id="frontegg", title="Frontegg", confidence="unsure"):
    """Frontegg: a token in a header says who sends; whether it covers the body is not known."""

    scheme = JwtScheme(at="header:x-webhook-secret", algorithms=("HS256",))
    locators = Locators(
        type="body:eventKey",
        object_id="body:eventContext.userId|body:user.id|body:eventContext.tenantId",
        account="body:eventContext.tenantId",
    )
    fingerprint = ("body",)
    profile = Profile()
    secret_is = "the secret of the webhook"
    retries_say = "not published"
    note = (
        "The body is not covered: whoever learns a valid token can send anything. No id is documented: the digest "
        "of the body stands for it, so two events that say the same are one. Confirm all of it with a real delivery "
        "first."
    )
    sample_type = "frontegg.user.invitedToTenant"
    sample = {
        "eventKey": "",
        "eventContext": {"vendorId": "v0harbour", "tenantId": "t0tides", "userId": ""},
        "user": {"id": "u0mira", "email": "mira@example.com", "name": "Mira Castellan"},
    }


DOCUSIGN_KEYS_MAX = 8


class DocuSign(Known, id="docusign", title="DocuSign Connect", confidence="likely"):
    """DocuSign: one header for each key that is active, numbered; any of them may match."""

    scheme = SignatureScheme(
        signature=tuple(f"header:X-DocuSign-Signature-{number}" for number in range(1, DOCUSIGN_KEYS_MAX + 1)),
        encoding="base64",
    )
    locators = Locators(
        event_id=("body:data.envelopeId", "body:event", "body:generatedDateTime"),
        type="body:event",
        object_id="body:data.envelopeId",
        account="body:data.accountId",
        event_time="body:generatedDateTime",
        version="body:generatedDateTime",
        api_version="body:apiVersion",
    )
    fingerprint = ("body",)
    profile = Profile(timeout_seconds=100.0)
    secret_is = "the Connect key, as it was shown"
    retries_say = "for 24 hours and more, at growing intervals up to 15 days; by hand from the failures list"
    note = (
        "DocuSign gives no id: envelope, event and time stand for it. Choose JSON, and leave the documents out or "
        "raise the limit of the body's size. The places of the ids are taken from documentation."
    )
    sample_type = "envelope-completed"
    sample = {
        "event": "",
        "apiVersion": "v2.1",
        "uri": "/restapi/v2.1/accounts/1/envelopes/1",
        "retryCount": 0,
        "configurationId": 10042,
        "generatedDateTime": "2026-03-04T10:11:12.1234567Z",
        "data": {"accountId": "f1d0a2c4-0000-4000-8000-0123456789ab", "userId": "u1", "envelopeId": ""},
    }


def dropbox_sign_event(delivery: Delivery) -> Json:
    """The JSON in the part of the body that is called so."""
    return read_json(json_part(delivery))


def dropbox_sign_id(document: Any) -> object:
    """body:event.event_hash, and what the event is about: the hash is over its second and its type alone."""
    event = document["event"]
    said = [event["event_hash"], (event.get("event_metadata") or {}).get("related_signature_id")]
    for thing, name in DROPBOX_SIGN_IDS.items():
        said.append((document.get(thing) or {}).get(name))
    return ":".join([text for text in said if isinstance(text, str)])


DROPBOX_SIGN_IDS = {
    "signature_request": "signature_request_id",
    "template": "template_id",
    "account": "account_id",
}


class DropboxSign(Known, id="dropbox_sign", title="Dropbox Sign"):
    """Dropbox Sign: JSON inside a multipart body, a hash over time and type only, and an answer of fixed words."""

    scheme = DropboxSignScheme()
    locators = Locators(
        event_id=dropbox_sign_id,
        type="body:event.event_type",
        object_id="body:signature_request.signature_request_id|body:template.template_id",
        account="body:event.event_metadata.reported_for_account_id",
        event_time="body:event.event_time",
        time_unit="s",
    )
    document = staticmethod(dropbox_sign_event)
    acknowledge = Answer(body=b"Hello API Event Received")
    profile = Profile(timeout_seconds=30.0)
    secret_is = "the API key of the account"
    retries_say = "6 within about 2 days"
    handshake_says = "callback_test is answered with the fixed words and not stored"
    note = (
        "The body is not covered: only the time and the type of an event are, so whoever has seen one request can "
        "send others of that type and second. Fetch what an event is about from the API before acting on it."
    )
    sample_type = "signature_request_signed"
    sample = {
        "event": {
            "event_type": "",
            "event_time": "1772619072",
            "event_hash": "",
            "event_metadata": {"related_signature_id": "0a1b2c3d4e5f", "reported_for_account_id": "acc0harbour"},
        },
        "signature_request": {"signature_request_id": "", "title": "Berth 14, one season", "is_complete": False},
    }

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        kind = dropbox_sign_event(delivery)["event"]["event_type"]
        return self.acknowledge if kind == "callback_test" else None


# Letters and digits only: the answer is signed with the key that signs events, and must never be good for one.
SMARTCAR_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{1,200}")


class Smartcar(Known, id="smartcar", title="Smartcar"):
    """Smartcar: when a webhook is made, a challenge must come back signed with the management token."""

    scheme = SignatureScheme(signature="header:SC-Signature")
    locators = Locators(
        event_id="body:eventId",
        type="body:eventName|body:eventType",
        object_id="body:vehicleId|body:data.vehicle.id|body:payload.vehicleId",
    )
    fingerprint = ("body",)
    profile = Profile(timeout_seconds=15.0)
    secret_is = "the application management token"
    retries_say = "3 or more"
    handshake_says = "the verify event: its challenge comes back as JSON, signed with the first secret"
    note = "Where an event of an older version has no eventId, the digest of the body stands for it."
    sample_type = "VEHICLE_STATE"
    sample = {
        "eventId": "",
        "eventName": "",
        "vehicleId": "",
        "data": {"signals": [{"code": "odometer-traveleddistance", "body": {"value": 31415, "unit": "km"}}]},
        "meta": {"version": "4.0", "webhookName": "harbour fleet"},
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if b'"challenge"' not in delivery.body:
            return None
        document = read_json(delivery.body)
        if (document.get("eventName") or document["eventType"]).lower() != "verify":
            return None
        challenge = (document.get("payload") or document["data"])["challenge"]
        if SMARTCAR_CHALLENGE.fullmatch(challenge) is None:
            return None
        made = hmac.digest(active(secrets, time.time())[0].value, challenge.encode(), "sha256").hex()
        return Answer(body=json.dumps({"challenge": made}).encode(), content_type="application/json")
