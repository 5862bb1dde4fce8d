"""`hookonce run`, `serve` and `work`: the processes that stay."""

from __future__ import annotations

import asyncio
import os
import sys

import click

import hookonce
from hookonce.cli import logs
from hookonce.cli.context import open_inbox, read_config
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output
from hookonce.config import Address, Config
from hookonce.errors import ConfigurationError
from hookonce.inbox import Inbox
from hookonce.registry import Source
from hookonce.storage import migrate as steps
from hookonce.storage.backend import Backend

EXAMPLES = {"stripe": "invoice.paid", "github": "push", "standard_webhooks": "user.created", "hmac": "order.paid"}

SERVING = (
    "grace_seconds",
    "drain_seconds",
    "head_seconds",
    "connections_max",
    "address_connections_max",
    "trusted_proxies",
)

listen = click.option("--listen", metavar="HOST:PORT", help="Where to listen.")
path = click.option("--path", metavar="PATH", help="Path above the sources; default /webhooks.")
processes = click.option("--processes", metavar="N", help="Receiving processes.")


@click.command()
@listen
@path
@global_options
@click.pass_obj
def run(options: Options, /, **flags: str | None) -> int:
    """Receive and work in one process. A SQLite database is made or upgraded by itself."""
    return _stay(options, receiver=True, worker=True, flags=flags)


@click.command()
@listen
@path
@processes
@global_options
@click.pass_obj
def serve(options: Options, /, **flags: str | None) -> int:
    """Receive only: verify, store, answer. Run `hookonce work` beside it."""
    return _stay(options, receiver=True, worker=False, flags=flags)


@click.command()
@click.option("--concurrency", metavar="N", help="Handlers at once.")
@click.option("--listen", metavar="HOST:PORT", help="Where to answer /livez and /readyz; default: any free local port.")
@processes
@global_options
@click.pass_obj
def work(options: Options, /, **flags: str | None) -> int:
    """Work only: run the handlers of what was received."""
    return _stay(options, receiver=False, worker=True, flags=flags)


def _stay(options: Options, *, receiver: bool, worker: bool, flags: dict[str, str | None]) -> int:
    try:
        from hookonce.server.children import ENVIRONMENT
        from hookonce.server.serve import run_server
        from hookonce.server.signals import Signals
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"serving needs the package {error.name}", do="pip install 'hookonce[server]'"
        ) from error
    signals = Signals()  # first: as PID 1 a SIGTERM has no default, and would be lost until somebody listens
    output = Output(options)
    tables = {"concurrency": "worker"}
    config = read_config(options, **{f"{tables.get(name, 'server')}.{name}": value for name, value in flags.items()})
    if worker and not receiver and not config["app"]:
        config.require()
        raise ConfigurationError(
            "there is nothing to run: no application is configured",
            do='name it in hookonce.toml: app = "module:attribute", or set HOOKONCE_APP',
        )
    inbox = open_inbox(config, output)
    logs.set_up(config["log.level"], config["log.format"])
    child = ENVIRONMENT in os.environ  # one of several processes: the parent has prepared and told everything
    where = "" if child else asyncio.run(_prepare(inbox, migrate=receiver and worker))
    # Who only works listens for questions about its health, and must not be in the way of who receives.
    address: Address = config["server.listen"] if receiver or flags.get("listen") else Address("127.0.0.1", 0)

    def ready(url: str) -> None:
        if not output.quiet and not child:
            _tell(output, options, config, inbox, where=where, url=url, receiver=receiver, worker=worker)

    return run_server(
        inbox,
        processes=1 if receiver and worker else config["server.processes"],
        host=address.host,
        port=address.port,
        receiver=receiver,
        worker=worker,
        path=config["server.path"],
        **{name: config[f"server.{name}"] for name in SERVING},
        signals=signals,
        ready=ready,
    )


async def _prepare(inbox: Inbox, *, migrate: bool) -> str:
    """The schema, and what the application wants done before the first event."""

    async def ready(backend: Backend) -> str:
        if migrate and backend.dialect == "sqlite":
            await steps.migrate(backend)
        await steps.require_current(backend)
        return backend.where

    where = await inbox.with_backend(ready)
    await inbox.start()
    return where


def _tell(
    output: Output,
    options: Options,
    config: Config,
    inbox: Inbox,
    *,
    where: str,
    url: str,
    receiver: bool,
    worker: bool,
) -> None:
    """What a person wants to know at start: where to send, what will run, where it is kept."""
    does = "receives and works" if receiver and worker else "receives" if receiver else "works"
    output.say(f"hookonce {hookonce.__version__} {does}")
    output.say(f"  database  {where}")
    output.say(f"  config    {config.file or 'no file: defaults, environment and flags'}")
    output.say(f"  health    {url}/readyz")
    for source in inbox.registry:
        patterns = ", ".join(handler.pattern for handler in source.handlers) or "none: its events are kept as skipped"
        endpoint = f"POST {url}{config['server.path']}/{source.name}" if receiver else source.endpoint.provider.name
        output.say(f"  {source.name:9} {endpoint}")
        if worker:
            output.say(f"  {'':9} handlers: {patterns}")
    first = next(iter(inbox.registry), None)
    if receiver and first is not None:
        output.say(f"  try it    {_send_line(options, config, first)}")


def _send_line(options: Options, config: Config, source: Source) -> str:
    """A command to paste into another terminal."""
    exact = [handler.pattern for handler in source.handlers if "*" not in handler.pattern]
    kind = exact[0] if exact else EXAMPLES.get(source.endpoint.provider.name, "order.paid")
    program = "python -m hookonce" if sys.argv[0].endswith("__main__.py") else sys.argv[0]
    listen = config.settings["server.listen"]
    said = f" --to {listen.value}" if listen.origin.startswith("--") else ""
    said += f" --config {options.config}" if options.config else ""
    return f"{program} send {source.name} {kind} --copies 50 --concurrent 25{said}"
