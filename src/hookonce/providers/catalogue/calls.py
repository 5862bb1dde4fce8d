"""Calls and texts."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, cast

from hookonce.errors import ConfigurationError
from hookonce.model import Answer, Delivery
from hookonce.providers.base import Profile, Secrets
from hookonce.providers.catalogue.phrases import DIGEST, DOCUMENTED
from hookonce.providers.documents import Json, form, form_or_json, segment
from hookonce.providers.handshakes import header_of
from hookonce.providers.known import Known
from hookonce.providers.locate import Document, Locators
from hookonce.schemes.base import Scheme
from hookonce.schemes.jwt import Bound, JwtScheme
from hookonce.schemes.plivo import VERSIONS, PlivoScheme, Version
from hookonce.schemes.signature import SignatureScheme, Stamp
from hookonce.schemes.sinch import NonceScheme, SinchServiceScheme
from hookonce.schemes.twilio import TwilioScheme


def _twilio_document(delivery: Delivery) -> Json:
    """The form or the JSON; of messages and calls with an id that their fields make up."""
    document = form_or_json(delivery)
    if not isinstance(document, dict):
        return document
    message = document.get("MessageSid") or document.get("SmsSid")
    status = document.get("MessageStatus") or document.get("SmsStatus")
    call, state, number = (document.get(name) for name in ("CallSid", "CallStatus", "SequenceNumber"))
    composed = f"{message}:{status}" if message and status else None
    if not message and call and state and number and "RecordingSid" not in document:
        composed = f"{call}:{state}:{number}"
    return {**document, "composed": composed}


def _twilio_type(document: Json) -> object:
    """What the request is about, and how it stands."""
    if isinstance(document, list):
        return "events"
    if "EventType" in document:
        return document["EventType"]
    for kind, names in TWILIO_STATES.items():
        state = next((document[name] for name in names if document.get(name)), None)
        if state is not None:
            return f"{kind}.{state}"
    return document.get("type", "request")


TWILIO_STATES = {
    "message": ("MessageStatus", "SmsStatus"),
    "recording": ("RecordingStatus",),
    "transcription": ("TranscriptionStatus",),
    "call": ("CallStatus",),
}


class Twilio(Known, id="twilio", title="Twilio"):
    """Twilio: forms whose fields are signed together with the address; JSON is signed by its hash in the query."""

    scheme = TwilioScheme()
    locators = Locators(
        event_id="header:I-Twilio-Idempotency-Token|body:composed",
        delivery_id="header:I-Twilio-Idempotency-Token",
        type=_twilio_type,
        object_id="body:MessageSid|body:SmsSid|body:RecordingSid|body:CallSid|body:ConversationSid|body:TaskSid",
        account="body:AccountSid",
    )
    fingerprint = ("body",)
    document: ClassVar[Document | None] = _twilio_document
    acknowledge = Answer(body=b"<Response/>", content_type="text/xml; charset=utf-8")
    profile = Profile(timeout_seconds=15.0)
    url_needed = True
    secret_is = "the auth token of the account, or the shared key"
    retries_say = "differs by product, and as the address asks for (#rc=...)"
    note = (
        "Without an idempotency token, the id is the message or the numbered call event and its status, and the digest of the "
        "body for anything else. A batch of Event Streams is one event. Answered with an empty <Response/>: no reply, and a "
        f"call that waits for instructions ends. {DOCUMENTED}"
    )
    sample_type = "message.delivered"
    sample = {
        "AccountSid": "AC5e1f0b7a9c3d4e2f8a6b7c8d9e0f1a2b",
        "ApiVersion": "2010-04-01",
        "From": "+35312345678",
        "MessageSid": "",
        "MessageStatus": "delivered",
        "To": "+353861234567",
    }
    sample_as = "form"


def _plivo_type(document: Json) -> object:
    if "MessageUUID" in document:
        return f"message.{document.get('Status', 'received')}"
    return f"call.{document.get('Event') or document['CallStatus']}"


class Plivo(Known, id="plivo", title="Plivo"):
    """Plivo: calls are signed with address, parameters and a nonce; for messages say `signature="v2"`."""

    scheme = PlivoScheme()
    locators = Locators(
        event_id=("body:MessageUUID", "body:Status"), type=_plivo_type, object_id="body:MessageUUID|body:CallUUID"
    )
    fingerprint = ("body",)
    document = form
    profile = Profile(horizon_days=1.0)
    url_needed = True
    secret_is = "the auth token of the account or subaccount"
    retries_say = "3"
    note = (
        'Where Plivo sends no third version of its signature, as for messages, say signature="v2": that one does not cover '
        f"the body. For calls and messages that come in, the digest of the body stands for an id. {DOCUMENTED}"
    )
    sample_type = "message.delivered"
    sample = {"From": "35312345678", "MessageUUID": "", "Status": "delivered", "To": "353861234567", "Units": "1"}
    sample_as = "form"

    _version: Version

    def __init__(self, secret: Secrets = None, *, signature: Version = "v3", **options: Any) -> None:
        if signature not in VERSIONS:
            raise ConfigurationError(f'plivo: signature is "v3" or "v2", not {signature!r}', code="HO101")
        object.__setattr__(self, "_version", signature)
        super().__init__(secret, **options)

    def _scheme(self, name: str, **given: Any) -> Scheme:
        return dataclasses.replace(cast("PlivoScheme", super()._scheme(name, **given)), version=self._version)


def with_claims(delivery: Delivery, header: bytes) -> Json:
    """The body, and beside it the claims of the verified token that came with it."""
    document = form_or_json(delivery)
    pieces = (header_of(delivery, header) or b"").rpartition(b" ")[2].split(b".")
    if len(pieces) != 3 or not isinstance(document, dict):
        raise ValueError("there are no claims, or nothing to put them beside")
    return {**document, "claims": segment(pieces[1])}


def _token_id(document: Json) -> object:
    return document["claims"]["jti"]


def _vonage_document(delivery: Delivery) -> Json:
    return with_claims(delivery, b"authorization")


class Vonage(Known, id="vonage", title="Vonage"):
    """Vonage: a token that names the hash of the body, which we compare; it has no end, so its id tells a replay."""

    scheme = JwtScheme(
        at="header:Authorization",
        prefix="Bearer",
        algorithms=("HS256",),
        bound=(Bound("payload_hash"),),
        requires=("iat",),
    )
    locators = Locators(
        event_id=_token_id,
        type="body:status|body:type|body:message_type",
        object_id="body:message_uuid|body:uuid|body:request_id",
        event_time="body:timestamp",
    )
    fingerprint = ("body",)
    document: ClassVar[Document | None] = _vonage_document
    profile = Profile(horizon_days=3.0, plain_ok=True)
    secret_is = "the signature secret of the account"
    retries_say = "for 24 hours"
    note = (
        "The id is the token's (jti); where a resent event comes with a new token, say another event_id. Only POST is taken: "
        f"set the method of the webhook to it. {DOCUMENTED}"
    )
    sample_type = "delivered"
    sample = {
        "message_uuid": "",
        "to": "353861234567",
        "from": "Harbour Lane",
        "timestamp": "2026-03-04T10:11:12Z",
        "status": "",
        "channel": "sms",
    }


def _messagebird_document(delivery: Delivery) -> Json:
    return with_claims(delivery, b"messagebird-signature-jwt")


class MessageBird(Known, id="messagebird", title="MessageBird (Bird)"):
    """MessageBird: a short-lived token that names the hashes of the body and of the address."""

    scheme = JwtScheme(
        at="header:MessageBird-Signature-JWT",
        algorithms=("HS256", "HS384", "HS512"),
        claims={"iss": "MessageBird"},
        bound=(Bound("payload_hash"), Bound("url_hash", of="url")),
        requires=("nbf", "exp"),
        leeway=5.0,
    )
    locators = Locators(
        event_id=_token_id, type="body:type|body:event|body:status", object_id="body:message.id|body:call.id|body:id"
    )
    fingerprint = ("body",)
    document: ClassVar[Document | None] = _messagebird_document
    profile = Profile()
    url_needed = True
    secret_is = "the signing key of the account, which is no API key"
    retries_say = "10 or more"
    note = (
        "The id is the token's (jti); where a resent event comes with a new token, say another event_id. Only POST is taken. "
        f"{DOCUMENTED}"
    )
    sample_type = "message.updated"
    sample = {
        "type": "",
        "message": {"id": "", "platform": "sms", "to": "353861234567", "direction": "sent", "status": "delivered"},
        "conversation": {"id": "5a3c8e0fb1d24c6f9a7e", "status": "active"},
    }


class Telnyx(Known, id="telnyx", title="Telnyx"):
    """Telnyx: signed with a key of which you have the public half, and tried on two addresses."""

    scheme = SignatureScheme(
        signature="header:telnyx-signature-ed25519",
        digest="ed25519",
        encoding="base64",
        signed="{ts}|{body}",
        stamp=Stamp("header:telnyx-timestamp"),
    )
    locators = Locators(
        event_id="body:data.id",
        type="body:data.event_type",
        object_id="body:data.payload.id|body:data.payload.call_control_id",
        event_time="body:data.occurred_at",
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=2.0)
    secret_is = "the public key of the account (base64)"
    retries_say = "3 for each address, then the failover address"
    sample_type = "message.finalized"
    sample = {
        "data": {
            "event_type": "",
            "id": "",
            "occurred_at": "2026-03-04T10:11:12.000+00:00",
            "payload": {
                "id": "",
                "direction": "outbound",
                "text": "High tide at nine",
                "to": [{"status": "delivered"}],
            },
            "record_type": "event",
        },
        "meta": {"attempt": 1, "delivered_to": "https://example.com/webhooks/telnyx"},
    }


def _sinch_type(document: Json) -> object:
    return next((name for name in SINCH_KINDS if name in document), None)


SINCH_KINDS = (
    "message_delivery_report",
    "message_inbound_smart_conversation_redaction",
    "message_redaction",
    "message_submit_notification",
    "message",
    "event_delivery_report",
    "event",
    "conversation_start_notification",
    "conversation_stop_notification",
    "conversation_delete_notification",
    "contact_create_notification",
    "contact_delete_notification",
    "contact_merge_notification",
    "contact_update_notification",
    "contact_identities_duplication_notification",
    "capability_notification",
    "opt_in_notification",
    "opt_out_notification",
    "channel_event_notification",
    "smart_conversation_notification",
    "record_notification",
    "unsupported_callback",
)


class SinchConversation(Known, id="sinch_conversation", title="Sinch Conversation"):
    """Sinch Conversation: body, nonce and time are signed; what it is about is the name of the field that is there."""

    scheme = NonceScheme(
        signature="header:x-sinch-webhook-signature",
        encoding="base64",
        signed="{body}.{header:x-sinch-webhook-signature-nonce}.{ts}",
        nonce="x-sinch-webhook-signature-nonce",
        stamp=Stamp("header:x-sinch-webhook-signature-timestamp", past=None),
    )
    locators = Locators(
        type=_sinch_type,
        object_id="body:message.id|body:message_delivery_report.message_id|body:event.id",
        event_time="body:event_time",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=3.0)
    secret_is = "the secret of the webhook"
    retries_say = "for 24 hours"
    note = DIGEST
    sample_type = "message"
    sample = {
        "app_id": "01HARBOURLANE000000000000",
        "accepted_time": "2026-03-04T10:11:12Z",
        "event_time": "2026-03-04T10:11:12Z",
        "project_id": "c36f3d3d-1513-4edd-ae42-11995557ff61",
        "message": {
            "id": "",
            "direction": "TO_APP",
            "contact_message": {"text_message": {"text": "When is the tide?"}},
        },
        "message_metadata": "",
    }


class SinchNumbers(Known, id="sinch_numbers", title="Sinch Numbers"):
    """Sinch Numbers: the body alone is signed, and its time has no zone."""

    scheme = SignatureScheme(signature="header:X-Sinch-Signature", digest="sha1")
    locators = Locators(
        event_id="body:eventId",
        type="body:eventType",
        object_id="body:resourceId",
        account="body:projectId",
        event_time="body:timestamp",
        time_unit="utc",
    )
    profile = Profile()
    secret_is = "the HMAC secret of the callback configuration"
    retries_say = "not documented"
    sample_type = "PROVISIONING_TO_VOICE_PLATFORM"
    sample = {
        "eventId": "",
        "timestamp": "2026-03-04T10:11:12.000000",
        "projectId": "c36f3d3d-1513-4edd-ae42-11995557ff61",
        "resourceId": "",
        "resourceType": "ACTIVE_NUMBER",
        "eventType": "",
        "status": "SUCCEEDED",
        "failureCode": None,
    }


class SinchService(Known, id="sinch_service", title="Sinch Voice and Verification"):
    """Sinch Voice and Verification: method, hash, type, time and path are signed; the answer tells the call how to go on."""

    scheme = SinchServiceScheme()
    locators = Locators(
        event_id=("body:id|body:callid|body:callId", "body:event", "body:timestamp|body:event"),
        type="body:event",
        object_id="body:id|body:callid|body:callId",
        event_time="body:timestamp",
    )
    fingerprint = ("body",)
    profile = Profile()
    secret_is = "the secret of the application or service (base64)"
    retries_say = "not documented"
    note = (
        "Sinch uses the answer: ours tells a call nothing, and Sinch goes on by its default. Say url where a proxy changes the "
        "path. What has no id is told by the digest of the body."
    )
    sample_type = "ace"
    sample = {"id": "", "event": "", "timestamp": "2026-03-04T10:11:12Z", "version": 1, "application": "harbour-lane"}
