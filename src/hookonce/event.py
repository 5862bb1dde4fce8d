"""What a handler is given: the event, read from the exact bytes that were signed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

from hookonce.errors import Unreadable
from hookonce.model import Claim, utc
from hookonce.schemes.inflate import inflate


@cache
def _quick_reader() -> Callable[[bytes], Any] | None:
    """A reader that is three times as fast, where it is installed. What it refuses, the standard one decides."""
    try:
        import msgspec
    except ImportError:
        return None
    decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
    return decode


def read_json(raw: bytes) -> Any:
    """Bytes as JSON, as the standard library reads them. Raises ValueError or RecursionError."""
    quick = _quick_reader()
    if quick is not None:
        with contextlib.suppress(Exception):
            return quick(raw)
    return json.loads(raw)


@dataclass(frozen=True)
class Event:
    """One event, at one attempt. `event["data.object.id"]` looks into its JSON body."""

    claim: Claim
    raw: bytes
    header_bytes: bytes
    delivery_id: str | None
    account: str | None
    api_version: str | None
    event_time: float | None
    received_epoch: float

    @property
    def id(self) -> str:
        """The provider's id for this event; for a source without one, the receipt's."""
        return self.claim.event_id or f"receipt:{self.claim.id}"

    @property
    def source(self) -> str:
        return self.claim.source

    @property
    def type(self) -> str | None:
        return self.claim.type

    @property
    def object_id(self) -> str | None:
        return self.claim.object_id

    @property
    def receipt_id(self) -> int:
        return self.claim.id

    @property
    def attempt(self) -> int:
        """1 for the first run of this generation."""
        return self.claim.attempts

    @property
    def generation(self) -> int:
        """How often a person replayed this event."""
        return self.claim.generation

    @property
    def created_at(self) -> datetime | None:
        """When the provider says it happened."""
        return utc(self.event_time)

    @property
    def received_at(self) -> datetime:
        """When it became ours."""
        return datetime.fromtimestamp(self.received_epoch, UTC)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The kept request headers, names in lower case."""
        return dict(line.split(": ", 1) for line in self.header_bytes.decode("latin-1").split("\r\n") if ": " in line)

    @cached_property
    def data(self) -> Any:
        """The body as JSON. A body that is none ends the event as `failed(unreadable)`; its bytes stay in `raw`."""
        try:
            packed = self.headers.get("content-encoding", "").lower() == "gzip"
            return read_json(inflate(self.raw) if packed else self.raw)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"the body is not readable as JSON: {error}") from error

    def __getitem__(self, path: str) -> Any:
        """The value at a dotted path; list items by number. KeyError names the part that is missing."""
        value = self.data
        for part in path.split("."):
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, TypeError, ValueError):
                raise KeyError(f"{path!r}: there is no {part!r} in this {self.type or 'event'}") from None
        return value

    def get(self, path: str, default: Any = None) -> Any:
        try:
            return self[path]
        except KeyError:
            return default
