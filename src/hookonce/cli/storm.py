"""Signed sample deliveries, many at once: what `hookonce send` does over the network, with the standard library only."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import json
import math
import socket
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import SplitResult

from hookonce.model import Delivery
from hookonce.providers.base import Endpoint
from hookonce.providers.directory import GENERIC
from hookonce.providers.samples import Sample, sample
from hookonce.schemes.base import active, sealed

ANSWER_SECONDS = 30.0
ACCEPTED, DUPLICATE = 202, 200


@dataclass(frozen=True, slots=True)
class Posting:
    """One event to deliver, not signed yet: a provider signs every delivery anew."""

    sample: Sample
    message_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, or why there was none."""

    status: int | None
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """How a storm went."""

    deliveries: int
    events: int
    accepted: int
    duplicates: int
    refused: Counter[int]
    failed: Counter[str]
    p50_ms: float
    p99_ms: float


def postings(
    endpoint: Endpoint,
    kind: str,
    *,
    events: int,
    event_id: str | None,
    seed: str,
    created: int | None,
    body: bytes | None,
) -> list[Posting]:
    """One posting for each distinct event; the same ones for the same seed."""
    found = []
    for number in range(events):
        one_seed = seed if events == 1 else f"{seed}-{number}"
        own_id = event_id if event_id is None or events == 1 else f"{event_id}_{number}"
        message_id = own_id or f"msg_{hashlib.sha256(f'{kind} {one_seed}'.encode()).hexdigest()[:24]}"
        made = sample(endpoint.provider.name, kind, event_id=own_id, seed=one_seed, created=created)
        made = _located(
            endpoint, Sample(body or made.body, made.headers, made.query), kind, message_id, exact=body is not None
        )
        found.append(Posting(made, message_id))
    return found


def _located(endpoint: Endpoint, made: Sample, kind: str, message_id: str, *, exact: bool) -> Sample:
    """For a sender described by the user: put the id and the type where that description says they are."""
    if endpoint.provider.name not in GENERIC or endpoint.provider.name == "standard_webhooks":
        return made
    headers = list(made.headers)
    body = made.body
    for locator, value in ((endpoint.provider.locators.event_id, message_id), (endpoint.provider.locators.type, kind)):
        named = locator[0] if isinstance(locator, tuple) else locator
        place = named if isinstance(named, str) else None
        where, _, path = (place or "").partition("|")[0].partition(":")
        if where == "header":
            headers.append((path.lower().encode("latin-1"), value.encode("latin-1")))
        elif where == "body" and path not in ("", "id", "type") and not exact:
            body = _with(body, path.split("."), value)
    return Sample(body, headers)


def _with(body: bytes, path: Sequence[str], value: str) -> bytes:
    document: Any = json.loads(body)
    inner = document
    for part in path[:-1]:
        inner[part] = inner[part] if isinstance(inner.get(part), dict) else {}
        inner = inner[part]
    inner[path[-1]] = value
    return json.dumps(document, separators=(",", ":")).encode()


def fire(
    endpoint: Endpoint,
    found: Sequence[Posting],
    url: SplitResult,
    *,
    copies: int,
    concurrent: int,
    delay_seconds: float,
    shuffle: Random | None,
) -> list[Answer]:
    """Post every event `copies` times, `concurrent` at once, each `delay_seconds` after the one before."""
    order = [posting for _ in range(copies) for posting in found]
    if shuffle is not None:
        shuffle.shuffle(order)
    began = time.monotonic()

    def deliver(number: int) -> Answer:
        time.sleep(max(0.0, began + number * delay_seconds - time.monotonic()))
        return _post(endpoint, order[number], url)

    threads = ThreadPoolExecutor(min(concurrent, len(order)))
    try:
        return list(threads.map(deliver, range(len(order))))
    finally:
        threads.shutdown(cancel_futures=True)  # interrupted: what has not begun is not sent


def signed_request(endpoint: Endpoint, posting: Posting, url: SplitResult, now: float) -> Delivery:
    """The request as its provider would send it now."""
    made = posting.sample
    query = "&".join(part for part in (url.query, made.query.decode()) if part)
    unsigned = Delivery(endpoint.name, made.headers, made.body, url.path, query.encode())
    secret = active(endpoint.secrets, now)[0]
    return sealed(endpoint.provider.scheme, unsigned, secret, now, posting.message_id)


def _post(endpoint: Endpoint, posting: Posting, url: SplitResult) -> Answer:
    now = time.time()
    request = signed_request(endpoint, posting, url, now)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=ANSWER_SECONDS)
    began = time.monotonic()
    try:
        target = f"{url.path or '/'}{f'?{request.query.decode()}' if request.query else ''}"
        connection.request("POST", target, request.body, {**headers, "connection": "close"})
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException) as error:
        return Answer(None, time.monotonic() - began, getattr(error, "strerror", None) or type(error).__name__)
    finally:
        connection.close()
    return Answer(response.status, time.monotonic() - began)


def tally(answers: Sequence[Answer], events: int) -> Tally:
    """Count the answers. Every first delivery of an event is answered 202, every later one 200."""
    statuses = Counter(answer.status for answer in answers if answer.status is not None)
    times = sorted(answer.seconds * 1000 for answer in answers)
    return Tally(
        deliveries=len(answers),
        events=events,
        accepted=statuses[ACCEPTED],
        duplicates=statuses[DUPLICATE],
        refused=Counter({status: n for status, n in statuses.items() if status not in (ACCEPTED, DUPLICATE)}),
        failed=Counter(answer.error for answer in answers if answer.status is None),
        p50_ms=_quantile(times, 0.50),
        p99_ms=_quantile(times, 0.99),
    )


def _quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def is_loopback(host: str, port: int | None) -> bool:
    """Whether every address behind that name is this very machine."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address[4][0]).partition("%")[0]).is_loopback for address in found)
