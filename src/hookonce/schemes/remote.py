"""Public keys that a provider publishes: fetched over HTTPS from the addresses that its declaration names, and kept a while.

Fetching blocks, so it is done before a request is verified, away from the event loop (`prepare` of a scheme). What cannot be
fetched makes the answer 503: the sender comes again. Redirects are not followed, proxies of the environment not used.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

from hookonce.errors import KeysUnavailable

FETCH_SECONDS = 4.0
FETCH_BYTES_MAX = 256 * 1024
KEEP_SECONDS = 3_600.0
AGAIN_SECONDS = 30.0
"""The least time between two attempts at one address: unknown key ids must not make us ask all the time."""

KEPT_MAX = 64
ASKED_MAX = 1_024
AT_ONCE = 4
"""Fetches on their way at the same time: whoever makes addresses up must not take all threads."""


ONE_ASKS_SECONDS = 1.0
"""While one request fetches, others for the same address come again."""

Fetch = Callable[[str], bytes]
T = TypeVar("T")


def https_get(url: str) -> bytes:
    """The document at this address; KeysUnavailable when there is none to be had in time."""
    import http.client  # half of the time that importing hookonce takes, for those who need it
    import ssl

    split = urlsplit(url)
    connection = http.client.HTTPSConnection(
        split.hostname or "", split.port, timeout=FETCH_SECONDS, context=ssl.create_default_context()
    )
    try:
        connection.connect()
        with _cut_after(1.5 * FETCH_SECONDS, connection.sock):
            connection.request("GET", (split.path or "/") + (f"?{split.query}" if split.query else ""))
            response = connection.getresponse()
            found = response.read(FETCH_BYTES_MAX + 1)
        if response.length and len(found) <= FETCH_BYTES_MAX:
            raise KeysUnavailable(f"{split.hostname} broke off in the middle of its answer")
    except (OSError, http.client.HTTPException) as error:
        raise KeysUnavailable(f"{split.hostname} does not answer: {type(error).__name__}") from error
    finally:
        connection.close()
    if response.status != 200 or len(found) > FETCH_BYTES_MAX:
        raise KeysUnavailable(f"{split.hostname} answered {response.status} where its keys should be")
    return found


@contextlib.contextmanager
def _cut_after(seconds: float, sock: socket.socket) -> Iterator[None]:
    """The time-out of a socket is for each piece that comes; this one is for all of them together."""

    def cut() -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    ending = threading.Timer(seconds, cut)
    ending.daemon = True
    ending.start()
    try:
        yield
    finally:
        ending.cancel()


class Published:
    """Documents by address. Used from several threads. What `readable` cannot read is not kept in place of a document."""

    def __init__(
        self,
        fetch: Fetch = https_get,
        clock: Callable[[], float] = time.monotonic,
        *,
        readable: Callable[[bytes], object] = bytes,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._readable = readable
        self._flying: set[str] = set()
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._asked: dict[str, float] = {}

    def get(self, url: str) -> bytes | None:
        """What was fetched lately."""
        found = self._kept.get(url)
        return None if found is None else found[1]

    def need(self, url: str, *, again: bool = False) -> Callable[[], None] | None:
        """How to fetch it, if it is not here, too old, or wanted `again` because it lacks a key. None when it is here."""
        now = self._clock()
        found = self._kept.get(url)
        if found is not None and now - found[0] < KEEP_SECONDS and not again:
            return None
        if found is not None and now - self._asked.get(url, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return None
        return lambda: self._load(url)

    def _load(self, url: str) -> None:
        with self._lock:
            now = self._clock()
            found = self._kept.get(url)
            if found is not None and now - found[0] < AGAIN_SECONDS:
                return
            if url in self._flying or now - self._asked.get(url, -AGAIN_SECONDS) < ONE_ASKS_SECONDS:
                self._do_without(url, KeysUnavailable(f"{urlsplit(url).hostname} was asked a moment ago"))
                return
            if len(self._flying) >= AT_ONCE:
                self._do_without(url, KeysUnavailable(f"{urlsplit(url).hostname} has to wait for others"))
                return
            self._flying.add(url)
            self._asked = _with(self._asked, url, now, ASKED_MAX)
        try:
            document = self._read(url)
        except KeysUnavailable as error:
            self._do_without(url, error)
            return
        finally:
            self._flying.discard(url)
        with self._lock:
            self._kept = _with(self._kept, url, (now, document), KEPT_MAX)

    def _read(self, url: str) -> bytes:
        document = self._fetch(url)
        try:
            self._readable(document)
        except Exception as error:
            raise KeysUnavailable(f"{urlsplit(url).hostname} answered with something that is no key") from error
        return document

    def _do_without(self, url: str, error: KeysUnavailable) -> None:
        """What was fetched before serves for a while longer; without it nothing can be verified."""
        if url not in self._kept:
            raise error


def _with(kept: dict[str, T], url: str, value: T, most: int) -> dict[str, T]:
    """A copy with this one as the newest: whoever looks meanwhile must not find it gone."""
    others = [(known, old) for known, old in kept.items() if known != url]
    return {**dict(others[-(most - 1) :]), url: value}


__all__ = ["Fetch", "Published", "https_get"]
