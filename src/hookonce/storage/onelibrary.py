"""One SQLite library per file in a process: when another one closes the file, the locks of the first are gone.

POSIX locks belong to the process, not to who took them. With `pysqlite3` at work, a file that the standard library's
`sqlite3` opens and closes loses its write-ahead log, and with it events that were acknowledged. `pysqlite3` raises no
audit events of its own, so whatever asks to connect here is the other one.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hookonce.errors import ConfigurationError

_held: Counter[str] = Counter()


def hold(path: Path, holder: object) -> None:
    """For as long as `holder` lives nobody in this process opens `path` with the standard library's sqlite3."""
    real = os.path.realpath(path)
    _held[real] += 1
    weakref.finalize(holder, _held.subtract, [real])
    _listen()


@cache
def _listen() -> None:
    sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if event == "sqlite3.connect" and any(_held.values()):
        asked = _file(arguments[0])
        if _held[asked]:
            raise ConfigurationError(
                f"{asked} was to be opened with sqlite3, but the inbox in this process works on it with pysqlite3: "
                "with two SQLite libraries on one file in one process, events that were acknowledged can be lost",
                code="HO130",
                do="give the inbox your own connections: Inbox(lambda: sqlite3.connect(..., check_same_thread=False)); "
                "or look from another process; or: pip uninstall pysqlite3",
            )


def _file(database: object) -> str:
    name = os.fsdecode(database) if isinstance(database, str | bytes | os.PathLike) else ""
    return os.path.realpath(unquote(urlsplit(name).path) if name.startswith("file:") else name)
