"""Hookonce: a durable inbox for webhooks. Every event is accepted once and applied once."""

from hookonce.errors import (
    ConfigurationError,
    Discard,
    HookonceError,
    Park,
    Retry,
    StorageError,
    VerificationError,
)
from hookonce.event import Event
from hookonce.flow.receive import Bounds
from hookonce.inbox import Inbox
from hookonce.model import Secret, State, Stored, Verdict
from hookonce.registry import Backoff, Source
from hookonce.worker.loop import WorkerSettings

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Bounds",
    "ConfigurationError",
    "Discard",
    "Event",
    "HookonceError",
    "Inbox",
    "Park",
    "Retry",
    "Secret",
    "Source",
    "State",
    "StorageError",
    "Stored",
    "Verdict",
    "VerificationError",
    "WorkerSettings",
    "__version__",
]
