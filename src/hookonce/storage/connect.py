"""From what a user gives (a URL, nothing, an engine, a function) to a backend. Drivers are imported only when needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from hookonce.errors import ConfigurationError
from hookonce.storage.backend import Backend

DEFAULT_URL = "sqlite:///hookonce.db"

_default_url: ContextVar[str] = ContextVar("hookonce_default_url", default=DEFAULT_URL)


@contextmanager
def default_database(url: str) -> Iterator[None]:
    """What an inbox that names no database gets, while the command line imports the application."""
    token = _default_url.set(url)
    try:
        yield
    finally:
        _default_url.reset(token)


def backend_factory(database: Any) -> Callable[[], Backend]:
    """A function that makes a fresh backend for one event loop. Mistakes are reported here, at start."""
    if database is None:
        database = _default_url.get()
    if isinstance(database, Path):
        return _sqlite(database, {})
    if isinstance(database, str):
        return _from_url(database)
    if _is_sqlalchemy(database):
        from hookonce.storage import sqlalchemy

        return sqlalchemy.factory(database)
    if callable(database):
        return _from_function(database)
    raise ConfigurationError(
        f"a database cannot be made of {type(database).__name__}",
        do="give a URL (sqlite:///file.db, postgresql://...), a SQLAlchemy engine or sessionmaker, "
        "or a function that returns a sqlite3 or psycopg connection",
    )


def _from_url(url: str) -> Callable[[], Backend]:
    scheme, _, rest = url.partition("://")
    match scheme.split("+")[0]:
        case "sqlite" if rest.startswith("/"):
            path, _, query = rest[1:].partition("?")
            if not path or path == ":memory:":
                raise ConfigurationError("a database in memory forgets what was accepted", do="sqlite:///hookonce.db")
            return _sqlite(Path(unquote(path)), parse_qs(query))
        case "postgresql" | "postgres":
            return _postgres("postgresql://" + rest)
        case _:
            # Without "://" all of it would be the scheme, and it may hold a password.
            seen = f"starts with {scheme!r}" if "://" in url else 'has no "://"'
            raise ConfigurationError(
                f"the database URL {seen}", do="sqlite:///file.db or postgresql://user@host/database"
            )


def _sqlite(path: Path, query: dict[str, list[str]]) -> Callable[[], Backend]:
    from hookonce.storage.onelibrary import hold
    from hookonce.storage.sqlite import SqliteBackend, SqliteFile, choose_module, refuse_network_file_system

    path = path.absolute()
    if not path.parent.is_dir():
        raise ConfigurationError(f"the folder {path.parent} does not exist", do=f"mkdir -p {path.parent}")
    allowed = query.get("network_file_system") == ["allowed"]
    refuse_network_file_system(path.parent.resolve(), allowed=allowed)
    file = path.parent.resolve() / path.name

    def make() -> Backend:
        return SqliteBackend(SqliteFile(file))

    if choose_module().__name__ != "sqlite3.dbapi2":
        hold(file, make)
    return make


def _postgres(conninfo: str) -> Callable[[], Backend]:
    try:
        import psycopg

        from hookonce.storage.postgres import PostgresBackend
    except ImportError:
        raise ConfigurationError(
            "PostgreSQL needs the psycopg package", do="pip install 'hookonce[postgres]'"
        ) from None
    try:
        PostgresBackend(conninfo)
    except psycopg.ProgrammingError:
        raise ConfigurationError(
            "the database URL cannot be read", do="percent-encode the special characters in it: / is %2F, @ is %40"
        ) from None  # the driver's own text repeats the URL, password included
    return lambda: PostgresBackend(conninfo)


def _from_function(connect: Callable[[], Any]) -> Callable[[], Backend]:
    """The user's own connections: what comes back from the function says which database and which library."""
    probe = connect()
    try:
        module = type(probe).__module__.split(".")[0]
        if module in ("sqlite3", "pysqlite3"):
            from hookonce.storage.sqlite import SqliteBackend, SqliteFile, choose_module, refuse_network_file_system

            path = Path(probe.execute("PRAGMA database_list").fetchone()[2])
            if not path.name:
                raise ConfigurationError("a database in memory forgets what was accepted", do="use a file")
            refuse_network_file_system(path.parent.resolve())
            return lambda: SqliteBackend(SqliteFile(path, module=choose_module(module), connect=connect))
        if module == "psycopg":
            return _postgres(probe.info.dsn + _password(probe.info.password))
    finally:
        probe.close()
    raise ConfigurationError(
        f"the function returned a {type(probe).__module__}.{type(probe).__name__}",
        do="return a connection of sqlite3 or psycopg",
    )


def _password(password: str) -> str:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    return f" password='{escaped}'" if password else ""


def _is_sqlalchemy(database: Any) -> bool:
    loaded = sys.modules.get("sqlalchemy")
    return loaded is not None and any(base.__module__.startswith("sqlalchemy.") for base in type(database).__mro__)


def shown(url: str) -> str:
    """A database URL without its password, wherever in it that may stand, and whether or not it can be read."""
    hidden = re.sub(r"(://[^:/?@]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)((?:^|[?&\s])(?:ssl)?password\s*=\s*)[^&\s]*", r"\1***", hidden)
