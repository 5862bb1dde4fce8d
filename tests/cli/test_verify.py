"""`hookonce verify`, `providers`, `explain` and `secrets`: what a person asks when a signature does not match."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookonce.providers import GitHub, Stripe
from hookonce.testing import signed
from tests.cli.shell import SECRET, Shell

NOW = 1_800_000_000


def line(provider: str, made, **changes) -> dict:
    return {
        "provider": provider,
        "method": "POST",
        "url": "https://example.com/webhooks",
        "headers": made.headers,
        "body_b64": base64.b64encode(made.body).decode(),
        "secrets": ["whsec_x"],
        "now_unix": NOW,
        **changes,
    }


def verdicts(shell: Shell, *lines: object, code: int) -> list[dict]:
    """What is said of each line."""
    file = shell.folder / "captured.jsonl"
    file.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines))
    return [json.loads(said) for said in shell("verify", "--requests", str(file), code=code).stdout.splitlines()]


def test_captured_requests_are_judged_line_by_line(shell: Shell) -> None:
    """Valid ones with their identities, the others with their reason; exit 1 unless all are valid."""
    good = signed(Stripe("whsec_x"), "invoice.paid", id="evt_1", at=NOW)
    said = verdicts(
        shell,
        line("stripe", good),
        line("stripe", good, secrets=["whsec_old", "whsec_x"]),
        line("stripe", good, secrets=["whsec_other"]),
        line("stripe", good, now_unix=NOW + 301),
        line("stripe", good, body_b64=base64.b64encode(good.body + b" ").decode()),
        line("stripe", good, headers={}),
        line("stripe", good, headers=[["stripe-signature", "t=\u00ff,v1=\u2603"]]),
        line("nobody", good),
        line("stripe", good, secrets=["sk_live_1"]),
        line("stripe", good, body_b64="not base64!"),
        line("square", good),
        "this is no JSON",
        "[]",
        code=1,
    )
    assert [one["valid"] for one in said] == [True, True] + [False] * 11
    assert [one["reason"] for one in said] == [
        None, None, "signature_mismatch", "too_old", "signature_mismatch", "signature_missing", "timestamp_malformed",
        "configuration", "configuration", "configuration", "signature_missing", "not_json", "configuration",
    ]  # fmt: skip
    first = said[0]
    assert (first["event_id"], first["type"], first["signed_at"]) == ("evt_1", "invoice.paid", NOW)
    assert first["object_id"].startswith("in_") and first["api_version"] and first["event_time"] == NOW
    assert [one["line"] for one in said] == list(range(1, 14))
    assert "sk_live_1" not in json.dumps(said) and "whsec_x" not in json.dumps(said)


def test_all_valid_is_exit_zero(shell: Shell) -> None:
    """Also for a batch, whose events are told one by one."""
    made = signed(GitHub("s"), "push", id="d-1", at=NOW)
    (said,) = verdicts(shell, line("github", made, secrets=["s"]), code=0)
    assert (said["event_id"], said["type"], len(said["events"])) == ("d-1", "push", 1)


def test_a_configured_source_can_be_named(shell: Shell) -> None:
    """`source` instead of `provider`: the secrets are those of hookonce.toml."""
    from hookonce.providers import StandardWebhooks

    made = signed(StandardWebhooks(SECRET, name="shop"), "order.paid", id="msg_1", at=NOW)
    one = line("", made, source="shop")
    one.pop("provider"), one.pop("secrets")
    (said,) = verdicts(shell, one, code=0)
    assert said["event_id"] == "msg_1"


def test_providers_are_listed_and_told_of(shell: Shell) -> None:
    """Every provider with its signature; of one, where its ids stand and what to write into the configuration."""
    listed = shell.lines("providers", "list")
    names = {one["name"] for one in listed}
    assert {"stripe", "github", "slack", "hmac", "jwt", "basic", "token", "secret_url"} <= names and len(names) > 100
    told = shell("providers", "show", "stripe").stdout
    for word in ("Stripe", "header:Stripe-Signature", "body:id", "3 days", 'provider = "stripe"', "STRIPE_SECRET"):
        assert word in told, word
    assert shell.json("providers", "show", "square")["options"]["url"] is None
    assert "did you mean stripe" in shell("providers", "show", "strpie", code=1).stderr
    for name in names:
        shell_free(name)


def shell_free(name: str) -> None:
    """In this process: two hundred processes would take minutes."""
    from hookonce.cli.providers import _example, about

    assert about(name)["title"] and _example(name)


@pytest.mark.parametrize("name", ["discord", "sendgrid", "stripe", "adyen_payments"])
def test_a_development_secret_has_the_providers_form(shell: Shell, name: str) -> None:
    """What is printed can be configured, and requests signed with it verify."""
    from hookonce.providers import PROVIDERS

    secret = shell.json("providers", "key", name)["secret"]
    endpoint = PROVIDERS[name](secret)
    made = signed(endpoint, at=NOW)
    (said,) = verdicts(shell, line(name, made, secrets=[secret]), code=0)
    assert said["valid"]


def test_why_it_failed_can_be_asked(shell: Shell) -> None:
    """The log names the request; `explain` names the cause, and tells whether another secret would have fitted."""
    other = "whsec_" + base64.b64encode(b"the right one of this endpoint").decode()
    with shell.running("run") as server:
        from hookonce.providers import StandardWebhooks

        made = signed(StandardWebhooks(other), "order.paid", id="msg_1")
        assert server.post("shop", made.body, made.headers) == 401
        deadline = time.monotonic() + 15
        while not (found := shell.lines("explain")):
            assert time.monotonic() < deadline, server.log.read_text()
    (one,) = found
    assert one["reason"] == "signature_mismatch" and one["cause"].startswith("HO101")
    told = shell("explain", one["request_id"]).stdout
    assert "none matches" in told and f"explain {one['request_id']} --secret-stdin" in told
    for secret, code in ((other, 0), (SECRET, 1)):
        done = subprocess.run(
            [sys.executable, "-m", "hookonce", "explain", one["request_id"], "--secret-stdin"],
            cwd=shell.folder, env=shell.environ(), input=secret + "\n", capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert secret not in done.stdout + done.stderr
    assert "not here" in shell("explain", "req_nothing", code=1).stderr


def test_an_old_secret_can_be_seen_to_be_unused(shell: Shell, tmp_path: Path) -> None:
    """While rotating no delivery is refused; afterwards it shows which secret signed last, and which one never."""
    old, new = SECRET, "whsec_" + base64.b64encode(b"the new secret of the shop").decode()
    config = shell.folder / "hookonce.toml"
    config.write_text(config.read_text().replace('["env:SHOP_SECRET"]', '["env:SHOP_NEW", "env:SHOP_SECRET"]'))
    shell.environment["SHOP_NEW"] = new
    from hookonce.providers import StandardWebhooks

    with shell.running("run") as server:
        for number, secret in enumerate([old, old, new, old, new, new]):
            made = signed(StandardWebhooks(secret), "order.paid", id=f"msg_{number}")
            assert server.post("shop", made.body, made.headers) == 202
    rows = {row["where"]: row for row in shell.lines("secrets")}
    assert (rows["env SHOP_NEW"]["events"], rows["env SHOP_SECRET"]["events"]) == (3, 3)
    assert rows["env SHOP_NEW"]["last_used"] >= rows["env SHOP_SECRET"]["last_used"]
    config.write_text(config.read_text().replace(', "env:SHOP_SECRET"]', "]"))
    assert {row["where"] for row in shell.lines("secrets")} == {"env SHOP_NEW", "not configured any more"}
