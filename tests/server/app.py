"""An inbox with one Stripe source, served as the command line would: what the tests of the server run.

    python tests/server/app.py '{"database": "sqlite:////tmp/x.db", "processes": 2}'

Everything but `database`, `processes`, `handler_seconds`, `disk_fails_at` and `bounds` goes to `run_server`. The URL is
printed when requests are answered, together with the process id.
"""

import json
import logging
import os
import sys
import time

from hookonce import Bounds, Event, Inbox, failpoints
from hookonce.errors import DiskFailure
from hookonce.providers import Stripe
from hookonce.server import run_server

SECRET = "whsec_test"


def disk_fails() -> None:
    """What SQLite tells when the kernel could not write."""
    raise DiskFailure("the disk failed: told so by a test")


def main(given: dict) -> int:
    """Build the inbox and serve it."""
    bounds = Bounds(**{"source_rate": 0.0, "address_rate": 0.0, **given.pop("bounds", {})})
    inbox = Inbox(given.pop("database"), bounds=bounds)
    seconds = given.pop("handler_seconds", 0.0)
    if point := given.pop("disk_fails_at", None):
        failpoints._armed[point] = failpoints._Armed(disk_fails, onwards=True)

    @inbox.source(Stripe(SECRET)).on("*")
    def apply(event: Event, conn) -> None:
        if seconds:
            print("handling", flush=True)
            time.sleep(seconds)

    def ready(url: str) -> None:
        print(f"ready {url} {os.getpid()}", flush=True)

    return run_server(inbox, processes=given.pop("processes", 1), ready=ready, **given)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(json.loads(sys.argv[1])))
