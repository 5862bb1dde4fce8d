"""The command line. It needs click, which comes with the extra `server`; nothing else in the package does."""

from __future__ import annotations

import importlib.util
import sys

NO_CLICK = 78


def main() -> None:
    """The entry point of the command `hookonce`."""
    if importlib.util.find_spec("click") is None:
        sys.stderr.write("the command line is an extra: pip install 'hookonce[server]'\n")
        raise SystemExit(NO_CLICK)
    from hookonce.cli.main import run

    raise SystemExit(run())
