"""`hookonce send` against a running receiver, for every provider: what is sent is accepted once, and read rightly."""

from __future__ import annotations

import json
import time
from urllib.parse import urlsplit

from hookonce.cli.send import find_endpoint
from hookonce.cli.storm import fire, postings
from hookonce.config import load
from hookonce.providers.known import REGISTERED
from tests.cli.shell import Shell

TWO = {
    "dropbox": "two changes are the same bytes: every arrival is an event",
    "mollie_classic": "likewise",
    "pusher": "the time of signing is in the body, and there is no other id",
}
"""Those of which two copies are two events, and why."""

HEAD = """
database = "sqlite:///all.db"
environment = "development"

[server]
listen = "127.0.0.1:0"
"""


def configured(shell: Shell) -> None:
    """A configuration with every provider as a source of its own name, with secrets made for development."""
    blocks = [HEAD]
    for name, declared in REGISTERED.items():
        variable = f"SECRET_{name.upper()}"
        shell.environment[variable] = declared.new_secret().decode()
        lines = [f"[sources.{name}]", f'provider = "{name}"', f'secrets = ["env:{variable}"]']
        if declared.url_needed:
            lines.append(f'url = "https://example.com/webhooks/{name}"')
        lines += [f"{option} = {json.dumps(value)}" for option, value in declared.sample_options.items()]
        blocks.append("\n".join(lines))
    (shell.folder / "all.toml").write_text("\n\n".join(blocks))


def test_what_send_makes_is_accepted_once(shell: Shell) -> None:
    """Two copies of one event of each provider: all answered yes, one receipt with the right type, the other a duplicate."""
    configured(shell)
    shell.environment["HOOKONCE_CONFIG"] = str(shell.folder / "all.toml")
    shell("migrate")
    config = load(environ=shell.environment)
    assert not config.problems
    with shell.running("serve") as server:
        refused = {}
        for name, declared in REGISTERED.items():
            endpoint = find_endpoint(config, name)
            found = postings(
                endpoint,
                declared.sample_type,
                events=1,
                event_id=declared.sample_id,
                seed="7",
                created=int(time.time()),
                body=None,
            )
            url = urlsplit(f"http://{server.address}/webhooks/{name}")
            answers = fire(endpoint, found, url, copies=2, concurrent=1, delay_seconds=0.0, shuffle=None)
            if any(answer.status not in (200, 202, 204) for answer in answers):
                refused[name] = [answer.status or answer.error for answer in answers]
        assert not refused, f"{refused}\n{server.log.read_text()[-3000:]}"
    rows = {}
    for row in shell.lines("list", "--limit", "1000"):
        rows.setdefault(row["source"], []).append(row)
    assert set(rows) == set(REGISTERED)
    for name, declared in REGISTERED.items():
        for row in rows[name]:
            assert row["type"] == declared.sample_type, row
            assert row["event_id"], row
        assert len(rows[name]) == (2 if name in TWO else 1), name
        assert sum(row["duplicates"] for row in rows[name]) == (0 if name in TWO else 1), name
