"""The comparison's SQLite connection: the same library, WAL and FULL, without loading anything of hookonce."""

from __future__ import annotations

from typing import Any


def open_sqlite(path: str) -> Any:
    try:
        from pysqlite3 import dbapi2 as module
    except ImportError:
        import sqlite3 as module
    conn = module.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
    conn.execute("PRAGMA journal_mode = wal")
    conn.execute("PRAGMA synchronous = FULL")
    return conn
