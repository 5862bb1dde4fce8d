"""Verify: what checking one signature costs, provider by provider, for a body of 2 KB."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.databases import Lab
from benchmarks.report import Goal, Report
from benchmarks.settings import Settings
from hookonce.model import Delivery, Secret
from hookonce.providers.known import REGISTERED, Known
from hookonce.providers.samples import sample
from hookonce.schemes.base import Described
from hookonce.schemes.signature import SignatureScheme
from hookonce.schemes.standard_webhooks import StandardWebhooksScheme
from hookonce.schemes.stripe import StripeScheme

BODY_BYTES = 2048
NOW = 1_800_000_000.0
LOOPS = 300
GOAL_US = 15.0
URL = "https://example.com/webhooks/source"
HEADERS = [
    (b"host", b"example.com"), (b"accept", b"*/*"), (b"accept-encoding", b"gzip"), (b"connection", b"close"),
    (b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-proto", b"https"),
]  # fmt: skip


def kind(declared: type[Known]) -> str:
    """Which sort of signature: only those of the first are bound by a goal."""
    scheme = declared.scheme
    if isinstance(scheme, StripeScheme | StandardWebhooksScheme):
        return "HMAC"
    if isinstance(scheme, SignatureScheme) and scheme.digest in ("sha1", "sha256", "sha512"):
        return "HMAC"
    return "other"


def request(declared: type[Known], endpoint: Known, secret: Secret) -> Delivery:
    """A genuine request whose body is 2 KB, where the signature allows it to be padded."""
    made = sample(declared.id, declared.sample_type, event_id=declared.sample_id, seed=1, created=int(NOW))
    body = made.body
    if declared.sample_as == "json" and body.endswith(b"}") and len(body) < BODY_BYTES:
        body = body[:-1] + b',"padding":"' + b"x" * (BODY_BYTES - len(body) - 13) + b'"}'
    unsigned = Delivery(declared.id, [*HEADERS, *made.headers], body, "/webhooks/source", made.query)
    scheme = endpoint.provider.scheme
    assert isinstance(scheme, Described)
    return scheme.seal(unsigned, secret, NOW, declared.sample_id or "msg_1")


def measure(name: str) -> tuple[float, float, int]:
    """Microseconds for the signature, and for reading the facts as well; and the size of the body."""
    declared = REGISTERED[name]
    secret = Secret(value=declared.new_secret())
    options = {"url": URL} if declared.url_needed else {}
    endpoint = declared([secret], **{**options, **declared.sample_options})
    delivery = request(declared, endpoint, secret)
    verify, facts = endpoint.provider.scheme.verify, endpoint.provider.facts
    verify(delivery, endpoint.secrets, NOW)
    alone, both = [], []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(LOOPS):
            verify(delivery, endpoint.secrets, NOW)
        middle = time.perf_counter()
        for _ in range(LOOPS):
            verify(delivery, endpoint.secrets, NOW)
            facts(delivery)
        alone.append((middle - began) / LOOPS * 1e6)
        both.append((time.perf_counter() - middle) / LOOPS * 1e6)
    return median(alone), median(both), len(delivery.body)


def run(settings: Settings, lab: Lab) -> Report:
    del lab
    report = Report(
        section="verify",
        title="Verify: microseconds a request, one secret",
        columns=("provider", "signature", "body bytes", "verify us", "verify and read us"),
        notes=["Bodies are padded to 2 KB where they are JSON objects. Medians of five series, one core, no server."],
    )
    slowest: dict[str, float] = {}
    for name in sorted(REGISTERED):
        alone, both, size = measure(name)
        sort = kind(REGISTERED[name])
        if sort == "HMAC":
            slowest[name] = alone
        report.rows.append((name, sort, size, f"{alone:.1f}", f"{both:.1f}"))
        report.data[name] = {"verify_us": alone, "both_us": both}
        settings.progress(f"verify {name}: {alone:.1f} us")
    worst = max(slowest, key=slowest.__getitem__)
    report.goals = [
        Goal(f"the slowest HMAC scheme ({worst})", GOAL_US, slowest[worst], at_least=False, unit=" us"),
        Goal("their median", GOAL_US, median(slowest.values()), at_least=False, unit=" us"),
    ]
    return report
