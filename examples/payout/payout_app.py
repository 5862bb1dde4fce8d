"""A payout fee and a paid order, each exactly once however often the provider sends.

Money is whole cents. The handlers write on the connection they are given; it is committed together with "this event is
done", so a crash leaves both or neither.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

from hookonce import Discard, Event, Inbox, Retry
from hookonce.config import load

FEE_BASIS_POINTS = 50
"""0.5 %."""

SLOW_SECONDS = float(os.environ.get("PAYOUT_SLOW_SECONDS", "0"))
"""How long the bank takes to say what a payout costs. The incident happened while it took two seconds."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS payout_fee (payout_id TEXT PRIMARY KEY, amount_cents BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS shop_order (id TEXT PRIMARY KEY, amount_cents BIGINT NOT NULL, paid_at TEXT)",
    "CREATE TABLE IF NOT EXISTS balance (account TEXT PRIMARY KEY, cents BIGINT NOT NULL)",
    "INSERT INTO balance (account, cents) VALUES ('fees', 0) ON CONFLICT DO NOTHING",
    "INSERT INTO balance (account, cents) VALUES ('sales', 0) ON CONFLICT DO NOTHING",
    "INSERT INTO shop_order (id, amount_cents) VALUES ('order_1', 4250) ON CONFLICT DO NOTHING",
)

INSERT_FEE = """
    INSERT INTO payout_fee (payout_id, amount_cents) VALUES (:id, :fee) ON CONFLICT DO NOTHING RETURNING payout_id"""

inbox = Inbox()  # the database of hookonce.toml
stripe = inbox.source("stripe")  # provider and secrets: [sources.stripe] in hookonce.toml
shop = inbox.source("shop")


@inbox.on_start
def setup(conn: Any) -> None:
    """Create the tables of this application."""
    for statement in TABLES:
        run(conn, statement)


@stripe.on("payout.paid", timeout=10)
def charge_fee(event: Event, conn: Any) -> None:
    """Charge the fee of a payout: 0.5 %, once a payout."""
    payout = event["data.object"]
    fee = fee_cents(payout["amount"])
    time.sleep(SLOW_SECONDS)
    # Two events may speak of one payout: the row says whether it was charged, whoever asks.
    if run(conn, INSERT_FEE, id=payout["id"], fee=fee):
        charge(conn, "fees", fee)


@shop.on("order.paid")
def mark_paid(event: Event, conn: Any) -> None:
    """Mark an order as paid and book the sale. The first time of payment stays."""
    order_id = event["data.id"]
    orders = run(conn, "SELECT amount_cents, paid_at FROM shop_order WHERE id = :id", id=order_id)
    if not orders:
        raise Retry(f"there is no order {order_id} yet")
    amount, paid_at = orders[0]
    if amount != event["data.amount"]:
        raise Discard(f"order {order_id} costs {amount} cents, the event says {event['data.amount']}")
    if paid_at is None:
        run(conn, "UPDATE shop_order SET paid_at = :at WHERE id = :id", at=event["timestamp"], id=order_id)
        charge(conn, "sales", amount)


def fee_cents(amount_cents: int) -> int:
    """0.5 %, half a cent rounded up, in whole numbers."""
    return (amount_cents * FEE_BASIS_POINTS + 5_000) // 10_000


def charge(conn: Any, account: str, cents: int) -> None:
    run(conn, "UPDATE balance SET cents = cents + :cents WHERE account = :account", cents=cents, account=account)


def run(conn: Any, statement: str, **values: object) -> list[Any]:
    """The same SQL on sqlite3 and psycopg, which write their placeholders differently."""
    if "sqlite" not in type(conn).__module__:
        statement = re.sub(r":(\w+)", r"%(\1)s", statement)
    cursor = conn.execute(statement, values)
    return cursor.fetchall() if cursor.description else []


def connect(url: str) -> Any:
    """A connection of our own, to look at what the handlers wrote."""
    if url.startswith("sqlite:///"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    import psycopg

    return psycopg.connect(url)


def report(url: str) -> str:
    """Fees, orders and balances, as an accountant wants them."""
    conn = connect(url)
    try:
        lines = [
            f"fee of {payout}: {money(cents)}" for payout, cents in run(conn, "SELECT * FROM payout_fee ORDER BY 1")
        ]
        orders = run(conn, "SELECT id, amount_cents, paid_at FROM shop_order ORDER BY 1")
        lines += [f"order {order}: {money(cents)}, {f'paid {at}' if at else 'not paid'}" for order, cents, at in orders]
        balances = run(conn, "SELECT account, cents FROM balance ORDER BY 1")
        lines += [f"balance of {account}: {money(cents)}" for account, cents in balances]
    finally:
        conn.close()
    return "\n".join(lines)


def money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d}"


if __name__ == "__main__":
    print(
        report(load(file=os.environ.get("HOOKONCE_CONFIG", str(Path(__file__).with_name("hookonce.toml"))))["database"])
    )
