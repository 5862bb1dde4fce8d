"""What the documents say is true: their code runs, their commands exist, their links lead somewhere, their promises hold."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hookonce.cli.main import cli
from hookonce.config import load
from hookonce.errors import Reason
from hookonce.model import State, Verdict
from hookonce.server.health import Backlog, _gauge_lines
from hookonce.storage.sqlite import choose_module
from hookonce.telemetry import Counters
from tests.cli.shell import REPOSITORY, Shell

DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/*.md")
    for path in REPOSITORY.glob(pattern)
)
README = REPOSITORY / "README.md"
SECRET = "whsec_of_the_tests_of_the_documents"
MADE_BY_A_COMMAND = {"benchmarks/results"}
PROMISE = (
    "database effects happen exactly once; effects outside the database happen at least once, always with the same"
    " idempotency key"
)
PROMISES_TOO_MUCH = re.compile(
    r"exactly[- ]once (event )?deliver\w*|deliver\w* (event\w* )?exactly[- ]once", re.IGNORECASE
)
DENIES = re.compile(r"\b(never|not|nobody|no one|cannot)\b", re.IGNORECASE)


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def plain(text: str) -> str:
    """Text in one line, without what only marks it up."""
    return re.sub(r"\s+", " ", re.sub(r"[*_`#>|]", "", text))


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands(path: Path) -> Iterator[str]:
    """What stands behind a prompt, without its comment."""
    for block in blocks(path, "console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                yield re.sub(r"\s+# .*", "", line[2:])


# promises


@pytest.mark.parametrize("path", [*DOCUMENTS, *sorted((REPOSITORY / "src").rglob("*.py"))], ids=name_of)
def test_nobody_promises_exactly_once_delivery(path: Path) -> None:
    """Wherever the words stand, the same sentence says that it is not promised."""
    for sentence in re.split(r"(?<=[.;:?!])\s", plain(path.read_text(encoding="utf-8"))):
        if PROMISES_TOO_MUCH.search(sentence):
            assert DENIES.search(sentence), sentence


@pytest.mark.parametrize(
    ("text", "too_much"),
    [
        ("Exactly-once **delivery** is guaranteed", True),
        ("every webhook is delivered exactly\nonce", True),
        ("we deliver events exactly once", True),
        ("accepted once and applied once, however often it is delivered", False),
    ],
)
def test_a_promise_too_much_is_found(text: str, too_much: bool) -> None:
    """The search above sees through line ends and bold type."""
    assert bool(PROMISES_TOO_MUCH.search(plain(text))) is too_much


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md"])
def test_the_promise_is_given_word_for_word(name: str) -> None:
    """With its limits: what is inside the database, and what is not."""
    text = plain((REPOSITORY / name).read_text(encoding="utf-8"))
    assert PROMISE in text.replace("Database effects", "database effects")
    assert "Exactly-once delivery is never promised" in text


# code


def post(app: Any, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """Post a body to an ASGI callable; the status of the answer."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": ("192.0.2.1", 1)}
    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"])


def test_the_application_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, in an empty folder: an event is accepted once, and the invoice is paid once."""
    [code] = blocks(README, "python")
    (tmp_path / "shop.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", SECRET)
    [migrate] = [command for command in commands(README) if command.startswith("hookonce migrate")]
    Shell(tmp_path)(*shlex.split(migrate)[1:])
    shop = importlib.import_module("shop")
    try:
        make_invoices = (
            "CREATE TABLE invoice (id TEXT, paid INTEGER); INSERT INTO invoice VALUES ('in_1', 0), ('in_2', 0)"
        )
        with contextlib.closing(choose_module().connect("shop.db")) as conn:
            conn.executescript(make_invoices)
        body = json.dumps({"id": "evt_1", "type": "invoice.paid", "data": {"object": {"id": "in_1"}}}).encode()
        endpoint = shop.stripe.endpoint
        headers = endpoint.provider.scheme.sign(body, endpoint.secrets[0], time.time(), "")
        assert [post(shop.app, "/webhooks/stripe", body, headers) for _ in range(3)] == [202, 200, 200]
        assert post(shop.app, "/webhooks/stripe", body + b" ", headers) == 401
        shop.inbox.process_pending()
        with contextlib.closing(choose_module().connect("shop.db")) as conn:
            assert conn.execute("SELECT id, paid FROM invoice ORDER BY id").fetchall() == [("in_1", 1), ("in_2", 0)]
        shown = Shell(tmp_path, {"HOOKONCE_APP": "shop:inbox", "STRIPE_WEBHOOK_SECRET": SECRET}).lines("list")
        assert [(one["state"], one["result"], one["duplicates"]) for one in shown] == [("processed", "applied", 2)]
    finally:
        del sys.modules["shop"]


def test_the_configuration_in_the_readme_is_one(tmp_path: Path) -> None:
    """Every key exists, and with its secrets in place both sources can be built."""
    [text] = blocks(README, "toml")
    assert "file:/run/secrets/acme" in text
    (tmp_path / "acme").write_text("a secret\n")
    file = tmp_path / "hookonce.toml"
    file.write_text(text.replace("/run/secrets/", f"{tmp_path}/"))
    environ = {"STRIPE_WEBHOOK_SECRET": SECRET, "STRIPE_WEBHOOK_SECRET_OLD": f"{SECRET}_old"}
    config = load(file=str(file), environ=environ)
    assert list(config.problems) == []
    endpoints, problems, warnings = config.endpoints()
    assert ([endpoint.name for endpoint in endpoints], problems, warnings) == (["stripe", "acme"], [], [])
    assert len(endpoints[0].secrets) == 2


def test_the_storm_in_the_readme_charges_fifty(tmp_path: Path) -> None:
    """The printed command, against the sample application: one accepted, 49 duplicates, one fee of 50.00."""
    ignored = shutil.ignore_patterns("*.db*", "__pycache__")
    shutil.copytree(REPOSITORY / "examples" / "payout", tmp_path / "examples" / "payout", ignore=ignored)
    shell = Shell(tmp_path, {"HOOKONCE_SERVER__LISTEN": "127.0.0.1:0"})
    [storm] = [command for command in commands(README) if " send " in command]
    [books] = [command for command in commands(README) if "payout_app.py" in command]
    with shell.running("run", "--config", "examples/payout/hookonce.toml") as server:
        told = shell(*shlex.split(storm)[1:], "--to", server.address).stdout
        assert "50 deliveries of 1 event: 1 accepted, 49 duplicates, 0 refused" in told
        printed = books_of(shell, books, settled=True)
    assert "balance of fees: 50.00" in printed
    assert "One accepted, 49 duplicates, one fee of 50.00." in README.read_text(encoding="utf-8")


def books_of(shell: Shell, command: str, *, settled: bool) -> str:
    """What the sample application prints, once nothing is on its way."""
    deadline = time.monotonic() + 30.0
    config = ("--config", "examples/payout/hookonce.toml")
    while settled and any(one["state"] in ("received", "processing") for one in shell.lines("list", *config)):
        assert time.monotonic() < deadline
    run = [sys.executable, *shlex.split(command)[1:]]
    done = subprocess.run(
        run, cwd=shell.folder, env=shell.environ(), capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout


# names


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_and_targets_exist(path: Path) -> None:
    """Every `hookonce ...` is a command or an option of it, every `make ...` is a target."""
    text = path.read_text(encoding="utf-8")
    code = "\n".join([*re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text), *blocks(path, "console")])
    known = set(cli.commands)
    for found in re.finditer(r"(?<![\w/.])hookonce (?:--config \S+ )?([a-z]+)([^`\n#|;,(]*)", code):
        assert found[1] in known, found[0]
        options = {name for parameter in cli.commands[found[1]].params for name in parameter.opts}
        options |= {name for parameter in cli.params for name in parameter.opts} | {"--origin"}
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", found[2])) <= options, found[0]
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^|[\s$])make ([a-z]+)\b", code)) <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link is a file or a folder, unless a command makes it."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target and target not in MADE_BY_A_COMMAND:
            assert (path.parent / target).exists(), target


def test_alerts_name_what_is_measured() -> None:
    """Metrics, outcomes and states in the alerts are those that /metrics has."""
    text = (REPOSITORY / "docs" / "alerts.md").read_text(encoding="utf-8")
    lines = [*Counters().lines(), *_gauge_lines(Backlog([], 0.0))]
    assert set(re.findall(r"\bhookonce_\w+", text)) <= {line.split()[2] for line in lines if line.startswith("# TYPE")}
    outcomes = {*(str(reason) for reason in Reason), *(str(verdict) for verdict in Verdict)}
    for pattern in re.findall(r'outcome=~?"([^"]+)"', text):
        for one in pattern.split("|"):
            assert any(re.fullmatch(one, outcome) for outcome in outcomes), one
    assert set(re.findall(r'state="([^"]+)"', text)) <= {str(state) for state in State}


def test_the_version_is_one() -> None:
    """The package and its metadata agree."""
    import hookonce

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == hookonce.__version__
