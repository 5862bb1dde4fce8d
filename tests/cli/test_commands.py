"""Every command as a process: what it prints where, in which shape, and with which exit code."""

import http.client
import http.server
import json
import os
import pty
import signal
import sqlite3
import stat
import subprocess
import sys
import threading

import psycopg
import pytest

from hookonce.flow.operate import Act, act
from tests.cli.shell import CONFIG, SECRET, Shell, eventually


@pytest.fixture(params=["sqlite", "postgres"])
def both(request: pytest.FixtureRequest, shell: Shell) -> Shell:
    """The shell on each database, migrated."""
    if request.param == "postgres":
        shell.environment["HOOKONCE_DATABASE"] = request.getfixturevalue("pg_dsn")
        shell("migrate")
    return shell


def effects(shell: Shell) -> list[str]:
    """What the application's handler wrote."""
    url = shell.environment.get("HOOKONCE_DATABASE")
    with psycopg.connect(url) if url else sqlite3.connect(shell.folder / "shop.db") as conn:
        return [row[0] for row in conn.execute("SELECT event_id FROM effect ORDER BY event_id").fetchall()]


# -- the main path ----------------------------------------------------------------------------------------------------


def test_a_storm_of_fifty_copies_has_one_effect(both):
    """50 copies of one event, 25 at once: 1 accepted, 49 duplicates, and the handler wrote once."""
    with both.running("run") as server:
        seen = server.send("shop", "order.paid", "--copies", "50", "--concurrent", "25", "--shuffle", "--id", "ev_1")
        assert (seen["deliveries"], seen["events"], seen["accepted"], seen["duplicates"]) == (50, 1, 1, 49)
        assert (seen["refused"], seen["failed"], seen["statuses"]) == (0, 0, {})
        [receipt] = server.settled(1)
        assert (receipt["event_id"], receipt["state"], receipt["result"]) == ("ev_1", "processed", "applied")
        assert receipt["duplicates"] == 49
        stats = both.json("stats")
    assert stats["sources"]["shop"] == {"states": {"processed": 1}, "copies": {"duplicate": 49}}
    assert effects(both) == ["ev_1"]


def test_distinct_events_each_have_their_effect(both):
    """--events makes distinct ones; the same seed makes the same ones again."""
    with both.running("run") as server:
        seen = server.send("shop", "order.paid", "--events", "7", "--copies", "2", "--concurrent", "4", "--seed", "a")
        assert (seen["events"], seen["accepted"], seen["duplicates"]) == (7, 7, 7)
        again = server.send("shop", "order.paid", "--events", "7", "--seed", "a")
        assert (again["accepted"], again["duplicates"]) == (0, 7)
        server.settled(7)
        assert not both.lines("list", "--state", "failed")
    assert len(set(effects(both))) == len(effects(both)) == 7


def test_receiving_and_working_can_be_two_processes(both):
    """`serve` stores without running anything; `work` beside it runs it."""
    both("migrate")
    with both.running("serve") as receiver:
        assert receiver.send("shop", "order.paid", "--id", "ev_1")["accepted"] == 1
        assert [one["state"] for one in both.lines("list")] == ["received"]
        assert both.json("stats")["oldest_pending_seconds"] > 0
        with both.running("work"):
            receiver.settled(1)
    assert effects(both) == ["ev_1"]


def test_several_processes_share_one_address(both):
    """--processes: children serve behind one socket, and the parent alone prepares and tells."""
    both("migrate")
    with both.running("serve", "--processes", "2") as server:
        assert server.send("shop", "order.paid", "--copies", "8", "--concurrent", "4")["accepted"] == 1
        assert server.log.read_text().count("hookonce 0.") == 1


def test_what_failed_is_found_shown_replayed_and_discarded(both):
    """A failed event is kept; a person replays it, sees it fail again, and discards it. Each act leaves an audit row."""
    with both.running("run") as server:
        server.send("shop", "bad.thing", "--id", "ev_bad")
        [receipt] = server.settled(1)
        assert (receipt["state"], receipt["result"]) == ("failed", "gave_up")
        number = str(receipt["id"])
        acted = both.json("replay", number, "--yes", "--reason", "was repaired", "--actor", "bea")
        assert acted == {"action": "replay", "dry_run": False, "replayed": [receipt["id"]], "refused": []}
        [receipt] = server.settled(1)
        assert (receipt["state"], receipt["generation"]) == ("failed", 1)
    assert both.json("discard", number, "--yes", "--reason", "never needed")["discarded"] == [receipt["id"]]
    shown = both.json("show", number)
    assert shown["status"] == "Delivered by shop once; discarded: it will never run, replayed 1 time."
    assert [(act["actor"], act["action"], act["from_state"], act["reason"]) for act in shown["audit"]] == [
        ("bea", "replay", "failed", "was repaired"),
        ("ann", "discard", "failed", "never needed"),
    ]
    assert [(one["generation"], one["state"]) for one in shown["failures"]] == [(0, "failed"), (1, "failed")]
    refused = both.json("replay", number, "--yes", code=77)
    assert refused["refused"] == [
        {"id": receipt["id"], "code": "HO127", "reason": "it was discarded, which is for good"}
    ]


def test_many_are_chosen_by_a_filter_and_counted_first(both):
    """A filter takes what the action is allowed for; --dry-run counts, and without --yes nobody can be asked."""
    with both.running("run") as server:
        server.send("shop", "order.paid", "--events", "3")
        server.send("shop", "bad.thing", "--events", "2")
        server.settled(5)
    dry = both("replay", "--source", "shop", "--type", "bad.*", "--dry-run")
    assert dry.stdout == "2 events of shop would be replayed\n"
    stopped = both("replay", "--state", "failed", code=2)
    assert "Replay 2 events of shop?" in stopped.stderr
    assert len(both.lines("list", "--state", "failed")) == 2
    assert both("discard", "--state", "failed", "--reason", "no", "--yes").stdout == "2 events of shop discarded\n"
    assert both.json("discard", "--state", "processed", "--reason", "no", "--yes", code=77)["discarded"] == []
    both("replay", code=2)
    both("replay", "1", "--state", "failed", code=2)
    both("discard", "1", "--yes", code=2)


def test_a_purged_body_cannot_be_replayed(shell):
    """There is nothing to run any more, and the answer says so instead of running an empty event."""
    with shell.running("run") as server:
        server.send("shop", "order.paid")
        server.settled(1)
    with sqlite3.connect(shell.folder / "shop.db") as conn:
        conn.execute("DELETE FROM hookonce_body")
    refused = shell.json("replay", "1", "--yes", code=77)["refused"]
    assert [(one["code"], "purged" in one["reason"]) for one in refused] == [("HO127", True)]
    assert shell.json("show", "1")["body"] is None
    shell("show", "1", "--raw", code=1)


def test_list_filters_and_pages(both):
    """Each filter narrows, the term finds one of the five ids, and --before is the next page."""
    with both.running("run") as server:
        server.send("shop", "order.paid", "--id", "ev_a")
        server.send("shop", "order.paid_out", "--id", "ev_b")
        server.send("shop", "order%paid", "--id", "ev_c")
        newest = server.settled(3)
    assert [one["event_id"] for one in newest] == ["ev_c", "ev_b", "ev_a"]

    def found(*arguments: str) -> list[str]:
        return [one["event_id"] for one in both.lines("list", *arguments)]

    assert found("--limit", "1") == ["ev_c"]
    assert found("--limit", "1", "--before", str(newest[0]["id"])) == ["ev_b"]
    assert found("--type", "order.*") == ["ev_b", "ev_a"]
    assert found("--type", "order.paid") == ["ev_a"]
    assert found("--type", "order%paid") == ["ev_c"]
    correlation_id = both.json("show", str(newest[1]["id"]))["correlation_id"]
    assert found("ev_b") == found(correlation_id) == found(newest[1]["object_id"]) == ["ev_b"]
    assert found("ev_") == []
    assert found("--source", "other") == found("--state", "waiting") == []
    both("list", "--state", "nonsense", code=2)


def test_show_gives_the_exact_bytes(both):
    """--raw is what was signed, byte for byte, whatever it is; the text form escapes what a terminal would obey."""
    body = b'{"type":"order.paid","data":{"id":"x"},"note":"\x1b[31mred \xc3\xbc \xff"}\r\n'
    (both.folder / "body.json").write_bytes(body)
    with both.running("run") as server:
        server.send("shop", "order.paid", "--id", "ev_1", "--body", "body.json")
        [receipt] = server.settled(1)
    number = str(receipt["id"])
    raw = subprocess.run(
        [sys.executable, "-m", "hookonce", "show", number, "--raw"],
        cwd=both.folder,
        env=both.environ(),
        capture_output=True,
        check=True,
    )
    assert raw.stdout == body
    text = both("show", number).stdout
    assert "\x1b" not in text
    assert "\\x1b[31mred ü" in text
    assert "\x1b" not in both("show", number, "--json").stdout


# -- what is wrong ----------------------------------------------------------------------------------------------------


def test_check_tells_everything_at_once(shell):
    """One run of check names the mistakes of the file, the secrets, the application and the schema."""
    (shell.folder / "hookonce.toml").write_text(
        CONFIG.replace("[server]", "[server]\npaht = 1").replace("env:SHOP_SECRET", "env:UNSET")
        + '\n[sources.more]\nprovider = "github"\nsecrets = ["file:/nowhere"]\n'
    )
    (shell.folder / "shop.py").write_text(
        'from hookonce import Inbox\ninbox = Inbox()\nshop = inbox.source("shop")\nelsewhere = inbox.source("elsewhere")\n'
    )
    seen = shell.json("check", code=1)
    assert seen["ok"] is False
    told = "\n".join(seen["problems"])
    for expected in ("server.paht", "UNSET is not set", "/nowhere", "[sources.elsewhere]", "HO103"):
        assert expected in told
    text = shell("check", code=1).stdout
    assert f"{len(seen['problems'])} problems" in text
    assert not (shell.folder / "shop.db").exists()


def test_check_is_content_with_what_works(both):
    """With everything in place check exits 0 and says what there is, secrets as fingerprints."""
    both("migrate")
    seen = both.json("check")
    assert (seen["ok"], seen["problems"], seen["schema"]) == (True, [], "current")
    [source] = seen["sources"]
    assert (source["name"], source["provider"], source["declared"]) == ("shop", "standard_webhooks", "file")
    assert [handler["pattern"] for handler in source["handlers"]] == ["order.*", "bad.*"]
    assert SECRET not in json.dumps(seen)


def test_check_warns_of_a_database_that_forgets(shell, pg_dsn):
    """Settings with which an acknowledged event could be lost are warnings."""
    from hookonce.cli.check import _doubts

    assert _doubts({"fsync": "on", "full_page_writes": "on", "read_only": "no", "mode": "normal"}) == []
    assert "fsync" in _doubts({"fsync": "off"})[0]
    assert "standby" in _doubts({"read_only": "yes"})[0]
    shell.environment["HOOKONCE_DATABASE"] = pg_dsn
    shell("migrate")
    assert shell.json("check")["database"]["fsync"] == "on"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["bogus"], 2),
        (["show"], 2),
        (["show", "x"], 2),
        (["send", "shop"], 2),
        (["send", "shop", "order.paid", "--delay", "soon"], 2),
        (["send", "shop", "order.paid", "--to", "nowhere"], 2),
        (["show", "1"], 78),
        (["list"], 78),
        (["serve"], 78),
        (["send", "nobody", "order.paid"], 1),
        (["send", "shop", "order.paid", "--to", "127.0.0.1:1"], 1),
        (["send", "shop", "order.paid", "--url", "https://192.0.2.1/webhooks/shop"], 77),
        (["--config", "none.toml", "stats"], 78),
        (["stats", "--config", "none.toml"], 78),
        (["stats", "--database", "postgresql://ann@127.0.0.1:1/none"], 69),
        (["serve", "--database", "postgresql://ann@127.0.0.1:1/none"], 69),
        (["run", "--database", "mysql://x"], 78),
        (["version"], 0),
        (["--help"], 0),
        (["send", "--help"], 0),
    ],
)
def test_exit_codes(shell, arguments, code):
    """Every mistake has its code, as text and as JSON, and none shows a traceback."""
    assert shell(*arguments, code=code).stderr or code == 0
    if code and arguments[0] != "send":
        error = shell.json(*arguments, code=code)["error"]
        assert {"code", "message", "do"} <= set(error)


def test_work_needs_an_application(shell):
    """A worker without handlers would mark everything as skipped: it does not start, and says what to write."""
    (shell.folder / "hookonce.toml").write_text(CONFIG.replace('app = "shop:inbox"', ""))
    refused = shell("work", code=78)
    assert 'app = "module:attribute"' in refused.stderr


def test_a_receiver_needs_no_application(shell):
    """Sources in the file are enough to receive; the events wait."""
    (shell.folder / "hookonce.toml").write_text(CONFIG.replace('app = "shop:inbox"', ""))
    shell("migrate")
    with shell.running("serve") as server:
        assert server.send("shop", "order.paid")["accepted"] == 1
    assert [one["state"] for one in shell.lines("list")] == ["received"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("inbox = 1", "is a int"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ("1 / 0", "shop.py:1"),
        ("other = 1", "inbox"),
        (
            "from hookonce import Inbox\ninbox = Inbox()\n@inbox.source('shop').on('x')\nasync def f(event): ...",
            "HO109",
        ),
        (
            "import hookonce\nfrom hookonce.providers import GitHub\ninbox = hookonce.Inbox()\ninbox.source(GitHub('a', name='shop'))",
            "one in the file, one in the application",
        ),
    ],
)
def test_an_application_that_cannot_be_used_is_explained(shell, code, told):
    """The user's mistake is told with its place, not with our frames."""
    (shell.folder / "shop.py").write_text(code + "\n")
    refused = shell("run", code=78)
    assert told in refused.stderr


def test_an_application_may_be_a_function_and_bring_its_own_database(shell):
    """`app` may name a function; an inbox built with a database keeps it, and check says that the other is unused."""
    (shell.folder / "shop.py").write_text(
        "from hookonce import Inbox\ndef inbox():\n    made = Inbox('sqlite:///own.db')\n    made.source('shop')\n    return made\n"
    )
    shell("migrate")
    assert (shell.folder / "own.db").exists()
    assert not (shell.folder / "shop.db").exists()
    seen = shell.json("check")
    assert any("brings its own database" in warning for warning in seen["warnings"])


def test_settings_of_the_file_reach_the_application(shell):
    """A bound in the file overrides the application's; what the file does not say stays as the application has it."""
    text = CONFIG.replace("[server]", '[server]\nbody_bytes_max = "64B"')
    (shell.folder / "hookonce.toml").write_text(text)
    with shell.running("run") as server:
        seen = server.send("shop", "order.paid", code=1)
    assert seen["statuses"] == {"413": 1}


def test_a_wrong_secret_is_refused_and_explained(shell):
    """Sending exits 1 and says what is likely; nothing is stored."""
    with shell.running("run") as server:
        shell.environment["SHOP_SECRET"] = "whsec_YW5vdGhlciBzZWNyZXQgb2Ygc29tZWJvZHkgZWxzZQ=="
        sent = shell("send", "shop", "order.paid", "--copies", "3", "--to", server.address, code=1)
        assert "0 accepted, 0 duplicates, 3 refused" in sent.stdout
        assert "3 answered 401: the receiver has another secret" in sent.stderr
        assert shell.json("stats")["sources"] == {}


def test_a_hmac_sender_is_imitated_by_its_description(shell):
    """Sending puts id and type where the configuration says the sender puts them."""
    (shell.folder / "hookonce.toml").write_text(
        'app = "shop:inbox"\ndatabase = "sqlite:///shop.db"\n[sources.shop]\nprovider = "hmac"\nsecrets = ["env:SHOP_SECRET"]\n'
        'header = "X-Acme"\nevent_id = "body:event.uuid"\ntype = "header:X-Acme-Topic"\n'
    )
    with shell.running("run", "--listen", "127.0.0.1:0") as server:
        assert server.send("shop", "order.paid", "--copies", "3", "--id", "ev_1")["accepted"] == 1
        [receipt] = server.settled(1)
    assert (receipt["event_id"], receipt["type"], receipt["state"]) == ("ev_1", "order.paid", "processed")


# -- what is printed --------------------------------------------------------------------------------------------------


def test_no_secret_and_no_payload_in_any_output_but_show(shell):
    """Not in the log, not in a list, not in check or config: only `show` has the body, and nothing has the secret."""
    shell.environment["HOOKONCE_LOG__LEVEL"] = "debug"
    with shell.running("run") as server:
        server.send("shop", "order.paid")
        server.send("shop", "bad.thing")
        server.settled(2)
    told = [server.log.read_text()]
    for command in ("list", "stats", "check", "config show --origin", "migrate", "replay 2 --dry-run"):
        for form in ([], ["--json"]):
            done = shell(*command.split(), *form)
            told += [done.stdout, done.stderr]
    everything = "".join(told)
    shown = shell("show", "1").stdout
    for marker in ("sadia@example.com", "Sadia Rahman"):
        assert marker in shown
        assert marker not in everything
    for text in (everything, shown, shell("show", "1", "--json").stdout):
        assert SECRET not in text
        assert SECRET.removeprefix("whsec_") not in text


def test_log_lines_are_json_without_a_terminal(shell):
    """Programs read the log: one object a line, with the event's fields and a time in UTC."""
    with shell.running("run") as server:
        server.send("shop", "order.paid", "--id", "ev_1")
        server.settled(1)
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    accepted = next(line for line in lines if line["message"] == "accepted")
    assert (accepted["logger"], accepted["event_id"], accepted["source"]) == ("hookonce.accept", "ev_1", "shop")
    assert accepted["time"].endswith("Z")
    assert any(line["message"] == "processed" for line in lines)


def test_console_log_lines_escape_foreign_text(capsys):
    """Foreign text cannot move the cursor or fake a line."""
    import logging

    from hookonce.cli.logs import Console, Json
    from hookonce.telemetry import log_event

    records: list[logging.LogRecord] = []
    logger = logging.Logger("hookonce.accept")  # noqa: LOG001 - of no tree
    logger.addHandler(type("Keep", (logging.Handler,), {"emit": lambda _, record: records.append(record)})())
    log_event(logger, logging.INFO, "accepted", event_id="evt\n\x1b[31m", type=None)
    logger.error("other: %s", "a\nb\x1b")
    for record in records:
        line = Console().format(record)
        assert "\n" not in line
        assert "\x1b" not in line
        assert "\x1b" not in json.dumps(json.loads(Json().format(record))["message"])
    assert json.loads(Json().format(records[0]))["event_id"] == "evt\\n\\x1b[31m"


def test_config_show_tells_who_said_what(shell):
    """Every value has its origin; a password in a database URL is hidden."""
    shell.environment["HOOKONCE_DATABASE"] = "postgresql://ann:hunter2@127.0.0.1:1/x"
    seen = shell.json("config", "show", "--origin")
    settings = seen["settings"]
    assert settings["database"] == {"value": "postgresql://ann:***@127.0.0.1:1/x", "origin": "HOOKONCE_DATABASE"}
    assert settings["app"]["origin"] == "hookonce.toml:2"
    assert settings["worker.group"] == {"value": 32, "origin": "default"}
    assert settings["sources.shop.secrets.1"]["value"].endswith("(env SHOP_SECRET)")
    text = shell("config", "show", "--origin").stdout
    assert "hunter2" not in text
    assert "HOOKONCE_DATABASE" in text


def test_quiet_leaves_data_only(shell):
    """-q before or after the command: stdout has the data, stderr nothing."""
    shell("migrate", "-q")
    for arguments in (["-q", "list"], ["list", "-q"], ["--quiet", "stats"]):
        done = shell(*arguments)
        assert done.stderr == ""


def test_migrate_prints_lists_and_applies(both, tmp_path):
    """--sql and --dry-run change nothing; a second migrate finds nothing to do."""
    if "HOOKONCE_DATABASE" not in both.environment:
        assert both("migrate", "--dry-run").stdout == "001_initial\n002_rejection\n"
        printed = both("migrate", "--sql").stdout
        assert "CREATE TABLE hookonce_receipt" in printed
        with sqlite3.connect(tmp_path / "by_hand.db") as conn:
            conn.executescript(printed)
        assert both.json("migrate", "--database", "sqlite:///by_hand.db")["applied"] == []
        assert both.json("migrate")["applied"] == ["001_initial", "002_rejection"]
    assert both.json("migrate")["applied"] == []
    assert both("migrate", "--dry-run").stdout == ""


def test_a_newer_schema_stops_the_older_program(shell):
    """A database migrated by a newer version is not touched."""
    shell("migrate")
    with sqlite3.connect(shell.folder / "shop.db") as conn:
        conn.execute("INSERT INTO hookonce_migration (number, name) VALUES (999, '999_future')")
    assert "step 999" in shell("run", code=78).stderr


def test_it_ends_cleanly_on_sigterm(shell):
    """SIGTERM is the ordinary end: exit 0."""
    with shell.running("run") as server:
        pass
    assert server.process.returncode == 0


def test_a_port_in_use_is_said(shell):
    """Another process has the address: told with the address, as something outside of us."""
    with shell.running("run") as server:
        done = shell("run", "--listen", server.address, code=69)
    assert "HO129" in done.stderr


def test_failpoints_are_armed_from_the_environment(shell):
    """A name that does not exist is a mistake of configuration; one that does takes effect."""
    shell.environment["HOOKONCE_FAILPOINTS"] = "nowhere=kill"
    assert "nowhere" in shell("version", code=78).stderr
    shell("migrate", code=78)
    shell.environment["HOOKONCE_FAILPOINTS"] = "accept.after_insert=exit"
    with shell.running("run") as server:
        server.send("shop", "order.paid", code=1)
        assert server.process.wait(30) == 86


def test_without_click_it_says_what_to_install(shell):
    """The command exists in a base install, and names the extra."""
    code = "import sys; sys.modules['click'] = None; sys.path_importer_cache.clear(); from hookonce.cli import main; main()"
    hidden = f"import importlib.util as u; old = u.find_spec; u.find_spec = lambda n, *a: None if n == 'click' else old(n, *a); {code}"
    done = subprocess.run(
        [sys.executable, "-c", hidden],
        env=shell.environ(),
        cwd=shell.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "pip install 'hookonce[server]'" in done.stderr) == (78, True)


def test_files_that_are_made_are_not_executable(shell):
    """Nothing of ours is open to everybody to write."""
    shell("migrate")
    assert not (shell.folder / "shop.db").stat().st_mode & (stat.S_IWOTH | stat.S_IXUSR)


def test_github_is_imitated(shell):
    """Its id is in a header that nobody signs: copies are still one event."""
    (shell.folder / "hookonce.toml").write_text(
        CONFIG.replace("standard_webhooks", "github").replace("sources.shop", "sources.git").replace("app =", "# app =")
    )
    with shell.running("run") as server:
        seen = server.send("git", "push", "--copies", "4", "--concurrent", "4")
        assert (seen["accepted"], seen["duplicates"]) == (1, 3)
        [receipt] = server.settled(1)
    assert (receipt["type"], receipt["result"]) == ("push", "skipped")


def test_an_interrupted_send_stops_sending(shell):
    """Ctrl-C ends it with 130, and what had not begun is not sent."""
    with shell.running("run") as server:
        sending = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hookonce",
                "send",
                "shop",
                "order.paid",
                "--events",
                "50",
                "--delay",
                "1s",
                "--to",
                server.address,
            ],
            cwd=shell.folder,
            env=shell.environ(),
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: shell.lines("list"))
        sending.send_signal(signal.SIGINT)
        assert sending.wait(30) == 130
        assert len(shell.lines("list")) < 50


def test_of_four_who_replay_at_once_one_does(both):
    """The state that an act is allowed from is named in the statement: one replay, one generation, one audit row."""
    with both.running("run") as server:
        server.send("shop", "order.paid")
        [receipt] = server.settled(1)
    command = [sys.executable, "-m", "hookonce", "replay", str(receipt["id"]), "--yes"]
    many = [
        subprocess.Popen(
            command, cwd=both.folder, env=both.environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(4)
    ]
    assert sorted(process.wait(30) for process in many) == [0, 77, 77, 77]
    shown = both.json("show", str(receipt["id"]))
    assert (shown["generation"], len(shown["audit"])) == (1, 1)


def test_a_replay_that_comes_too_late_is_refused(shell):
    """Between looking and writing a worker was faster: nothing is written, and no audit row claims otherwise."""
    operation = act(7, Act(action="replay", actor="ann", reason=""), now=None)
    assert next(operation).name == "receipt_standing"
    assert operation.send([(7, "shop", "order.paid", "ev", "failed", True)]).name == "receipt_replay"
    with pytest.raises(StopIteration) as end:
        operation.send([])
    assert "changed" in end.value.value.refusal


# -- what people and pipes do -----------------------------------------------------------------------------------------


def launched(shell, *arguments, **files):
    """The command with files of the test's own for its streams."""
    return subprocess.run(
        [sys.executable, "-m", "hookonce", *arguments],
        cwd=shell.folder,
        env=shell.environ(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
        **files,
    )


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["migrate", "--sql"], ["config", "show"]])
def test_a_reader_that_leaves_is_no_failure(shell, arguments):
    """`hookonce list | head`: nobody reads on, and the exit code does not say that failures were found."""
    with shell.running("run") as server:
        server.send("shop", "order.paid")
    read, write = os.pipe()
    os.close(read)
    done = (
        launched(shell, "--database", "sqlite:///other.db", *arguments, stdout=write) if "--sql" in arguments else None
    )
    done = done or launched(shell, *arguments, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_that_does_not_fit_is_said(shell):
    """Data that could not be written is a failure in one line, not a bug of ours."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = launched(shell, "config", "show", stdout=full)
    assert (done.returncode, done.stderr) == (1, "the output cannot be written: there is no space left\n")


def test_streams_may_be_missing(shell):
    """Started by something that closes the standard streams, it works as well as it can."""
    shell("migrate")
    command = f"exec {sys.executable} -m hookonce"
    for line, code in (("stats >&-", 0), ("check >&-", 0), ("replay --state processed <&-", 0), ("list 2>&-", 0)):
        done = subprocess.run(
            ["sh", "-c", f"{command} {line}"], cwd=shell.folder, env=shell.environ(), capture_output=True, check=False
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), line


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "9" * 23],
        ["list", "--before", "9" * 23],
        ["replay", "9" * 23, "--yes"],
        ["discard", "0", "--reason", "no", "--yes"],
        ["send", "shop", "x", "--url", "http://127.0.0.1:99999/"],
        ["send", "shop", "x", "--url", "http://[::1"],
        ["send", "shop", "x", "--id", "a\nb"],
        ["send", "shop", "x", "--id", "\N{PARTY POPPER}"],
        ["send", "shop", "\udcff"],
    ],
)
def test_what_cannot_be_is_a_usage_error(shell, arguments):
    """Numbers no database holds, addresses no socket has, ids no header carries: code 2, and never a traceback."""
    shell("migrate")
    assert shell(*arguments, code=2).stderr.startswith("Usage: hookonce ")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@[::1/x",
        "postgresql://ann:hun/ter2@hunter2@127.0.0.1:1/x",
        "postgresql://ann@127.0.0.1:1/x?password=hunter2&connect_timeout=1",
        "host=127.0.0.1 port=1 password=hunter2",
    ],
)
def test_no_database_url_shows_its_password(shell, url):
    """Readable or not, wherever the password stands in it: it is in no output, and there is no traceback."""
    for command, codes in (("config show", {0, 78}), ("list", {69, 78}), ("check", {1}), ("check --json", {1})):
        done = shell("--database", url, *command.split(), code=None)
        assert done.returncode in codes, (command, done.stderr)
        assert "hunter2" not in done.stdout + done.stderr


def test_a_database_that_is_away_says_what_to_do(shell):
    """Whatever the command: exit 69, what was seen, and what to do about it."""
    for command in ("list", "stats", "migrate", "run"):
        done = shell("--database", "postgresql://127.0.0.1:1/x", command, code=69)
        assert "HO107" in done.stderr
        assert "do         start the database, or correct its address" in done.stderr


def test_looking_at_migrations_makes_no_file(shell):
    """--sql and --dry-run run nothing, and leave nothing behind where there was no database."""
    before = sorted(shell.folder.iterdir())
    assert "CREATE TABLE hookonce_receipt" in shell("migrate", "--sql").stdout
    assert shell.json("migrate", "--dry-run")["pending"] == ["001_initial", "002_rejection"]
    assert sorted(path for path in shell.folder.iterdir() if path.name != "__pycache__") == before


def test_no_is_an_answer(shell):
    """Asked on a terminal and told no: nothing changes, and nobody speaks of an interruption."""
    with shell.running("run") as server:
        server.send("shop", "order.paid")
        server.settled(1)
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    done = launched(shell, "replay", "1", stdin=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    os.close(ours)
    assert (done.returncode, "nothing was changed" in done.stderr) == (1, True)
    assert shell.json("show", "1")["audit"] == []


def test_an_address_is_posted_to_whole(shell):
    """--url with a query: the query is part of what is asked for."""
    asked = []

    class Door(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.path)
            self.send_response(202)
            self.end_headers()

        def log_message(self, *_):
            pass

    door = http.server.HTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=door.serve_forever, daemon=True).start()
    try:
        sent = shell.json("send", "shop", "order.paid", "--url", f"http://127.0.0.1:{door.server_port}/hooks?tenant=7")
    finally:
        door.shutdown()
        door.server_close()
    assert (sent["accepted"], asked) == (1, ["/hooks?tenant=7"])


def test_one_long_id_does_not_push_the_table_away(shell):
    """A table cuts what is too long for it; --json has all of it."""
    with shell.running("run") as server:
        server.send("shop", "order.paid", "--id", "x" * 400)
        [receipt] = server.settled(1)
    assert receipt["event_id"] == "x" * 400
    assert max(map(len, shell("list").stdout.splitlines())) < 200


def test_a_trusted_proxy_names_the_sender(shell):
    """Behind a proxy on this machine the address is that of the sender; nobody else can choose his own."""
    for trusted, seen in (("127.0.0.1", "203.0.113.9"), ("203.0.113.0/24", "127.0.0.1")):
        shell.environment["HOOKONCE_SERVER__TRUSTED_PROXIES"] = trusted
        with shell.running("run") as server:
            door = http.client.HTTPConnection(server.address, timeout=30)
            door.request("POST", "/webhooks/shop", b"{}", {"X-Forwarded-For": "203.0.113.9"})
            assert door.getresponse().status == 401
            door.close()
        lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
        assert [line["address"] for line in lines if line["message"] == "refused"] == [seen]


def test_it_drains_as_long_as_it_is_told_to(shell):
    """[server] drain_seconds reaches the server: after SIGTERM it is not ready, and still accepts."""
    (shell.folder / "hookonce.toml").write_text(CONFIG.replace("[server]", '[server]\ndrain_seconds = "60s"'))
    with shell.running("run") as server:
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: '"drain_seconds": "60.0"' in server.log.read_text())
        assert server.send("shop", "order.paid")["accepted"] == 1
        eventually(lambda: shell.lines("list", "--state", "processed"))
        eventually(lambda: server.process.send_signal(signal.SIGTERM) or server.process.poll() == 0)


def test_check_says_which_promise_the_cluster_can_give(shell, pg_dsn):
    """Without a standby an accepted event is on one machine: said, not hidden (F06)."""
    shell("--database", pg_dsn, "migrate")
    seen = json.loads(shell("--database", pg_dsn, "check", "--json", code=None).stdout)
    assert seen["database"]["standbys"] == "none: an accepted event is on one machine"
    assert (seen["database"]["fsync"], seen["database"]["synchronous_commit"]) == ("on", "on")
