"""Outcome to answer: one table. The body is the same small one, whatever the reason; the reason stays in our log."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any

from hookonce.errors import Reason
from hookonce.model import Answer, Verdict

Message = MutableMapping[str, Any]

YES = b'{"received":true}'
NO = b'{"received":false}'

STATUS_OF_VERDICT = {
    Verdict.ACCEPTED: 202,
    Verdict.DUPLICATE: 200,
    Verdict.MISMATCH: 200,
    Verdict.SUSPECT_REPLAY: 200,
}

STATUS_OF_REASON = {
    Reason.SIGNATURE_MISSING: 401,
    Reason.SIGNATURE_MALFORMED: 401,
    Reason.SIGNATURE_MISMATCH: 401,
    Reason.TIMESTAMP_MISSING: 401,
    Reason.TIMESTAMP_MALFORMED: 401,
    Reason.TOO_OLD: 401,
    Reason.IN_THE_FUTURE: 401,
    Reason.EVENT_TOO_OLD: 400,
    Reason.ID_MISSING: 400,
    Reason.BODY_CUT_SHORT: 400,
    Reason.UNKNOWN_SOURCE: 404,
    Reason.WRONG_METHOD: 405,
    Reason.BODY_TOO_SLOW: 408,
    Reason.BODY_TOO_LARGE: 413,
    Reason.ENCODING_REFUSED: 415,
    Reason.RATE_LIMITED: 429,
    Reason.BODY_EATEN: 500,
}

UNAVAILABLE = 503
RETRY_AFTER_SECONDS = 5


def status_of(verdict: Verdict, *, plain_ok: bool) -> int:
    """202 for a new event unless the provider insists on a plain 200."""
    return 200 if plain_ok else STATUS_OF_VERDICT[verdict]


def headers_of(status: int, retry_after: float = 0.0, *, bare: bool = False) -> list[tuple[bytes, bytes]]:
    """The headers of an answer. A sender that is told to wait is told how long."""
    body = b"" if bare else YES if status < 300 else NO
    headers = [(b"content-length", b"%d" % len(body))]
    if not bare:
        headers.insert(0, (b"content-type", b"application/json"))
    if status in (429, UNAVAILABLE):
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(retry_after or RETRY_AFTER_SECONDS))))
    if status == 405:
        headers.append((b"allow", b"POST"))
    if status in (408, 413):
        headers.append((b"connection", b"close"))
    return headers


def messages(status: int, retry_after: float = 0.0, *, bare: bool = False) -> tuple[Message, Message]:
    """The two ASGI messages of an answer."""
    if status in _READY and not retry_after and not bare:
        return _READY[status]
    start = {"type": "http.response.start", "status": status, "headers": headers_of(status, retry_after, bare=bare)}
    return start, {"type": "http.response.body", "body": b"" if bare else YES if status < 300 else NO}


def answer_messages(answer: Answer) -> tuple[Message, Message]:
    """The two ASGI messages of an answer that a provider asks for. Never to be taken for a page."""
    headers = list(answer.headers)
    if answer.status != 204:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    if answer.body:
        headers += [(b"content-type", answer.content_type.encode("latin-1")), (b"x-content-type-options", b"nosniff")]
    start = {"type": "http.response.start", "status": answer.status, "headers": headers}
    return start, {"type": "http.response.body", "body": answer.body}


_READY: dict[int, tuple[Message, Message]] = {}
_READY.update({status: messages(status) for status in (200, 202, 503, *STATUS_OF_REASON.values())})
