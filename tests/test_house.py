"""The rules of the house that no tool checks: SQL, failpoints, module texts, and what a log line may hold."""

from __future__ import annotations

import ast
import base64
import json
import logging
import re
import time
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hookonce import Event, Inbox, StorageError, VerificationError
from hookonce.asgi.app import REFUSAL_LOGS_PER_SECOND
from hookonce.clock import SetClock
from hookonce.failpoints import POINTS
from hookonce.storage.statements import Block, load
from hookonce.telemetry import FIELDS, safe
from tests.asgi.doors import AsgiDoor
from tests.flow.box import OTHER_SECRET, PLAIN_SECRET, SECRET, Box, Place, acme, bare, signed, sqlite_place

SRC = Path(__file__).parent.parent / "src" / "hookonce"
TESTS = Path(__file__).parent
ROOT = TESTS.parent
MODULES = sorted(SRC.rglob("*.py"))
SQL = sorted(SRC.rglob("*.sql"))


def without_comments(path: Path) -> str:
    return re.sub(r"--[^\n]*", "", path.read_text(encoding="utf-8"))


# modules


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_modules_say_what_they_are(path: Path) -> None:
    """Each begins with one sentence; only an empty __init__.py says nothing."""
    text = path.read_text(encoding="utf-8")
    if path.name == "__init__.py" and not text.strip():
        return
    doc = ast.get_docstring(ast.parse(text), clean=False)
    assert doc is not None and text.startswith('"""')
    assert re.search(r"[.?:]$", doc.split("\n")[0]) or "\n" in doc


def test_every_test_says_what_it_shows() -> None:
    """In one sentence, its docstring."""
    silent = [
        f"{path.name}: {node.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


MAY_SKIP = {
    "tests/storage/test_sqlite.py": 1  # filling a disk needs the right to mount a small one
}
STORMS = (
    "tests/storage/test_accept.py::test_one_event_through_many_processes",
    "tests/storage/test_claim.py::test_claims_are_unique_among_processes",
    "tests/asgi/test_answers.py::test_twenty_at_once_are_one_event",
    "tests/worker/test_worker.py::test_many_workers_never_run_one_event_twice",
    "tests/cli/test_commands.py::test_a_storm_of_fifty_copies_has_one_effect",
    "tests/examples/test_payout.py::test_ten_concurrent_posts_are_one_fee",
    "tests/scenarios/test_operation.py::test_a_thousand_copies_while_the_handler_runs",
    "tests/scenarios/test_kills.py::test_killed_at_random",
)


def test_nothing_is_skipped() -> None:
    """The storms are there, no test is skipped or expected to fail, and `make test` and CI deselect nothing."""
    skipping = re.compile(r"\.(skip|skipif|xfail|importorskip)\b\(?")
    found = {
        str(p.relative_to(ROOT)): len(skipping.findall(p.read_text(encoding="utf-8"))) for p in TESTS.rglob("*.py")
    }
    found.pop("tests/test_house.py")
    assert {name: count for name, count in found.items() if count} == MAY_SKIP
    for storm in STORMS:
        path, _, name = storm.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), storm
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    run = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "-m pytest" in line]
    assert run == ["\t@$(BIN)/python -m pytest $(PYTEST_ARGS)"]
    assert "make test 2>&1" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for option in options["addopts"]:
        assert not option.startswith(("-k", "-m", "--ignore", "--deselect")), option


# SQL


@pytest.mark.parametrize("path", SQL, ids=lambda path: str(path.relative_to(SRC)))
def test_sql_files_keep_the_rules(path: Path) -> None:
    """No clock but the argument and the one of the moment, no per cent sign, and no update of a receipt on conflict."""
    text = without_comments(path)
    assert not re.search(
        r"\bnow\s*\(|\bCURRENT_TIMESTAMP\b|\bdatetime\s*\(", text.replace("julianday('now')", ""), re.IGNORECASE
    )
    assert "%" not in text
    assert not re.search(r"\bDO\s+UPDATE\b", text, re.IGNORECASE)
    assert not re.search(r"\bINSERT\s+OR\b|\bREPLACE\s+INTO\b", text, re.IGNORECASE)
    assert not re.search(r"\bSELECT\s+\*|\.\*", text)
    # Nothing that lives longer than a transaction (a pooler would mix it up), and no NOTIFY: it locks at commit.
    assert not re.search(r"\b(NOTIFY|LISTEN|UNLISTEN|pg_notify|pg_advisory_lock|TEMP|TEMPORARY)\b", text, re.IGNORECASE)
    assert not re.search(r"set_config\([^()]*(\([^()]*\)[^()]*)*,\s*false\s*\)", text, re.IGNORECASE)
    assert "\t" not in text and text.isascii()


ONLY_ON_ONE = {
    "body_insert": "sqlite: on PostgreSQL the body is written by receipt_insert itself",
    "work_xid": "postgres: SQLite's authorizer keeps the handler from ending its transaction",
}
OTHER_PLACEHOLDERS = {
    # block -> placeholders that only PostgreSQL's has
    "receipt_insert": {"raw", "headers"},
    "work_lock": {"limit_ms", "idle_ms"},
    "work_mark": {"xid"},
}


def blocks(dialect: str) -> dict[str, Block]:
    return dict(load(dialect, "named"))  # type: ignore[arg-type]


def placeholders(block: Block) -> set[str]:
    return set(re.findall(r"(?<![:\w]):([a-z_]+)", block.text))


def test_both_dialects_speak_the_same_words() -> None:
    """The same blocks, columns and placeholders, but for the differences that are listed here."""
    postgres, sqlite = blocks("postgres"), blocks("sqlite")
    assert set(postgres) ^ set(sqlite) == set(ONLY_ON_ONE)
    for name in set(postgres) & set(sqlite):
        assert postgres[name].columns == sqlite[name].columns, name
        only = placeholders(postgres[name]) - placeholders(sqlite[name])
        assert only == OTHER_PLACEHOLDERS.get(name, set()), name
        assert placeholders(sqlite[name]) <= placeholders(postgres[name]), name


def test_every_statement_is_used_and_every_used_one_exists() -> None:
    """A block that nobody runs is removed; a name that is not there would be found out in production only."""
    named = re.compile(r"""(?:Statement|Many)\(\s*"(\w+)\"""")
    code = {path: path.read_text(encoding="utf-8") for path in MODULES}
    used = {name for text in code.values() for name in named.findall(text)}
    there = set(blocks("postgres")) | set(blocks("sqlite"))
    assert used <= there
    everything = "\n".join(code.values())
    assert {name for name in there if f'"{name}"' not in everything} == set()


# failpoints


def test_every_failpoint_is_passed_and_every_passed_one_is_known() -> None:
    """A point in the list that nothing passes tests nothing; one that is not listed cannot be armed."""
    passed: list[str] = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fp":
                assert isinstance(node.args[0], ast.Constant), f"{path}: a failpoint's name is a constant"
                passed.append(str(node.args[0].value))
    assert set(passed) == set(POINTS)
    assert len(POINTS) == len(set(POINTS))


# log lines

CANARY = "canary-7f3a"
EMAIL = "canary@example.com"
NASTY = "evt\r\nFAKE line\x1b[31m\u2028\u0085\x00\u202e"


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    """An inbox on SQLite."""
    clock = SetClock()
    place = sqlite_place(tmp_path, tmp_path)
    one = Box(place, clock, place.inbox(acme(), bare(event_id="body:id"), clock=clock))
    yield one
    await one.close()
    await place.close()


def ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Everything that was logged under our name."""
    return [record for record in caplog.records if record.name.startswith("hookonce")]


@pytest.fixture(autouse=True)
def verbose(caplog: pytest.LogCaptureFixture) -> None:
    """Every line is logged, however unimportant."""
    caplog.set_level(logging.DEBUG, logger="hookonce")


def handlers_of(inbox: Inbox) -> None:
    @inbox.registry.sources["acme"].on("*", backoff=1, attempts=2)
    def handle(event: Event, conn: Any) -> None:
        match event["data.n"] % 4:
            case 1:
                raise ZeroDivisionError
            case 2:
                event["data.nothing"]
            case 3:
                conn.execute("INSERT INTO effect VALUES (?)", (event.raw,))
            case _:
                conn.commit()


async def storm(box: Box, place: Place) -> None:
    """Everything that is ever logged about: good, bad, twice, unreadable, failing, an outage."""
    door = AsgiDoor(box.inbox)
    now = box.clock.time()
    extra = [
        (b"authorization", f"Bearer {CANARY}".encode()),
        (b"x-customer", EMAIL.encode()),
        (b"cookie", CANARY.encode()),
    ]
    for number in range(8):
        data = {"id": f"obj_{number}", "n": number, "email": EMAIL, "token": CANARY}
        body = json.dumps({"type": "a", "data": data}).encode()
        good, forged = acme(), acme(OTHER_SECRET)
        for headers in (signed(good, body, f"evt_{number}", now), signed(forged, body, f"evt_{number}", now), []):
            await door.post("/acme", body, [*headers, *extra])
        await door.post("/acme", body + b" ", [*signed(good, body + b" ", f"evt_{number}", now), *extra])
        await door.post(f"/{CANARY}", body, extra)
        await door.post("/acme", body, [*extra, (b"webhook-signature", f"v1,{CANARY}".encode())], method=CANARY)
    broken = f'{{"email": "{EMAIL}", '.encode()
    await door.post("/bare", broken, [*signed(bare(), broken, "evt_x", now), *extra])
    for _ in range(2):
        await box.drain()
        box.clock.advance(10)
    place.sql("ALTER TABLE hookonce_body RENAME TO away")
    body = json.dumps({"type": "a", "data": {"n": 9, "email": EMAIL}}).encode()
    await door.post("/acme", body, [*signed(acme(), body, "evt_9", box.clock.time()), *extra])


async def test_no_secret_and_no_payload_is_logged(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """Canaries in bodies, headers, paths and methods, through everything that can go wrong: in no record of ours."""
    handlers_of(box.inbox)
    await storm(box, box.place)
    logged = ours(caplog)
    assert len(logged) > 30
    texts = [json.dumps({k: str(v) for k, v in vars(record).items()}) + record.getMessage() for record in logged]
    for text in texts:
        for canary in (CANARY, EMAIL, SECRET, SECRET.removeprefix("whsec_"), "Bearer"):
            assert canary not in text, text
    counted = "\n".join(box.inbox.counters.lines())
    assert CANARY not in counted and EMAIL not in counted


async def test_lines_about_events_carry_their_ids(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """Source, event, type, object, receipt, state and correlation id: enough to follow one event through the stages."""
    handlers_of(box.inbox)
    await box.send("evt_1", "a", n=1)
    await box.send("evt_1", "a", n=1)
    await box.drain()
    lines = [record.hookonce for record in ours(caplog) if hasattr(record, "hookonce")]
    accepted, duplicate, failed = lines
    expected = {"source": "acme", "event_id": "evt_1", "type": "a", "object_id": "obj_evt_1", "receipt_id": "1"}
    for line in lines:
        assert {name: line[name] for name in expected} == expected
    assert (accepted["state"], failed["state"]) == ("received", "retrying")
    assert accepted["correlation_id"] == failed["correlation_id"] != duplicate["correlation_id"]
    assert set(FIELDS) <= set(accepted) and set(FIELDS) <= set(failed)


async def test_ids_cannot_forge_log_lines(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """Line ends, escape sequences and other controls in foreign ids are escaped in every record and on every page."""
    source = box.inbox.registry.sources["bare"]
    box.inbox.registry.sources["bare"].endpoint = bare(
        event_id="body:id", type="body:type", object_id="body:object", account="body:account", delivery_id="body:id"
    )

    @source.on("*")
    def fail(event: Event) -> None:
        raise ValueError(event.raw.decode())

    body = json.dumps({"id": NASTY, "type": NASTY, "object": NASTY, "account": NASTY}, ensure_ascii=False).encode()
    door = AsgiDoor(box.inbox)
    for _ in range(2):
        answer = await door.post("/bare", body, signed(source.endpoint, body, NASTY[:3], 0), address=NASTY)
        assert answer.status < 300
    await door.post("/bare", body, [(b"x-sig", NASTY.encode())], address=NASTY)
    await box.drain()
    logged = ours(caplog)
    assert len(logged) >= 4
    for record in logged:
        assert record.getMessage().isprintable() and record.getMessage().isascii(), record.getMessage()
        assert "FAKE line" not in record.getMessage().splitlines()[1:]


async def test_a_duplicate_is_logged_and_counted_with_the_age_of_the_first(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    """Who sends twice, and how late, can be read from one line; the share of duplicates from two counters."""
    await box.send()
    box.clock.advance(90)
    await box.send()
    first, duplicate = (record.hookonce for record in ours(caplog) if hasattr(record, "hookonce"))
    assert "first_seconds_ago" not in first
    assert (duplicate["event_id"], duplicate["source"], duplicate["first_seconds_ago"]) == ("evt_1", "acme", "90.0")
    assert dict(box.inbox.counters.received) == {("acme", "accepted"): 1, ("acme", "duplicate"): 1}


async def test_refusals_are_all_counted_and_some_are_logged(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """With reason and address and without the body; a flood of them does not fill the disk with lines."""
    door = AsgiDoor(box.inbox)
    began = time.monotonic()
    for _ in range(300):
        await door.post(
            "/acme", b"{}", signed(acme(OTHER_SECRET), b"{}", "evt_1", box.clock.time()), address="192.0.2.7"
        )
    seconds = time.monotonic() - began
    lines = [record for record in ours(caplog) if record.name == "hookonce.verify"]
    assert box.inbox.counters.received["acme", "signature_mismatch"] == 300
    assert 1 <= len(lines) <= REFUSAL_LOGS_PER_SECOND * (seconds + 2)
    for line in lines:
        assert line.levelno == logging.WARNING
        said = {name: line.hookonce[name] for name in ("source", "reason", "address")}  # type: ignore[attr-defined]
        assert said == {"source": "acme", "reason": "signature_mismatch", "address": "192.0.2.7"}


async def test_no_secret_is_stored(box: Box) -> None:
    """Whatever happened, no table holds a secret in any of its forms: a receipt names the one that matched by fingerprint."""
    handlers_of(box.inbox)
    await storm(box, box.place)
    box.place.sql("ALTER TABLE away RENAME TO hookonce_body")
    tables = [name for (name,) in box.place.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert {"hookonce_receipt", "hookonce_body", "hookonce_delivery", "hookonce_attempt"} <= set(tables)
    stored = "\n".join(repr(box.place.sql(f"SELECT * FROM {table}")) for table in tables)
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    for form in (SECRET, SECRET.removeprefix("whsec_"), key.decode(), key.hex(), PLAIN_SECRET):
        assert form not in stored
    assert acme().secrets[0].id in stored


def test_text_for_log_lines_is_bounded() -> None:
    """A megabyte of foreign text is a short line."""
    assert safe("evt_1") == "evt_1"
    for text in ("x" * 1_000_000, "\x00" * 1_000_000, "\U0001f600" * 1_000_000):
        assert len(safe(text)) <= 2_000 and safe(text).isprintable()


async def test_who_asks_without_http_hears_the_reason(box: Box) -> None:
    """`inbox.accept` raises what the doors would have answered."""
    with pytest.raises(VerificationError):
        await box.inbox.accept("nobody", b"", {})
    box.place.sql("ALTER TABLE hookonce_receipt RENAME TO away")
    with pytest.raises(StorageError):
        await box.send()
