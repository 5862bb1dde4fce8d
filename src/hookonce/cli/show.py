"""`hookonce show`: everything about one receipt."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import click

from hookonce.cli.context import open_database, read_config
from hookonce.cli.options import RECEIPT_ID, Options, global_options
from hookonce.cli.output import Output, moment, plural, span
from hookonce.errors import NotFound
from hookonce.flow.lookup import ROWS_MAX, Receipt, shown
from hookonce.model import State
from hookonce.telemetry import safe

COPIES_SHOWN = 10


@click.command(short_help="Tell all about one receipt.")
@click.argument("receipt_id", metavar="ID", type=RECEIPT_ID)
@click.option("--raw", is_flag=True, help="Write the exact bytes of the body to stdout, and nothing else.")
@global_options
@click.pass_obj
def show(options: Options, *, receipt_id: int, raw: bool) -> None:
    """Tell all about one receipt: where it stands, who sent it when, what was tried, what people did, and its body."""
    output = Output(options)
    inbox = open_database(read_config(options))
    receipt = asyncio.run(inbox.ask(shown(receipt_id)))
    if raw:
        if receipt.raw is None:
            raise NotFound(f"the body of receipt {receipt_id} was purged")
        click.echo(receipt.raw, nl=False)
    elif output.json:
        output.record(_record(receipt))
    else:
        _tell(output, receipt)


def sentence(receipt: Receipt) -> str:
    """Where it stands, in words."""
    return f"{_came(receipt)}; {_went(receipt)}."


def _came(receipt: Receipt) -> str:
    copies = len(receipt.deliveries)
    if not copies:
        return f"Delivered by {receipt.source} once"
    took = (receipt.deliveries[-1].at - receipt.received_at).total_seconds()
    least = "at least " if copies == ROWS_MAX else ""
    return f"Delivered by {receipt.source} {least}{copies + 1} times in {span(max(0.0, took))}, accepted once"


def _went(receipt: Receipt) -> str:
    again = f", replayed {plural(receipt.generation, 'time')}" if receipt.generation else ""
    match receipt.state:
        case State.PROCESSED if receipt.result == "skipped":
            return f"kept: no handler takes its type{again}"
        case State.PROCESSED:
            return f"applied on attempt {receipt.attempts}{again}"
        case State.RECEIVED:
            return f"waits for a worker{again}"
        case State.PROCESSING:
            return f"is being worked on (attempt {receipt.attempts}){again}"
        case State.RETRYING:
            return f"failed {plural(receipt.attempts, 'time')}, next try at {moment(receipt.due_at)}{again}"
        case State.WAITING:
            return f"waits, at the latest until {moment(receipt.due_at)}{again}"
        case State.FAILED:
            return f"failed for good ({receipt.result}) after {plural(receipt.attempts, 'attempt')}{again}: replay or discard it"
        case State.DISCARDED:
            return f"discarded: it will never run{again}"


def _tell(output: Output, receipt: Receipt) -> None:
    output.data(sentence(receipt))
    pairs = {
        "receipt": receipt.id,
        "event": receipt.event_id,
        "type": receipt.type,
        "object": receipt.object_id,
        "account": receipt.account,
        "delivery": receipt.delivery_id,
        "correlation": receipt.correlation_id,
        "state": receipt.state.value,
        "result": receipt.result,
        "last error": receipt.last_error,
        "problem": receipt.problem,
        "created": receipt.event_time and moment(receipt.event_time),
        "received": moment(receipt.received_at),
        "processed": receipt.processed_at and moment(receipt.processed_at),
        "attempts": receipt.attempts,
        "crashes": receipt.crashes or None,
        "from": receipt.address or None,
        "signed with": receipt.secret_id,
        "api version": receipt.api_version,
    }
    for name, value in pairs.items():
        if value is not None:
            output.data(f"  {name:12} {safe(value)}")
    if receipt.failures:
        output.data("attempts that did not succeed")
        for one in receipt.failures:
            counted = "" if one.counted else " (not counted)"
            output.data(
                f"  {moment(one.ended_at)}  {one.generation}.{one.attempt}  {span(one.seconds)}  "
                f"{one.state}{counted}  {safe(one.error or '')}"
            )
    if receipt.deliveries:
        output.data("later copies")
        for copy in receipt.deliveries[:COPIES_SHOWN]:
            kept = f"  another body of {plural(copy.body_bytes, 'byte')} is kept" if copy.body_bytes is not None else ""
            output.data(f"  {moment(copy.at)}  {copy.verdict}  {safe(copy.delivery_id or '-')}  {copy.address}{kept}")
        if len(receipt.deliveries) > COPIES_SHOWN:
            output.data(f"  and {len(receipt.deliveries) - COPIES_SHOWN} more: --json has them")
    if receipt.audit:
        output.data("what people did")
        for act in receipt.audit:
            output.data(
                f"  {moment(act.at)}  {safe(act.actor)}  {act.action} (was {act.from_state})  {safe(act.reason)}"
            )
    output.data("headers")
    for name, value in receipt.headers:
        output.data(f"  {safe(name)}: {safe(value)}")
    output.data(f"body ({plural(len(receipt.raw), 'byte')})" if receipt.raw is not None else "body: purged")
    for line in _body_lines(receipt.raw or b""):
        output.data(f"  {line}")


def _body_lines(raw: bytes) -> list[str]:
    """The body as a terminal may show it; --raw has the bytes. Numbers keep their digits: nothing is parsed."""
    text = raw.decode("utf-8", "backslashreplace")
    return [
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        for line in text.split("\n")
    ]


def _record(receipt: Receipt) -> dict[str, Any]:
    found = asdict(receipt)
    raw = found.pop("raw")
    found["body_digest"] = receipt.body_digest.hex()
    found["body_bytes"] = None if raw is None else len(raw)
    found["body"] = None if raw is None else raw.decode("utf-8", "backslashreplace")
    found["headers"] = [list(pair) for pair in receipt.headers]
    found["status"] = sentence(receipt)
    return found
