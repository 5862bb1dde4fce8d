"""`hookonce migrate`: bring the database's schema to what this version needs."""

from __future__ import annotations

import asyncio

import click

from hookonce.cli.context import open_database, read_config, require_file
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output, plural
from hookonce.config import Config
from hookonce.errors import SchemaError
from hookonce.inbox import Inbox
from hookonce.storage import migrate as steps
from hookonce.storage.backend import Backend


@click.command()
@click.option("--sql", is_flag=True, help="Print the SQL of what is pending, and run nothing.")
@click.option("--dry-run", is_flag=True, help="List what is pending, and run nothing.")
@global_options
@click.pass_obj
def migrate(options: Options, *, sql: bool, dry_run: bool) -> None:
    """Create or upgrade the tables of Hookonce. Running it twice does no harm."""
    output = Output(options)
    look = sql or dry_run
    config = read_config(options)
    inbox = open_database(config, must_exist=False)

    async def look_or_apply(backend: Backend) -> tuple[str, list[steps.Migration], list[str]]:
        if not look:
            found = await steps.migrate(backend)
        else:  # where there is no file all of it is pending, and looking does not make one
            found = await steps.pending(backend) if _exists(config, inbox) else steps.known(backend.dialect)
        return backend.where, found, [steps.script(migration, backend.dialect) for migration in found]

    where, migrations, scripts = asyncio.run(inbox.with_backend(look_or_apply))
    names = [migration.name for migration in migrations]
    if output.json:
        record = {"database": where, "pending" if look else "applied": names}
        output.record(record | ({"sql": scripts} if sql else {}))
        return
    if sql:
        for script in scripts:
            output.data(f"BEGIN;\n{script.strip()}\nCOMMIT;")
        return
    if dry_run:
        for name in names:
            output.data(name)
        output.say(f"{where}: {plural(len(names), 'migration')} to apply" if names else f"{where}: up to date")
        return
    for name in names:
        output.say(f"applied {name}")
    output.say(f"{where}: {'up to date' if names else 'was up to date already'}")


def _exists(config: Config, inbox: Inbox) -> bool:
    try:
        require_file(config, inbox)
    except SchemaError:
        return False
    return True
