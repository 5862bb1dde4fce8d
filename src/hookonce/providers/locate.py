"""Reading an event's facts out of a verified request, by locators that are parsed once; no body makes this raise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from math import isfinite
from operator import attrgetter
from typing import Any

from hookonce.errors import ConfigurationError
from hookonce.model import Delivery, Facts
from hookonce.schemes.base import Headers
from hookonce.schemes.hmac import header_name

NOT_JSON = "not_json"
INTEGER_DIGITS_MAX = 600
EPOCH_MIN, EPOCH_MAX = -62135596800.0, 253402300800.0
"""The years 1 to 9999: what every other layer can show as a time."""

Path = tuple[str, ...]
Values = tuple[object, ...]
Read = Callable[[bytes], "Values | None"]
Pick = Callable[[Values, Headers], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locators:
    """Where a provider says what: "body:data.object.id", "header:X-GitHub-Delivery", or nowhere.

    Alternatives are separated by "|": the first that is there counts. The type may come in several pieces,
    which are joined by a full stop.
    """

    event_id: str | None = None
    delivery_id: str | None = None
    type: str | tuple[str, ...] | None = None
    object_id: str | None = None
    account: str | None = None
    event_time: str | None = None
    version: str | None = None
    api_version: str | None = None

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check(entry.name, getattr(self, entry.name), many=entry.name == "type")


class Reader:
    """All locators of one provider, compiled: one pass over the body, then one lookup for each fact."""

    __slots__ = (
        "_account",
        "_api_version",
        "_delivery_id",
        "_event_id",
        "_event_time",
        "_nothing",
        "_object_id",
        "_read",
        "_type",
        "_version",
    )

    def __init__(self, locators: Locators, *, read_with: Callable[[Sequence[Path]], Read] | None = None) -> None:
        paths: list[Path] = []
        self._event_id = _text(locators.event_id, paths)
        self._delivery_id = _text(locators.delivery_id, paths)
        self._type = _joined(locators.type, paths)
        self._object_id = _text(locators.object_id, paths)
        self._account = _text(locators.account, paths)
        self._event_time = _time(locators.event_time, paths)
        self._version = _text(locators.version, paths)
        self._api_version = _text(locators.api_version, paths)
        self._nothing: Values = (None,) * len(paths)
        self._read = (read_with or body_reader)(paths) if paths else None

    def facts(self, delivery: Delivery) -> Facts:
        """What the request says about its event; an unreadable body is a fact as well."""
        found = self._nothing if self._read is None else self._read(delivery.body)
        values = self._nothing if found is None else found
        headers = delivery.headers
        return Facts(
            self._event_id(values, headers),
            self._delivery_id(values, headers),
            self._type(values, headers),
            self._object_id(values, headers),
            self._account(values, headers),
            self._event_time(values, headers),
            self._version(values, headers),
            self._api_version(values, headers),
            NOT_JSON if found is None else None,
        )


TextPick = Callable[[Values, Headers], "str | None"]
TimePick = Callable[[Values, Headers], "float | None"]


def _nothing(values: Values, headers: Headers) -> None:
    del values, headers


def _text(locator: str | None, paths: list[Path]) -> TextPick:
    """Ids and names: text is kept as it is, a whole number becomes text, anything else is as if it were not there."""
    if locator is None:
        return _nothing
    picks = [_pick(part, paths) for part in locator.split("|")]
    if len(picks) == 1:
        only = picks[0]
        return lambda values, headers: as_text(only(values, headers))

    def first(values: Values, headers: Headers) -> str | None:
        for pick in picks:
            text = as_text(pick(values, headers))
            if text is not None:
                return text
        return None

    return first


def _joined(locator: str | tuple[str, ...] | None, paths: list[Path]) -> TextPick:
    """A type in pieces: the first has to be there, the others refine it."""
    if not isinstance(locator, tuple):
        return _text(locator, paths)
    head, *rest = [_text(piece, paths) for piece in locator]

    def join(values: Values, headers: Headers) -> str | None:
        name = head(values, headers)
        if name is None:
            return None
        pieces = [piece(values, headers) for piece in rest]
        return ".".join([name, *(piece for piece in pieces if piece is not None)])

    return join


def _time(locator: str | None, paths: list[Path]) -> TimePick:
    if locator is None:
        return _nothing
    picks = [_pick(part, paths) for part in locator.split("|")]

    def first(values: Values, headers: Headers) -> float | None:
        for pick in picks:
            time = as_time(pick(values, headers))
            if time is not None:
                return time
        return None

    return first


def _pick(locator: str, paths: list[Path]) -> Pick:
    kind, _, rest = locator.partition(":")
    if kind == "header":
        name = header_name(rest)
        return lambda _, headers: only_header(headers, name)
    path = tuple(rest.split("."))
    if path not in paths:
        paths.append(path)
    index = paths.index(path)
    return lambda values, _: values[index]


def _check(field: str, locator: object, *, many: bool) -> None:
    pieces = locator if many and isinstance(locator, tuple) and locator else (locator,)
    if locator is None or all(map(_possible, pieces)):
        return
    raise ConfigurationError(
        f"{field}={locator!r} does not say where to look",
        code="HO101",
        do='write "body:" and a path such as "body:data.id", or "header:" and a name',
    )


def _possible(piece: object) -> bool:
    return isinstance(piece, str) and all(map(_possible_alternative, piece.split("|")))


def _possible_alternative(locator: str) -> bool:
    kind, _, rest = locator.partition(":")
    return bool(rest) and (kind == "header" or (kind == "body" and all(rest.split("."))))


def only_header(headers: Headers, name: bytes) -> str | None:
    """The header's text if it is there exactly once: of two, nobody knows which one was meant."""
    found = None
    for key, value in headers:
        if key == name:
            if found is not None:
                return None
            found = value
    return None if found is None else found.decode("latin-1")


def as_text(value: object) -> str | None:
    """An id or a name; the empty one would make one event of many, so it counts as missing."""
    if type(value) is str:
        return value or None
    return str(value) if type(value) is int else None


def as_time(value: object) -> float | None:
    """Epoch seconds, or ISO 8601 with its offset written out; a local time says nothing."""
    try:
        if type(value) is int or type(value) is float:
            seconds = float(value)
        elif type(value) is str:
            time = datetime.fromisoformat(value)
            if time.tzinfo is None:
                return None
            seconds = time.timestamp()
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return seconds if isfinite(seconds) and EPOCH_MIN <= seconds < EPOCH_MAX else None


def body_reader(paths: Sequence[Path]) -> Read:
    """The fastest way to read these paths that is installed and possible."""
    slow = json_reader(paths)
    if _overlap(paths):
        return slow
    try:
        return msgspec_reader(paths, slow)
    except (ImportError, TypeError, ValueError):  # not installed, or a path that it cannot name
        return slow


def json_reader(paths: Sequence[Path]) -> Read:
    """The stdlib's parser: it decides what a body says, and whether it is readable at all."""

    def read(body: bytes) -> Values | None:
        try:
            document = json.loads(body, parse_int=_integer)
        except (ValueError, RecursionError):
            return None
        return tuple([_walk(document, path) for path in paths])

    return read


def _integer(digits: str) -> int | str:
    # Python refuses long ones (a limit of 4300 digits, or as low as 640); as an identity, text is as good.
    return int(digits) if len(digits) <= INTEGER_DIGITS_MAX else digits


def _walk(document: object, path: Path) -> object:
    for name in path:
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document


def _overlap(paths: Sequence[Path]) -> bool:
    """Whether one path is the beginning of another: then a value is wanted whole and in parts."""
    return any(a != b and a == b[: len(a)] for a in paths for b in paths)


def msgspec_reader(paths: Sequence[Path], slow: Read) -> Read:
    """Decode only what is asked for; whatever msgspec does not take goes to the slow path, which decides."""
    from msgspec.json import Decoder

    names: dict[Path, str] = {}
    decode: Callable[[bytes], object] = Decoder(_struct((), paths, names)).decode
    get = attrgetter(*(".".join(names[path[: end + 1]] for end in range(len(path))) for path in paths))
    single = len(paths) == 1

    def read(body: bytes) -> Values | None:
        try:
            if not body.isascii():
                body.decode()  # msgspec skips over bytes that are no UTF-8 in what it does not keep
            values = get(decode(body))
        except Exception:
            return slow(body)
        return (values,) if single else values

    return read


def _struct(prefix: Path, paths: Sequence[Path], names: dict[Path, str]) -> type:
    """A msgspec type for what lies below `prefix`, with generated field names, noted in `names`."""
    from msgspec import defstruct

    below = list(dict.fromkeys(path[: len(prefix) + 1] for path in paths if path[: len(prefix)] == prefix))
    entries: list[tuple[str, object, object]] = []
    for number, path in enumerate(below):
        names[path] = f"f{number}"
        if path in paths:
            entries.append((names[path], Any, None))
        else:
            inner = _struct(path, paths, names)
            entries.append((names[path], inner, inner()))
    rename = {names[path]: path[-1] for path in below}
    return defstruct("Body", entries, rename=rename, frozen=True)


__all__ = [
    "NOT_JSON",
    "Locators",
    "Reader",
    "as_text",
    "as_time",
    "body_reader",
    "json_reader",
    "msgspec_reader",
    "only_header",
]
