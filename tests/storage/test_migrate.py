"""Migrations: all of them together are the schema, and running them twice, at once or too late does no harm."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hookonce.errors import SchemaError
from hookonce.storage.backend import Backend
from hookonce.storage.migrate import Migration, known, migrate, pending, require_current, script
from hookonce.storage.postgres import PostgresBackend
from hookonce.storage.sqlite import SqliteBackend, SqliteFile, choose_module
from hookonce.storage.statements import Dialect, load

STATES = ("received", "processing", "processed", "retrying", "failed", "waiting", "discarded")

CATALOG = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attcompression,
            a.attstorage, co.collname, pg_get_expr(d.adbin, d.adrelid), c.reloptions::text
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_collation co ON co.oid = a.attcollation
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relname LIKE 'hookonce%' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE tablename LIKE 'hookonce%' ORDER BY 1",
    "constraints": """
        SELECT conrelid::regclass::text, contype::text, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid::regclass::text LIKE 'hookonce%' ORDER BY 1, 2, 3""",
}


@pytest.fixture(params=["sqlite", "postgres"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Both databases."""
    found: Dialect = request.param
    return found


@pytest.fixture
def empty(dialect: Dialect, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Backend]:
    """Backends on one empty database."""
    if dialect == "sqlite":
        return lambda: SqliteBackend(SqliteFile(tmp_path / "empty.db", module=choose_module("sqlite3")))
    dsn = request.getfixturevalue("pg_dsn")
    return lambda: PostgresBackend(dsn)


def run(backend: Backend, use: Callable[[Backend], Any]) -> Any:
    """Use a backend for a moment, on a loop of its own."""

    async def whole() -> Any:
        try:
            return await use(backend)
        finally:
            await backend.close()

    return asyncio.run(whole())


def schema_text(dialect: Dialect) -> str:
    """The whole schema as it is shipped."""
    return (files("hookonce.storage") / "sql" / dialect / "schema.sql").read_text(encoding="utf-8")


def catalog(dialect: Dialect, where: str) -> dict[str, Any]:
    """What the database says about our tables."""
    if dialect == "postgres":
        with psycopg.connect(where) as conn:
            return {name: conn.execute(text.encode()).fetchall() for name, text in CATALOG.items()}
    conn3 = sqlite3.connect(where)
    found = conn3.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name")
    rows = {f"{kind} {name}": _squeezed(text) for kind, name, text in found if text}
    conn3.close()
    return rows


def _squeezed(text: str) -> str:
    bare = re.sub(r"--[^\n]*", " ", text).replace("IF NOT EXISTS", "")
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(bare.split()))


def test_all_migrations_together_are_the_schema(
    dialect: Dialect, empty: Callable[[], Backend], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A database that was migrated and one made from schema.sql have the same catalog."""
    run(empty(), migrate)
    if dialect == "postgres":
        postgres = request.getfixturevalue("postgres")
        other = postgres.dsn(postgres.create_database())
        with psycopg.connect(other, autocommit=True) as conn:
            conn.execute(schema_text(dialect).encode())
        mine = catalog(dialect, request.getfixturevalue("pg_dsn"))
    else:
        other = str(tmp_path / "other.db")
        conn3 = sqlite3.connect(other)
        conn3.executescript(schema_text(dialect))
        conn3.close()
        mine = catalog(dialect, str(tmp_path / "empty.db"))
    assert mine == catalog(dialect, other)
    assert len(mine) >= 3


def test_twice_is_harmless(empty: Callable[[], Backend]) -> None:
    """The second time there is nothing to do."""
    assert [one.number for one in run(empty(), migrate)] == [one.number for one in known(empty().dialect)]
    assert run(empty(), migrate) == []
    run(empty(), require_current)


def test_two_at_once_apply_once(empty: Callable[[], Backend]) -> None:
    """Four that start at the same moment: the schema is there once, and none of them fails."""
    failed: list[BaseException] = []
    gate = threading.Barrier(4)

    def one() -> None:
        gate.wait()
        try:
            run(empty(), migrate)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    run(empty(), require_current)
    assert run(empty(), pending) == []


def test_who_comes_second_finds_it_done(empty: Callable[[], Backend]) -> None:
    """Between looking and applying another one was faster: that is no error, and nothing is applied twice."""

    async def late(backend: Backend) -> None:
        apply, other = backend.script, empty()

        async def after_the_other(text: str) -> None:
            if await pending(other):
                await migrate(other)
            await apply(text)

        backend.script = after_the_other  # type: ignore[method-assign]
        await migrate(backend)
        await other.close()

    run(empty(), late)
    run(empty(), require_current)


def test_an_unknown_newer_schema_is_refused(empty: Callable[[], Backend]) -> None:
    """A database that a newer version migrated is left alone, by migrate and by whoever wants to start."""
    run(empty(), migrate)

    async def from_the_future(backend: Backend) -> None:
        await backend.script("INSERT INTO hookonce_migration (number, name) VALUES (999, '999_future');")

    run(empty(), from_the_future)
    for use in (migrate, require_current, pending):
        with pytest.raises(SchemaError, match="999"):
            run(empty(), use)


def test_an_old_or_missing_schema_is_refused(empty: Callable[[], Backend]) -> None:
    """Without our tables nothing starts, and the error says what to run."""
    with pytest.raises(SchemaError) as caught:
        run(empty(), require_current)
    assert caught.value.do == "hookonce migrate"


def test_a_migration_that_fails_leaves_nothing(empty: Callable[[], Backend]) -> None:
    """Text and record are one transaction."""
    broken = Migration(
        1, "001_broken", "CREATE TABLE hookonce_left (id int); SELECT no_such_column FROM hookonce_left;"
    )

    async def apply(backend: Backend) -> None:
        await backend.script(script(broken, backend.dialect))

    with pytest.raises(Exception, match="no_such_column"):
        run(empty(), apply)
    assert [one.number for one in run(empty(), pending)] == [one.number for one in known(empty().dialect)]
    run(empty(), migrate)


def test_the_script_can_be_run_by_hand(
    dialect: Dialect, empty: Callable[[], Backend], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What `script` prints, given to the database by somebody else, is the same migration."""
    text = "".join(script(one, dialect) for one in known(dialect))
    assert "CREATE TABLE hookonce_receipt" in text
    assert "INSERT INTO hookonce_migration" in text
    if dialect == "postgres":
        with psycopg.connect(request.getfixturevalue("pg_dsn")) as conn:
            conn.execute(text.encode())
    else:
        conn3 = sqlite3.connect(tmp_path / "empty.db")
        conn3.executescript(text)
        conn3.close()
    run(empty(), require_current)


# -- the catalog ------------------------------------------------------------------------------------------------


MUST_BE_SAID = {
    "id", "key", "source", "body_digest", "secret_id", "correlation_id", "address", "received_at", "state", "due_at",
    "attempts", "crashes", "token", "generation",
}  # fmt: skip
MAY_BE_UNKNOWN = {
    "guard", "account", "event_id", "delivery_id", "type", "object_id", "event_time", "version_key", "api_version",
    "problem", "trace_parent", "claim_id", "lease_until", "processed_at", "result", "last_error",
}  # fmt: skip


def test_what_a_receipt_says(dialect: Dialect, request: pytest.FixtureRequest) -> None:
    """The same columns in both databases, which of them may be unknown, and one row per identity."""
    if dialect == "postgres":
        conn: Any = psycopg.connect(request.getfixturevalue("fresh_postgres"))
        columns = conn.execute(
            "SELECT column_name, is_nullable = 'NO' FROM information_schema.columns WHERE table_name = 'hookonce_receipt'"
        ).fetchall()
        values = "decode(repeat('00', 32), 'hex'), 's', '', 'x', 'c', 'a', now(), 'received', now()"
    else:
        conn = sqlite3.connect(request.getfixturevalue("fresh_sqlite"))
        table = conn.execute("PRAGMA table_info(hookonce_receipt)").fetchall()
        columns = [(name, notnull or primary) for _, name, _, notnull, _, primary in table]
        values = "zeroblob(32), 's', x'', 'x', 'c', 'a', 0, 'received', 0"
    assert {name for name, required in columns if required} == MUST_BE_SAID
    assert {name for name, required in columns if not required} == MAY_BE_UNKNOWN
    names = "key, source, body_digest, secret_id, correlation_id, address, received_at, state, due_at"
    insert = f"INSERT INTO hookonce_receipt ({names}) VALUES ({values})"
    conn.execute(insert)
    with pytest.raises(Exception, match=r"(?i)unique"):
        conn.execute(insert)
    conn.rollback()
    conn.close()


def test_no_id_is_four_bytes_wide(own_postgres: str) -> None:
    """Ids and tokens are bigint: ON CONFLICT burns numbers (F14)."""
    with psycopg.connect(own_postgres) as conn:
        narrow = conn.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE 'hookonce%' AND data_type"
            " = 'integer' AND (column_name LIKE '%id' OR column_name = 'token' OR is_identity = 'YES')"
        ).fetchall()
    assert narrow == []


def test_no_index_of_ours_depends_on_a_collation(own_postgres: str) -> None:
    """Unique indexes are over bytes or numbers, and every text column is COLLATE "C" (F12)."""
    with psycopg.connect(own_postgres) as conn:
        depends = conn.execute(
            "SELECT i.indexrelid::regclass::text FROM pg_index i JOIN LATERAL unnest(i.indcollation) AS c (oid) ON true"
            " JOIN pg_collation co ON co.oid = c.oid WHERE i.indrelid::regclass::text LIKE 'hookonce%' AND co.collname <> 'C'"
        ).fetchall()
        other = conn.execute(
            "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " JOIN pg_collation co ON co.oid = a.attcollation WHERE c.relkind = 'r' AND c.relname LIKE 'hookonce%'"
            " AND c.relname <> 'hookonce_migration' AND co.collname <> 'C'"
        ).fetchall()
    assert depends == []
    assert other == []


def test_one_key_in_one_table_decides(own_postgres: str) -> None:
    """Uniqueness is over the key alone, on a table that is not partitioned: no column can let a duplicate in (F13)."""
    with psycopg.connect(own_postgres) as conn:
        found = conn.execute(
            "SELECT c.relkind::text, pg_get_indexdef(i.indexrelid), i.indpred IS NULL FROM pg_index i"
            " JOIN pg_class c ON c.oid = i.indrelid WHERE i.indexrelid = 'hookonce_receipt_key'::regclass AND i.indisunique"
        ).fetchall()
    [(kind, definition, whole)] = found
    assert (kind, definition.rpartition(" ")[2], whole) == ("r", "(key)", True)


def test_what_every_attempt_changes_is_in_no_index(own_postgres: str) -> None:
    """Pages have room for new versions of a row, and counters, claims and errors touch no index (F36)."""
    with psycopg.connect(own_postgres) as conn:
        definitions = conn.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'hookonce_receipt'").fetchall()
        [(options,)] = conn.execute(
            "SELECT reloptions FROM pg_class WHERE oid = 'hookonce_receipt'::regclass"
        ).fetchall()
    often = ("attempts", "crashes", "token", "claim_id", "lease_until", "last_error", "processed_at")
    assert [text for (text,) in definitions for name in often if re.search(rf"\b{name}\b", text)] == []
    assert {option.partition("=")[0] for option in options} >= {"fillfactor", "autovacuum_vacuum_scale_factor"}


def test_a_receipt_says_all_that_is_asked_of_it(dialect: Dialect, request: pytest.FixtureRequest) -> None:
    """Who sent what when, where it stands, what was tried: each a column, and never empty where it decides something."""
    if dialect == "postgres":
        with psycopg.connect(request.getfixturevalue("fresh_postgres")) as conn:
            columns: dict[str, bool] = dict(
                conn.execute(
                    "SELECT attname, attnotnull FROM pg_attribute WHERE attrelid = 'hookonce_receipt'::regclass AND attnum > 0"
                ).fetchall()
            )
    else:
        conn3 = sqlite3.connect(request.getfixturevalue("fresh_sqlite"))
        rows = conn3.execute("PRAGMA table_info(hookonce_receipt)").fetchall()
        conn3.close()
        columns = {row[1]: bool(row[3] or row[5]) for row in rows}
    never_empty = {"id", "key", "source", "received_at", "state", "attempts", "due_at", "body_digest", "secret_id"}
    may_be = {
        "account",
        "event_id",
        "delivery_id",
        "type",
        "object_id",
        "event_time",
        "version_key",
        "processed_at",
        "result",
    }
    assert never_empty <= {name for name, filled in columns.items() if filled}
    assert may_be | {"last_error"} <= {name for name, filled in columns.items() if not filled}


@pytest.mark.parametrize("state", [*STATES, "Received", "", "done"])
def test_only_known_states_are_stored(dialect: Dialect, state: str, request: pytest.FixtureRequest) -> None:
    """The database itself refuses a state that is none, so a bug cannot hide an event from the claim."""
    columns = "key, source, body_digest, secret_id, correlation_id, address, received_at, state, due_at"
    good = state in STATES
    if dialect == "postgres":
        conn: Any = psycopg.connect(request.getfixturevalue("fresh_postgres"))
        values = "decode(repeat('00', 32), 'hex'), 's', '', 'x', 'c', 'a', now(), %s, now()"
    else:
        conn = sqlite3.connect(request.getfixturevalue("fresh_sqlite"))
        values = "zeroblob(32), 's', x'', 'x', 'c', 'a', 0, ?, 0"
    text = f"INSERT INTO hookonce_receipt ({columns}) VALUES ({values})"
    try:
        if good:
            conn.execute(text, (state,))
        else:
            with pytest.raises(Exception, match=r"(?i)check"):
                conn.execute(text, (state,))
    finally:
        conn.rollback()
        conn.close()


def test_both_dialects_have_the_same_statements() -> None:
    """The same words name the same steps; only what belongs to one database stands in one file."""
    postgres, sqlite = set(load("postgres", "named")), set(load("sqlite", "named"))
    assert postgres - sqlite == {"work_xid"}
    assert sqlite - postgres == {"body_insert"}
    for name in postgres & sqlite:
        assert [c for c, _ in load("postgres", "named")[name].columns] == [
            c for c, _ in load("sqlite", "named")[name].columns
        ], name


def test_no_statement_holds_a_percent_sign() -> None:
    """A driver that formats its statements would trip over it."""
    for dialect_name in ("postgres", "sqlite"):
        for block in load(dialect_name, "named").values():
            assert "%" not in block.text, block.name
