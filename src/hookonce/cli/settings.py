"""`hookonce config show`: what is set, and who said so."""

from __future__ import annotations

from typing import Any

import click

from hookonce.cli.context import read_config
from hookonce.cli.errors import CONFIGURATION, DONE
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output
from hookonce.config import Config, SourceSettings
from hookonce.model import Secret
from hookonce.storage.connect import shown


@click.group()
def config() -> None:
    """Look at the configuration."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Say where each value came from.")
@global_options
@click.pass_obj
def show(options: Options, *, origin: bool) -> int:
    """Print every setting. Of secrets only the fingerprint is shown."""
    output = Output(options)
    found = read_config(options)
    rows = [(setting.name, _value(setting.name, setting.value), setting.origin) for setting in found.settings.values()]
    for source in found.sources.values():
        rows += _source_rows(found, source)
    if output.json:
        output.record(
            {
                "file": str(found.file) if found.file else None,
                "settings": {name: {"value": value, "origin": said} for name, value, said in rows},
                "problems": list(found.problems),
            }
        )
    else:
        output.table(
            ["setting", "value", *(["origin"] if origin else [])],
            [[name, value, *([said] if origin else [])] for name, value, said in rows],
        )
        for problem in found.problems:
            click.echo(f"problem: {problem}", err=True)
    return CONFIGURATION if found.problems else DONE


def _source_rows(found: Config, source: SourceSettings) -> list[tuple[str, Any, str]]:
    prefix = f"sources.{source.name}"
    rows: list[tuple[str, Any, str]] = [(f"{prefix}.provider", source.provider, source.origin)]
    rows += [(f"{prefix}.{name}", _value(name, option.value), option.origin) for name, option in source.options.items()]
    for number, reference in enumerate(source.secrets, start=1):
        try:
            shown_as = str(Secret(value=found.read_secret(reference), label=reference.label))
        except ValueError as error:
            shown_as = f"unknown: {error}"
        rows.append((f"{prefix}.secrets.{number}", shown_as, reference.origin))
    return rows


def _value(name: str, value: Any) -> Any:
    match value:
        case str() if name == "database":
            return shown(value)
        case tuple():
            return ", ".join(value)
        case str() | int() | float() | None:
            return value
        case _:
            return str(value)
