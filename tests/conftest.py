"""What every test may ask for."""

from collections.abc import Iterator

import pytest

from tests.servers.postgres import PostgresServer, lent_server


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole run, with fsync on as in production. A test that kills servers starts its own."""
    with lent_server() or PostgresServer() as server:
        yield server


@pytest.fixture
def pg_dsn(postgres: PostgresServer) -> Iterator[str]:
    """Address of a fresh, empty database."""
    postgres.start()  # runs already, unless a test took it down
    name = postgres.create_database()
    yield postgres.dsn(name)
    postgres.start()
    postgres.drop_database(name)
