"""Code, builds, deployments and incidents."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from hookonce.model import Delivery
from hookonce.providers.base import Profile, Secrets
from hookonce.providers.documents import JsonBatch, form_or_json, read_json
from hookonce.providers.known import Known
from hookonce.providers.locate import Locators
from hookonce.schemes.canonical import body_or_canonical
from hookonce.schemes.connect import ConnectScheme
from hookonce.schemes.jwt import Bound, JwtScheme
from hookonce.schemes.pusher import StampedBodyScheme
from hookonce.schemes.signature import Pieces, SignatureScheme, Stamp
from hookonce.schemes.standard_webhooks import WEBHOOK, StandardWebhooksScheme
from hookonce.schemes.token import TokenScheme

GITLAB = Locators(
    delivery_id="header:X-Gitlab-Event-UUID",
    type=("body:object_kind|body:event_name|header:X-Gitlab-Event", "body:object_attributes.action"),
    # Issues and merge requests are numbered apart: what kind of object it is belongs to its id.
    object_id=("body:object_kind", "body:object_attributes.id|body:project_id"),
    account="body:project.path_with_namespace",
    event_time="body:object_attributes.updated_at",
    version="body:object_attributes.updated_at",
)
GITLAB_SAMPLE = {
    "object_kind": "",
    "event_type": "merge_request",
    "user": {"id": 51, "name": "Mira Castellan", "username": "mira-castellan"},
    "project": {"id": 481, "name": "tides", "path_with_namespace": "harbour-lane/tides"},
    "object_attributes": {
        "id": 93,
        "iid": 16,
        "title": "Count the boats before the tide turns",
        "state": "opened",
        "action": "",
        "updated_at": "2026-03-04T10:11:12Z",
    },
}

BUILDKITE = Locators(
    event_id="header:X-Buildkite-Request",
    delivery_id="header:X-Buildkite-Request",
    type="body:event|header:X-Buildkite-Event",
    object_id="body:job.id|body:build.id|body:agent.id",
)
BUILDKITE_SAMPLE = {
    "event": "",
    "build": {
        "id": "f62a1b4d-10f9-4790-bc1c-e2c3a0c80983",
        "number": 27,
        "state": "passed",
        "branch": "main",
        "finished_at": "2026-03-04 10:11:12 UTC",
    },
    "pipeline": {"id": "849411f9-9e6d-4739-a0d8-e247088e9b52", "slug": "tides"},
    "sender": {"id": "3d3c3bf0-7d58-4afe-8fe7-b3017d5504de", "name": "Mira Castellan"},
}

JIRA = Locators(
    event_id="header:X-Atlassian-Webhook-Identifier",
    delivery_id="header:X-Atlassian-Webhook-Identifier",
    type="body:webhookEvent|body:event",
    object_id="body:issue.id",
    event_time="body:timestamp",
    time_unit="ms",
)
JIRA_SAMPLE = {
    "timestamp": 0,
    "webhookEvent": "",
    "issue_event_type_name": "issue_updated",
    "user": {"accountId": "99:27935d01-92a7-4687-8272-a9b8d3b2ae2e", "displayName": "Mira Castellan"},
    "issue": {"id": "", "key": "TIDE-16", "fields": {"summary": "The evening tide is missing"}},
    "changelog": {"id": "10125", "items": [{"field": "status", "toString": "Done"}]},
}


def without_environment(key: bytes) -> bytes:
    """An Inngest signing key as it is used: without signkey- and the name of its environment."""
    return re.sub(rb"^signkey-\w+-", b"", key)


class GitHub(Known, id="github", title="GitHub"):
    """GitHub: the id is in a header that nobody signs, and a delivery that fails is not sent again by itself."""

    scheme = SignatureScheme(signature="header:X-Hub-Signature-256", prefix="sha256=")
    locators = Locators(
        event_id="header:X-GitHub-Delivery",
        delivery_id="header:X-GitHub-Delivery",
        type=("header:X-GitHub-Event", "body:action"),
    )
    profile = Profile(retries=False, horizon_days=3.0, timeout_seconds=10.0)
    retries_say = "none; deliveries of the last 3 days can be sent again by hand, under the same id"
    sample_type = "push"


class Linear(Known, id="linear", title="Linear"):
    """Linear: the time that counts is in the body; the header that repeats it is not signed."""

    scheme = SignatureScheme(
        signature="header:Linear-Signature", stamp=Stamp("body:webhookTimestamp", "ms", past=60.0, future=60.0)
    )
    locators = Locators(
        event_id="header:Linear-Delivery",
        delivery_id="header:Linear-Delivery",
        type=("body:type", "body:action"),
        object_id="body:data.id",
        event_time="body:webhookTimestamp",
        time_unit="ms",
        version="body:data.updatedAt",
    )
    profile = Profile(horizon_days=1.0, timeout_seconds=5.0)
    retries_say = "3, after 1 minute, 1 hour and 6 hours; then the webhook may be disabled"
    sample_type = "Issue.update"
    sample = {
        "action": "update",
        "type": "Issue",
        "createdAt": "2026-03-04T10:11:12.000Z",
        "data": {"id": "", "title": "The evening tide is missing", "updatedAt": "2026-03-04T10:11:12.000Z"},
        "organizationId": "6f0f4b1e-0d5e-4d53-9d52-2f8f3a2c1b77",
    }


class GitLabSigned(Known, id="gitlab_signing_token", title="GitLab (signing token)"):
    """GitLab with a signing token: Standard Webhooks, so that id and body are both signed."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    # The id is signed in this header only; Idempotency-Key, which nobody signs, has the same value.
    locators = dataclasses.replace(GITLAB, event_id="header:webhook-id")
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook's signing token, whsec_..."
    retries_say = (
        "few or none; a hook that keeps failing is switched off for growing periods; events can be sent again by hand"
    )
    note = "where an id or a type stands is taken from documentation"
    sample_type = "merge_request.open"
    sample = GITLAB_SAMPLE


class GitLabToken(Known, id="gitlab_token", title="GitLab (secret token)"):
    """GitLab with a secret token, which it shows with every request instead of signing."""

    scheme = TokenScheme(at="header:X-Gitlab-Token")
    locators = dataclasses.replace(GITLAB, event_id="header:Idempotency-Key|header:webhook-id")
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook's secret token"
    retries_say = (
        "few or none; a hook that keeps failing is switched off for growing periods; events can be sent again by hand"
    )
    note = (
        "the body is not covered: whoever knows the token can send anything; prefer a signing token. Older GitLab sends no id:"
        ' say fingerprint=["body"] there. Where an id or a type stands is taken from documentation'
    )
    sample_type = "merge_request.open"
    sample = GITLAB_SAMPLE


class BitbucketCloud(Known, id="bitbucket_cloud", title="Bitbucket Cloud", confidence="likely"):
    """Bitbucket Cloud: what happened and which request this is stand in headers that nobody signs."""

    scheme = SignatureScheme(signature="header:X-Hub-Signature", prefix="sha256=")
    locators = Locators(
        event_id="header:X-Request-UUID",
        delivery_id="header:X-Request-UUID",
        type="header:X-Event-Key",
        object_id="body:repository.uuid",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook's secret"
    retries_say = "2 more attempts after a 5xx answer or none at all"
    note = "a request that is sent again by hand may have a new id: its body tells that it is the same"
    sample_type = "repo:push"
    sample = {
        "actor": {"display_name": "Mira Castellan", "type": "user", "uuid": "{5c1f0b0e-93f5-4f0f-8b1e-0a6d5a0c7b11}"},
        "repository": {"full_name": "harbour-lane/tides", "type": "repository", "uuid": ""},
        "push": {"changes": [{"created": False, "closed": False, "new": {"type": "branch", "name": "slower-tides"}}]},
    }


class Gitea(Known, id="gitea", title="Gitea and Forgejo"):
    """Gitea and Forgejo: the digest stands bare in X-Gitea-Signature, beside the same one in other spellings."""

    scheme = SignatureScheme(signature="header:X-Gitea-Signature")
    locators = Locators(
        event_id="header:X-Gitea-Delivery",
        delivery_id="header:X-Gitea-Delivery",
        type=("header:X-Gitea-Event", "body:action"),
        account="body:repository.full_name",
    )
    document = form_or_json
    profile = Profile(retries=False, horizon_days=30.0, timeout_seconds=5.0)
    secret_is = "the webhook's secret"
    retries_say = "none; a delivery can be sent again on the hook's page"
    note = (
        "a delivery sent again by hand has a new id: the same body under it is kept as a suspected replay, and not run"
    )
    sample_type = "pull_request.opened"
    sample = {
        "action": "",
        "number": 12,
        "pull_request": {"id": 481, "title": "Slower tides", "state": "open", "updated_at": "2026-03-04T10:11:12Z"},
        "repository": {"id": 7, "full_name": "harbour-lane/tides"},
        "sender": {"id": 3, "login": "mira-castellan"},
    }


class Buildkite(Known, id="buildkite", title="Buildkite (signature)"):
    """Buildkite with a signature: its time is in the same header."""

    scheme = SignatureScheme(
        signature="header:X-Buildkite-Signature",
        pieces=Pieces("signature"),
        signed="{ts}.{body}",
        stamp=Stamp("part:timestamp"),
    )
    locators = BUILDKITE
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the notification service's token"
    retries_say = "not documented; requests can be seen in the service's log"
    sample_type = "build.finished"
    sample = BUILDKITE_SAMPLE


class BuildkiteToken(Known, id="buildkite_token", title="Buildkite (token)"):
    """Buildkite with a token, which it shows with every request instead of signing."""

    scheme = TokenScheme(at="header:X-Buildkite-Token")
    locators = BUILDKITE
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the notification service's token"
    retries_say = "not documented; requests can be seen in the service's log"
    note = "the body is not covered: choose the signature instead of the token where you can"
    sample_type = "build.finished"
    sample = BUILDKITE_SAMPLE


class CircleCI(Known, id="circleci", title="CircleCI"):
    """CircleCI: a list of versioned signatures, of which v1 is the only one known."""

    scheme = SignatureScheme(signature="header:circleci-signature", prefix="v1=", separator=",")
    locators = Locators(
        event_id="body:id",
        type="body:type",
        object_id="body:job.id|body:workflow.id",
        event_time="body:happened_at",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook's secret token"
    retries_say = "some time later, no schedule is published; the same event can come twice"
    sample_type = "workflow-completed"
    sample = {
        "id": "",
        "type": "",
        "happened_at": "2026-03-04T10:11:12Z",
        "webhook": {"id": "cf8c4fdd-0587-4da1-b4ca-4846e9640af9", "name": "Tides"},
        "project": {"id": "84996744-a854-4f5e-aea3-04e2851dc1d2", "name": "tides", "slug": "gh/harbour-lane/tides"},
        "workflow": {"id": "fda08377-fe7e-46b1-8992-3a7aaecac9c3", "name": "build", "status": "success"},
        "pipeline": {"id": "1285fe1d-d3a6-44fc-8886-8979558254c4", "number": 130},
    }


class Vercel(Known, id="vercel", title="Vercel", confidence="likely"):
    """Vercel: HMAC-SHA1 over the body."""

    scheme = SignatureScheme(signature="header:x-vercel-signature", digest="sha1")
    locators = Locators(
        event_id="body:id",
        type="body:type",
        object_id="body:payload.deployment.id",
        account="body:payload.team.id",
        event_time="body:createdAt",
        time_unit="ms",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=30.0)
    secret_is = "the webhook's secret, or the integration's client secret"
    retries_say = "for 24 hours, at growing intervals"
    sample_type = "deployment.succeeded"
    sample = {
        "id": "",
        "type": "",
        "createdAt": 0,
        "payload": {
            "team": {"id": "team_harbourlane"},
            "deployment": {"id": "", "name": "tides", "url": "tides-k3x9.vercel.example"},
            "project": {"id": "prj_tides"},
            "target": "production",
        },
    }


class Netlify(Known, id="netlify", title="Netlify", confidence="likely"):
    """Netlify: a JSON web token in a header holds a hash of the body."""

    scheme = JwtScheme(
        at="header:X-Webhook-Signature",
        algorithms=("HS256",),
        claims={"iss": "netlify"},
        bound=(Bound("sha256"),),
    )
    locators = Locators(
        event_id=("body:id", "body:state|body:form_id", "body:updated_at|body:created_at"),
        type="header:X-Netlify-Event",
        object_id="body:id",
        event_time="body:updated_at|body:created_at",
    )
    fingerprint = ("body",)
    document = form_or_json
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the notification's JWS secret token"
    retries_say = "a few, then the notification is disabled"
    note = (
        "there is no event id: deploy, state and time stand for it, or the digest of the body where those are not there"
    )
    sample_type = "deploy_created"
    sample_id = None
    sample = {
        "id": "",
        "site_id": "0d3a9d2f-ef94-4380-93df-27ee400e2048",
        "name": "tides",
        "state": "ready",
        "branch": "main",
        "commit_ref": "9f2c4f8a9d3c6a5b1e7d0c2b4a6f8e1d3c5b7a90",
        "created_at": "2026-03-04T10:10:02.111Z",
        "updated_at": "2026-03-04T10:11:12.345Z",
    }


class Heroku(Known, id="heroku", title="Heroku", confidence="likely"):
    """Heroku: HMAC-SHA256 in base64; only webhooks of the level "sync" are sent again."""

    scheme = SignatureScheme(signature="header:Heroku-Webhook-Hmac-SHA256", encoding="base64")
    locators = Locators(
        event_id="body:id",
        delivery_id="body:webhook_metadata.delivery.id",
        type=("body:resource", "body:action"),
        object_id="body:data.id",
        event_time="body:created_at",
        version="body:sequence",
        api_version="body:version",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook's secret"
    retries_say = 'level "sync": at growing intervals for up to 72 hours; level "notify": none'
    sample_type = "release.create"
    sample = {
        "id": "",
        "action": "",
        "resource": "",
        "created_at": "2026-03-04T10:11:12Z",
        "sequence": None,
        "version": "application/vnd.heroku+json; version=3",
        "actor": {"email": "mira@example.com", "id": "01234567-89ab-cdef-0123-456789abcdef"},
        "data": {"id": "", "app": {"name": "tides"}, "description": "Deploy 9f2c4f8a", "status": "succeeded"},
        "webhook_metadata": {"attempt": {"id": "a1"}, "delivery": {"id": ""}, "event": {"include": "api:release"}},
    }


class Sentry(Known, id="sentry", title="Sentry"):
    """Sentry: answers are awaited for a second; the time stands in a header that nobody signs."""

    scheme = SignatureScheme(signature="header:Sentry-Hook-Signature")
    locators = Locators(
        event_id="header:Request-ID",
        delivery_id="header:Request-ID",
        type=("header:Sentry-Hook-Resource", "body:action"),
        object_id="body:data.issue.id|body:data.event.issue_id|body:data.error.issue_id|body:installation.uuid",
        account="body:installation.uuid",
        event_time="header:Sentry-Hook-Timestamp",
        time_unit="s",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=1.0)
    secret_is = "the integration's client secret"
    retries_say = "few; an integration that fails for long is disabled"
    sample_type = "issue.created"
    sample = {
        "action": "",
        "installation": {"uuid": "7a485448-a9e2-4c85-8a3c-4f44175783c9"},
        "data": {"issue": {"id": "", "title": "TideError: no water", "level": "error", "project": {"slug": "tides"}}},
        "actor": {"type": "application", "id": "sentry", "name": "Sentry"},
    }


class Snyk(Known, id="snyk", title="Snyk"):
    """Snyk: the event's name carries the version of its shape."""

    scheme = SignatureScheme(signature="header:X-Hub-Signature", prefix="sha256=")
    locators = Locators(
        event_id="header:X-Snyk-Transport-ID",
        delivery_id="header:X-Snyk-Transport-ID",
        type="header:X-Snyk-Event",
        object_id="body:project.id",
        account="body:org.id",
        event_time="header:X-Snyk-Timestamp",
    )
    profile = Profile(retries=False, horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the webhook's secret"
    retries_say = "none documented"
    note = "where an id, a type and the time stand is taken from documentation; these headers are not signed"
    sample_type = "project_snapshot/v0"
    sample = {
        "project": {"id": "", "name": "harbour-lane/tides:requirements.txt", "origin": "github"},
        "org": {"id": "a3f1c8d2-6b57-4a09-9e42-0c7d5b8f1e36", "name": "harbour-lane"},
        "group": {"id": "1d9e0f7b-3c24-4e68-8a51-7f6b2d4c9a03", "name": "Harbour"},
        "newIssues": [],
        "removedIssues": [],
    }


class Doppler(Known, id="doppler", title="Doppler", confidence="unsure"):
    """Doppler: says which config's secrets have changed, without an id and without a time."""

    scheme = SignatureScheme(signature="header:X-Doppler-Signature", prefix="sha256=")
    locators = Locators(type="body:type", object_id="body:config.name", account="body:project.id")
    fingerprint = ("body",)
    profile = Profile(horizon_days=1.0, timeout_seconds=10.0)
    secret_is = "the webhook's signing secret"
    retries_say = "few"
    note = (
        "there is no event id, and the digest of the body stands for it: the same change twice looks the same twice, and is"
        " run once; leave Doppler's own body in place, a body of your own is always the same. Confirm before relying on it"
    )
    sample_type = "config.secrets.update"
    sample = {
        "type": "",
        "config": {"name": "", "environment": "prd", "locked": False, "root": True},
        "project": {"id": "tides", "name": "tides"},
        "workplace": {"id": "harbour-lane", "name": "Harbour Lane"},
        "diff": {"added": ["TIDE_TABLE_URL"], "removed": [], "updated": []},
    }


class PagerDuty(Known, id="pagerduty", title="PagerDuty", confidence="likely"):
    """PagerDuty (webhooks v3): one signature for each secret that is valid while it is rotated."""

    scheme = SignatureScheme(signature="header:X-PagerDuty-Signature", prefix="v1=", separator=",")
    locators = Locators(
        event_id="body:event.id",
        delivery_id="header:X-Webhook-Id",
        type="body:event.event_type",
        object_id="body:event.data.id",
        event_time="body:event.occurred_at",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=5.0)
    secret_is = "the subscription's secret"
    retries_say = "for up to 48 hours, then the subscription is disabled for a while"
    sample_type = "incident.triggered"
    sample = {
        "event": {
            "id": "",
            "event_type": "",
            "resource_type": "incident",
            "occurred_at": "2026-03-04T10:11:12.000Z",
            "agent": {"id": "PTIDE01", "type": "user_reference", "summary": "Mira Castellan"},
            "data": {"id": "", "type": "incident", "title": "The evening tide is missing", "status": "triggered"},
        }
    }


class JiraCloud(Known, id="jira_cloud", title="Jira and Confluence Cloud", confidence="likely"):
    """Jira and Confluence Cloud, for webhooks of administrators and OAuth apps: signed where they have a secret."""

    scheme = SignatureScheme(signature="header:X-Hub-Signature", prefix="sha256=")
    locators = JIRA
    profile = Profile(horizon_days=30.0, timeout_seconds=30.0)
    secret_is = "the webhook's secret"
    retries_say = "5, each 5 to 15 minutes after the last"
    note = "the event's id stands in a header that is not signed"
    sample_type = "jira:issue_updated"
    sample = JIRA_SAMPLE


class AtlassianConnect(Known, id="atlassian_connect", title="Atlassian Connect"):
    """Atlassian Connect apps: a token over method, path and query, made with the secret of one installation."""

    scheme = ConnectScheme()
    locators = JIRA
    profile = Profile(horizon_days=30.0, timeout_seconds=20.0)
    secret_is = "the sharedSecret of the installation"
    retries_say = "5, each 5 to 15 minutes after the last"
    note = (
        "the body is not covered by the token, and a token serves any body for its few minutes. One source for one"
        " installation: its secret says who sends, and client_key pins it. Calls of the app's lifecycle, which are signed"
        " with RSA, are not taken. Where an id or a type stands is taken from documentation"
    )
    sample_type = "jira:issue_updated"
    sample = JIRA_SAMPLE

    def __init__(
        self, secret: Secrets = None, *, base_url: str | None = None, client_key: str | None = None, **options: Any
    ) -> None:
        claims = {} if client_key is None else {"iss": client_key}
        changed = dataclasses.replace(type(self).scheme, base_url=base_url, claims=claims)
        object.__setattr__(self, "scheme", changed)
        super().__init__(secret, **options)


def any_body(delivery: Delivery) -> Any:
    """Bodies may be anything: what is no JSON has nothing to be found in it, and is no mistake."""
    try:
        return read_json(delivery.body)
    except (ValueError, RecursionError):
        return None


class UpstashQStash(Known, id="upstash_qstash", title="Upstash QStash"):
    """Upstash QStash: delivers what you have published; the token covers the body and the address."""

    scheme = JwtScheme(
        at="header:Upstash-Signature",
        algorithms=("HS256",),
        claims={"iss": "Upstash", "sub": "{url}"},
        bound=(Bound("body", "base64url"),),
        requires=("exp", "nbf"),
    )
    locators = Locators(
        event_id="header:Upstash-Message-Id",
        delivery_id="header:Upstash-Message-Id",
        type="body:type",
        object_id="body:data.id",
    )
    document = staticmethod(any_body)
    url_needed = True
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the current signing key, and the next one beside it"
    retries_say = "3 unless you say otherwise, at growing intervals; then the message waits in a queue for a person"
    note = "bodies are yours: a type is read from the member type, where a body has one"
    sample_type = "tide.turned"
    sample = {"type": "", "data": {"id": "", "station": "Galway", "height": 4.2}}


class Inngest(Known, id="inngest", title="Inngest"):
    """Inngest: calls to your app, signed over the body as it is, or over its JSON in canonical spelling."""

    scheme = SignatureScheme(
        signature="header:X-Inngest-Signature",
        pieces=Pieces("s", sep="&"),
        key=without_environment,
        signed=body_or_canonical,
        stamp=Stamp("part:t"),
    )
    locators = Locators(
        event_id="body:ctx.run_id",
        type="body:event.name",
        object_id="body:event.data.id",
        event_time="body:event.ts",
        time_unit="ms",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the signing key, signkey-..., and the fallback key beside it"
    retries_say = "4, at growing intervals"
    note = (
        "one run is one event, whatever its attempt: functions with steps are not for this. To register your app at Inngest"
        " is up to you. Spaces and the order of names are not covered where the canonical spelling was signed"
    )
    sample_type = "tide/turned"
    sample = {
        "version": 1,
        "event": {"id": "01JTIDES", "name": "", "data": {"id": "", "station": "Galway"}, "ts": 0},
        "ctx": {"run_id": "", "attempt": 0, "env": "production", "fn_id": "tell-the-harbour"},
    }


class Liveblocks(Known, id="liveblocks", title="Liveblocks"):
    """Liveblocks: Standard Webhooks, with secrets that always begin with whsec_."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        type="body:type",
        object_id="body:data.roomId|body:data.id",
        account="body:data.projectId",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the endpoint's signing secret, whsec_..."
    retries_say = "after 5 s, 5 min, 30 min, 2, 5, 10 and 10 hours"
    sample_type = "commentCreated"
    sample = {
        "type": "",
        "data": {
            "projectId": "harbour-lane",
            "roomId": "",
            "threadId": "th_tides",
            "commentId": "cm_evening",
            "createdBy": "mira",
            "createdAt": "2026-03-04T10:11:12.000Z",
        },
    }

    @staticmethod
    def secret_problem(value: bytes) -> str | None:
        return None if value.startswith(b"whsec_") else 'does not start with "whsec_", as Liveblocks\' secrets do'


class Pusher(Known, id="pusher", title="Pusher Channels"):
    """Pusher Channels: a batch whose time is in the signed body; a header says which of the app's keys signed."""

    scheme = StampedBodyScheme(signature="header:X-Pusher-Signature", stamp=Stamp("body:time_ms", "ms"))
    locators = Locators(
        event_id=(
            "outer:time_ms",
            "body:name",
            "body:channel",
            "body:user_id|body:socket_id|body:channel",
            "body:event|body:name",
            "body:data|body:subscription_count|body:name",
        ),
        type="body:name",
        object_id="body:channel",
        event_time="outer:time_ms",
        time_unit="ms",
    )
    split = JsonBatch("events")
    profile = Profile(horizon_days=1.0, timeout_seconds=10.0)
    secret_is = "the secret of the app's key"
    retries_say = "at growing intervals, for up to 5 minutes"
    note = "there is no event id: the batch's time and all that the event says stand for it"
    sample_type = "channel_occupied"
    sample_options = {"app_key": "harbourlane"}
    sample = {"time_ms": 0, "events": [{"name": "", "channel": ""}]}

    def __init__(self, secret: Secrets = None, *, app_key: str | None = None, **options: Any) -> None:
        requires = () if app_key is None else (("X-Pusher-Key", app_key),)
        object.__setattr__(self, "scheme", dataclasses.replace(type(self).scheme, requires=requires))
        super().__init__(secret, **options)


class HuggingFace(Known, id="hugging_face", title="Hugging Face", confidence="likely"):
    """Hugging Face: shows the webhook's secret, and tells what changed in a repository."""

    scheme = TokenScheme(at="header:X-Webhook-Secret")
    locators = Locators(type=("body:event.scope", "body:event.action"), object_id="body:repo.id")
    fingerprint = ("body",)
    profile = Profile(horizon_days=30.0, timeout_seconds=10.0)
    secret_is = "the webhook's secret (ASCII)"
    retries_say = "not documented; a delivery can be sent again by hand"
    note = (
        "the body is not covered: whoever knows the secret can send anything. There is no event id, and the digest of the"
        " body stands for it: two changes that are told in the same words are run once"
    )
    sample_type = "discussion.create"
    sample = {
        "event": {"action": "", "scope": ""},
        "repo": {
            "type": "model",
            "name": "harbour-lane/tides",
            "id": "",
            "private": False,
            "headSha": "9f2c4f8a9d3c6a5b1e7d0c2b4a6f8e1d3c5b7a90",
            "owner": {"id": "61d2000c3c2083e1c08af22d"},
        },
        "discussion": {"id": "6399f58518721fdd27fc9ca9", "num": 19, "title": "Slower tides", "status": "open"},
        "webhook": {"id": "6390e855e30d9209411de93b", "version": 3},
    }


class Render(Known, id="render", title="Render", confidence="likely"):
    """Render: Standard Webhooks; the data names the event, the service and how it went."""

    scheme = StandardWebhooksScheme(families=(WEBHOOK,))
    locators = Locators(
        event_id="header:webhook-id",
        type="body:type",
        object_id="body:data.serviceId|body:data.id",
        event_time="body:timestamp",
    )
    profile = Profile(horizon_days=30.0, timeout_seconds=15.0)
    secret_is = "the webhook's signing secret, whsec_..."
    retries_say = "8 attempts at growing intervals, the last after about 33 hours; then the webhook is disabled"
    sample_type = "deploy_ended"
    sample = {
        "type": "",
        "timestamp": "2026-03-04T10:11:12.000000Z",
        "data": {"id": "evt-tides0001", "serviceId": "", "serviceName": "tides", "status": "succeeded"},
    }
