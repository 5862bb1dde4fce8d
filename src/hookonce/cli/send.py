"""`hookonce send`: sign and post sample events, to see with one's own eyes that a storm has one effect."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import SplitResult, urlsplit

import click

from hookonce.cli.context import build, read_config
from hookonce.cli.errors import DONE, FAILURES
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output, plural
from hookonce.cli.storm import Tally, fire, is_loopback, postings, tally
from hookonce.config import Address, Config, read_address, read_seconds
from hookonce.errors import ConfigurationError, NotFound, Refused
from hookonce.providers.base import Endpoint
from hookonce.registry import is_named_only

ADD_A_SOURCE = 'add to hookonce.toml: [sources.{}] with provider = "stripe" and secrets = ["env:NAME"]'

HINTS = {
    401: "the receiver has another secret, or another clock: does it use the same configuration?",
    404: "the receiver does not know this source: does it use the same configuration?",
    400: "the event's id is not where the source says it is",
    429: "more a second than [server] source_rate and address_rate allow",
    503: "the receiver could not store it: look at its log, and: hookonce check",
}


@click.command(short_help="Sign sample events as their provider would, and post them.")
@click.argument("source")
@click.argument("kind", metavar="TYPE")
@click.option(
    "--copies", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Deliveries of each event."
)
@click.option("--concurrent", type=click.IntRange(1, 500), default=1, show_default=True, help="Deliveries at once.")
@click.option("--events", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Distinct events.")
@click.option("--shuffle", is_flag=True, help="In random order; by --seed the same again.")
@click.option("--delay", default="0s", show_default=True, help='From one delivery to the next: "200ms", "1s".')
@click.option("--seed", help="Make the same events again; without it they are new every time.")
@click.option("--id", "event_id", help="The event's id.")
@click.option("--body", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Send this file's bytes.")
@click.option("--url", help="The whole address to post to.")
@click.option("--to", metavar="HOST:PORT", help="Where the receiver listens, when it is not [server] listen.")
@click.option("--yes-remote", is_flag=True, help="Allow another machine than this one.")
@global_options
@click.pass_obj
def send(
    options: Options,
    *,
    source: str,
    kind: str,
    copies: int,
    concurrent: int,
    events: int,
    shuffle: bool,
    delay: str,
    seed: str | None,
    event_id: str | None,
    body: Path | None,
    url: str | None,
    to: str | None,
    yes_remote: bool,
) -> int:
    """Sign realistic events of TYPE as the provider of SOURCE would, and post them. Exit 1 if any was not taken."""
    output = Output(options)
    if body is not None and events > 1:
        raise click.UsageError("--body is one event: it does not go with --events.")
    for name, text in (("TYPE", kind), ("--id", event_id or "")):
        if not text.isprintable():
            raise click.UsageError(f"{name} holds characters that are not printable: {text!r}.")
    config = read_config(options)
    endpoint = find_endpoint(config, source)
    target = _target(config, source, url, to)
    if not yes_remote and not is_loopback(target.hostname or "", target.port):
        raise Refused(
            f"{target.netloc} is not this machine: samples are not sent to others by accident", do="add --yes-remote"
        )
    # Where the time that counts is in the body, the same bytes again would be too old.
    stamp = getattr(endpoint.provider.scheme, "stamp", None)
    created = None if seed is not None and not (stamp and stamp.at.startswith("body:")) else int(time.time())
    said = seed if seed is not None else str(time.time_ns())
    try:
        found = postings(
            endpoint,
            kind,
            events=events,
            event_id=event_id,
            seed=said,
            created=created,
            body=body.read_bytes() if body else None,
        )
        answers = fire(
            endpoint,
            found,
            target,
            copies=copies,
            concurrent=concurrent,
            delay_seconds=_delay(delay),
            shuffle=Random(said) if shuffle else None,  # noqa: S311
        )
    except UnicodeEncodeError as error:
        raise click.UsageError(f"{source} sends this in a header, which cannot hold {error.object!r}.") from error
    result = tally(answers, len(found))
    _tell(output, result, target)
    return FAILURES if result.refused or result.failed else DONE


def find_endpoint(config: Config, source: str) -> Endpoint:
    """The endpoint with its secret. Problems elsewhere in the configuration do not matter to it."""
    built = build(config)
    found = None if built.inbox is None else built.inbox.registry.sources.get(source)
    if found is not None and not is_named_only(found.endpoint):
        return found.endpoint
    if built.problems:
        raise ConfigurationError(built.problems, do="correct all of it, then: hookonce check")
    names = [] if built.inbox is None else list(built.inbox.registry.sources)
    raise NotFound(
        f"there is no source {source!r}", do=f"use one of {', '.join(names)}" if names else ADD_A_SOURCE.format(source)
    )


def _target(config: Config, source: str, url: str | None, to: str | None) -> SplitResult:
    if url is not None:
        try:
            target = urlsplit(url)
            usable = target.scheme in ("http", "https") and bool(target.hostname) and target.port != 0
        except ValueError:  # a port out of range, half an IPv6 address
            usable = False
        if not usable:
            raise click.UsageError(f"--url {url} is no address such as http://127.0.0.1:8080/webhooks/{source}.")
        return target
    address: Address = config["server.listen"]
    if to is not None:
        try:
            address = read_address(to)
        except ValueError as error:
            raise click.UsageError(f"--to is {error}.") from error
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104 - where it listens, not where we do
    return urlsplit(f"http://{Address(here, address.port)}{config['server.path']}/{source}")


def _delay(text: str) -> float:
    try:
        return read_seconds(text)
    except ValueError as error:
        raise click.UsageError(f"--delay is {error}.") from error


def _tell(output: Output, result: Tally, target: SplitResult) -> None:
    refused, failed = result.refused.total(), result.failed.total()
    if output.json:
        record: dict[str, Any] = {
            "deliveries": result.deliveries,
            "events": result.events,
            "accepted": result.accepted,
            "duplicates": result.duplicates,
            "refused": refused,
            "failed": failed,
            "statuses": {str(status): count for status, count in result.refused.items()},
            "p50_ms": round(result.p50_ms, 1),
            "p99_ms": round(result.p99_ms, 1),
        }
        output.record(record)
        return
    words = [
        f"{result.accepted:,} accepted",
        plural(result.duplicates, "duplicate"),
        f"{refused:,} refused",
        *([f"{failed:,} failed"] if failed else []),
    ]
    output.data(
        f"{plural(result.deliveries, 'delivery', 'deliveries')} of {plural(result.events, 'event')}: {', '.join(words)} "
        f"(p50 {result.p50_ms:.0f} ms, p99 {result.p99_ms:.0f} ms)"
    )
    for status, count in result.refused.items():
        output.say(f"  {count:,} answered {status}: {HINTS.get(status, 'look at the log of the receiver')}")
    for reason, count in result.failed.items():
        output.say(f"  {count:,} without an answer ({reason}): does anything listen on {target.netloc}? hookonce run")
