"""Against the libraries that the providers publish: what we sign they accept, what they sign we accept, and both refuse alike.

One table, `CASES`: how to ask each library, and how its side signs. Where the library has a signer that one is called;
where it only verifies, what it would compare with is computed from its text with the standard library. Where the two
judge differently on purpose, a `Differs` says why. Nothing here uses a network.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import importlib
import json
import time
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookonce.errors import VerificationError
from hookonce.flow.verify import verify
from hookonce.model import Delivery, Secret
from hookonce.providers import PROVIDERS
from hookonce.providers.base import Endpoint

DAY = 86_400.0
YEAR = 365 * DAY
MARGIN = 120.0
AHEAD = 300.0
"""How far ahead of ours we let a sender's clock be."""

TARGET = "/webhooks/source"
URL = "https://example.com" + TARGET
JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"
MESSAGE = "msg_1"


@cache
def sdk(name: str) -> Any:
    """One of their modules. What it warns of while it loads is not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


# -- requests ---------------------------------------------------------------------------------------------------------


def posted(
    body: bytes, headers: Mapping[str, str] | None = None, *, query: bytes = b"", kind: str = JSON_TYPE
) -> Delivery:
    listed = {"content-type": kind, **(headers or {})}
    return Delivery(
        "source", [(name.lower().encode(), value.encode()) for name, value in listed.items()], body, TARGET, query
    )


posted_form = partial(posted, kind=FORM_TYPE)


def heads(delivery: Delivery) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in delivery.headers}


def head(delivery: Delivery, name: str) -> str:
    return heads(delivery)[name.lower()]


def text(delivery: Delivery) -> str:
    return delivery.body.decode()


def address(delivery: Delivery) -> str:
    return URL + (f"?{delivery.query.decode()}" if delivery.query else "")


def form_of(delivery: Delivery) -> dict[str, str]:
    return dict(parse_qsl(text(delivery), keep_blank_values=True))


def with_head(delivery: Delivery, name: str, value: str) -> Delivery:
    kept = [pair for pair in delivery.headers if pair[0] != name.lower().encode()]
    return dataclasses.replace(delivery, headers=[*kept, (name.lower().encode(), value.encode())])


def with_body(delivery: Delivery, old: bytes, new: bytes) -> Delivery:
    assert old in delivery.body
    return dataclasses.replace(delivery, body=delivery.body.replace(old, new))


def longer(delivery: Delivery) -> Delivery:
    """A space after the JSON: read, it is the same, but it was not signed."""
    return dataclasses.replace(delivery, body=delivery.body + b" ")


def one_field_more(delivery: Delivery) -> Delivery:
    return dataclasses.replace(delivery, body=delivery.body + b"&Extra=1")


# -- bodies -----------------------------------------------------------------------------------------------------------

NOTE = "Grüße, 潮の満ち引き 🌊"
COMPACT: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": False}
STYLES = (COMPACT, {}, {"indent": 2}, {"indent": 1, "ensure_ascii": False}, {"separators": (",", ":")})
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=12)
FRACTIONS = st.floats(allow_nan=False, allow_infinity=False)


def values(fractions: st.SearchStrategy[float] = FRACTIONS) -> Any:
    scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | fractions | TEXTS
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
        max_leaves=8,
    )


VALUES = values()


@dataclass(frozen=True)
class Bodies:
    """Bodies that a provider might send, made of what hypothesis thinks up, and one that is always the same."""

    make: Callable[[Any, Mapping[str, Any]], bytes]
    notes: st.SearchStrategy[Any] = VALUES
    note: Any = NOTE
    styles: tuple[Mapping[str, Any], ...] = STYLES

    @property
    def drawn(self) -> st.SearchStrategy[bytes]:
        return st.builds(self.make, self.notes, st.sampled_from(self.styles))

    @property
    def example(self) -> bytes:
        return self.make(self.note, self.styles[0])


def json_with(rest: Mapping[str, Any]) -> Callable[[Any, Mapping[str, Any]], bytes]:
    return lambda note, style: json.dumps({**rest, "note": note}, **style).encode()


def form_with(note: Any, style: Mapping[str, Any]) -> bytes:
    return urlencode({"MessageSid": "SM1", **note}).encode()


DOCUMENTS = Bodies(json_with({"id": "evt_1", "type": "thing.made"}))
ASCII = tuple({"ensure_ascii": True} | style for style in STYLES if style.get("ensure_ascii") is not False)
FORMS = Bodies(
    form_with, st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=5), {"Body": NOTE, "From": "+35312345678"}
)


# -- signatures, computed apart from our code -------------------------------------------------------------------------


def mac(key: str | bytes, message: str | bytes, digest: str = "sha256") -> bytes:
    key, message = (part.encode() if isinstance(part, str) else part for part in (key, message))
    return hmac.new(key, message, digest).digest()


def hexed(key: str | bytes, message: str | bytes, digest: str = "sha256") -> str:
    return mac(key, message, digest).hex()


def based(key: str | bytes, message: str | bytes, digest: str = "sha256") -> str:
    return base64.b64encode(mac(key, message, digest)).decode()


def seconds(at: float) -> str:
    return str(int(at))


def millis(at: float) -> str:
    return str(int(at * 1000))


def iso(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).isoformat()


def plain(header: str, prefix: str = "", write: Callable[..., str] = hexed) -> Callable[[bytes, str, float], Delivery]:
    """An HMAC over the body, in one header."""
    return lambda body, key, at: posted(body, {header: prefix + write(key, body)})


def private(pem: str) -> Any:
    return serialization.load_pem_private_key(pem.encode(), None)


def public_pem(pem: str) -> str:
    made = private(pem).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return made.public_bytes(serialization.Encoding.PEM, form).decode().strip()


def public_der64(pem: str) -> str:
    """As SendGrid shows it."""
    made = private(pem).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return base64.b64encode(made.public_bytes(serialization.Encoding.DER, form)).decode()


def public_hex(pem: str) -> str:
    """As Discord shows it."""
    return private(pem).public_key().public_bytes_raw().hex()


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Clock:
    """What their library says to old and to early requests. None: it takes any, then `older` and `ahead` say why we do not."""

    past: float | None
    future: float | None
    older: str = ""
    ahead: str = ""


@dataclass(frozen=True)
class Differs:
    """A request that the two judge differently, and why."""

    why: str
    make: Callable[[str, float], Delivery]
    ours: bool
    theirs: bool


def stricter(why: str, make: Callable[[str, float], Delivery]) -> Differs:
    return Differs(why, make, ours=False, theirs=True)


def laxer(why: str, make: Callable[[str, float], Delivery]) -> Differs:
    return Differs(why, make, ours=True, theirs=False)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One library. `accepts` raises, or returns something false, for what it refuses; `signs` is given body, key and time.

    `shown` is what people configure where it is not what signs. `unsigned` is the request before our side signs it.
    `joined` makes one request of two that different keys signed, as senders do while they rotate. `uncovered` changes
    what no signature of this provider covers: neither side can notice.
    """

    provider: str
    accepts: Callable[[Delivery, str], object]
    signs: Callable[[bytes, str, float], Delivery]
    bodies: Bodies = DOCUMENTS
    unsigned: Callable[[bytes], Delivery] = posted
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    secret: Callable[[int], str] | None = None
    shown: Callable[[str], str] = str
    changed: Callable[[Delivery], Delivery] = longer
    uncovered: Callable[[Delivery], Delivery] | None = None
    joined: Callable[[Delivery, Delivery], Delivery] | None = None
    clock: Clock | None = None
    differs: tuple[Differs, ...] = ()


PAST_ONLY = "their library looks back only: a request dated a year ahead could be replayed until then"
NO_AGE = "their library does not look at the age: what was seen once could be sent again for ever"
FRACTION = "they read a fraction and sign the whole seconds: one moment would have many spellings"
LABEL = "they do not look at the version label, so that what another version signed would count as this one"


def joining(header: str, joint: str, *, cut: str | None = None) -> Callable[[Delivery, Delivery], Delivery]:
    """The second signature put behind the first one; `cut` ends what both begin with."""

    def join(first: Delivery, second: Delivery) -> Delivery:
        other = head(second, header)
        return with_head(
            first, header, head(first, header) + joint + (other if cut is None else other.partition(cut)[2])
        )

    return join


def moved(signs: Callable[[bytes, str, float], Delivery], change: Callable[[Delivery], Delivery]) -> Any:
    """What their side signs, changed on the way."""
    return lambda key, now: change(signs(DOCUMENTS.example, key, now))


# Stripe, and others whose header has a time and signatures


def stripe_signs(body: bytes, key: str, at: float) -> Delivery:
    made = sdk("stripe").WebhookSignature._compute_signature(f"{seconds(at)}.{body.decode()}", key)
    return posted(body, {"Stripe-Signature": f"t={seconds(at)},v1={made}"})


STRIPE = Case(
    provider="stripe",
    accepts=lambda delivery, key: sdk("stripe").WebhookSignature.verify_header(
        text(delivery), head(delivery, "Stripe-Signature"), key, 300
    ),
    signs=stripe_signs,
    joined=joining("Stripe-Signature", ",", cut=","),
    clock=Clock(past=300, future=None, ahead=PAST_ONLY),
)

WORKOS = Case(
    provider="workos",
    accepts=lambda delivery, key: sdk("workos.webhooks._verification").verify_event(
        event_body=delivery.body, event_signature=head(delivery, "WorkOS-Signature"), secret=key
    ),
    signs=lambda body, key, at: posted(
        body, {"WorkOS-Signature": f"t={millis(at)}, v1={hexed(key, f'{millis(at)}.'.encode() + body)}"}
    ),
    bodies=Bodies(
        json_with(
            {
                "id": "event_1",
                "event": "dsync.tide.turned",
                "object": "event",
                "created_at": "2026-03-04T10:11:12.123Z",
                "data": {},
            }
        )
    ),
    clock=Clock(past=180, future=180),
)


def paddle_signs(body: bytes, key: str, at: float) -> Delivery:
    made = sdk("paddle_billing.Notifications").PaddleSignature.calculate_hmac(key, f"{seconds(at)}:".encode() + body)
    return posted(body, {"Paddle-Signature": f"ts={seconds(at)};h1={made.hexdigest()}"})


def paddle_accepts(delivery: Delivery, key: str, variance: int = 300) -> object:
    module = sdk("paddle_billing.Notifications")
    request = SimpleNamespace(headers={"Paddle-Signature": head(delivery, "Paddle-Signature")}, body=delivery.body)
    return module.Verifier(variance).verify(request, [module.Secret(key)])


PADDLE = Case(
    provider="paddle_billing",
    accepts=paddle_accepts,
    signs=paddle_signs,
    joined=joining("Paddle-Signature", ";", cut=";"),
    clock=Clock(past=300, future=300),
)
PADDLE_AS_IT_COMES = dataclasses.replace(
    PADDLE,
    accepts=partial(paddle_accepts, variance=5),
    clock=None,
    differs=(
        laxer(
            "they allow 5 seconds unless told otherwise, and a relay with a queue takes longer",
            lambda key, now: paddle_signs(DOCUMENTS.example, key, now - 60),
        ),
    ),
)


# Standard Webhooks, and those who differ from it a little

WEBHOOK = ("webhook-id", "webhook-timestamp", "webhook-signature")
SVIX = ("svix-id", "svix-timestamp", "svix-signature")
FINCH = ("Finch-Event-Id", "Finch-Timestamp", "Finch-Signature")


def standard_signs(
    body: bytes,
    key: str,
    at: float,
    *,
    names: tuple[str, str, str] = WEBHOOK,
    raw: bool = False,
    identity: str = MESSAGE,
    stamp: str | None = None,
) -> Delivery:
    """As the reference library signs; `raw`: with the secret's text as it is for the key; `stamp`: a time it cannot write."""
    if stamp is None:
        moment = datetime.fromtimestamp(int(at), UTC)
        signer = sdk("standardwebhooks.webhooks").Webhook(key.encode() if raw else key)
        made = signer.sign(identity, moment, body.decode())
    else:
        made = "v1," + based(base64.b64decode(key.removeprefix("whsec_")), f"{identity}.{stamp}.".encode() + body)
    written = seconds(at) if stamp is None else stamp
    return posted(body, dict(zip(names, (identity, written, made), strict=True)))


def standard_accepts(delivery: Delivery, key: str) -> object:
    sdk("standardwebhooks.webhooks").Webhook(key).verify(delivery.body, heads(delivery))
    return True


def relabelled(label: str, names: tuple[str, str, str] = WEBHOOK) -> Callable[[Delivery], Delivery]:
    return lambda delivery: with_head(delivery, names[2], label + head(delivery, names[2]).removeprefix("v1,"))


def fraction(key: str, now: float, names: tuple[str, str, str] = WEBHOOK) -> Delivery:
    """A time with a fraction, under a signature over whole seconds."""
    signed = standard_signs(DOCUMENTS.example, key, now, names=names)
    return with_head(signed, names[1], f"{seconds(now)}.25")


def full_stop(key: str, now: float) -> Delivery:
    return standard_signs(DOCUMENTS.example, key, now, identity="msg.1")


BOTH_WAYS = Clock(past=300, future=300)
STANDARD = Case(
    provider="standard_webhooks",
    accepts=standard_accepts,
    signs=standard_signs,
    joined=joining("webhook-signature", " "),
    clock=BOTH_WAYS,
    differs=(
        stricter(FRACTION, fraction),
        stricter("with a full stop in the id, bytes could move between id, time and body", full_stop),
    ),
)
SVIX_CASE = Case(
    provider="svix",
    accepts=lambda delivery, key: sdk("svix.webhooks").Webhook(key).verify(delivery.body, heads(delivery)) is None,
    signs=partial(standard_signs, names=SVIX),
    joined=joining("svix-signature", " "),
    clock=BOTH_WAYS,
    differs=(stricter(FRACTION, partial(fraction, names=SVIX)),),
)


def resend_accepts(delivery: Delivery, key: str) -> object:
    given = {name: head(delivery, f"svix-{name}") for name in ("id", "timestamp", "signature")}
    sdk("resend.webhooks._webhooks").Webhooks.verify(
        {"payload": text(delivery), "headers": given, "webhook_secret": key}
    )
    return True


def openai_accepts(delivery: Delivery, key: str) -> object:
    verifier: Any = sdk("openai.resources.webhooks").Webhooks
    verifier.verify_signature(None, payload=delivery.body, headers=heads(delivery), secret=key)
    return True


def replicate_accepts(delivery: Delivery, key: str, tolerance: int | None = 300) -> object:
    module = sdk("replicate.webhook")
    secret = module.WebhookSigningSecret(key=key)
    module.Webhooks.validate(headers=heads(delivery), body=text(delivery), secret=secret, tolerance=tolerance)
    return True


def polar_accepts(delivery: Delivery, key: str) -> object:
    known = frozenset({"thing.made"})
    return sdk("polar.webhooks").validate_event(text(delivery), heads(delivery), key, known, dict)


def increase_accepts(delivery: Delivery, key: str) -> object:
    resource: Any = sdk("increase.resources.events").EventsResource
    return resource.unwrap(None, text(delivery), headers=heads(delivery), key=key.encode())


def finch_accepts(delivery: Delivery, key: str) -> object:
    resource: Any = sdk("finch.resources.webhooks").Webhooks
    resource.verify_signature(None, payload=delivery.body, headers=heads(delivery), secret=key)
    return True


RESEND = Case(
    provider="resend",
    accepts=resend_accepts,
    signs=partial(standard_signs, names=SVIX),
    joined=joining("svix-signature", " "),
    clock=BOTH_WAYS,
    differs=(stricter(LABEL, moved(partial(standard_signs, names=SVIX), relabelled("v7,", SVIX))),),
)
OPENAI = Case(
    provider="openai",
    accepts=openai_accepts,
    signs=standard_signs,
    joined=joining("webhook-signature", " "),
    clock=BOTH_WAYS,
    differs=(stricter(LABEL, moved(standard_signs, relabelled(""))),),
)
OPENAI_RAW = dataclasses.replace(
    OPENAI, secret="a secret without its prefix, {}".format, signs=partial(standard_signs, raw=True), differs=()
)
REPLICATE = Case(
    provider="replicate",
    accepts=replicate_accepts,
    signs=standard_signs,
    joined=joining("webhook-signature", " "),
    clock=BOTH_WAYS,
    differs=(stricter(LABEL, moved(standard_signs, relabelled("v7,"))),),
)
REPLICATE_AS_IT_COMES = dataclasses.replace(
    REPLICATE,
    accepts=partial(replicate_accepts, tolerance=None),
    clock=Clock(past=None, future=None, older=NO_AGE, ahead=NO_AGE),
    differs=(),
)
POLAR = Case(
    provider="polar",
    accepts=polar_accepts,
    signs=partial(standard_signs, raw=True),
    secret="polar_whs_ovyN6cPrTvhRcKtk6yjRsAn3fP2{}".format,
    joined=joining("webhook-signature", " "),
    clock=BOTH_WAYS,
)
POLAR_BASE64 = dataclasses.replace(
    POLAR,
    secret=lambda number: "whsec_" + base64.b64encode(f"thirty-two bytes as base64, no {number}.".encode()).decode(),
    signs=standard_signs,
    differs=(stricter(FRACTION, fraction),),
)
INCREASE = Case(
    provider="increase",
    accepts=increase_accepts,
    signs=partial(standard_signs, raw=True),
    secret="whsec_bG9va3MgbGlrZSBiYXNlNjQ{}".format,
    joined=joining("webhook-signature", " "),
    clock=BOTH_WAYS,
)
FINCH_CASE = Case(
    provider="finch",
    accepts=finch_accepts,
    signs=partial(standard_signs, names=FINCH),
    secret=lambda number: base64.b64encode(f"thirty-two bytes as base64, no {number}.".encode()).decode(),
    joined=joining("Finch-Signature", " "),
    clock=BOTH_WAYS,
    differs=(stricter(FRACTION, partial(fraction, names=FINCH)),),
)
SAME_AS_STANDARD = ("anthropic", "brex", "browserbase", "dodopayments", "gitlab_signing_token", "lithic", "liveblocks")
SAME_AS_STANDARD += ("loops", "recall_ai", "render")
BIGCOMMERCE = dataclasses.replace(
    STANDARD,
    provider="bigcommerce",
    # As their documentation tells users of a Standard Webhooks library to hand the client secret over.
    accepts=lambda delivery, key: standard_accepts(delivery, base64.b64encode(key.encode()).decode()),
    signs=partial(standard_signs, raw=True),
    secret="0123456789abcdef{}".format,
    differs=(),
)


# HMAC over the body, or over a time and the body


def slack_signs(body: bytes, key: str, at: float) -> Delivery:
    verifier = sdk("slack_sdk.signature").SignatureVerifier(key)
    made = verifier.generate_signature(timestamp=seconds(at), body=body)
    return posted(body, {"X-Slack-Request-Timestamp": seconds(at), "X-Slack-Signature": made})


SLACK = Case(
    provider="slack",
    accepts=lambda delivery, key: (
        sdk("slack_sdk.signature").SignatureVerifier(key).is_valid_request(delivery.body, heads(delivery))
    ),
    signs=slack_signs,
    clock=BOTH_WAYS,
)
GITHUB = Case(
    provider="github",
    accepts=lambda delivery, key: (
        sdk("gidgethub.sansio").validate_event(
            delivery.body, signature=head(delivery, "X-Hub-Signature-256"), secret=key
        )
        is None
    ),
    signs=plain("X-Hub-Signature-256", "sha256="),
    differs=(
        stricter(
            "they take SHA-1 as well, which GitHub sends in a header of its own beside this one",
            lambda key, now: posted(
                DOCUMENTS.example, {"X-Hub-Signature-256": "sha1=" + hexed(key, DOCUMENTS.example, "sha1")}
            ),
        ),
    ),
)
LINE = Case(
    provider="line",
    accepts=lambda delivery, key: (
        sdk("linebot.v3.webhook").SignatureValidator(key).validate(text(delivery), head(delivery, "X-Line-Signature"))
    ),
    signs=plain("X-Line-Signature", write=based),
)
RAZORPAY = Case(
    provider="razorpay",
    accepts=lambda delivery, key: (
        sdk("razorpay.utility")
        .Utility()
        .verify_webhook_signature(text(delivery), head(delivery, "X-Razorpay-Signature"), key)
    ),
    signs=plain("X-Razorpay-Signature"),
)


def adyen_platform_signs(body: bytes, key: str, at: float) -> Delivery:
    return posted(body, {"HmacSignature": sdk("Adyen.util").generate_payload_sig(body, key).decode()})


ADYEN_PLATFORM = Case(
    provider="adyen_platform",
    accepts=lambda delivery, key: sdk("Adyen.util").is_valid_hmac_payload(
        head(delivery, "HmacSignature"), key, delivery.body
    ),
    signs=adyen_platform_signs,
)
GOCARDLESS = Case(
    provider="gocardless",
    accepts=lambda delivery, key: sdk("gocardless_pro.webhooks").parse(
        delivery.body.decode(), key, head(delivery, "Webhook-Signature")
    ),
    signs=plain("Webhook-Signature"),
    bodies=Bodies(json_with({"events": [{"id": "EV1", "action": "paid_out"}], "meta": {"webhook_id": "WB1"}})),
)
EASYPOST = Case(
    provider="easypost",
    accepts=lambda delivery, key: sdk("easypost.util").validate_webhook(
        delivery.body, {"X-Hmac-Signature": head(delivery, "X-Hmac-Signature")}, key
    ),
    # NFKD of it: the ligature falls apart, and the accents come off their letters.
    signs=lambda body, key, at: posted(
        body,
        {"X-Hmac-Signature": "hmac-sha256-hex=" + hexed(key.replace("ﬁ", "fi").replace("é", "e\u0301"), body)},
    ),
    secret="sécret ﬁrst {}".format,
)
COINBASE = Case(
    provider="coinbase_commerce",
    accepts=lambda delivery, key: sdk("coinbase_commerce.webhook").WebhookSignature.verify_sig_header(
        text(delivery), head(delivery, "X-CC-Webhook-Signature"), key
    ),
    signs=plain("X-CC-Webhook-Signature"),
)


def modern_treasury_webhooks() -> Any:
    """Without a client, which would open a connection pool."""
    resource = sdk("modern_treasury.resources.webhooks").Webhooks
    return resource.__new__(resource)


MODERN_TREASURY = Case(
    provider="modern_treasury",
    accepts=lambda delivery, key: modern_treasury_webhooks().validate_signature(
        text(delivery), heads(delivery), key=key
    ),
    signs=lambda body, key, at: posted(
        body, {"X-Signature": modern_treasury_webhooks().get_signature(body.decode(), key=key)}
    ),
)


def orb_accepts(delivery: Delivery, key: str) -> object:
    resource: Any = sdk("orb.resources.webhooks").Webhooks
    resource.verify_signature(None, payload=delivery.body, headers=heads(delivery), secret=key)
    return True


def orb_signs(body: bytes, key: str, at: float, *, stamp: str | None = None) -> Delivery:
    written = iso(at) if stamp is None else stamp
    made = "v1=" + hexed(key, f"v1:{written}:".encode() + body)
    return posted(body, {"X-Orb-Timestamp": written, "X-Orb-Signature": made})


ORB = Case(
    provider="orb",
    accepts=orb_accepts,
    signs=orb_signs,
    joined=joining("X-Orb-Signature", " "),
    clock=BOTH_WAYS,
)
ORB_WITHOUT_ZONE = dataclasses.replace(
    ORB, signs=lambda body, key, at: orb_signs(body, key, at, stamp=iso(at).removesuffix("+00:00"))
)
RETELL = Case(
    provider="retell",
    accepts=lambda delivery, key: sdk("retell.lib.webhook_auth").verify(
        text(delivery), key, head(delivery, "X-Retell-Signature")
    ),
    signs=lambda body, key, at: posted(
        body,
        {"X-Retell-Signature": sdk("retell.lib.webhook_auth").symmetric["sign"](body.decode(), key, int(at * 1000))},
    ),
    clock=BOTH_WAYS,
)
SMARTCAR = Case(
    provider="smartcar",
    accepts=lambda delivery, key: sdk("smartcar.smartcar").verify_payload(
        key, head(delivery, "SC-Signature"), text(delivery)
    ),
    signs=lambda body, key, at: posted(
        body, {"SC-Signature": sdk("smartcar.smartcar").hash_challenge(key, body.decode())}
    ),
)


def viber(key: str) -> Any:
    configuration = sdk("viberbot.api.bot_configuration").BotConfiguration(key, "tides", "")
    return sdk("viberbot.api.api").Api(configuration)


VIBER = Case(
    provider="viber",
    accepts=lambda delivery, key: viber(key).verify_signature(
        delivery.body, head(delivery, "X-Viber-Content-Signature")
    ),
    signs=lambda body, key, at: posted(
        body, {"X-Viber-Content-Signature": viber(key)._calculate_message_signature(body)}
    ),
)
AIRTABLE = Case(
    provider="airtable",
    accepts=lambda delivery, key: sdk("pyairtable.models.webhook").WebhookNotification.from_request(
        text(delivery), head(delivery, "X-Airtable-Content-MAC"), key
    ),
    signs=lambda body, key, at: posted(
        body, {"X-Airtable-Content-MAC": "hmac-sha256=" + hexed(base64.b64decode(key), body)}
    ),
    bodies=Bodies(
        json_with({"base": {"id": "app1"}, "webhook": {"id": "ach1"}, "timestamp": "2026-03-04T10:11:12.345Z"}),
        styles=ASCII,
    ),
)

SINCH = "sinch.domains.authentication.sinch_events.v1.authentication_validation"
SINCH_NUMBERS = Case(
    provider="sinch_numbers",
    accepts=lambda delivery, key: sdk(SINCH).validate_signature_header(key, heads(delivery), text(delivery)),
    signs=lambda body, key, at: posted(
        body, {"X-Sinch-Signature": sdk(SINCH).compute_hmac_signature(body.decode(), key)}
    ),
)


def sinch_conversation_signs(body: bytes, key: str, at: float, *, nonce: str = "01K9NONCE") -> Delivery:
    signed = sdk(SINCH).compute_signed_data(body.decode(), nonce, seconds(at))
    return posted(
        body,
        {
            "x-sinch-webhook-signature": sdk(SINCH).calculate_sinch_event_signature(signed, key),
            "x-sinch-webhook-signature-nonce": nonce,
            "x-sinch-webhook-signature-timestamp": seconds(at),
            "x-sinch-webhook-signature-algorithm": "HmacSHA256",
        },
    )


SINCH_CONVERSATION = Case(
    provider="sinch_conversation",
    accepts=lambda delivery, key: sdk(SINCH).validate_sinch_event_signature_with_nonce(
        key, heads(delivery), text(delivery)
    ),
    signs=sinch_conversation_signs,
    clock=Clock(past=None, future=None, ahead=NO_AGE),
    differs=(
        stricter(
            "with a full stop in the nonce, the end of the body could become its beginning",
            lambda key, now: sinch_conversation_signs(DOCUMENTS.example, key, now, nonce="01K9.NONCE"),
        ),
    ),
)


def sinch_service_signs(body: bytes, key: str, at: float) -> Delivery:
    tools = sdk("sinch.core.internal.sinch_events.utils")
    signed = tools.build_string_to_sign("POST", tools.compute_content_md5(body), JSON_TYPE, iso(at), TARGET)
    made = tools.compute_signature(signed, key)
    return posted(body, {"Authorization": f"Service development:{made}", "x-timestamp": iso(at)})


def sinch_service_accepts(delivery: Delivery, key: str) -> object:
    return sdk("sinch.core.internal.sinch_events.authorization_helpers").validate_authentication_header(
        "development", key, heads(delivery), delivery.body, TARGET, "POST"
    )


def as_service(delivery: Delivery) -> Delivery:
    said = head(delivery, "Authorization")
    return with_head(delivery, "Authorization", said.replace("Application ", "Service ", 1))


SINCH_SERVICE = Case(
    provider="sinch_service",
    # Their library knows the word Service only; their documentation of calls says Application, and so do we.
    accepts=lambda delivery, key: sinch_service_accepts(as_service(delivery), key),
    signs=sinch_service_signs,
    clock=Clock(past=None, future=None, ahead=NO_AGE),
)


def box_signs(body: bytes, key: str, at: float) -> Delivery:
    return posted(
        body,
        {
            "box-delivery-timestamp": iso(at),
            "box-signature-version": "1",
            "box-signature-algorithm": "HmacSHA256",
            "box-signature-primary": based(key, body + iso(at).encode()),
        },
    )


def box_accepts(delivery: Delivery, key: str) -> object:
    manager = sdk("box_sdk_gen.managers.webhooks").WebhooksManager
    return manager.validate_message(text(delivery), heads(delivery), key, secondary_key=key)


BOX = Case(
    provider="box",
    accepts=box_accepts,
    signs=box_signs,
    joined=lambda first, second: with_head(first, "box-signature-secondary", head(second, "box-signature-primary")),
    clock=Clock(past=600, future=0),
    differs=(
        laxer(
            "a clock that runs ahead of ours by half a minute forges nothing",
            lambda key, now: box_signs(DOCUMENTS.example, key, now + 30),
        ),
        stricter(
            "for frameworks that decode the body they also try it with its letters escaped again; we have the bytes",
            lambda key, now: dataclasses.replace(
                box_signs(b'{"note":"Gr\\u00fc\\u00dfe"}', key, now), body='{"note":"Grüße"}'.encode()
            ),
        ),
    ),
)


def cloudinary_accepts(delivery: Delivery, key: str, algorithm: str) -> object:
    sdk("cloudinary").config(api_secret=key)
    return sdk("cloudinary.utils").verify_notification_signature(
        text(delivery), head(delivery, "X-Cld-Timestamp"), head(delivery, "X-Cld-Signature"), algorithm=algorithm
    )


def cloudinary_signs(body: bytes, key: str, at: float, algorithm: str) -> Delivery:
    made = hashlib.new(algorithm, body + f"{seconds(at)}{key}".encode()).hexdigest()
    return posted(body, {"X-Cld-Timestamp": seconds(at), "X-Cld-Signature": made})


def cloudinary(algorithm: str) -> Case:
    return Case(
        provider="cloudinary",
        accepts=partial(cloudinary_accepts, algorithm=algorithm),
        signs=partial(cloudinary_signs, algorithm=algorithm),
        options={"algorithm": algorithm},
        clock=Clock(past=7200, future=None, ahead=PAST_ONLY),
    )


# A time inside the body


def pusher_signs(body: bytes, key: str, at: float) -> Delivery:
    stamped = json.dumps({**json.loads(body), "time_ms": int(at * 1000)})
    made = sdk("pusher.signature").sign(key, stamped)
    return posted(stamped.encode(), {"X-Pusher-Key": "harbourlane", "X-Pusher-Signature": made})


PUSHER = Case(
    provider="pusher",
    accepts=lambda delivery, key: (
        sdk("pusher")
        .Pusher("1", "harbourlane", key)
        .validate_webhook(head(delivery, "X-Pusher-Key"), head(delivery, "X-Pusher-Signature"), text(delivery))
    ),
    signs=pusher_signs,
    options={"app_key": "harbourlane"},
    bodies=Bodies(json_with({"time_ms": 0, "events": [{"name": "channel_occupied", "channel": "tides"}]})),
    clock=BOTH_WAYS,
)


def mailgun_accepts(delivery: Delivery, key: str) -> object:
    proof = json.loads(delivery.body)["signature"]
    guard = sdk("mailgun.security").SecurityGuard
    return guard.verify_webhook(key, proof["token"], proof["timestamp"], proof["signature"])


def mailgun_signs(body: bytes, key: str, at: float) -> Delivery:
    token = hashlib.sha256(seconds(at).encode()).hexdigest()[:50]
    proof = {"timestamp": seconds(at), "token": token, "signature": hexed(key, seconds(at) + token)}
    return posted(json.dumps({**json.loads(body), "signature": proof}).encode())


def mailgun_changed(delivery: Delivery) -> Delivery:
    """Another token: all that is signed beside the time."""
    document = json.loads(delivery.body)
    document["signature"]["token"] = "0" * 50
    return dataclasses.replace(delivery, body=json.dumps(document).encode())


MAILGUN = Case(
    provider="mailgun",
    accepts=mailgun_accepts,
    signs=mailgun_signs,
    bodies=Bodies(json_with({"event-data": {"id": "Ase7i2zsRYeDXztHGENqRA", "event": "delivered"}})),
    changed=mailgun_changed,
    uncovered=lambda delivery: with_body(delivery, b"delivered", b"opened"),
    clock=Clock(past=900, future=900),
)


# Fields of the request


def adyen_item(note: Any, style: Mapping[str, Any]) -> bytes:
    item = {
        "pspReference": "9915555555555555",
        "merchantAccountCode": "HarbourLane",
        "merchantReference": note,
        "amount": {"value": 1450, "currency": "EUR"},
        "eventCode": "AUTHORISATION",
        "success": "true",
        "eventDate": "2026-03-04T10:11:12+01:00",
        "additionalData": {},
    }
    return json.dumps({"live": "false", "notificationItems": [{"NotificationRequestItem": item}]}, **style).encode()


def adyen_signs(body: bytes, key: str, at: float) -> Delivery:
    document = json.loads(body)
    for entry in document["notificationItems"]:
        item = entry["NotificationRequestItem"]
        made = sdk("Adyen.util").generate_notification_sig(item, key)
        item["additionalData"] = {"hmacSignature": made.decode()}
    return posted(json.dumps(document).encode())


def adyen_second_item(key: str, now: float) -> Delivery:
    """Behind an item that is genuine, one that nobody signed."""
    document = json.loads(adyen_signs(adyen_item("tide-1", COMPACT), key, now).body)
    forged = json.loads(adyen_item("tide-2", COMPACT))["notificationItems"][0]
    forged["NotificationRequestItem"]["additionalData"] = {"hmacSignature": "AAAA"}
    document["notificationItems"].append(forged)
    return posted(json.dumps(document).encode())


def adyen_moved_colon(key: str, now: float) -> Delivery:
    """A piece of one signed field has moved into its neighbour: the text that is signed stays the same."""
    signed = adyen_signs(adyen_item("tide:books", COMPACT), key, now)
    return with_body(
        with_body(signed, b'"merchantReference": "tide:books"', b'"merchantReference": "books"'),
        b'"merchantAccountCode": "HarbourLane"',
        b'"merchantAccountCode": "HarbourLane:tide"',
    )


ADYEN = Case(
    provider="adyen_payments",
    accepts=lambda delivery, key: sdk("Adyen.util").is_valid_hmac_notification(json.loads(delivery.body), key),
    signs=adyen_signs,
    bodies=Bodies(adyen_item, TEXTS, note=NOTE),
    changed=lambda delivery: with_body(delivery, b"1450", b"1451"),
    uncovered=lambda delivery: with_body(delivery, b"2026-03-04", b"2026-03-05"),
    differs=(
        stricter("they check the first item of a batch only", adyen_second_item),
        stricter("with colons within other fields than the free one, text could move between them", adyen_moved_colon),
    ),
)


def braintree(key: str) -> Any:
    module = sdk("braintree")
    return module.BraintreeGateway(
        module.Configuration(
            module.Environment.Sandbox, merchant_id="tides", public_key="tide4books8public", private_key=key
        )
    )


def braintree_accepts(delivery: Delivery, key: str) -> object:
    form = form_of(delivery)
    found = braintree(key).webhook_notification.parse(form["bt_signature"], form["bt_payload"])
    return found.kind == "subscription_canceled"


def braintree_signs(body: bytes, key: str, at: float) -> Delivery:
    wanted = dict(parse_qsl(body.decode()))
    made = braintree(key).webhook_testing.sample_notification(wanted["kind"], wanted["subject_id"])
    return posted_form(urlencode(made).encode())


def braintree_form(note: Any, style: Mapping[str, Any]) -> bytes:
    fields = {"kind": "subscription_canceled", "subject": "subscription", "subject_id": note}
    return urlencode({**fields, "timestamp": "2026-03-04T10:11:12Z"}).encode()


BRAINTREE = Case(
    provider="braintree",
    accepts=braintree_accepts,
    signs=braintree_signs,
    bodies=Bodies(braintree_form, WORDS, note="tidebooks"),
    unsigned=posted_form,
    options={"public_key": "tide4books8public"},
    changed=lambda delivery: dataclasses.replace(
        delivery,
        body=urlencode({**form_of(delivery), "bt_payload": form_of(delivery)["bt_payload"].replace("A", "B")}).encode(),
    ),
)


class Fields(dict[str, Any]):
    """A form as Django gives it: every value of a name."""

    def getlist(self, name: str) -> Any:
        return self[name]


def twilio_accepts(delivery: Delivery, key: str) -> object:
    settings_header = heads(delivery).get("x-twilio-webhooks-signature-settings", "")
    module = sdk("twilio.request_validator")
    if head(delivery, "content-type") == FORM_TYPE:
        params: Any = Fields(parse_qs(text(delivery), keep_blank_values=True))
    else:
        params = text(delivery)
    return module.RequestValidator(key).validate(
        address(delivery),
        params,
        head(delivery, "X-Twilio-Signature"),
        module.get_signature_algorithm(settings_header),
    )


def twilio_signs(body: bytes, key: str, at: float, *, shared: bool = False) -> Delivery:
    params = Fields(parse_qs(body.decode(), keep_blank_values=True))
    unsigned = posted_form(body, query=b"campaign=spring%20tide&n=2")
    algorithm = "HMAC_SHA256" if shared else None
    made = sdk("twilio.request_validator").RequestValidator(key).compute_signature(address(unsigned), params, algorithm)
    signed = with_head(unsigned, "X-Twilio-Signature", made)
    settings_value = "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256"
    return with_head(signed, "X-Twilio-Webhooks-Signature-Settings", settings_value) if shared else signed


def twilio_json_signs(body: bytes, key: str, at: float) -> Delivery:
    unsigned = posted(body, query=b"campaign=1&bodySHA256=" + digest(body).hex().encode())
    made = sdk("twilio.request_validator").RequestValidator(key).compute_signature(address(unsigned), {})
    return with_head(unsigned, "X-Twilio-Signature", made)


def twilio_text_as_query(key: str, now: float) -> Delivery:
    """Somebody sends a text, has its signature, and moves the text into the query: there it vouches for another body."""
    forged = b'{"refund": "all of it"}'
    message = "&bodySHA256=" + digest(forged).hex()
    signed = twilio_signs(urlencode({"Body": message}).encode(), key, now)
    made = {"X-Twilio-Signature": head(signed, "X-Twilio-Signature")}
    return posted(forged, made, query=signed.query + f"Body{message}".encode())


TWILIO = Case(
    provider="twilio",
    accepts=twilio_accepts,
    signs=twilio_signs,
    bodies=FORMS,
    unsigned=partial(posted_form, query=b"campaign=spring%20tide&n=2"),
    changed=one_field_more,
    differs=(
        stricter(
            "a query may announce the hash of a body only if the rest of it is configured: fields are signed like a query",
            twilio_text_as_query,
        ),
    ),
)
TWILIO_SHARED = dataclasses.replace(TWILIO, signs=partial(twilio_signs, shared=True), differs=())
TWILIO_JSON = Case(
    provider="twilio",
    accepts=twilio_accepts,
    signs=twilio_json_signs,
    unsigned=partial(posted, query=b"campaign=1"),
    options={"url": URL + "?campaign=1"},
)


def plivo_accepts(delivery: Delivery, key: str) -> object:
    nonce, made = (head(delivery, f"X-Plivo-Signature-V3{rest}") for rest in ("-Nonce", ""))
    return sdk("plivo.utils").validate_v3_signature("POST", address(delivery), nonce, key, made, form_of(delivery))


def plivo_signs(body: bytes, key: str, at: float, *, query: bytes = b"tide=high&b=2", nonce: str = "12345") -> Delivery:
    module = sdk("plivo.utils.signature_v3")
    unsigned = posted_form(body, {"X-Plivo-Signature-V3-Nonce": nonce}, query=query)
    base = module.construct_post_url(address(unsigned), form_of(unsigned))
    made = module.get_signature_v3(key.encode(), base.decode(), nonce.encode())
    return with_head(unsigned, "X-Plivo-Signature-V3", made.decode())


PLIVO = Case(
    provider="plivo",
    accepts=plivo_accepts,
    signs=plivo_signs,
    bodies=FORMS,
    unsigned=partial(posted_form, query=b"tide=high&b=2"),
    changed=one_field_more,
    joined=joining("X-Plivo-Signature-V3", ","),
    differs=(
        stricter(
            "a nonce with a full stop could hold the end of what stands before it",
            lambda key, now: plivo_signs(FORMS.example, key, now, nonce="12.345"),
        ),
    ),
)
PLIVO_WITHOUT_QUERY = dataclasses.replace(
    PLIVO, signs=partial(plivo_signs, query=b""), unsigned=posted_form, differs=()
)


def dropbox_sign_body(note: Any, style: Mapping[str, Any]) -> bytes:
    event = {"event_time": "0", "event_type": "signature_request_sent", "event_hash": ""}
    request = {"signature_request_id": "fa5c8a0b0f492d768749333ad6fcc214c111e967", "title": note}
    return json.dumps({"event": event, "signature_request": request}, **style).encode()


def in_parts(document: bytes) -> Delivery:
    """As curl sends one field of a form."""
    edge = "------------------------d74496d66958873e"
    start = f'--{edge}\r\nContent-Disposition: form-data; name="json"\r\n\r\n'.encode()
    return posted(start + document + f"\r\n--{edge}--\r\n".encode(), kind=f"multipart/form-data; boundary={edge}")


def dropbox_sign_signs(body: bytes, key: str, at: float) -> Delivery:
    document = json.loads(body)
    event = document["event"]
    event["event_time"] = seconds(at)
    event["event_hash"] = hexed(key, event["event_time"] + event["event_type"])
    return in_parts(json.dumps(document).encode())


def dropbox_sign_accepts(delivery: Delivery, key: str) -> object:
    kind = b"Content-Type: " + head(delivery, "content-type").encode() + b"\r\n\r\n"
    (part,) = message_from_bytes(kind + delivery.body).get_payload()
    assert isinstance(part, type(message_from_bytes(b"")))
    document = json.loads(bytes(part.get_payload(decode=True)))
    request = sdk("dropbox_sign.models").EventCallbackRequest.init(document)
    return sdk("dropbox_sign.event_callback_helper").EventCallbackHelper.is_valid(key, request)


DROPBOX_SIGN = Case(
    provider="dropbox_sign",
    accepts=dropbox_sign_accepts,
    signs=dropbox_sign_signs,
    bodies=Bodies(dropbox_sign_body, TEXTS),
    changed=lambda delivery: with_body(delivery, b"signature_request_sent", b"signature_request_signed"),
    uncovered=lambda delivery: with_body(delivery, b"fa5c8a0b", b"0b8a5caf"),
    clock=Clock(past=None, future=None, ahead=NO_AGE),
)


def mercadopago_accepts(delivery: Delivery, key: str) -> object:
    query = dict(parse_qsl(delivery.query.decode()))
    given = heads(delivery)
    sdk("mercadopago.webhook").WebhookSignatureValidator.validate(
        given["x-signature"], given.get("x-request-id"), query.get("data.id"), key
    )
    return True


def mercadopago_signs(
    body: bytes, key: str, at: float, *, stamp: Callable[[float], str] = seconds, alone: bool = False
) -> Delivery:
    listed = [] if alone else ["id:83104715529;", f"request-id:{MESSAGE};"]
    made = hexed(key, "".join([*listed, f"ts:{stamp(at)};"]))
    headers = {"x-signature": f"ts={stamp(at)},v1={made}"} | ({} if alone else {"x-request-id": MESSAGE})
    return posted(body, headers, query=b"" if alone else b"data.id=83104715529&type=payment")


MERCADOPAGO = Case(
    provider="mercadopago",
    accepts=mercadopago_accepts,
    signs=mercadopago_signs,
    unsigned=partial(posted, query=b"data.id=83104715529&type=payment"),
    changed=lambda delivery: dataclasses.replace(delivery, query=b"data.id=83104715530&type=payment"),
    uncovered=longer,
    clock=Clock(past=None, future=None, ahead=NO_AGE),
    differs=(
        stricter(
            "without the object's id and the request's, a time alone is signed: that would fit any request",
            lambda key, now: mercadopago_signs(DOCUMENTS.example, key, now, alone=True),
        ),
    ),
)
MERCADOPAGO_MILLIS = dataclasses.replace(MERCADOPAGO, signs=partial(mercadopago_signs, stamp=millis), differs=())


# JSON web tokens

LIVES = 900


def token(key: str, at: float, claims: Mapping[str, Any], *, algorithm: str = "HS256", **header: Any) -> str:
    times = {"iat": int(at), "nbf": int(at), "exp": int(at) + LIVES, "jti": MESSAGE}
    merged = {name: value for name, value in {**times, **claims}.items() if value is not None}
    return jwt.encode(merged, key, algorithm=algorithm, headers=header)


def digest(body: bytes | str) -> bytes:
    return hashlib.sha256(body.encode() if isinstance(body, str) else body).digest()


EXPIRES = Clock(past=LIVES, future=60)


def messagebird_signs(body: bytes, key: str, at: float) -> Delivery:
    unsigned = posted(body, query=b"tide=high")
    hashed = {"payload_hash": digest(body).hex(), "url_hash": digest(address(unsigned)).hex()}
    return with_head(unsigned, "MessageBird-Signature-JWT", token(key, at, {"iss": "MessageBird", **hashed}))


MESSAGEBIRD = Case(
    provider="messagebird",
    accepts=lambda delivery, key: (
        sdk("messagebird.request_validator")
        .RequestValidator(key)
        .validate_signature(head(delivery, "MessageBird-Signature-JWT"), address(delivery), delivery.body)
    ),
    signs=messagebird_signs,
    unsigned=partial(posted, query=b"tide=high"),
    clock=EXPIRES,
)


def livekit_accepts(delivery: Delivery, key: str) -> object:
    verifier = sdk("livekit.api.access_token").TokenVerifier("APIharbour", key)
    receiver = sdk("livekit.api.webhook").WebhookReceiver(verifier)
    return receiver.receive(text(delivery), head(delivery, "Authorization"))


def livekit_signs(body: bytes, key: str, at: float) -> Delivery:
    claims = {"iss": "APIharbour", "sha256": base64.b64encode(digest(body)).decode()}
    return posted(body, {"Authorization": token(key, at, claims)})


def livekit_signs_itself(body: bytes, key: str, at: float) -> Delivery:
    made = sdk("livekit.api.access_token").AccessToken("APIharbour", key)
    made = made.with_sha256(base64.b64encode(digest(body)).decode())
    return posted(body, {"Authorization": made.to_jwt()})


LIVEKIT = Case(
    provider="livekit",
    accepts=livekit_accepts,
    signs=livekit_signs,
    options={"api_key": "APIharbour"},
    bodies=Bodies(json_with({"event": "room_started", "id": "EV_1", "createdAt": "1755517523"})),
    clock=EXPIRES,
)
LIVEKIT_ITSELF = dataclasses.replace(LIVEKIT, signs=livekit_signs_itself, clock=None)


def qstash_signs(body: bytes, key: str, at: float) -> Delivery:
    hashed = base64.urlsafe_b64encode(digest(body)).decode()
    return posted(body, {"Upstash-Signature": token(key, at, {"iss": "Upstash", "sub": URL, "body": hashed})})


def qstash_accepts(delivery: Delivery, key: str) -> object:
    receiver = sdk("qstash.receiver").Receiver(key, "the next one, not in use yet: 0123456789")
    receiver.verify(signature=head(delivery, "Upstash-Signature"), body=text(delivery), url=URL)
    return True


QSTASH = Case(provider="upstash_qstash", accepts=qstash_accepts, signs=qstash_signs, clock=EXPIRES)


def vonage_signs(body: bytes, key: str, at: float) -> Delivery:
    claims = {"iss": "Vonage", "payload_hash": digest(body).hex(), "nbf": None, "exp": None}
    return posted(body, {"Authorization": "Bearer " + token(key, at, claims)})


VONAGE = Case(
    provider="vonage",
    accepts=lambda delivery, key: sdk("vonage_jwt.verify_jwt").verify_signature(
        head(delivery, "Authorization").removeprefix("Bearer "), key
    ),
    signs=vonage_signs,
    # Their token without its last character: they do not look at the body.
    changed=lambda delivery: with_head(longer(delivery), "Authorization", head(delivery, "Authorization")[:-2]),
    clock=Clock(past=None, future=60),
    differs=(
        stricter(
            "they do not compare the body with the hash of it that the token holds",
            moved(vonage_signs, longer),
        ),
    ),
)


def connect_signs(body: bytes, key: str, at: float) -> Delivery:
    unsigned = posted(body, query=b"user_id=ac%3Abd&issue=4&issue=12&name=a+tide")
    relative = f"{TARGET}?{unsigned.query.decode()}"
    times = {"iat": int(at), "exp": int(at) + LIVES, "aud": None}
    claims = {name: value for name, value in times.items() if value is not None}
    made = sdk("atlassian_jwt").encode_token("POST", relative, "tide-client", key, payload_kwargs=claims)
    return with_head(unsigned, "Authorization", f"JWT {made}")


def connect_accepts(delivery: Delivery, key: str) -> object:
    authenticator = sdk("atlassian_jwt").Authenticator

    class App(authenticator):  # type: ignore[misc, valid-type]
        """One installation."""

        def get_shared_secret(self, client_key: str) -> str:
            return key

    return App().authenticate("POST", f"{TARGET}?{delivery.query.decode()}", heads(delivery))


CONNECT = Case(
    provider="atlassian_connect",
    accepts=connect_accepts,
    signs=connect_signs,
    unsigned=partial(posted, query=b"user_id=ac%3Abd&issue=4&issue=12&name=a+tide"),
    changed=lambda delivery: dataclasses.replace(delivery, query=delivery.query + b"5"),
    uncovered=longer,
    clock=EXPIRES,
)

PUSHER_ACCOUNT = "pusher@harbour-lane.iam.gserviceaccount.com"


def pubsub_signs(body: bytes, key: str, at: float, *, email: str = PUSHER_ACCOUNT) -> Delivery:
    claims = {"iss": "https://accounts.google.com", "aud": URL, "email": email, "email_verified": True, "nbf": None}
    return posted(body, {"Authorization": "Bearer " + token(key, at, claims, algorithm="RS256")})


def pubsub_accepts(delivery: Delivery, key: str) -> object:
    given = head(delivery, "Authorization").removeprefix("Bearer ")
    return sdk("google.auth.jwt").decode(given, certs=key, audience=URL)


PUBSUB = Case(
    provider="google_pubsub",
    accepts=pubsub_accepts,
    signs=pubsub_signs,
    shown=public_pem,
    options={"audience": URL, "email": PUSHER_ACCOUNT},
    changed=lambda delivery: with_head(
        delivery, "Authorization", head(delivery, "Authorization").replace(".ey", ".eyJhIjoxLCJ", 1)
    ),
    uncovered=longer,
    clock=EXPIRES,
    differs=(
        stricter(
            "anybody can have Google push to any address: without looking at the account, all of them would do",
            lambda key, now: pubsub_signs(DOCUMENTS.example, key, now, email="somebody@else.iam.gserviceaccount.com"),
        ),
    ),
)


# Public keys


def sendgrid_signs(body: bytes, key: str, at: float) -> Delivery:
    made = private(key).sign(seconds(at).encode() + body, ec.ECDSA(hashes.SHA256()))
    names = "X-Twilio-Email-Event-Webhook-Signature", "X-Twilio-Email-Event-Webhook-Timestamp"
    return posted(body, {names[0]: base64.b64encode(made).decode(), names[1]: seconds(at)})


SENDGRID = Case(
    provider="sendgrid",
    accepts=lambda delivery, key: (
        sdk("sendgrid.helpers.eventwebhook")
        .EventWebhook(key)
        .verify_signature(
            text(delivery),
            head(delivery, "X-Twilio-Email-Event-Webhook-Signature"),
            head(delivery, "X-Twilio-Email-Event-Webhook-Timestamp"),
        )
    ),
    signs=sendgrid_signs,
    shown=public_der64,
    bodies=Bodies(lambda note, style: json.dumps([{"sg_event_id": "1", "note": note}], **style).encode() + b"\r\n"),
    clock=Clock(past=None, future=None, ahead=NO_AGE),
)


def discord_signs(body: bytes, key: str, at: float) -> Delivery:
    made = private(key).sign(seconds(at).encode() + body).hex()
    return posted(body, {"X-Signature-Ed25519": made, "X-Signature-Timestamp": seconds(at)})


DISCORD = Case(
    provider="discord",
    accepts=lambda delivery, key: sdk("discord_interactions").verify_key(
        delivery.body, head(delivery, "X-Signature-Ed25519"), head(delivery, "X-Signature-Timestamp"), key
    ),
    signs=discord_signs,
    shown=public_hex,
    clock=Clock(past=None, future=None, ahead=NO_AGE),
)

PAYPAL_SIGNED = ("PAYPAL-TRANSMISSION-ID", "PAYPAL-TRANSMISSION-TIME")


def paypal_text(delivery: Delivery) -> bytes:
    """What their library says is signed. It verifies with a function that the library below it no longer has: we do."""
    event = sdk("paypalrestsdk.notifications").WebhookEvent
    identity, moment = (head(delivery, name) for name in PAYPAL_SIGNED)
    found: str = event._get_expected_sig(identity, moment, "4TIDE00BOOK000000", text(delivery))
    return found.encode()


def paypal_signs(body: bytes, key: str, at: float) -> Delivery:
    named = dict(zip(PAYPAL_SIGNED, (MESSAGE, iso(at)), strict=True))
    named |= {"PAYPAL-AUTH-ALGO": "SHA256withRSA", "PAYPAL-CERT-URL": "https://api.paypal.com/v1/notifications/certs/1"}
    unsigned = posted(body, named)
    made = private(key).sign(paypal_text(unsigned), padding.PKCS1v15(), hashes.SHA256())
    return with_head(unsigned, "PAYPAL-TRANSMISSION-SIG", base64.b64encode(made).decode())


def paypal_accepts(delivery: Delivery, shown: str) -> object:
    signature = base64.b64decode(head(delivery, "PAYPAL-TRANSMISSION-SIG"))
    key: Any = serialization.load_pem_public_key(shown.encode())
    key.verify(signature, paypal_text(delivery), padding.PKCS1v15(), hashes.SHA256())
    return True


PAYPAL = Case(
    provider="paypal",
    accepts=paypal_accepts,
    signs=paypal_signs,
    shown=public_pem,
    options={"webhook_id": "4TIDE00BOOK000000"},
    clock=Clock(past=None, future=None, ahead=NO_AGE),
)

LEAF_MARKER, INTERMEDIATE_MARKER = "1.2.840.113635.100.6.11.1", "1.2.840.113635.100.6.2.1"


@cache
def apple_chain(root_pem: str) -> tuple[Any, tuple[x509.Certificate, ...]]:
    """A key, and three certificates with all that Apple's have: its marks, and the identifiers that strict readers ask for."""
    top, middle, leaf = private(root_pem), *(ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    return leaf, (
        issued("Tide App Store Receipt Signing", leaf, "Tide Developer Relations", middle, LEAF_MARKER, ca=False),
        issued("Tide Developer Relations", middle, "Tide Root", top, INTERMEDIATE_MARKER, ca=True),
        issued("Tide Root", top, "Tide Root", top, None, ca=True),
    )


def issued(subject: str, key: Any, issuer: str, issuer_key: Any, marker: str | None, *, ca: bool) -> x509.Certificate:
    def name(said: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, said)])

    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(digital_signature=not ca, key_cert_sign=ca, crl_sign=ca, decipher_only=False, **usage),
            critical=True,
        )
    )
    if marker is not None:
        mark = x509.UnrecognizedExtension(x509.ObjectIdentifier(marker), b"\x05\x00")
        builder = builder.add_extension(mark, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def apple_signs(body: bytes, key: str, at: float) -> Delivery:
    leaf, chain = apple_chain(key)
    header = {"x5c": [base64.b64encode(der(one)).decode() for one in chain]}
    claims = {**json.loads(body), "signedDate": int(at * 1000)}
    return posted(json.dumps({"signedPayload": jwt.encode(claims, leaf, algorithm="ES256", headers=header)}).encode())


def apple_accepts(delivery: Delivery, shown: str) -> object:
    """With the root that is pinned. What we sign for development brings one of its own, for the same key."""
    payload = json.loads(delivery.body)["signedPayload"]
    root = x509.load_pem_x509_certificate(shown.encode())
    brought = x509.load_der_x509_certificate(base64.b64decode(jwt.get_unverified_header(payload)["x5c"][2]))
    ours = brought != root and brought.public_key() == root.public_key()
    module = sdk("appstoreserverlibrary.signed_data_verifier")
    verifier = module.SignedDataVerifier(
        [der(brought if ours else root)], False, module.Environment.SANDBOX, "com.example.tides"
    )
    verifier._chain_verifier.enable_strict_checks = not ours
    return verifier.verify_and_decode_notification(payload)


APPLE_NOTIFICATION = {
    "notificationType": "DID_CHANGE_RENEWAL_STATUS",
    "subtype": "AUTO_RENEW_DISABLED",
    "notificationUUID": "002e14d5-51f5-4503-b5a8-c3a1af68eb20",
    "version": "2.0",
    "data": {"bundleId": "com.example.tides", "environment": "Sandbox"},
}
APPLE = Case(
    provider="apple_appstore",
    accepts=apple_accepts,
    signs=apple_signs,
    shown=lambda key: apple_chain(key)[1][2].public_bytes(serialization.Encoding.PEM).decode().strip(),
    bodies=Bodies(json_with(APPLE_NOTIFICATION)),
    options={"bundle_id": "com.example.tides", "environment": "Sandbox"},
    changed=lambda delivery: with_body(delivery, b".ey", b".eyJhIjoxLCJ"),
    clock=Clock(past=None, future=None, ahead=NO_AGE),
)


# Canonical JSON


def canonical(body: bytes) -> bytes:
    made: bytes = sdk("jcs").canonicalize(json.loads(body))
    return made


def inngest_signs(body: bytes, key: str, at: float, *, dated: bool = True) -> Delivery:
    """Over the canonical spelling, whatever the spelling that is sent."""
    signed = canonical(body) + (seconds(at).encode() if dated else b"")
    made = hexed(key.removeprefix("signkey-prod-"), signed)
    return posted(body, {"X-Inngest-Signature": f"t={seconds(at)}&s={made}" if dated else f"s={made}"})


def inngest_accepts(delivery: Delivery, key: str) -> object:
    net, server = sdk("inngest._internal.net"), sdk("inngest._internal.server_lib")
    found = net.validate_request_sig(
        body=delivery.body,
        headers=heads(delivery),
        mode=server.ServerKind.CLOUD,
        signing_key=key,
        signing_key_fallback=None,
    )
    return found == key


WITHOUT_EXPONENT = FRACTIONS.filter(lambda number: number == 0 or 1e-4 <= abs(number) < 1e21)
INNGEST = Case(
    provider="inngest",
    accepts=inngest_accepts,
    signs=inngest_signs,
    bodies=Bodies(json_with({"id": "evt_1", "type": "thing.made"}), values(WITHOUT_EXPONENT)),
    # In canonical spelling, because ours signs what it is given as it is.
    unsigned=lambda body: posted(canonical(body)),
    secret=lambda number: "signkey-prod-" + hashlib.sha256(str(number).encode()).hexdigest(),
    changed=lambda delivery: with_body(delivery, b"evt_1", b"evt_2"),
    clock=Clock(past=None, future=None, older=NO_AGE, ahead=NO_AGE),
    differs=(
        stricter(
            "without a time they take a signature over the body alone, which is good for ever",
            lambda key, now: inngest_signs(DOCUMENTS.example, key, now, dated=False),
        ),
        stricter(
            "numbers with an exponent are only taken as they are signed, not spelt again: that has too many ways to go wrong",
            lambda key, now: inngest_signs(b'{"note":1e21}', key, now),
        ),
    ),
)


CASES: dict[str, Case] = {
    "Adyen": ADYEN,
    "Adyen, platform": ADYEN_PLATFORM,
    "app-store-server-library": APPLE,
    "atlassian-jwt": CONNECT,
    "box-sdk-gen": BOX,
    "braintree": BRAINTREE,
    "cloudinary, sha1": cloudinary("sha1"),
    "cloudinary, sha256": cloudinary("sha256"),
    "coinbase-commerce": COINBASE,
    "discord-interactions": DISCORD,
    "dropbox-sign": DROPBOX_SIGN,
    "easypost": EASYPOST,
    "finch-api": FINCH_CASE,
    "gidgethub": GITHUB,
    "gocardless-pro": GOCARDLESS,
    "google-auth": PUBSUB,
    "increase": INCREASE,
    "inngest": INNGEST,
    "line-bot-sdk": LINE,
    "livekit-api": LIVEKIT,
    "livekit-api, its own token": LIVEKIT_ITSELF,
    "mailgun": MAILGUN,
    "mercadopago": MERCADOPAGO,
    "mercadopago, milliseconds": MERCADOPAGO_MILLIS,
    "messagebird": MESSAGEBIRD,
    "modern-treasury": MODERN_TREASURY,
    "openai": OPENAI,
    "openai, a key without whsec_": OPENAI_RAW,
    "orb-billing": ORB,
    "orb-billing, a time without a zone": ORB_WITHOUT_ZONE,
    "paddle-python-sdk": PADDLE,
    "paypalrestsdk": PAYPAL,
    "paddle-python-sdk, its own tolerance": PADDLE_AS_IT_COMES,
    "plivo": PLIVO,
    "plivo, no query": PLIVO_WITHOUT_QUERY,
    "polar-sdk": POLAR,
    "polar-sdk, base64": POLAR_BASE64,
    "pusher": PUSHER,
    "pyairtable": AIRTABLE,
    "qstash": QSTASH,
    "razorpay": RAZORPAY,
    "replicate": REPLICATE,
    "replicate, its own tolerance": REPLICATE_AS_IT_COMES,
    "resend": RESEND,
    "retell-sdk": RETELL,
    "sendgrid": SENDGRID,
    "sinch, conversation": SINCH_CONVERSATION,
    "sinch, numbers": SINCH_NUMBERS,
    "sinch, voice": SINCH_SERVICE,
    "slack-sdk": SLACK,
    "smartcar": SMARTCAR,
    "standardwebhooks": STANDARD,
    "standardwebhooks for bigcommerce": BIGCOMMERCE,
    **{
        f"standardwebhooks for {name}": dataclasses.replace(STANDARD, provider=name, differs=())
        for name in SAME_AS_STANDARD
    },
    "stripe": STRIPE,
    "svix": SVIX_CASE,
    "svix for clerk": dataclasses.replace(SVIX_CASE, provider="clerk", differs=()),
    "twilio": TWILIO,
    "twilio, a shared key": TWILIO_SHARED,
    "twilio, JSON": TWILIO_JSON,
    "viberbot": VIBER,
    "vonage-jwt": VONAGE,
    "workos": WORKOS,
}
TIMED = [name for name, case in CASES.items() if case.clock is not None]
JOINED = [name for name, case in CASES.items() if case.joined is not None]
UNCOVERED = [name for name, case in CASES.items() if case.uncovered is not None]
DIFFERENCES = [pytest.param(name, one, id=f"{name}: {one.why}") for name, case in CASES.items() for one in case.differs]


# -- asking both ------------------------------------------------------------------------------------------------------


@cache
def key_of(name: str, number: int) -> str:
    """What signs. Each number is another key."""
    case = CASES[name]
    if case.secret is not None:
        return case.secret(number)
    declared: Any = PROVIDERS[case.provider]
    made = declared.new_secret() if hasattr(declared, "new_secret") else PROVIDERS["svix"].new_secret()
    return bytes(made).decode()


@cache
def endpoint_of(name: str, *numbers: int) -> Endpoint:
    """A source of ours with these keys, as people configure them."""
    case = CASES[name]
    declared = PROVIDERS[case.provider]
    options = {"url": URL} if getattr(declared, "url_needed", False) else {}
    shown = [case.shown(key_of(name, number)) for number in numbers]
    return declared(shown, **{**options, **case.options})


def we_accept(name: str, delivery: Delivery, now: float, *numbers: int) -> bool:
    try:
        verify(endpoint_of(name, *(numbers or (0,))), delivery, now)
    except VerificationError:
        return False
    return True


def they_accept(name: str, delivery: Delivery, number: int = 0) -> bool:
    """Whether their library takes it, on the real clock. They refuse with errors of all kinds."""
    case = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(case.accepts(delivery, case.shown(key_of(name, number))))
        except Exception:
            return False


def they_sign(name: str, body: bytes, at: float, number: int = 0) -> Delivery:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CASES[name].signs(body, key_of(name, number), at)


def we_sign(name: str, body: bytes, at: float) -> Delivery:
    scheme: Any = endpoint_of(name, 0).provider.scheme
    return scheme.seal(CASES[name].unsigned(body), Secret(value=key_of(name, 0).encode()), at, MESSAGE)


modestly = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# -- tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@modestly
@given(data=st.data())
def test_what_we_sign_they_accept(name, data):
    """Whatever the body says: their library finds our signature where it looks, and right."""
    delivery = we_sign(name, data.draw(CASES[name].bodies.drawn), time.time())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Not by they_accept: what they raise says what is wrong.
        assert CASES[name].accepts(delivery, CASES[name].shown(key_of(name, 0)))


@pytest.mark.parametrize("name", CASES)
@modestly
@given(data=st.data())
def test_what_they_sign_we_accept(name, data):
    """Whatever the body says: what their side signs is accepted by both, on the key that made it."""
    now = time.time()
    delivery = they_sign(name, data.draw(CASES[name].bodies.drawn), now)
    endpoint = endpoint_of(name, 0)
    assert verify(endpoint, delivery, now).secret_id == endpoint.secrets[0].id
    assert they_accept(name, delivery)


@pytest.mark.parametrize("name", CASES)
def test_a_changed_request_is_refused_by_both(name):
    """Something that is signed changes on the way, in what they signed and in what we did."""
    now = time.time()
    for signed in (they_sign(name, CASES[name].bodies.example, now), we_sign(name, CASES[name].bodies.example, now)):
        changed = CASES[name].changed(signed)
        assert changed != signed
        assert not we_accept(name, changed, now)
        assert not they_accept(name, changed)


@pytest.mark.parametrize("name", CASES)
def test_another_key_is_refused_by_both(name):
    """A genuine request with the key of another endpoint."""
    now = time.time()
    for signed in (they_sign(name, CASES[name].bodies.example, now), we_sign(name, CASES[name].bodies.example, now)):
        assert not we_accept(name, signed, now, 1)
        assert not they_accept(name, signed, 1)


@pytest.mark.parametrize("name", CASES)
def test_both_keys_count_while_they_are_rotated(name):
    """With the old key beside the new one we accept what either of them signed, in either order, and say which one did."""
    now = time.time()
    for number in (0, 1):
        signed = they_sign(name, CASES[name].bodies.example, now, number)
        assert they_accept(name, signed, number)
        alone = endpoint_of(name, number).secrets[0].id
        assert verify(endpoint_of(name, 0, 1), signed, now).secret_id == alone
        assert verify(endpoint_of(name, 1, 0), signed, now).secret_id == alone


@pytest.mark.parametrize("name", JOINED)
def test_either_of_two_signatures_counts_while_they_rotate(name):
    """While the sender signs with two keys, whoever has one of them accepts, and whoever has a third one does not."""
    now = time.time()
    join = CASES[name].joined
    signed = join(*(they_sign(name, CASES[name].bodies.example, now, number) for number in (0, 1)))
    for number in (0, 1):
        assert we_accept(name, signed, now, number)
        assert they_accept(name, signed, number)
    assert not we_accept(name, signed, now, 2)
    assert not they_accept(name, signed, 2)


@pytest.mark.parametrize("name", TIMED)
def test_old_requests(name):
    """What they refuse as too old we refuse, what is young enough for them is for us; they may have no limit at all."""
    now, clock, body = time.time(), CASES[name].clock, CASES[name].bodies.example
    if clock.past is not None:
        stale = they_sign(name, body, now - clock.past - MARGIN)
        assert not they_accept(name, stale)
        assert not we_accept(name, stale, now)
        fresh = they_sign(name, body, now - clock.past + MARGIN)
        assert they_accept(name, fresh)
        assert we_accept(name, fresh, now)
    else:
        ancient = they_sign(name, body, now - YEAR)
        assert they_accept(name, ancient)
        assert we_accept(name, ancient, now) is (clock.older == "")


@pytest.mark.parametrize("name", TIMED)
def test_requests_from_the_future(name):
    """What they refuse as too early we refuse at the latest 5 minutes ahead, and we do where they never would."""
    now, clock, body = time.time(), CASES[name].clock, CASES[name].bodies.example
    far = they_sign(name, body, now + YEAR)
    assert not we_accept(name, far, now)
    assert they_accept(name, far) is (clock.future is None)
    assert (clock.future is None) is bool(clock.ahead)
    if clock.future is not None:
        early = they_sign(name, body, now + max(clock.future, AHEAD) + MARGIN)
        assert not they_accept(name, early)
        assert not we_accept(name, early, now)


@pytest.mark.parametrize("name", UNCOVERED)
def test_what_nobody_signed_can_change(name):
    """Neither side can notice, and ours says so to whoever asks."""
    now = time.time()
    changed = CASES[name].uncovered(they_sign(name, CASES[name].bodies.example, now))
    assert they_accept(name, changed)
    assert we_accept(name, changed, now)
    assert not endpoint_of(name, 0).provider.scheme.body_bound
    assert PROVIDERS[CASES[name].provider].note


def with_crc_of(body: bytes, wanted: bytes) -> bytes:
    """This JSON with one more member, of letters whose cases are chosen so that it has the checksum of another one."""
    start = body.removesuffix(b"}") + b',"_":"'
    letters = bytearray(b"a" * 64)

    def checksum() -> int:
        return zlib.crc32(start + letters + b'"}')

    left, rows = checksum() ^ zlib.crc32(wanted), []
    for place in range(len(letters)):
        letters[place] ^= 0x20
        row = (checksum(), 1 << place)
        letters[place] ^= 0x20
        rows.append((row[0] ^ checksum(), row[1]))
    flips = 0
    for bit in range(32):
        pivot = next((row for row in rows if row[0] >> bit & 1), None)
        if pivot is None:
            continue
        rows = [(row[0] ^ pivot[0], row[1] ^ pivot[1]) if row[0] >> bit & 1 else row for row in rows]
        if left >> bit & 1:
            left, flips = left ^ pivot[0], flips ^ pivot[1]
    for place in range(len(letters)):
        letters[place] ^= 0x20 * (flips >> place & 1)
    return start + letters + b'"}'


def test_paypal_signs_a_checksum():
    """Whoever has one genuine request can write another body for it. Neither side can notice; ours says so."""
    now, body = time.time(), DOCUMENTS.example
    genuine = they_sign("paypalrestsdk", body, now)
    forged = dataclasses.replace(genuine, body=with_crc_of(body.replace(b"evt_1", b"evt_2"), body))
    assert json.loads(forged.body)["id"] == "evt_2"
    assert they_accept("paypalrestsdk", forged)
    assert we_accept("paypalrestsdk", forged, now)
    assert "CRC-32" in PROVIDERS["paypal"].note


@pytest.mark.parametrize(("name", "one"), DIFFERENCES)
def test_where_we_judge_differently_on_purpose(name, one):
    """Each difference is as it is told, on either side: one that their next version mends shows up here."""
    now = time.time()
    delivery = one.make(key_of(name, 0), now)
    assert we_accept(name, delivery, now) is one.ours
    assert they_accept(name, delivery) is one.theirs
    assert one.ours is not one.theirs
