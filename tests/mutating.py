"""What a process does that runs tests on a changed copy of the package. Forked where nothing of ours is loaded yet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

LOADED_ONCE = ("pytest", "hypothesis.strategies", "psycopg", "sqlalchemy.ext.asyncio")
"""What every such process would load for itself, which takes longer than most of the tests."""

NOT_THE_COPY = 70


def run_tests(
    sources: Path, root: Path, output: Path, environment: Mapping[str, str], arguments: Sequence[str]
) -> None:
    """Run pytest with the package below `sources`, here and in what the tests start. Its status is this process's."""
    os.setsid()
    with output.open("wb") as file, Path(os.devnull).open("rb") as nothing:
        for source, target in ((nothing, 0), (file, 1), (file, 2)):
            os.dup2(source.fileno(), target)
    os.chdir(root)
    os.environ.update(environment)
    os.environ["PYTHONPATH"] = str(sources)
    sys.path.insert(0, str(sources))
    try:
        import hookonce
    except BaseException as error:
        _stop(f"the copy cannot be imported: {error!r}")
    if Path(hookonce.__file__).parent != sources / "hookonce":
        _stop(f"the tests would run on {hookonce.__file__}")
    import pytest

    # Not rewritten: hypothesis is loaded already, and an assertion that fails need not explain itself here.
    sys.exit(pytest.main(["--assert=plain", *arguments]))


def _stop(why: str) -> NoReturn:
    print(why)
    sys.exit(NOT_THE_COPY)
