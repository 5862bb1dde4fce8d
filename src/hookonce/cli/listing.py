"""`hookonce list` and `hookonce stats`: which events there are, and how many."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict

import click

from hookonce.cli.context import open_database, read_config
from hookonce.cli.options import RECEIPT_ID, Options, global_options
from hookonce.cli.output import Output, plural, span
from hookonce.flow.lookup import LIMIT, Filter, counted, listed
from hookonce.model import State

STATES = click.Choice([state.value for state in State])


@click.command("list")
@click.argument("term", required=False)
@click.option("--source", help="Only of this source.")
@click.option("--state", type=STATES, help="Only in this state.")
@click.option("--type", "kind", help='Only of this type; * stands for anything: "invoice.*".')
@click.option("--limit", type=click.IntRange(1, 10_000), default=LIMIT, show_default=True, help="At most so many.")
@click.option("--before", type=RECEIPT_ID, metavar="ID", help="Only receipts before this one: the next page.")
@global_options
@click.pass_obj
def list_receipts(
    options: Options,
    *,
    term: str | None,
    source: str | None,
    state: str | None,
    kind: str | None,
    limit: int,
    before: int | None,
) -> None:
    """List receipts, newest first. TERM is a whole id: of the event, delivery, object, account or correlation."""
    output = Output(options)
    query = Filter(source=source, state=State(state) if state else None, type=kind, needle=term, before=before)
    inbox = open_database(read_config(options))
    lines = asyncio.run(inbox.ask(listed(query, limit=limit)))
    if output.json:
        for line in lines:
            output.record(asdict(line))
        return
    if not lines:
        output.say("nothing found")
        return
    output.table(
        ["id", "received", "source", "type", "event", "state", "result", "tries", "copies"],
        [
            [
                one.id,
                one.received_at,
                one.source,
                one.type,
                one.event_id,
                one.state.value,
                one.result,
                one.attempts,
                one.duplicates + 1,
            ]
            for one in lines
        ],
    )
    if len(lines) == limit:
        output.say(f"the newest {limit} are shown; older ones: --before {lines[-1].id}")


@click.command(short_help="Count receipts by source and state.")
@global_options
@click.pass_obj
def stats(options: Options) -> None:
    """Count receipts by source and state, and later copies by verdict; tell how long the oldest due one has waited."""
    output = Output(options)
    inbox = open_database(read_config(options))
    counts = asyncio.run(inbox.ask(counted(now=inbox.clock.override)))
    states: dict[str, Counter[str]] = {}
    copies: dict[str, Counter[str]] = {}
    for source, state, count in counts.states:
        states.setdefault(source, Counter())[state] += count
    for source, verdict, count in counts.deliveries:
        copies.setdefault(source, Counter())[verdict] += count
    if output.json:
        output.record(
            {
                "sources": {
                    source: {"states": dict(found), "copies": dict(copies.get(source, {}))}
                    for source, found in states.items()
                },
                "oldest_pending_seconds": counts.oldest_seconds,
            }
        )
        return
    if not states:
        output.say("nothing was received yet")
        return
    present = [state.value for state in State if any(state in found for found in states.values())]
    verdicts = sorted({verdict for found in copies.values() for verdict in found})
    output.table(
        ["source", "events", *present, *verdicts],
        [
            [source, found.total(), *(found[name] for name in present)]
            + [copies.get(source, Counter[str]())[verdict] for verdict in verdicts]
            for source, found in states.items()
        ],
    )
    waits = counts.oldest_seconds
    output.data("nothing is due" if waits is None else f"the oldest due event waits since {span(max(0.0, waits))}")
    total = sum(found.total() for found in copies.values())
    output.say(f"{plural(total, 'later copy', 'later copies')} in all: stored as deliveries, not run again")
