"""The base install is the standard library: importing loads nothing else, and the whole way works without any extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"

LOADED = """
import sys
sys.path.insert(0, {src!r})
before = set(sys.modules)
import hookonce
{more}
foreign = sorted(
    name for name in {{name.partition(".")[0] for name in set(sys.modules) - before}}
    if name not in sys.stdlib_module_names and name != "hookonce" and not name.startswith("_distutils")
)
assert not foreign, foreign
assert "sqlite3" not in sys.modules or {sqlite}, "sqlite3"
"""

WHOLE_WAY = """
import asyncio, json, sys
sys.path.insert(0, {src!r})
for extra in ("psycopg", "pysqlite3", "msgspec", "sqlalchemy", "click", "uvicorn"):
    try:
        __import__(extra)
    except ImportError:
        continue
    raise AssertionError(extra + " is installed here")
import hookonce
from hookonce.providers import StandardWebhooks
from hookonce.storage.migrate import migrate

inbox = hookonce.Inbox("sqlite:///" + sys.argv[1])
acme = inbox.source(StandardWebhooks("whsec_" + "QUJD" * 8, name="acme"))

@acme.on("invoice.paid")
def paid(event: hookonce.Event, conn) -> None:
    conn.execute("INSERT INTO paid (id) VALUES (?)", (event["data.id"],))

@inbox.on_start
def tables(conn) -> None:
    conn.execute("CREATE TABLE paid (id TEXT NOT NULL)")

async def receive() -> list:
    import time
    await inbox.with_backend(migrate)
    await inbox.start()
    body = json.dumps({{"type": "invoice.paid", "data": {{"id": "in_1"}}}}).encode()
    signed = acme.endpoint.provider.scheme.sign(body, acme.endpoint.secrets[0], time.time(), "evt_1")
    headers = {{name.decode(): value.decode() for name, value in signed}}
    stored = [(await inbox.accept("acme", body, headers)).verdict.value for _ in range(3)]
    await inbox.close()
    return stored

assert asyncio.run(receive()) == ["accepted", "duplicate", "duplicate"]
inbox.process_pending()
inbox.process_pending()
import sqlite3
conn = sqlite3.connect(sys.argv[1])
assert conn.execute("SELECT id FROM paid").fetchall() == [("in_1",)]
assert conn.execute("SELECT state, result FROM hookonce_receipt").fetchall() == [("processed", "applied")]
conn.close()
print("whole way")
"""


def run(script: str, *arguments: str) -> str:
    """A fresh interpreter with nothing but the standard library and our source."""
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("more", "sqlite"),
    [
        ("", False),
        ("import hookonce.providers, hookonce.asgi, hookonce.wsgi, hookonce.flow.lookup, hookonce.flow.operate", False),
        ("from hookonce.providers import Stripe; Stripe('whsec_x')", False),
    ],
)
def test_importing_loads_no_third_party_module(more: str, sqlite: bool) -> None:
    """Only the standard library, and not even a database driver before a database is named."""
    run(LOADED.format(src=str(SRC), more=more, sqlite=sqlite))


def test_installed_extras_are_not_loaded_either() -> None:
    """With everything installed an import loads none of it: the base is as light in a full environment."""
    script = f"""
import sys
sys.path.insert(0, {str(SRC)!r})
import hookonce
extras = ("psycopg", "pysqlite3", "msgspec", "sqlalchemy", "click", "uvicorn", "starlette", "django", "flask")
assert not [name for name in extras if name in sys.modules], sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_whole_way_without_any_extra(tmp_path: Path) -> None:
    """Migrate, receive, accept, handle: on the standard library's sqlite3 alone."""
    assert run(WHOLE_WAY.format(src=str(SRC)), str(tmp_path / "base.db")) == "whole way\n"


def test_postgres_without_its_driver_says_what_to_install() -> None:
    """A URL that needs an extra names it."""
    script = f"""
import sys
sys.path.insert(0, {str(SRC)!r})
import hookonce
try:
    hookonce.Inbox("postgresql://localhost/x")
except hookonce.ConfigurationError as error:
    assert "hookonce[postgres]" in str(error)
else:
    raise AssertionError
"""
    run(script)


def test_public_names_are_there() -> None:
    """Everything in __all__ exists, and nothing public is missing from it."""
    import hookonce

    public = {name for name in vars(hookonce) if not name.startswith("_") and name[0].isupper()}
    assert public <= set(hookonce.__all__)
    assert all(hasattr(hookonce, name) for name in hookonce.__all__)
