"""Each scenario is played on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.arena import Arena, postgres_arena, sqlite_arena
from tests.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def arena(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Arena]:
    """A fresh database with the shop's tables, and everything that will be started on it."""
    if request.param == "sqlite":
        with sqlite_arena(tmp_path) as found:
            yield found
    else:
        with postgres_arena(request.getfixturevalue("postgres"), tmp_path) as found:
            yield found


@pytest.fixture
def on_postgres(postgres: PostgresServer, tmp_path: Path) -> Iterator[Arena]:
    """An arena on the PostgreSQL of this run, for what only it has to endure."""
    with postgres_arena(postgres, tmp_path) as found:
        yield found


@pytest.fixture
def on_own_postgres(tmp_path: Path) -> Iterator[tuple[Arena, PostgresServer]]:
    """An arena on a server that may be crashed or frozen."""
    with PostgresServer() as server, postgres_arena(server, tmp_path) as found:
        yield found, server
