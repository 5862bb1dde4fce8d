"""Hookonce as a receiver only: what `accept` measures."""

from __future__ import annotations

import os

from benchmarks import events
from hookonce import Bounds, Inbox
from hookonce.providers import Stripe

# All load comes from one address: its rate limit is kept and counted, but set where it never refuses.
UNLIMITED = 1e9
BOUNDS = Bounds(source_rate=UNLIMITED, address_rate=UNLIMITED)

inbox = Inbox(os.environ["BENCH_DATABASE"], bounds=BOUNDS)
inbox.source(Stripe(events.SECRET))
app = inbox.asgi()
