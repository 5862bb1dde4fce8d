"""The handler that charged twice: it looks, and then it acts, and a second delivery fits in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from payout_app import fee_cents

TABLE = "CREATE TABLE IF NOT EXISTS naive_fee (payout_id TEXT NOT NULL, amount_cents INTEGER NOT NULL)"


def charge_fee(conn: sqlite3.Connection, event: dict[str, Any], ask_the_bank: Callable[[], None]) -> None:
    """Charge the fee of a payout, unless it was charged already. It looks right, and passes every test alone."""
    payout = event["data"]["object"]
    charged = conn.execute("SELECT 1 FROM naive_fee WHERE payout_id = ?", (payout["id"],)).fetchone()
    if charged:
        return
    ask_the_bank()  # two seconds, and after one of them the provider sends the event again
    conn.execute("INSERT INTO naive_fee VALUES (?, ?)", (payout["id"], fee_cents(payout["amount"])))
    conn.commit()


def charged_cents(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT coalesce(sum(amount_cents), 0) FROM naive_fee").fetchone()[0])
