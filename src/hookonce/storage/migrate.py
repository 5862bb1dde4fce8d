"""Numbered migrations: applied in order, each in one transaction, and none on a schema this version does not know."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from hookonce.errors import SchemaError
from hookonce.storage.backend import Backend
from hookonce.storage.operation import Operation, Statement
from hookonce.storage.statements import Dialect

_VERSION_TABLE = {
    "postgres": "CREATE TABLE IF NOT EXISTS hookonce_migration"
    " (number integer PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());",
    "sqlite": "CREATE TABLE IF NOT EXISTS hookonce_migration"
    " (number INTEGER PRIMARY KEY, name TEXT NOT NULL, at REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0));",
}
# Two that migrate at once: the second waits here, then finds the number taken and applies nothing.
_LOCK = {
    "postgres": "LOCK TABLE hookonce_migration IN EXCLUSIVE MODE;",
    "sqlite": "",
}


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    text: str


def known(dialect: Dialect) -> list[Migration]:
    """The migrations of this version, in order."""
    folder = files("hookonce.storage") / "migrations" / dialect
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [
        Migration(int(name.partition("_")[0]), name.removesuffix(".sql"), (folder / name).read_text(encoding="utf-8"))
        for name in names
    ]


def applied() -> Operation[int]:
    """The highest number applied; 0 on an empty database."""
    exists = yield Statement("migration_table")
    if not exists:
        return 0
    rows = yield Statement("migration_last")
    return int(rows[0][0] or 0)


def script(migration: Migration, dialect: Dialect) -> str:
    """What is run for one migration: its text and its record, together."""
    record = f"INSERT INTO hookonce_migration (number, name) VALUES ({migration.number}, '{migration.name}');"  # noqa: S608 - names of our own files
    return f"{_VERSION_TABLE[dialect]}\n{_LOCK[dialect]}\n{record}\n{migration.text}"


async def pending(backend: Backend) -> list[Migration]:
    """What `migrate` would apply. SchemaError when the database is newer than this version."""
    have = await backend.read(applied())
    migrations = known(backend.dialect)
    newest = migrations[-1].number
    if have > newest:
        raise SchemaError(
            f"{backend.where}: the schema is at step {have}, this version knows {newest}",
            do="upgrade hookonce on this machine; the database was migrated by a newer one",
        )
    return [migration for migration in migrations if migration.number > have]


async def migrate(backend: Backend) -> list[Migration]:
    """Apply what is pending. Two at once: one applies, the other finds it done."""
    todo = await pending(backend)
    for migration in todo:
        try:
            await backend.script(script(migration, backend.dialect))
        except Exception:
            if await backend.read(applied()) < migration.number:
                raise
    return todo


async def require_current(backend: Backend) -> None:
    """Refuse to start on a schema that is older or newer than this version's."""
    todo = await pending(backend)
    if todo:
        have = todo[0].number - 1
        seen = "has no hookonce tables" if have == 0 else f"is at step {have}, this version needs {todo[-1].number}"
        raise SchemaError(f"{backend.where} {seen}", do="hookonce migrate")
