"""The options that every command knows, before it and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

RECEIPT_ID = click.IntRange(1, (1 << 63) - 1)
"""What a database can hold: a number beyond it is a typing error, not a receipt."""


@dataclass(slots=True)
class Options:
    """What was said once for everything."""

    config: str | None = None
    database: str | None = None
    json: bool = False
    quiet: bool = False
    no_color: bool = False


def _keep(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    if value:
        setattr(ctx.ensure_object(Options), str(parameter.name), value)


def global_options(command: F) -> F:
    """Add the options; their values go to the Options, whether they stand before or after the command."""
    for decorate in (
        click.option("--no-color", is_flag=True, expose_value=False, callback=_keep, help="No colours."),
        click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_keep, help="Only data and errors."),
        click.option("--json", is_flag=True, expose_value=False, callback=_keep, help="Machine-readable output."),
        click.option("--database", metavar="URL", expose_value=False, callback=_keep, help="Use this database."),
        click.option("--config", metavar="FILE", expose_value=False, callback=_keep, help="Use this hookonce.toml."),
    ):
        command = decorate(command)
    return command


pass_options = click.make_pass_decorator(Options, ensure=True)
