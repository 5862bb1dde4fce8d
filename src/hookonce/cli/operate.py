"""`hookonce replay` and `hookonce discard`: what a person may do, with the count first and an audit row after."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from hookonce.cli.context import open_database, read_config
from hookonce.cli.errors import DONE, FAILURES, REFUSED
from hookonce.cli.listing import STATES
from hookonce.cli.options import RECEIPT_ID, Options, global_options
from hookonce.cli.output import Output, plural
from hookonce.flow.lookup import Filter, listed
from hookonce.flow.operate import Act, Standing, act, standing
from hookonce.inbox import Inbox
from hookonce.model import State
from hookonce.storage.backend import Backend

F = TypeVar("F", bound=Callable[..., Any])
PAGE = 500


def choosing(command: F) -> F:
    """The options that say which receipts, and how sure one is."""
    for decorate in (
        click.option("--actor", help="Who does it, for the audit; default: $USER."),
        click.option("--dry-run", is_flag=True, help="Show what would happen, and change nothing."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        click.option("--type", "kind", help='Those of this type; * stands for anything: "invoice.*".'),
        click.option("--state", type=STATES, help="Those in this state."),
        click.option("--source", help="Those of this source."),
        click.argument("ids", metavar="[ID]...", nargs=-1, type=RECEIPT_ID),
    ):
        command = decorate(command)
    return global_options(command)


@click.command()
@click.option("--reason", default="", help="Why, for the audit.")
@choosing
@click.pass_obj
def replay(options: Options, /, **said: Any) -> int:
    """Run processed, failed or waiting events again. What their handlers wrote before is still there."""
    return _operate(options, "replay", **said)


@click.command()
@click.option("--reason", required=True, help="Why, for the audit.")
@choosing
@click.pass_obj
def discard(options: Options, /, **said: Any) -> int:
    """Never run these events: for good."""
    return _operate(options, "discard", **said)


def _operate(
    options: Options,
    action: str,
    *,
    ids: tuple[int, ...],
    source: str | None,
    state: str | None,
    kind: str | None,
    yes: bool,
    dry_run: bool,
    reason: str,
    actor: str | None,
) -> int:
    query = Filter(source=source, state=State(state) if state else None, type=kind)
    if bool(ids) == query.narrow:
        raise click.UsageError("Say which: either ids, or --source, --state or --type.")
    output = Output(options)
    inbox = open_database(read_config(options))
    found = asyncio.run(inbox.with_backend(lambda backend: _choose(backend, action, ids, query)))
    allowed = [one for one in found if not one.refusal]
    if dry_run or not allowed:
        return _report(output, action, allowed, [one for one in found if one.refusal], dry_run=dry_run)
    output.confirm(f"{action.capitalize()} {_count(allowed)}?", yes=yes)
    order = Act(action=action, actor=actor or _user(), reason=reason)
    ended = asyncio.run(inbox.with_backend(lambda backend: _do(inbox, backend, found, order)))
    return _report(
        output, action, [one for one in ended if not one.refusal], [one for one in ended if one.refusal], dry_run=False
    )


async def _choose(backend: Backend, action: str, ids: tuple[int, ...], query: Filter) -> list[Standing]:
    """What the ids or the filter mean now. A filter takes only what the action is allowed for."""
    if ids:
        return [await backend.read(standing(one, action)) for one in dict.fromkeys(ids)]
    found: list[Standing] = []
    page = query
    while True:
        lines = await backend.read(listed(page, limit=PAGE))
        for line in lines:
            one = await backend.read(standing(line.id, action))
            if not one.refusal or query.state is not None:
                found.append(one)
        if len(lines) < PAGE:
            return found
        page = Filter(source=query.source, state=query.state, type=query.type, before=lines[-1].id)


async def _do(inbox: Inbox, backend: Backend, found: list[Standing], order: Act) -> list[Standing]:
    """Each act and its audit row are one transaction: interrupted, what was done is done and recorded."""
    return [one if one.refusal else await backend.run(act(one.id, order, now=inbox.clock.override)) for one in found]


def _report(output: Output, action: str, done: list[Standing], refused: list[Standing], *, dry_run: bool) -> int:
    word = {"replay": "replayed", "discard": "discarded"}[action]
    if output.json:
        output.record(
            {
                "action": action,
                "dry_run": dry_run,
                word: [one.id for one in done],
                "refused": [{"id": one.id, "code": one.error.code, "reason": one.refusal} for one in refused],
            }
        )
    else:
        for one in refused:
            click.echo(f"{one.error.code} {one.error.seen}", err=True)
        would = f"would be {word}" if dry_run else word
        output.data(f"{_count(done)} {would}" + (f", {len(refused):,} refused" if refused else ""))
    if refused:
        return FAILURES if done else REFUSED
    return DONE


def _count(found: list[Standing]) -> str:
    sources = sorted({one.source for one in found if one.source})
    return plural(len(found), "event") + (f" of {', '.join(sources)}" if sources else "")


def _user() -> str:
    try:
        return os.environ.get("USER") or getpass.getuser()
    except (OSError, KeyError):
        return f"uid {os.getuid()}"
