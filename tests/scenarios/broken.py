"""Builds of the shop from which one safeguard was taken. The checker has to find every one of them.

Only ever loaded into a process of its own (`shop --broken NAME`): they patch the package in place.
"""

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from hookonce.flow import accept, receive
from hookonce.model import Arrival, ReceiptId, Stored, Verdict
from hookonce.storage import statements
from hookonce.storage.operation import Rows, Step


def acknowledge_before_commit() -> None:
    """Say yes at once, and write a little later."""
    honest = accept.Acceptor.submit

    def submit(self: accept.Acceptor, arrival: Arrival) -> asyncio.Future[Stored]:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, honest, self, arrival)
        early: asyncio.Future[Stored] = loop.create_future()
        early.set_result(Stored(Verdict.ACCEPTED, ReceiptId(0)))
        return early

    accept.Acceptor.submit = submit  # type: ignore[method-assign]


def mark_apart_from_the_effect() -> None:
    """Commit what the handler wrote, then mark the event in a transaction of its own."""
    _change_statements({"work_mark": lambda text: text.replace("AND pg_current_xact_id()::text = %(xid)s", "")})
    from hookonce.storage import postgres, sqlitelane

    def apart(lane: Any, execute: Callable[[Any, Step], Rows]) -> None:
        def execute_apart(self: Any, step: Step) -> Rows:
            if step.name == "work_mark":
                self.commit()
                self.begin()
            return execute(self, step)

        lane.execute = execute_apart

    apart(postgres.PostgresLane, postgres.PostgresLane.execute)
    apart(sqlitelane.SqliteLane, sqlitelane.SqliteLane.execute)
    honest = postgres.AsyncPostgresLane.execute

    async def execute_apart(self: postgres.AsyncPostgresLane, step: Step) -> Rows:
        if step.name == "work_mark":
            await self.commit()
            await self.begin()
        return await honest(self, step)

    postgres.AsyncPostgresLane.execute = execute_apart  # type: ignore[method-assign]


def no_check_in_the_work_transaction() -> None:
    """Take the event and mark it without asking whether it is still ours."""

    def unfenced(text: str) -> str:
        for asked in ("r.state", "r.state || ''"):
            for check in (f"{asked} = 'processing' AND ", f"AND {asked} = 'processing'"):
                text = text.replace(check, "")
        for style in ("%(claim_id)s", ":claim_id"):
            text = text.replace(f"AND r.claim_id = {style}", "")
        for name in ("mine.token", "done.token", ":token", "%(token)s"):
            text = text.replace(f"r.token = {name} AND ", "").replace(f"AND r.token = {name}", "")
            text = text.replace(f"r.token = {name}", "true")
        return text

    _change_statements({"work_lock": unfenced, "work_mark": unfenced})


def no_dedupe_key() -> None:
    """Forget what makes two deliveries one event."""

    def nobody_is_known(**_: object) -> bytes:
        return os.urandom(32)

    receive.receipt_key = nobody_is_known


def _change_statements(changes: Mapping[str, Callable[[str], str]]) -> None:
    honest = statements._parse

    def parse(text: str, style: statements.Style) -> list[statements.Block]:
        return [
            dataclasses.replace(block, text=changes[block.name](block.text)) if block.name in changes else block
            for block in honest(text, style)
        ]

    statements._parse = parse
    statements.load.cache_clear()


BUILDS: Mapping[str, Callable[[], None]] = {
    "acknowledge_before_commit": acknowledge_before_commit,
    "mark_apart": mark_apart_from_the_effect,
    "no_check": no_check_in_the_work_transaction,
    "no_key": no_dedupe_key,
}
