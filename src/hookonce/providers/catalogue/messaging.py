"""Chat, support, feeds and rooms."""

from __future__ import annotations

import dataclasses
import hmac
import json
import re
from base64 import b64encode
from typing import Any, ClassVar, cast

from hookonce.errors import Reason, VerificationError
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import Profile, Secrets
from hookonce.providers.catalogue.phrases import DIGEST, DOCUMENTED
from hookonce.providers.documents import Json, JsonBatch, form_or_json, read_json
from hookonce.providers.handshakes import ECHO_MAX, echo, header_of, is_secret, json_answer, query_of
from hookonce.providers.known import Known
from hookonce.providers.locate import Document, Locators
from hookonce.schemes.base import Scheme
from hookonce.schemes.getstream import StreamScheme, inflated
from hookonce.schemes.jwt import Bound, JwtScheme
from hookonce.schemes.request import Request
from hookonce.schemes.signature import SignatureScheme, Stamp
from hookonce.schemes.token import TokenScheme


class Slack(Known, id="slack", title="Slack"):
    """Slack: events as JSON, commands and interactions as forms; `url_verification` is answered once it is signed."""

    scheme = SignatureScheme(
        signature="header:X-Slack-Signature",
        prefix="v0=",
        signed="v0:{ts}:{body}",
        stamp=Stamp("header:X-Slack-Request-Timestamp"),
    )
    locators = Locators(
        event_id="body:event_id|body:trigger_id",
        type="body:event.type|body:type|body:command",
        object_id="body:event.channel|body:channel.id|body:channel_id",
        account="body:team_id|body:team.id",
        event_time="body:event_time",
    )
    document = form_or_json
    profile = Profile(horizon_days=1.0, timeout_seconds=3.0, plain_ok=True)
    retries_say = "3: at once, after 1 minute, after 5 minutes"
    handshake_says = "url_verification: the signed challenge comes back as text"
    sample_type = "app_mention"
    sample = {
        "token": "unused",
        "team_id": "T0HARBOUR",
        "api_app_id": "A0TIDES",
        "event": {
            "type": "",
            "user": "U0MIRA",
            "text": "when is the tide?",
            "channel": "",
            "event_ts": "1755517523.000005",
        },
        "type": "event_callback",
        "event_id": "",
        "event_time": 0,
    }

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if b'"url_verification"' not in delivery.body:
            return None
        document = json.loads(delivery.body)
        return echo(document["challenge"]) if document["type"] == "url_verification" else None


def _discord_type(document: Json) -> object:
    return document["event"]["type"] if "event" in document else DISCORD_INTERACTIONS[document["type"]]


DISCORD_INTERACTIONS = {
    1: "ping",
    2: "application_command",
    3: "message_component",
    4: "application_command_autocomplete",
    5: "modal_submit",
}


class Discord(Known, id="discord", title="Discord"):
    """Discord: interactions and webhook events, signed with the application's key; each begins with a ping."""

    scheme = SignatureScheme(
        signature="header:X-Signature-Ed25519",
        digest="ed25519",
        signed="{ts}{body}",
        stamp=Stamp("header:X-Signature-Timestamp", past=None),
    )
    locators = Locators(
        event_id="body:id", type=_discord_type, object_id="body:data.id|body:event.data.id|body:event.data.user.id"
    )
    fingerprint = ("body",)
    acknowledge = Answer(status=204)
    profile = Profile(horizon_days=1.0, timeout_seconds=3.0)
    secret_is = "the public key of the application (hex)"
    retries_say = "events: several over 10 minutes, then they are disabled; interactions: none"
    handshake_says = "the signed ping: type 1 as JSON for interactions, 204 for events"
    note = (
        "Events have no id: the digest of the body stands for one. Interactions want an answer within 3 seconds that is made "
        "for them, which an inbox cannot give: whoever asked sees that it failed."
    )
    sample_type = "application_command"
    sample = {
        "application_id": "1100000000000000001",
        "id": "",
        "type": 2,
        "data": {"id": "", "name": "tide", "type": 1},
        "guild_id": "1100000000000000002",
        "member": {"user": {"id": "1100000000000000003", "username": "mira"}},
        "version": 1,
    }

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        document = json.loads(delivery.body)
        if document["type"] == 0:
            return Answer(status=204)
        return json_answer({"type": 1}) if document["type"] == 1 and "event" not in document else None


TELEGRAM_TOKEN = re.compile(rb"[A-Za-z0-9_-]{1,256}")


def _telegram_type(document: Json) -> object:
    return next((name for name in document if name != "update_id"), None)


class Telegram(Known, id="telegram", title="Telegram"):
    """Telegram: nothing is signed but a token that you chose; what an update is about is the name of its other field."""

    scheme = TokenScheme(at="header:X-Telegram-Bot-Api-Secret-Token")
    locators = Locators(
        event_id="body:update_id",
        type=_telegram_type,
        object_id=(
            "body:message.message_id|body:edited_message.message_id|body:channel_post.message_id|body:callback_query.id"
        ),
        event_time="body:message.date|body:edited_message.edit_date|body:channel_post.date",
    )
    profile = Profile(horizon_days=2.0)
    secret_is = "the secret_token that you gave to setWebhook"
    retries_say = "until it is answered, for a day"
    note = f"Nothing is signed: whoever knows the token can send anything. {DOCUMENTED}"
    sample_type = "message"
    sample_id = None
    sample = {
        "update_id": 700000001,
        "message": {
            "message_id": 17,
            "from": {"id": 5150731, "is_bot": False, "first_name": "Mira"},
            "chat": {"id": 5150731, "type": "private"},
            "date": 0,
            "text": "When is the tide?",
        },
    }

    @staticmethod
    def secret_problem(value: bytes) -> str | None:
        if TELEGRAM_TOKEN.fullmatch(value):
            return None
        return "is no secret token: those have 1 to 256 letters, digits, _ and - (the token of the bot is another one)"


def _meta_id(entry: Json) -> str | None:
    """Of all messages in the entry, and of what happened to them; None where something else is in it."""
    found = []
    for change in entry.get("changes", []):
        value = change["value"]
        messages, statuses = value.get("messages", []), value.get("statuses", [])
        if not messages and not statuses:
            return None
        found += [message["id"] for message in messages]
        found += [f"{status['id']}:{status['status']}" for status in statuses]
    for item in entry.get("messaging", []):
        deleted = ":deleted" if item["message"].get("is_deleted") else ""
        found.append(item["message"]["mid"] + deleted)
    return ":".join(found) or None


class WhatsAppMeta(
    Known, id="whatsapp_meta", title="WhatsApp, Messenger, Instagram, Facebook (Meta)", confidence="likely"
):
    """Meta: batches of entries for all its products; the address is probed with a token that you choose."""

    scheme = SignatureScheme(signature="header:X-Hub-Signature-256", prefix="sha256=")
    locators = Locators(
        event_id=_meta_id,
        type=("outer:object", "body:changes.0.field"),
        object_id="body:id",
        event_time=(
            "body:changes.0.value.messages.0.timestamp|body:changes.0.value.statuses.0.timestamp|body:messaging.0.timestamp"
            "|body:time"
        ),
        time_unit="s",
    )
    fingerprint = ("body",)
    split = JsonBatch("entry")
    profile = Profile(horizon_days=7.0, timeout_seconds=20.0, plain_ok=True)
    secret_is = "the app secret; verify_token, if the address is to be confirmed"
    retries_say = "at growing intervals for 36 hours, 7 days for WhatsApp"
    handshake_says = "GET with hub.verify_token: the challenge comes back as text"
    note = (
        "Without a message, the digest of the entry stands for an id. Requests may have 3 MB: raise the limit of bodies where "
        "batches are large."
    )
    sample_type = "whatsapp_business_account.messages"
    sample = {
        "object": "whatsapp_business_account",
        "entry": [
            {
                "id": "",
                "changes": [
                    {
                        "value": {
                            "messaging_product": "whatsapp",
                            "metadata": {"display_phone_number": "35312345678", "phone_number_id": "1100000000000001"},
                            "messages": [
                                {
                                    "from": "353861234567",
                                    "id": "wamid.SGFyYm91ckxhbmVUaWRlcw==",
                                    "timestamp": "0",
                                    "type": "text",
                                    "text": {"body": "When is the tide?"},
                                }
                            ],
                        },
                        "field": "",
                    }
                ],
            }
        ],
    }

    _verify_token: str | None

    def __init__(self, secret: Secrets = None, *, verify_token: str | None = None, **options: Any) -> None:
        object.__setattr__(self, "_verify_token", verify_token)
        super().__init__(secret, **options)

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if delivery.method != "GET" or not self._verify_token:
            return None
        asked = query_of(delivery)
        right = hmac.compare_digest(asked[b"hub.verify_token"], self._verify_token.encode())
        return echo(asked[b"hub.challenge"].decode()) if right and asked[b"hub.mode"] == b"subscribe" else None


class Line(Known, id="line", title="LINE"):
    """LINE: batches of events, none of them when the address is tried."""

    scheme = SignatureScheme(signature="header:X-Line-Signature", encoding="base64")
    locators = Locators(
        event_id="body:webhookEventId",
        type="body:type",
        object_id="body:message.id|body:source.userId",
        account="outer:destination",
        event_time="body:timestamp",
        time_unit="ms",
    )
    split = JsonBatch("events")
    profile = Profile(timeout_seconds=1.0, plain_ok=True)
    secret_is = "the channel secret"
    retries_say = "several, if redelivery is switched on for the channel"
    sample_type = "message"
    sample = {
        "destination": "U0000000000000000000000000000tide",
        "events": [
            {
                "type": "",
                "message": {"type": "text", "id": "", "text": "When is the tide?"},
                "webhookEventId": "",
                "deliveryContext": {"isRedelivery": False},
                "timestamp": 0,
                "source": {"type": "user", "userId": "U0000000000000000000000000000mira"},
                "mode": "active",
            }
        ],
    }


class Viber(Known, id="viber", title="Viber"):
    """Viber: the signature is in a header, or in the address as `sig`; one token stands for all that befalls a message."""

    scheme = SignatureScheme(signature=("header:X-Viber-Content-Signature", "query:sig"))
    locators = Locators(
        event_id=("body:message_token", "body:event", "body:user_id|body:sender.id|body:user.id|body:event"),
        type="body:event",
        object_id="body:message_token",
        event_time="body:timestamp",
        time_unit="ms",
    )
    fingerprint = ("body",)
    profile = Profile(plain_ok=True)
    secret_is = "the auth token of the bot"
    retries_say = "repeated, how often is not documented"
    handshake_says = "the signed event webhook: 200"
    sample_type = "delivered"
    sample_id = None
    sample = {"event": "", "timestamp": 0, "message_token": 5741311803571721087, "user_id": "mJ9xQ2vT5sW8zY1cN4bL7g=="}

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        return Answer() if json.loads(delivery.body)["event"] == "webhook" else None


class Intercom(Known, id="intercom", title="Intercom"):
    """Intercom: tries once more after a minute, and asks with HEAD whether anybody is there."""

    scheme = SignatureScheme(signature="header:X-Hub-Signature", prefix="sha1=", digest="sha1")
    locators = Locators(
        event_id="body:id",
        type="body:topic",
        object_id="body:data.item.id",
        account="body:app_id",
        event_time="body:created_at",
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=5.0)
    secret_is = "the client secret of the app"
    retries_say = "1, after a minute; paused after 1,000 errors in a row, suspended after 7 days"
    handshake_says = "HEAD: 200"
    note = DOCUMENTED
    sample_type = "conversation.user.created"
    sample = {
        "type": "notification_event",
        "app_id": "hbrlane1",
        "data": {"type": "notification_event_data", "item": {"type": "conversation", "id": "", "state": "open"}},
        "id": "",
        "topic": "",
        "delivery_status": "pending",
        "delivery_attempts": 1,
        "first_sent_at": 1755517523,
        "created_at": 0,
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        return Answer() if delivery.method == "HEAD" else None


class Front(Known, id="front", title="Front", confidence="likely"):
    """Front: milliseconds and body are signed, and a challenge in a header comes back once that is checked."""

    scheme = SignatureScheme(
        signature="header:X-Front-Signature",
        encoding="base64",
        signed="{ts}:{body}",
        stamp=Stamp("header:X-Front-Request-Timestamp", "ms"),
    )
    locators = Locators(
        event_id="body:payload.id",
        type="body:type",
        object_id="body:payload.conversation.id",
        account="body:authorization.id",
        event_time="body:payload.emitted_at",
    )
    profile = Profile(timeout_seconds=5.0)
    secret_is = "the signing key of the app"
    retries_say = "several"
    handshake_says = "the header x-front-challenge of a signed request: it comes back as text"
    sample_type = "inbound_received"
    sample = {
        "type": "",
        "authorization": {"id": "cmp_hbr1"},
        "payload": {
            "id": "",
            "type": "inbound",
            "emitted_at": 0,
            "conversation": {"id": "", "subject": "The tide table", "status": "unassigned"},
        },
    }

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        challenge = header_of(delivery, b"x-front-challenge")
        return None if challenge is None else echo(challenge.decode("ascii"))


def _stream_document(delivery: Delivery) -> Json:
    return read_json(inflated(delivery))


class StreamChat(Known, id="getstream_chat", title="Stream (chat and video)"):
    """Stream: bodies may come compressed, and the signature is over what they were before."""

    scheme = StreamScheme()
    locators = Locators(
        event_id="header:X-Webhook-Id",
        type="body:type",
        object_id="body:message.id|body:call_cid|body:cid",
        event_time="body:created_at",
    )
    document: ClassVar[Document | None] = _stream_document
    profile = Profile(horizon_days=1.0, timeout_seconds=6.0, content_encodings=("gzip",))
    secret_is = "the API secret of the app"
    retries_say = "5"
    note = "A compressed body is kept as it came: a handler inflates it where content-encoding says gzip."
    sample_type = "message.new"
    sample = {
        "type": "",
        "cid": "messaging:harbour",
        "channel_type": "messaging",
        "channel_id": "harbour",
        "message": {"id": "", "text": "The tide is late", "user": {"id": "mira"}},
        "created_at": "2026-03-04T10:11:12.000000000Z",
    }


class Zoom(Known, id="zoom", title="Zoom", confidence="likely"):
    """Zoom: the address is confirmed when it is set and every three days, with a hash that only you can make."""

    scheme = SignatureScheme(
        signature="header:x-zm-signature",
        prefix="v0=",
        signed="v0:{ts}:{body}",
        stamp=Stamp("header:x-zm-request-timestamp", past=None),
    )
    locators = Locators(
        type="body:event",
        object_id="body:payload.object.uuid|body:payload.object.id",
        account="body:payload.account_id",
        event_time="body:event_ts",
        time_unit="ms",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=1.0, timeout_seconds=3.0, plain_ok=True)
    secret_is = "the secret token of the app"
    retries_say = "3, after 5, 20 and 60 minutes"
    handshake_says = "the signed endpoint.url_validation: plainToken and its HMAC as JSON"
    note = DIGEST
    sample_type = "meeting.started"
    sample = {
        "event": "",
        "event_ts": 0,
        "payload": {
            "account_id": "hbrLaneAcct1",
            "object": {"uuid": "", "id": "91234567890", "topic": "Tides of the week", "type": 2, "duration": 30},
        },
    }

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if b'"endpoint.url_validation"' not in delivery.body:
            return None
        document = json.loads(delivery.body)
        plain = document["payload"]["plainToken"]
        if document["event"] != "endpoint.url_validation" or len(plain) > ECHO_MAX:
            return None
        secret = next((one for one in secrets if self._made_with(one, delivery)), secrets[0])
        encrypted = hmac.new(secret.value, plain.encode(), "sha256").hexdigest()
        return json_answer({"plainToken": plain, "encryptedToken": encrypted})

    @staticmethod
    def _made_with(secret: Secret, delivery: Delivery) -> bool:
        """Which of several secrets Zoom uses: it expects the answer to be made with the same."""
        timestamp = header_of(delivery, b"x-zm-request-timestamp") or b""
        made = hmac.new(secret.value, b"v0:" + timestamp + b":" + delivery.body, "sha256").hexdigest()
        return hmac.compare_digest(f"v0={made}".encode(), header_of(delivery, b"x-zm-signature") or b"")


class Webex(Known, id="webex", title="Webex", confidence="likely"):
    """Webex: signed with SHA-1; the id in the body is the webhook's, not the event's."""

    scheme = SignatureScheme(signature="header:X-Spark-Signature", digest="sha1")
    locators = Locators(
        type=("body:resource", "body:event"),
        object_id="body:data.id",
        account="body:orgId",
        event_time="body:data.created",
    )
    fingerprint = ("body",)
    profile = Profile(timeout_seconds=15.0)
    secret_is = "the secret of the webhook"
    retries_say = "not documented; disabled after 100 failures within 5 minutes"
    note = DIGEST
    sample_type = "messages.created"
    sample = {
        "id": "Y2lzY29zcGFyazovL3VzL1dFQkhPT0svaGFyYm91cg",
        "name": "messages of the harbour",
        "resource": "",
        "event": "",
        "orgId": "Y2lzY29zcGFyazovL3VzL09SR0FOSVpBVElPTi9sYW5l",
        "actorId": "Y2lzY29zcGFyazovL3VzL1BFT1BMRS9taXJh",
        "created": "2026-01-02T03:04:05.000Z",
        "data": {"id": "", "roomId": "Y2lzY29zcGFyazovL3VzL1JPT00vdGlkZXM", "created": "2026-03-04T10:11:12.000Z"},
    }


class MicrosoftTeams(Known, id="microsoft_teams", title="Microsoft Teams outgoing webhook", confidence="likely"):
    """Microsoft Teams: the answer is what the chat shows; say `answer` for another text."""

    scheme = SignatureScheme(signature="header:Authorization", prefix="HMAC ", encoding="base64", key="base64")
    locators = Locators(
        event_id="body:id", type="body:type", object_id="body:conversation.id", event_time="body:timestamp"
    )
    profile = Profile(retries=False, horizon_days=1.0, timeout_seconds=5.0)
    secret_is = "the security token of the webhook (base64)"
    retries_say = "none"
    sample_type = "message"
    sample = {
        "type": "",
        "id": "",
        "timestamp": "2026-03-04T10:11:12.000Z",
        "serviceUrl": "https://example.com/teams/",
        "channelId": "msteams",
        "from": {"id": "29:mira", "name": "Mira Castellan"},
        "conversation": {"id": ""},
        "text": "<at>Tides</at> when?",
    }

    def __init__(self, secret: Secrets = None, *, answer: str = "Received.", **options: Any) -> None:
        object.__setattr__(self, "acknowledge", json_answer({"type": "message", "text": answer}))
        super().__init__(secret, **options)


class RingCentral(Known, id="ringcentral", title="RingCentral", confidence="likely"):
    """RingCentral: nothing is signed but a token that you chose; the address is confirmed by a header that comes back."""

    scheme = TokenScheme(at="header:Verification-Token")
    locators = Locators(
        event_id="body:uuid",
        type="body:event",
        object_id="body:body.id|body:body.telephonySessionId|body:body.extensionId|body:subscriptionId",
        account="body:ownerId",
        event_time="body:timestamp",
    )
    profile = Profile(timeout_seconds=3.0, plain_ok=True)
    secret_is = "the verificationToken of the subscription"
    retries_say = "several, then the address is blacklisted"
    handshake_says = "Validation-Token in a request without an event: it comes back in a header"
    note = "Nothing is signed: whoever knows the token can send anything."
    sample_type = "/restapi/v1.0/account/~/extension/~/message-store"
    sample = {
        "uuid": "",
        "event": "",
        "timestamp": "2026-03-04T10:11:12.000Z",
        "subscriptionId": "7a3c8e0f-b1d2-4c6f-9a7e-5b4d3c2b1a09",
        "ownerId": "400131421008",
        "body": {"id": "", "changes": [{"type": "SMS", "newCount": 1, "updatedCount": 0}]},
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        token = header_of(delivery, b"validation-token")
        if token is None or not RINGCENTRAL_TOKEN.fullmatch(token) or b'"event"' in delivery.body:
            return None
        # Whether our token comes with the question is not documented; a wrong one is no reason to answer.
        shown = header_of(delivery, b"verification-token")
        if shown is not None and not is_secret(shown, secrets):
            return None
        return Answer(headers=((b"validation-token", token),))


RINGCENTRAL_TOKEN = re.compile(rb"[A-Za-z0-9._~+/=-]{1,256}")


class LiveKit(Known, id="livekit", title="LiveKit"):
    """LiveKit: a token that holds the hash of the body; say `api_key` to take it from that key only."""

    scheme = JwtScheme(
        at="header:Authorization", algorithms=("HS256",), bound=(Bound("sha256", "base64"),), requires=("exp",)
    )
    locators = Locators(
        event_id="body:id",
        type="body:event",
        object_id="body:room.sid|body:egressInfo.egressId|body:ingressInfo.ingressId",
        event_time="body:createdAt",
        time_unit="s",
    )
    profile = Profile()
    secret_is = "the API secret"
    retries_say = "several"
    sample_type = "room_started"
    sample = {
        "event": "",
        "room": {"sid": "", "name": "harbour", "emptyTimeout": 300, "creationTime": "1755517523"},
        "id": "",
        "createdAt": "0",
    }

    _api_key: str | None

    def __init__(self, secret: Secrets = None, *, api_key: str | None = None, **options: Any) -> None:
        object.__setattr__(self, "_api_key", api_key)
        super().__init__(secret, **options)

    def _scheme(self, name: str, **given: Any) -> Scheme:
        scheme = cast("JwtScheme", super()._scheme(name, **given))
        return scheme if self._api_key is None else dataclasses.replace(scheme, claims={"iss": self._api_key})


def _twitch_type(document: Json) -> object:
    return document["subscription"]["type"] if "event" in document or "events" in document else "revocation"


class TwitchEventSub(Known, id="twitch_eventsub", title="Twitch EventSub"):
    """Twitch: id, time and body are signed; a subscription begins with a signed challenge."""

    scheme = SignatureScheme(
        signature="header:Twitch-Eventsub-Message-Signature",
        prefix="sha256=",
        signed="{header:Twitch-Eventsub-Message-Id}{ts}{body}",
        stamp=Stamp("header:Twitch-Eventsub-Message-Timestamp", "iso", past=600.0),
    )
    locators = Locators(
        event_id="header:Twitch-Eventsub-Message-Id",
        delivery_id="header:Twitch-Eventsub-Message-Id",
        type=_twitch_type,
        object_id="body:event.broadcaster_user_id|body:event.user_id|body:subscription.id",
        event_time="header:Twitch-Eventsub-Message-Timestamp",
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=5.0)
    secret_is = "the secret of the subscription, 10 to 100 characters"
    retries_say = "repeated; the subscription is revoked after failures"
    handshake_says = "the signed webhook_callback_verification: the challenge comes back as text"
    sample_type = "channel.follow"
    sample = {
        "subscription": {
            "id": "5b4d3c2b-1a09-4c6f-9a7e-7a3c8e0fb1d2",
            "type": "channel.follow",
            "version": "2",
            "status": "enabled",
            "condition": {"broadcaster_user_id": "1337001"},
            "created_at": "2026-01-02T03:04:05.000000000Z",
        },
        "event": {
            "user_id": "1337002",
            "user_login": "mira",
            "broadcaster_user_id": "",
            "broadcaster_user_login": "harbour",
        },
    }

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        # The header that says what kind of message it is is not signed: the body decides.
        document = json.loads(delivery.body)
        return None if "event" in document else echo(document["challenge"])


X_FEEDS = ("tweet_create_events", "direct_message_events", "favorite_events")
X_TOKEN = re.compile(rb"[A-Za-z0-9._~+/=-]{1,256}")


def _x_type(document: Json) -> object:
    """The list that is there, beside whose it is and who is named in it."""
    return next((name for name in document if name.endswith(("_events", "_event"))), next(iter(document), None))


def _x_id(document: Json) -> str | None:
    """Of posts, messages and likes that have ids; for whom it is told counts, too."""
    kind = _x_type(document)
    if kind not in X_FEEDS:
        return None
    items = [str(item.get("id_str") or item["id"]) for item in document[kind]]
    return ":".join([document["for_user_id"], str(kind), *items]) if items else None


def _x_signed(request: Request, timestamp: bytes) -> bytes:
    """{body}, which has to be a JSON object: anybody can ask us to sign the text of a challenge."""
    del timestamp
    if not request.body.startswith(b"{"):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "the body is no JSON object")
    return request.body


class XTwitter(Known, id="x_twitter", title="X (Twitter)"):
    """X: the address is tried about every hour, with a text that has to come back signed."""

    scheme = SignatureScheme(
        signature="header:x-twitter-webhooks-signature", prefix="sha256=", encoding="base64", signed=_x_signed
    )
    locators = Locators(event_id=_x_id, type=_x_type, account="body:for_user_id")
    fingerprint = ("body",)
    profile = Profile(timeout_seconds=3.0, plain_ok=True)
    secret_is = "the consumer secret of the app; with several, the first one answers challenges"
    retries_say = "few; enterprise accounts can have events replayed"
    handshake_says = "GET with crc_token: its HMAC as JSON"
    note = "What has no id of its own is told by the digest of the body."
    sample_type = "tweet_create_events"
    sample = {
        "for_user_id": "1337001",
        "tweet_create_events": [
            {
                "created_at": "Wed Mar 04 10:11:12 +0000 2026",
                "id_str": "1900000000000000001",
                "text": "The evening tide is late",
                "user": {"id_str": "1337002", "screen_name": "mira"},
            }
        ],
    }

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        if delivery.method != "GET":
            return None
        token = query_of(delivery)[b"crc_token"]
        # Whatever could be the body of an event is not signed for anybody.
        if not X_TOKEN.fullmatch(token):
            return None
        digest = hmac.digest(secrets[0].value, token, "sha256")
        return json_answer({"response_token": f"sha256={b64encode(digest).decode()}"})
