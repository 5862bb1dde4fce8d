"""`hookonce explain`: why a request was refused, and whether another secret would have let it in."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from dataclasses import asdict
from typing import Any

import click

from hookonce.cli.context import build, open_database, read_config
from hookonce.cli.errors import DONE, FAILURES
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output, moment
from hookonce.flow.explain import Rejection, fits, rejection_shown, rejections_listed
from hookonce.model import Secret, utc
from hookonce.providers.base import Endpoint
from hookonce.telemetry import safe


@click.command(short_help="Tell why a request was refused.")
@click.argument("request_id", required=False)
@click.option("--secret-stdin", is_flag=True, help="Try the secret on standard input on that request.")
@global_options
@click.pass_obj
def explain(options: Options, *, request_id: str | None, secret_stdin: bool) -> int:
    """Tell why the request with this id (it stands in the log) was refused; without an id, list the latest that are known."""
    output = Output(options)
    config = read_config(options)
    inbox = open_database(config)
    if request_id is None:
        _list(output, asyncio.run(inbox.ask(rejections_listed())))
        return DONE
    found = asyncio.run(inbox.ask(rejection_shown(request_id)))
    if not secret_stdin:
        _show(output, found)
        return DONE
    built = build(config)
    source = None if built.inbox is None else built.inbox.registry.sources.get(found.source)
    if source is None:
        raise click.UsageError(f"the source {found.source} is not configured any more.")
    secret = Secret(value=sys.stdin.buffer.read().strip())
    endpoint = Endpoint(source.endpoint.name, source.endpoint.provider, (secret,))
    matches = fits(endpoint, found.delivery(), found.at)
    if output.json:
        output.record({"request_id": request_id, "secret": secret.id, "matches": matches})
    else:
        output.data(
            f"the secret {secret.id} {'made this signature: configure it' if matches else 'did not make this signature'}"
        )
    return DONE if matches else FAILURES


def _list(output: Output, found: list[Rejection]) -> None:
    if output.json:
        for one in found:
            output.record(_record(one))
        return
    if not found:
        output.say("no refused request was looked at lately")
        return
    rows = [(one.request_id, utc(one.at), one.source, one.reason, one.cause.split("\n")[0]) for one in found]
    output.table(("request", "at", "source", "reason", "cause"), rows)


def _show(output: Output, found: Rejection) -> None:
    if output.json:
        output.record(_record(found))
        return
    for line in found.cause.replace("explain ID", f"explain {found.request_id}").split("\n"):
        output.data(safe_line(line))
    when = utc(found.at)
    output.data(
        f"  {'request':10} {found.request_id}, {moment(when) if when else ''}, from {safe(found.address or '-')}"
    )


def safe_line(line: str) -> str:
    """Foreign text may be part of a cause: it must not move the cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _record(one: Rejection) -> dict[str, Any]:
    found: dict[str, Any] = asdict(dataclasses.replace(one, raw=b"", headers=b"", query=b""))
    for field in ("raw", "headers", "query"):
        found.pop(field)
    return {**found, "at": utc(one.at), "body_bytes": len(one.raw)}
