"""The public names, as users write them. Only type-checked, never run."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import psycopg
from sqlalchemy.orm import Session

import hookonce
from hookonce import (
    Backoff,
    Bounds,
    ConfigurationError,
    Discard,
    Event,
    HookonceError,
    Inbox,
    Park,
    Retry,
    Secret,
    Source,
    State,
    StorageError,
    Stored,
    Verdict,
    VerificationError,
    WorkerSettings,
)
from hookonce.asgi import App
from hookonce.clock import SetClock
from hookonce.errors import Reason
from hookonce.flow.lookup import Receipt, shown
from hookonce.providers import GitHub, Hmac, StandardWebhooks, Stripe

inbox = Inbox("sqlite:///app.db")
Inbox()
Inbox(
    "postgresql://app@localhost/app",
    bounds=Bounds(body_bytes_max=1 << 16, source_rate=100.0, event_age_seconds=3_600.0),
    worker=WorkerSettings(concurrency=4, lease_seconds=5.0, group=1),
    clock=SetClock(),
)
Inbox(lambda: sqlite3.connect("app.db"))

stripe = inbox.source(Stripe("whsec_1"))
assert_type(stripe, Source)
inbox.source(Stripe(["whsec_1", Secret(value=b"whsec_2", label="old", not_after=datetime.now(UTC))], name="both"))
inbox.source(Stripe("whsec_3", name="pinned", tested_version="2025-09-30.clover", hold_other_versions=True))
inbox.source(GitHub(b"secret"))
inbox.source(StandardWebhooks("whsec_c2VjcmV0", object_id="body:data.id"))
inbox.source(Hmac("secret", header="X-Sig", event_id="body:id", type=("body:kind", "body:action"), plain_ok=True))
inbox.source("from_the_configuration")


@stripe.on("invoice.paid", "invoice.payment_succeeded", attempts=5, backoff=Backoff(first_seconds=1.0), timeout=2.0)
def paid(event: Event, conn: sqlite3.Connection) -> None:
    """A handler on a connection."""
    conn.execute("INSERT INTO paid VALUES (?, ?)", (event.id, event["data.object.id"]))


@stripe.on("payout.*", backoff=[5, 60, 300])
async def payout(event: Event, conn: psycopg.AsyncConnection[Any]) -> None:
    """An asynchronous handler."""
    await conn.execute("SELECT 1")


@stripe.on("charge.*", batch=100, backoff=300)
def charges(events: list[Event], session: Session) -> None:
    """A handler of many, on a session."""
    session.flush()


@stripe.on()
def everything(event: Event) -> None:
    """A handler that answers by value."""
    match event.type:
        case "a":
            raise Retry("not now", after=timedelta(minutes=5))
        case "b":
            raise Retry(after=5)
        case "c":
            raise Park(key="invoice 7", wait=timedelta(hours=2))
        case _:
            raise Discard("not ours")


# Decorated functions stay what they are.
assert_type(everything(event=Event.__new__(Event)), None)
returned: Callable[[Event, sqlite3.Connection], None] = paid


@inbox.on_start
def tables(conn: sqlite3.Connection) -> None:
    """What runs before the first event."""
    conn.execute("CREATE TABLE IF NOT EXISTS paid (id TEXT)")


def read(event: Event) -> None:
    """What an event says."""
    assert_type(event.id, str)
    assert_type(event.source, str)
    assert_type(event.type, str | None)
    assert_type(event.object_id, str | None)
    assert_type(event.account, str | None)
    assert_type(event.api_version, str | None)
    assert_type(event.delivery_id, str | None)
    assert_type(event.raw, bytes)
    assert_type(event.headers, Mapping[str, str])
    assert_type(event.received_at, datetime)
    assert_type(event.created_at, datetime | None)
    assert_type(event.attempt, int)
    assert_type(event.generation, int)
    assert_type(event.receipt_id, int)


async def receive(body: bytes, headers: dict[str, str]) -> bool:
    """Accept without HTTP."""
    try:
        stored = await inbox.accept("stripe", body, headers)
    except VerificationError as error:
        assert_type(error.reason, Reason)
        return False
    except StorageError as error:
        assert_type(error.code, str)
        raise
    assert_type(stored, Stored)
    assert_type(stored.verdict, Verdict)
    return stored.verdict is Verdict.ACCEPTED


async def ask(receipt_id: int) -> State:
    """Ask about one receipt."""
    receipt = await inbox.ask(shown(receipt_id))
    assert_type(receipt, Receipt)
    return receipt.state


def mount() -> tuple[App, Callable[..., Any]]:
    """Both doors."""
    return inbox.asgi("/webhooks"), inbox.wsgi("/webhooks")


def problems() -> Sequence[HookonceError | str]:
    """What is wrong with a configuration."""
    try:
        Inbox("mysql://localhost/app")
    except ConfigurationError as error:
        return error.problems
    return []


closing: Callable[[], Awaitable[None]] = inbox.close
draining: Callable[[], None] = inbox.process_pending
version: str = hookonce.__version__
