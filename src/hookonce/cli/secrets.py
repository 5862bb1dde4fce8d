"""`hookonce secrets`: which secret was used last when, so that an old one can be removed after a rotation."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import click

from hookonce.cli.context import open_inbox, read_config
from hookonce.cli.errors import DONE
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output
from hookonce.flow.lookup import SecretUse, secret_uses
from hookonce.model import utc

EVENTS = 1_000_000


@click.command(short_help="Tell which secret signed last when.")
@click.option(
    "--events",
    type=click.IntRange(1, 100_000_000),
    default=EVENTS,
    show_default=True,
    help="Look at the newest so many.",
)
@global_options
@click.pass_obj
def secrets(options: Options, *, events: int) -> int:
    """Tell for every secret which event it signed last. One that signs nothing any more can be removed."""
    output = Output(options)
    inbox = open_inbox(read_config(options), output)
    uses = {(use.source, use.secret_id): use for use in asyncio.run(inbox.ask(secret_uses(events=events)))}
    rows = []
    for source in inbox.registry:
        for secret in source.endpoint.secrets:
            use = uses.pop((source.name, secret.id), None)
            rows.append(_row(source.name, secret.id, secret.label or "configured", secret.not_after, use))
    rows += [_row(use.source, use.secret_id, "not configured any more", None, use) for use in uses.values()]
    if output.json:
        for row in rows:
            output.record(row)
        return DONE
    output.table(
        ("source", "secret", "where", "not after", "events", "last used"),
        [
            (row["source"], row["secret"], row["where"], row["not_after"], row["events"], row["last_used"] or "never")
            for row in rows
        ],
    )
    return DONE


def _row(source: str, secret: str, where: str, not_after: datetime | None, use: SecretUse | None) -> dict[str, Any]:
    return {
        "source": source,
        "secret": secret,
        "where": where,
        "not_after": not_after,
        "events": 0 if use is None else use.events,
        "last_used": None if use is None else utc(use.last_at),
    }
