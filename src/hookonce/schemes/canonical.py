"""JSON in its one canonical spelling, for senders that sign that rather than their bytes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite
from typing import Any

from hookonce.schemes.request import Request


def canonical(body: bytes) -> bytes:
    """Sorted names, no spaces, numbers as JavaScript writes them. ValueError for what that cannot be said of."""
    document = json.loads(body, parse_int=_number, parse_float=_number, parse_constant=_refuse)
    return json.dumps(_ordered(document), ensure_ascii=False, separators=(",", ":")).encode()


def _number(text: str) -> int | float:
    """Every number is a double there. Those that would be written with an exponent are left alone."""
    value = float(text)
    if not isfinite(value) or (value and not 1e-4 <= abs(value) < 1e21):
        raise ValueError("a number with an exponent")
    shortest = Decimal(repr(value))
    return int(shortest) if shortest == int(shortest) else value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def body_or_canonical(request: Request, ts: bytes) -> Iterator[bytes]:
    """{body}{ts}, or the body as canonical JSON and {ts}"""  # noqa: D415 - shown as it is, beside templates
    yield request.body + ts
    with contextlib.suppress(ValueError, RecursionError):
        yield canonical(request.body) + ts


def _ordered(document: Any) -> Any:
    """Names in the order of their UTF-16 units, which is JavaScript's."""
    if isinstance(document, dict):
        names = sorted(document, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return {name: _ordered(document[name]) for name in names}
    return [_ordered(item) for item in document] if isinstance(document, list) else document


__all__ = ["body_or_canonical", "canonical"]
