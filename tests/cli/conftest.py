"""A folder with a small application and its configuration."""

from pathlib import Path

import pytest

from tests.cli.shell import APP, CONFIG, SECRET, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """The command line in a folder with a configuration, an application and its secret."""
    (tmp_path / "hookonce.toml").write_text(CONFIG)
    (tmp_path / "shop.py").write_text(APP)
    return Shell(tmp_path, {"SHOP_SECRET": SECRET})
