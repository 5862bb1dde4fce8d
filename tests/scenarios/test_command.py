"""The command with which anybody repeats the proof: what it tells, how it ends, and that it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.scenarios import __main__ as command
from tests.scenarios.arena import Outcome
from tests.scenarios.checker import Report
from tests.scenarios.processes import ROOT, until

END_SECONDS = 60.0


def started(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.scenarios", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_it_tells_what_it_found(database: str, tmp_path: Path) -> None:
    """A short run: one row for the database, nothing wrong, status 0, the way to repeat it, and no file left."""
    process = started("--seconds", "4", "--database", database, "--seed", "41", "--json", folder=tmp_path)
    told, progress = process.communicate(timeout=END_SECONDS)
    found = json.loads(told)
    assert process.returncode == 0, f"{told}\n{progress}"
    assert (found["ok"], found["seed"]) == (True, 41)
    assert "--seed 41" in found["again"]
    (row,) = found["rows"]
    assert (row["database"], row["acknowledged lost"], row["doubled"], row["missing"]) == (database, 0, 0, 0)
    assert row["kills"] > 0 and 0 < row["acknowledged"] <= row["events"] <= row["deliveries"]
    assert "events acknowledged" in progress
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "moment"), [(signal.SIGINT, "acknowledged"), (signal.SIGTERM, "seed")])
def test_interrupted_it_takes_everything_with_it(number: signal.Signals, moment: str, tmp_path: Path) -> None:
    """Ctrl-C while it starts or under load: every process that it started is gone, and so are its files."""
    process = started("--seconds", "600", "--database", "sqlite", folder=tmp_path)
    try:
        family = psutil.Process(process.pid)
        assert process.stderr is not None
        assert any(moment in line for line in process.stderr)
        until(lambda: len(family.children()) >= 6, END_SECONDS, "its processes run")
        children = family.children(recursive=True)
        process.send_signal(number)
        _, progress = process.communicate(timeout=END_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == command.INTERRUPTED, progress
    assert not [child for child in children if child.is_running()]
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One lost event, or a run that could not end, is said in words, and the logs are kept."""
    monkeypatch.setattr(command.tempfile, "mkdtemp", lambda **_: str(tmp_path))
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(command, "_end_children", lambda: None)
    report = Report(deliveries=2, events=2, acknowledged=2, processed=1, lost=["evt_7"])
    monkeypatch.setattr(command, "kill_at_random", lambda *_, **__: Outcome("", 5, 1.0, report))
    assert command.main(["--database", "sqlite", "--seed", "9"]) == 1
    told = capsys.readouterr().out
    assert "evt_7" in told and "--seed 9" in told and str(tmp_path) in told and tmp_path.exists()

    def stuck(*_: object, **__: object) -> Outcome:
        raise AssertionError("3 deliveries were not answered")

    monkeypatch.setattr(command, "kill_at_random", stuck)
    (tmp_path / "shop.db").unlink()
    assert command.main(["--database", "sqlite"]) == 1
    assert "3 deliveries were not answered" in capsys.readouterr().out
