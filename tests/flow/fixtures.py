"""Fixtures of the core's tests; each folder's conftest takes them from here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hookonce.clock import SetClock
from tests.flow.box import Box, Place, acme, postgres_place, sqlite_place


@pytest.fixture(scope="session")
def template_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the migrated SQLite file to copy lies."""
    return tmp_path_factory.mktemp("core")


def _postgres(request: pytest.FixtureRequest) -> Iterator[Place]:
    server = request.getfixturevalue("postgres")
    place, name = postgres_place(server)
    yield place
    server.start()
    server.drop_database(name)


@pytest.fixture
def lite(tmp_path: Path, template_folder: Path) -> Place:
    """A migrated SQLite file."""
    return sqlite_place(tmp_path, template_folder)


@pytest.fixture
def pg(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A migrated PostgreSQL database."""
    yield from _postgres(request)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Both databases in turn."""
    if request.param == "sqlite":
        yield request.getfixturevalue("lite")
    else:
        yield from _postgres(request)


async def _boxed(place: Place) -> AsyncIterator[Box]:
    clock = SetClock()
    box = Box(place, clock, place.inbox(acme(), clock=clock))
    yield box
    await box.close()
    await place.close()


@pytest.fixture
async def box(place: Place) -> AsyncIterator[Box]:
    """An inbox with the source `acme`, on both databases in turn."""
    async for one in _boxed(place):
        yield one


@pytest.fixture
async def lite_box(lite: Place) -> AsyncIterator[Box]:
    """An inbox with the source `acme`, on SQLite."""
    async for one in _boxed(lite):
        yield one


@pytest.fixture
async def pg_box(pg: Place) -> AsyncIterator[Box]:
    """An inbox with the source `acme`, on PostgreSQL."""
    async for one in _boxed(pg):
        yield one
