"""From what a user gives to a backend: whatever the way, the same questions are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from hookonce.errors import ConfigurationError
from hookonce.storage import sqlite
from hookonce.storage.connect import backend_factory
from hookonce.storage.sqlite import choose_module


def test_every_way_to_a_file_asks_for_its_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By URL, by path, by function and by engine; only a URL can say that it is meant."""
    path = tmp_path / "x.db"
    monkeypatch.setattr(sqlite, "file_system_of", lambda *_: "nfs4")
    ways: list[Any] = [f"sqlite:///{path}", path, lambda: choose_module("sqlite3").connect(path)]
    for way in (*ways, create_engine(f"sqlite:///{path}")):
        with pytest.raises(ConfigurationError) as caught:
            backend_factory(way)
        assert caught.value.code == "HO118"
    backend_factory(f"sqlite:///{path}?network_file_system=allowed")
