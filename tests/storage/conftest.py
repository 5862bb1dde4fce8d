"""A fresh database for every test, and every way to reach it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from hookonce.storage.backend import Backend
from hookonce.storage.connect import backend_factory
from hookonce.storage.migrate import migrate
from hookonce.storage.postgres import PostgresBackend
from hookonce.storage.sqlite import SqliteBackend, SqliteFile, choose_module
from tests.servers.postgres import PostgresServer
from tests.storage.world import OWN_STEPS, RUNNERS, Runner, World, maybe

EFFECT = "CREATE TABLE effect (note text PRIMARY KEY)"
EMPTY = """
SET lock_timeout = '2s';
DROP TABLE effect CASCADE; CREATE TABLE effect (note text PRIMARY KEY);
DELETE FROM hookonce_receipt; DELETE FROM hookonce_body; DELETE FROM hookonce_delivery;
DELETE FROM hookonce_attempt; DELETE FROM hookonce_audit;
ALTER SEQUENCE hookonce_receipt_id_seq RESTART; ALTER SEQUENCE hookonce_delivery_id_seq RESTART;
"""


def _migrated(backend: Backend) -> None:
    async def run() -> None:
        await migrate(backend)
        await backend.script(f"{EFFECT};")
        await backend.close()

    # In a thread: the fixture that asks for it may be running on a loop already.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run()).result()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    _migrated(SqliteBackend(SqliteFile(path)))
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    """A migrated PostgreSQL database to copy."""
    name = postgres.create_database("storage_template")
    _migrated(PostgresBackend(postgres.dsn(name)))
    return name


@pytest.fixture
def own_postgres(postgres: PostgresServer, postgres_template: str) -> Iterator[str]:
    """Address of a migrated database that the test may change as it likes."""
    postgres.start()
    name = postgres.create_database(template=postgres_template)
    yield postgres.dsn(name)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def used_databases() -> list[str]:
    """Databases that were emptied after use: copying the template for every test would take most of the time."""
    return []


@pytest.fixture
def fresh_postgres(postgres: PostgresServer, postgres_template: str, used_databases: list[str]) -> Iterator[str]:
    """Address of an empty, migrated database. The test changes rows, and triggers on `effect`, nothing else."""
    postgres.start()
    name = used_databases.pop() if used_databases else postgres.create_database(template=postgres_template)
    yield postgres.dsn(name)
    try:
        with psycopg.connect(postgres.dsn(name), autocommit=True) as conn:
            conn.execute(EMPTY)
    except psycopg.Error:  # somebody still holds a lock: let the database go with whoever it is
        postgres.drop_database(name)
    else:
        used_databases.append(name)


@pytest.fixture
def fresh_sqlite(sqlite_template: Path, tmp_path: Path) -> Path:
    """A migrated SQLite file of this test's own."""
    path = tmp_path / "hookonce.db"
    shutil.copy(sqlite_template, path)
    return path


def make_world(runner: Runner, where: str) -> World:
    """A world on the database at `where`, through this runner."""
    if runner.kind == "sqlalchemy":
        url = (
            f"{runner.driver}:///{where}"
            if runner.dialect == "sqlite"
            else where.replace("postgresql", runner.driver, 1)
        )
        engine: Any = (create_engine if runner.colour == "sync" else create_async_engine)(url)
        return World(runner, where, backend_factory(engine), engine)
    return World(runner, where, _raw_factory(runner, where))


def _raw_factory(runner: Runner, where: str) -> Callable[[], Backend]:
    if runner.dialect == "postgres":
        return lambda: PostgresBackend(where)
    if runner.driver == "function":
        return backend_factory(lambda: sqlite3.connect(where, check_same_thread=False, timeout=5))
    return lambda: SqliteBackend(SqliteFile(Path(where), module=choose_module(runner.driver)))


async def _lived(runner: Runner, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    where = str(request.getfixturevalue("fresh_postgres" if runner.dialect == "postgres" else "fresh_sqlite"))
    world = make_world(runner, where)
    yield world
    for backend in world.backends:
        await backend.close()
    if world.engine is not None:
        await maybe(world.engine.dispose())


@pytest.fixture(params=RUNNERS, ids=str)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Every runner in turn."""
    async for one in _lived(request.param, request):
        yield one


@pytest.fixture(params=OWN_STEPS, ids=str)
async def plain(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """The runners whose own steps differ; for tests in which no handler runs."""
    async for one in _lived(request.param, request):
        yield one


@pytest.fixture(params=[runner for runner in RUNNERS if runner.dialect == "postgres"], ids=str)
async def pg(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Every runner on PostgreSQL."""
    async for one in _lived(request.param, request):
        yield one


@pytest.fixture(params=[runner for runner in RUNNERS if runner.dialect == "sqlite"], ids=str)
async def lite(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Every runner on SQLite."""
    async for one in _lived(request.param, request):
        yield one


@pytest.fixture(params=[runner for runner in RUNNERS if runner.kind == "sqlalchemy"], ids=str)
async def alchemy(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Every runner on SQLAlchemy."""
    async for one in _lived(request.param, request):
        yield one


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """PostgreSQL through psycopg."""
    async for one in _lived(next(runner for runner in RUNNERS if runner.name == "psycopg-async"), request):
        yield one
