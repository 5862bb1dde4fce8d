"""Models, voices and agents."""

from __future__ import annotations

from typing import Any

from hookonce.providers.base import Profile
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators
from hookonce.schemes.signature import Pieces, SignatureScheme, Stamp
from hookonce.schemes.standard_webhooks import SVIX, WEBHOOK, StandardWebhooksScheme


class OpenAI(Known, id="openai", title="OpenAI"):
    """OpenAI: Standard Webhooks; a secret without whsec_ is the key as it stands."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,), key="prefixed")
    locators = Locators(
        event_id="header:webhook-id",
        type="body:type",
        object_id="body:data.id",
        event_time="body:created_at",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the endpoint's signing secret, whsec_..."
    retries_say = "for up to 72 hours, at growing intervals"
    sample_type = "response.completed"
    sample = {"id": "evt_tides", "object": "event", "created_at": 0, "type": "", "data": {"id": ""}}


class Anthropic(Known, id="anthropic", title="Anthropic"):
    """Anthropic: Standard Webhooks; what happened, and to what, stands in the data."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        type="body:data.type",
        object_id="body:data.id",
        event_time="body:created_at",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the endpoint's signing secret, whsec_..."
    retries_say = "not documented"
    sample_type = "session.completed"
    sample = {
        "type": "event",
        "id": "event_tides",
        "created_at": "2026-03-04T10:11:12Z",
        "data": {"type": "", "id": "", "workspace_id": "wrkspc_harbour"},
    }


class Replicate(Known, id="replicate", title="Replicate"):
    """Replicate: the body is a prediction, and its status is the type; order is not promised."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        type="body:status",
        object_id="body:id",
        event_time="body:completed_at|body:started_at|body:created_at",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the account's webhook signing secret, whsec_..."
    retries_say = "for about a minute, and only for predictions that have ended"
    sample_type = "succeeded"
    sample = {
        "id": "",
        "version": "8a1b2c3d4e5f60718293a4b5c6d7e8f9",
        "status": "",
        "input": {"prompt": "a harbour at low tide"},
        "output": ["https://files.example.com/tides.png"],
        "error": None,
        "created_at": "2026-03-04T10:11:02Z",
        "started_at": "2026-03-04T10:11:03Z",
        "completed_at": "2026-03-04T10:11:12Z",
    }

    @staticmethod
    def secret_problem(value: bytes) -> str | None:
        return None if value.startswith(b"whsec_") else 'does not start with "whsec_", as Replicate\'s secrets do'


class ElevenLabs(Known, id="elevenlabs", title="ElevenLabs"):
    """ElevenLabs: signatures are good for half an hour, and there is no event id."""

    scheme = SignatureScheme(
        signature="header:ElevenLabs-Signature",
        pieces=Pieces("v0"),
        signed="{ts}.{body}",
        stamp=Stamp("part:t", past=1_800.0),
    )
    locators = Locators(
        event_id=("body:data.conversation_id", "body:type", "body:event_timestamp"),
        type="body:type",
        object_id="body:data.conversation_id",
        event_time="body:event_timestamp",
    )
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook's shared secret"
    retries_say = "none; a webhook that keeps failing is disabled"
    note = (
        "there is no event id: conversation, type and time stand for it, or the digest of the body where there is no"
        " conversation. Events with audio are large: raise the limit of the body for them"
    )
    sample_type = "post_call_transcription"
    sample_id = None
    sample = {
        "type": "",
        "event_timestamp": 0,
        "data": {
            "agent_id": "agent_harbour",
            "conversation_id": "",
            "status": "done",
            "transcript": [{"role": "agent", "message": "The tide turns at six.", "time_in_call_secs": 4}],
        },
    }


RETELL_ONCE = frozenset({"call_started", "call_ended", "call_analyzed", "chat_started", "chat_ended", "chat_analyzed"})


def retell_id(document: Any) -> str | None:
    """call or chat, and event, for those that happen once"""  # noqa: D403, D415 - shown as it is, beside places
    event = document["event"]
    about = document["chat"]["chat_id"] if "chat" in document else document["call"]["call_id"]
    return f"{about}:{event}" if event in RETELL_ONCE and isinstance(about, str) and about else None


class Retell(Known, id="retell", title="Retell AI"):
    """Retell AI: the time follows the body in what is signed, and stands in the signature's header."""

    scheme = SignatureScheme(
        signature="header:X-Retell-Signature",
        pieces=Pieces("d"),
        signed="{body}{ts}",
        stamp=Stamp("part:v", "ms"),
    )
    locators = Locators(event_id=retell_id, type="body:event", object_id="body:call.call_id|body:chat.chat_id")
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the API key with the webhook badge"
    retries_say = "3"
    note = (
        "there is no event id: call and event stand for it where an event happens once in a call, and the digest of the body"
        " where it may happen again (transcripts, transfers)"
    )
    sample_type = "call_ended"
    sample_id = None
    sample = {
        "event": "",
        "call": {
            "call_id": "",
            "call_type": "phone_call",
            "agent_id": "agent_harbour",
            "call_status": "ended",
            "direction": "inbound",
            "end_timestamp": 1_772_619_072_000,
            "transcript": "Agent: The tide turns at six.",
        },
    }


class RecallAI(Known, id="recall_ai", title="Recall.ai", confidence="likely"):
    """Recall.ai: Standard Webhooks; older workspaces have Svix's headers instead."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK, SVIX))
    locators = Locators(
        event_id="header:webhook-id|header:svix-id",
        type="body:event|body:type",
        object_id="body:data.bot.id|body:data.bot_id|body:data.id",
        event_time="body:data.data.updated_at|body:timestamp",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the workspace's or the endpoint's signing secret, whsec_..."
    retries_say = "for 24 hours, at growing intervals"
    sample_type = "bot.done"
    sample = {
        "event": "",
        "data": {
            "data": {"code": "done", "sub_code": None, "updated_at": "2026-03-04T10:11:12Z"},
            "bot": {"id": "", "metadata": {"harbour": "Galway"}},
        },
    }


class Browserbase(Known, id="browserbase", title="Browserbase", confidence="likely"):
    """Browserbase: Standard Webhooks, under either of the two names of its headers."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK, SVIX))
    locators = Locators(
        event_id="header:webhook-id|header:svix-id",
        type="body:type",
        object_id="body:data.id",
        event_time="body:timestamp",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the endpoint's signing secret, whsec_..."
    retries_say = "after 5 s, 5 min, 30 min, 2, 5, 10 and 10 hours"
    note = "where type and object stand is taken from the shape that its family of senders has: confirm it"
    sample_type = "session.completed"
    sample = {"type": "", "timestamp": "2026-03-04T10:11:12Z", "data": {"id": "", "region": "eu-central-1"}}
