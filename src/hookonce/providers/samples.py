"""Realistic requests without a signature, the same ones for the same seed: for tests, demonstrations and storms."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from string import ascii_letters, digits, hexdigits
from typing import Any
from urllib.parse import urlencode

from hookonce.providers.documents import FormBatch, JsonBatch
from hookonce.providers.known import REGISTERED, Known
from hookonce.providers.locate import Locator
from hookonce.schemes.request import walk

FIRST_CREATED = 1_760_000_000
CREATED_RANGE = 30_000_000

Body = dict[str, object]


@dataclass(frozen=True, slots=True)
class Sample:
    """A body as the provider would write it, and the headers it sends besides the signature."""

    body: bytes
    headers: list[tuple[bytes, bytes]]
    query: bytes = b""


@dataclass(frozen=True, slots=True)
class Draft:
    """What the body of one sample is made from."""

    type: str
    event_id: str | None
    random: Random
    created: int

    def id(self, prefix: str, length: int = 24) -> str:
        """An id such as providers give: a prefix, and letters and digits."""
        return prefix + "".join(self.random.choices(ascii_letters + digits, k=length))

    def hex(self, length: int) -> str:
        """So many hex digits."""
        return "".join(self.random.choices(hexdigits[:16], k=length))

    def guid(self) -> str:
        """Hex digits in the grouping of a GUID."""
        return "-".join(self.hex(length) for length in (8, 4, 4, 4, 12))

    def iso(self) -> str:
        """The time of creation as text."""
        return datetime.fromtimestamp(self.created, UTC).isoformat().replace("+00:00", "Z")


def filled(declared: type[Known], draft: Draft) -> Sample:
    """A provider's own sample with the id, the type, the object and the time where its declaration says they are.

    Of an id in pieces the first gets the id that was asked for, so it is neither the type nor the time.
    """
    document = copy.deepcopy(declared.sample)
    headers = [*_common(b"application/json"), (b"user-agent", f"{declared.title} webhooks".encode("ascii", "replace"))]
    event = _event_in(document, declared)
    facts = declared.locators
    if callable(facts.event_time) or facts.time_unit == "ms":
        moment: object = draft.created * 1000
    else:
        moment = draft.created
    wanted: list[tuple[Locator | None, object]] = [
        (facts.delivery_id, draft.guid()),
        (facts.object_id, draft.id("obj_", 16)),
        (facts.event_time, moment),
        (facts.type, draft.type),
        (facts.event_id, draft.event_id or draft.id("evt_", 20)),
    ]
    for locator, value in wanted:
        for place, piece in _places(locator, value):
            _put(place, piece, event, headers, draft)
    if declared.sample_as == "form":
        headers[1] = (b"content-type", b"application/x-www-form-urlencoded")
        return Sample(_as_form(document, declared), headers, declared.sample_query.encode())
    return Sample(_compact(document), headers, declared.sample_query.encode())


def _event_in(document: Any, declared: type[Known]) -> Any:
    """The event inside a batch, or all there is."""
    split = declared.split
    if isinstance(split, JsonBatch):
        document = walk(document, tuple(split.path.split("."))) if split.path else document
        return document[0]
    return document[0] if isinstance(document, list) else document


def _places(locator: Locator | None, value: object) -> list[tuple[str, object]]:
    """Where a value goes. The pieces of a type share it; of an id in pieces the first has it, the others something."""
    if locator is None or callable(locator):
        return []
    if isinstance(locator, str):
        return [(locator.split("|")[0], value)]
    pieces = str(value).split(".", len(locator) - 1)
    return [(piece.split("|")[0], part) for piece, part in zip(locator, pieces, strict=False) if isinstance(piece, str)]


def _put(place: str, value: object, event: Any, headers: list[tuple[bytes, bytes]], draft: Draft) -> None:
    kind, _, path = place.partition(":")
    if kind == "header":
        text = draft.iso() if isinstance(value, int) else str(value)
        headers[:] = [pair for pair in headers if pair[0] != path.lower().encode()]
        headers.append((path.lower().encode(), text.encode("latin-1")))
    elif kind == "body" and isinstance(event, dict):
        names = path.split(".")
        inner: Any = event
        for name, following in itertools.pairwise(names):
            inner = _into(inner, name, following)
        was = inner[int(names[-1])] if isinstance(inner, list) else inner.get(names[-1])
        if isinstance(value, int) and isinstance(was, str):
            value = draft.iso() if not was.isdecimal() else str(value)
        if isinstance(was, int) and isinstance(value, str):
            value = int(value) if value.isdecimal() else draft.random.randrange(10**6, 10**9)
        inner[int(names[-1]) if isinstance(inner, list) else names[-1]] = value


def _into(inner: Any, name: str, following: str) -> Any:
    """One step down, made where there is none yet."""
    if isinstance(inner, list):
        return inner[int(name)]
    if not isinstance(inner.get(name), dict | list):
        inner[name] = [{}] if following.isdecimal() else {}
    return inner[name]


def _as_form(document: Any, declared: type[Known]) -> bytes:
    if isinstance(declared.split, FormBatch):
        return urlencode({declared.split.field: _compact(document).decode()}).encode()
    return urlencode(document).encode()


def sample(
    provider_name: str,
    type: str,
    *,
    event_id: str | None = None,
    seed: int | str = 0,
    created: int | None = None,
) -> Sample:
    """Make the request of one event. An unknown type gets an object that its sender might well have."""
    random = Random(f"{provider_name} {type} {seed}")  # noqa: S311
    moment = FIRST_CREATED + random.randrange(CREATED_RANGE)
    draft = Draft(type, event_id, random, moment if created is None else created)
    maker = MAKERS.get(provider_name)
    if maker is not None:
        return maker(draft)
    declared = REGISTERED.get(provider_name)
    return _generic(draft) if declared is None or declared.sample is None else filled(declared, draft)


def _stripe(draft: Draft) -> Sample:
    event: Body = {
        "id": draft.event_id or draft.id("evt_1"),
        "object": "event",
        "api_version": "2025-09-30.clover",
        "created": draft.created,
        "data": {"object": STRIPE_OBJECTS.get(draft.type, _stripe_other)(draft)},
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": draft.id("req_", 14), "idempotency_key": draft.guid()},
        "type": draft.type,
    }
    headers = [
        *_common(b"application/json; charset=utf-8"),
        (b"user-agent", b"Stripe/1.0 (+https://stripe.com/docs/webhooks)"),
    ]
    return Sample(json.dumps(event, indent=2).encode(), headers)


def _stripe_invoice(draft: Draft) -> Body:
    amount = draft.random.randrange(900, 250_000)
    customer = draft.id("cus_", 14)
    return {
        "id": draft.id("in_1"),
        "object": "invoice",
        "account_country": "IE",
        "account_name": "Harbour Lane Books",
        "amount_due": amount,
        "amount_paid": amount,
        "amount_remaining": 0,
        "attempt_count": 1,
        "attempted": True,
        "auto_advance": False,
        "billing_reason": "subscription_cycle",
        "collection_method": "charge_automatically",
        "created": draft.created - 3600,
        "currency": "eur",
        "customer": customer,
        "customer_address": {"city": "Galway", "country": "IE", "line1": "4 Quay Street", "postal_code": "H91 X2YP"},
        "customer_email": "aoife@example.com",
        "customer_name": "Aoife Ní Bhriain",
        "default_payment_method": None,
        "hosted_invoice_url": f"https://invoice.example.com/i/{draft.id('acct_1', 16)}/{draft.id('test_', 40)}",
        "lines": {"object": "list", "data": [_stripe_line(draft, amount)], "has_more": False, "total_count": 1},
        "livemode": False,
        "metadata": {"order": str(draft.random.randrange(10_000, 99_999))},
        "number": f"{draft.hex(8).upper()}-{draft.random.randrange(1, 9999):04d}",
        "paid": True,
        "payment_intent": draft.id("pi_3"),
        "period_end": draft.created,
        "period_start": draft.created - 2_592_000,
        "status": "paid",
        "status_transitions": {"finalized_at": draft.created - 60, "paid_at": draft.created, "voided_at": None},
        "subscription": draft.id("sub_1"),
        "subtotal": amount,
        "total": amount,
        "webhooks_delivered_at": draft.created - 3590,
    }


def _stripe_line(draft: Draft, amount: int) -> Body:
    return {
        "id": draft.id("il_1"),
        "object": "line_item",
        "amount": amount,
        "currency": "eur",
        "description": "1 seat - Reading circle (monthly)",
        "period": {"end": draft.created, "start": draft.created - 2_592_000},
        "quantity": 1,
    }


def _stripe_payout(draft: Draft) -> Body:
    paid = draft.type == "payout.paid"
    return {
        "id": draft.id("po_1"),
        "object": "payout",
        "amount": draft.random.randrange(5_000, 900_000),
        "arrival_date": draft.created + (0 if paid else 172_800),
        "automatic": True,
        "balance_transaction": draft.id("txn_1"),
        "created": draft.created - (172_800 if paid else 0),
        "currency": "eur",
        "description": "STRIPE PAYOUT",
        "destination": draft.id("ba_1"),
        "failure_code": None,
        "failure_message": None,
        "livemode": False,
        "metadata": {},
        "method": "standard",
        "reconciliation_status": "completed" if paid else "in_progress",
        "source_type": "card",
        "statement_descriptor": None,
        "status": "paid" if paid else "pending",
        "type": "bank_account",
    }


def _stripe_charge(draft: Draft) -> Body:
    amount = draft.random.randrange(500, 80_000)
    return {
        "id": draft.id("ch_3"),
        "object": "charge",
        "amount": amount,
        "amount_captured": amount,
        "amount_refunded": amount,
        "balance_transaction": draft.id("txn_3"),
        "billing_details": {"email": "tomas@example.com", "name": "Tomáš Dvořák", "phone": None},
        "captured": True,
        "created": draft.created - 86_400,
        "currency": "eur",
        "customer": draft.id("cus_", 14),
        "description": "Order " + str(draft.random.randrange(10_000, 99_999)),
        "disputed": False,
        "livemode": False,
        "metadata": {},
        "outcome": {"network_status": "approved_by_network", "risk_level": "normal", "type": "authorized"},
        "paid": True,
        "payment_intent": draft.id("pi_3"),
        "payment_method": draft.id("pm_1"),
        "payment_method_details": {"card": {"brand": "visa", "last4": "4242", "network": "visa"}, "type": "card"},
        "refunded": True,
        "status": "succeeded",
    }


def _stripe_subscription(draft: Draft) -> Body:
    price = {"id": draft.id("price_1"), "object": "price", "currency": "eur", "unit_amount": 1900, "type": "recurring"}
    item = {"id": draft.id("si_", 14), "object": "subscription_item", "price": price, "quantity": 1}
    return {
        "id": draft.id("sub_1"),
        "object": "subscription",
        "billing_cycle_anchor": draft.created - 5_184_000,
        "cancel_at": None,
        "cancel_at_period_end": draft.random.random() < 0.3,
        "canceled_at": None,
        "collection_method": "charge_automatically",
        "created": draft.created - 5_184_000,
        "currency": "eur",
        "current_period_end": draft.created + 2_592_000,
        "current_period_start": draft.created,
        "customer": draft.id("cus_", 14),
        "items": {"object": "list", "data": [item], "has_more": False},
        "latest_invoice": draft.id("in_1"),
        "livemode": False,
        "metadata": {"plan": "circle"},
        "status": draft.random.choice(["active", "past_due", "trialing"]),
        "trial_end": None,
    }


def _stripe_checkout(draft: Draft) -> Body:
    amount = draft.random.randrange(900, 60_000)
    return {
        "id": draft.id("cs_test_", 58),
        "object": "checkout.session",
        "amount_subtotal": amount,
        "amount_total": amount,
        "cancel_url": "https://shop.example.com/basket",
        "client_reference_id": str(draft.random.randrange(10_000, 99_999)),
        "created": draft.created - 240,
        "currency": "eur",
        "customer": draft.id("cus_", 14),
        "customer_details": {"email": "lena@example.com", "name": "Lena Vogt", "tax_exempt": "none"},
        "expires_at": draft.created + 86_160,
        "livemode": False,
        "metadata": {},
        "mode": "payment",
        "payment_intent": draft.id("pi_3"),
        "payment_method_types": ["card"],
        "payment_status": "paid",
        "status": "complete",
        "success_url": "https://shop.example.com/thanks",
    }


def _stripe_other(draft: Draft) -> Body:
    kind = draft.type.rpartition(".")[0] or draft.type
    return {
        "id": draft.id(f"{kind.rpartition('.')[2][:4]}_1"),
        "object": kind,
        "created": draft.created - 60,
        "livemode": False,
        "metadata": {},
        "status": draft.type.rpartition(".")[2],
    }


STRIPE_OBJECTS: Mapping[str, Callable[[Draft], Body]] = {
    "invoice.paid": _stripe_invoice,
    "payout.paid": _stripe_payout,
    "payout.created": _stripe_payout,
    "charge.refunded": _stripe_charge,
    "customer.subscription.updated": _stripe_subscription,
    "checkout.session.completed": _stripe_checkout,
}


def _github(draft: Draft) -> Sample:
    event, _, action = draft.type.partition(".")
    body: Body = {"action": action} if action else {}
    body |= GITHUB_BODIES.get(event, _github_other)(draft)
    body |= {"repository": _github_repository(), "sender": _github_user()}
    headers = [
        *_common(b"application/json"),
        (b"user-agent", b"GitHub-Hookshot/" + draft.hex(7).encode()),
        (b"x-github-event", event.encode()),
        (b"x-github-delivery", (draft.event_id or draft.guid()).encode()),
        (b"x-github-hook-id", b"481516234"),
        (b"x-github-hook-installation-target-id", b"70420815"),
        (b"x-github-hook-installation-target-type", b"repository"),
    ]
    return Sample(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(), headers)


def _github_push(draft: Draft) -> Body:
    before, after = draft.hex(40), draft.hex(40)
    author = {"name": "Mira Castellan", "email": "mira@example.com", "username": "mira-castellan"}
    commit: Body = {
        "id": after,
        "tree_id": draft.hex(40),
        "distinct": True,
        "message": "Count the boats before the tide turns",
        "timestamp": draft.iso(),
        "url": f"https://github.com/harbour-lane/tides/commit/{after}",
        "author": author,
        "committer": author,
        "added": [],
        "removed": [],
        "modified": ["src/boats.py"],
    }
    return {
        "ref": "refs/heads/main",
        "before": before,
        "after": after,
        "created": False,
        "deleted": False,
        "forced": False,
        "base_ref": None,
        "compare": f"https://github.com/harbour-lane/tides/compare/{before[:12]}...{after[:12]}",
        "commits": [commit],
        "head_commit": commit,
        "pusher": {"name": "mira-castellan", "email": "mira@example.com"},
    }


def _github_pull_request(draft: Draft) -> Body:
    number = draft.random.randrange(1, 900)
    return {
        "number": number,
        "pull_request": {
            **_github_thread(draft, "pull", number),
            "draft": False,
            "head": {"ref": "slower-tides", "sha": draft.hex(40)},
            "base": {"ref": "main", "sha": draft.hex(40)},
            "merged": False,
            "commits": 2,
            "additions": 34,
            "deletions": 8,
            "changed_files": 3,
        },
    }


def _github_issues(draft: Draft) -> Body:
    return {"issue": {**_github_thread(draft, "issues", draft.random.randrange(1, 900)), "comments": 0, "labels": []}}


def _github_thread(draft: Draft, kind: str, number: int) -> Body:
    return {
        "id": draft.random.randrange(1_000_000_000, 3_000_000_000),
        "number": number,
        "state": "open",
        "title": "The second tide of the day is missing",
        "body": "Steps: open the table for Tuesday, look at the evening.",
        "user": _github_user(),
        "html_url": f"https://github.com/harbour-lane/tides/{kind}/{number}",
        "created_at": draft.iso(),
        "updated_at": draft.iso(),
    }


def _github_ping(draft: Draft) -> Body:
    return {
        "zen": "Measure the water before you build the boat.",
        "hook_id": 481516234,
        "hook": {
            "type": "Repository",
            "id": 481516234,
            "name": "web",
            "active": True,
            "events": ["push", "pull_request"],
            "config": {"content_type": "json", "insecure_ssl": "0", "url": "https://example.com/webhooks/github"},
            "created_at": draft.iso(),
            "updated_at": draft.iso(),
        },
    }


def _github_other(draft: Draft) -> Body:
    return {draft.type.partition(".")[0]: {"id": draft.random.randrange(1_000_000_000), "updated_at": draft.iso()}}


def _github_repository() -> Body:
    return {
        "id": 70420815,
        "name": "tides",
        "full_name": "harbour-lane/tides",
        "private": False,
        "owner": {"login": "harbour-lane", "id": 9120047, "type": "Organization"},
        "html_url": "https://github.com/harbour-lane/tides",
        "default_branch": "main",
    }


def _github_user() -> Body:
    return {"login": "mira-castellan", "id": 5150731, "type": "User", "site_admin": False}


GITHUB_BODIES: Mapping[str, Callable[[Draft], Body]] = {
    "push": _github_push,
    "pull_request": _github_pull_request,
    "issues": _github_issues,
    "ping": _github_ping,
}


def _standard_webhooks(draft: Draft) -> Sample:
    data: Body = {"id": draft.guid(), "name": "Sadia Rahman", "email": "sadia@example.com", "plan": "team"}
    body: Body = {"type": draft.type, "timestamp": draft.iso(), "data": data}
    return Sample(_compact(body), [*_common(b"application/json"), (b"user-agent", b"Webhooks/1.0")])


def _generic(draft: Draft) -> Sample:
    body: Body = {
        "id": draft.event_id or draft.id("ev_", 20),
        "type": draft.type,
        "created": draft.created,
        "data": {"id": draft.id("obj_", 16), "amount": draft.random.randrange(100, 90_000), "note": "Grüße"},
    }
    return Sample(_compact(body), [*_common(b"application/json"), (b"user-agent", b"Acme-Webhooks/2.1")])


def _common(content_type: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"accept", b"*/*"), (b"content-type", content_type)]


def _compact(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


MAKERS: Mapping[str, Callable[[Draft], Sample]] = {
    "stripe": _stripe,
    "github": _github,
    "standard_webhooks": _standard_webhooks,
    "hmac": _generic,
}

__all__ = ["Sample", "sample"]
