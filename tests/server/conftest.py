"""A fresh SQLite inbox for each test."""

from pathlib import Path

import pytest

from tests.server.running import prepare


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Path of a SQLite file with our tables in it."""
    path = tmp_path / "inbox.db"
    prepare(f"sqlite:///{path}")
    return path


@pytest.fixture
def database(file: Path) -> str:
    """URL of that file."""
    return f"sqlite:///{file}"
