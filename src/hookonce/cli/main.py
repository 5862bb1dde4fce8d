"""The command `hookonce`: its commands, and how every error becomes a message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import hookonce
from hookonce.cli import check, explain, listing, migrate, operate, providers, secrets, send, settings, show, verify
from hookonce.cli import run as running
from hookonce.cli.errors import BUG, DONE, FAILURES, INTERRUPTED, error_record, error_text, exit_code
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output
from hookonce.errors import ConfigurationError, HookonceError, Unavailable
from hookonce.failpoints import arm_from_environment

EXIT_CODES = """\b
Exit codes: 0 done, 1 failures found, 2 usage, 69 database unreachable, 70 a bug,
75 try again, 77 refused, 78 configuration or schema, 130 interrupted."""


class _ReaderGone(Exception):
    """Whoever read our output has seen enough."""


class _Commands(click.Group):
    """Click ends with 1 when nobody reads the output any more; here 1 says that failures were found."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error


@click.group(
    cls=_Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(hookonce.__version__, message="hookonce %(version)s")
@global_options
def cli() -> None:
    """A durable webhook inbox: every event is accepted once and applied once."""


@cli.command()
@global_options
@click.pass_obj
def version(options: Options) -> None:
    """Print the version."""
    output = Output(options)
    if output.json:
        output.record({"version": hookonce.__version__})
    else:
        output.data(hookonce.__version__)


for command in (
    running.run,
    running.serve,
    running.work,
    migrate.migrate,
    check.check,
    send.send,
    verify.verify,
    explain.explain,
    providers.providers,
    secrets.secrets,
    listing.list_receipts,
    show.show,
    operate.replay,
    operate.discard,
    listing.stats,
    settings.config,
):
    cli.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. No traceback but for a bug of ours."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = Options(json="--json" in arguments)
    try:
        _arm()
        result = cli.main(list(arguments), prog_name="hookonce", standalone_mode=False, obj=options)
        if sys.stdout is not None:  # a process may be started without one
            sys.stdout.flush()
    except click.ClickException as error:
        if options.json:
            _report(options, HookonceError(error.format_message(), code="usage", do="hookonce --help"))
        else:
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except HookonceError as error:
        if isinstance(error, Unavailable):
            error.do = error.do or "start the database, or correct its address; then: hookonce check"
        _report(options, error)
        return exit_code(error)
    except (_ReaderGone, BrokenPipeError):
        _write_no_more()
        return DONE
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _write_no_more()
            click.echo("the output cannot be written: there is no space left", err=True)
            return FAILURES
        if options.json:
            _report(options, HookonceError("a bug in hookonce", do="report it with the traceback on stderr"))
        sys.excepthook(*sys.exc_info())
        click.echo("this is a bug in hookonce: please report it with the lines above", err=True)
        return BUG
    return result if isinstance(result, int) else DONE


def _write_no_more() -> None:
    """What is still buffered has nowhere to go; the interpreter would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _arm() -> None:
    try:
        arm_from_environment()
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"HOOKONCE_FAILPOINTS: {error}") from error


def _report(options: Options, error: HookonceError) -> None:
    if options.json:
        Output(options).record(error_record(error))
    else:
        click.echo(error_text(error), err=True)
