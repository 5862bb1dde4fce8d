"""Reading an event's facts out of a verified request, by locators that are parsed once; no body makes this raise."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from math import isfinite
from operator import attrgetter
from typing import Any, Literal, Protocol

from hookonce.errors import ConfigurationError
from hookonce.model import Delivery, Facts
from hookonce.schemes.base import Headers
from hookonce.schemes.hmac import header_name
from hookonce.schemes.request import fields as form_fields
from hookonce.schemes.request import walk

NOT_JSON = "not_json"
INTEGER_DIGITS_MAX = 600
EPOCH_MIN, EPOCH_MAX = -62135596800.0, 253402300800.0
"""The years 1 to 9999: what every other layer can show as a time."""

Path = tuple[str, ...]
Values = tuple[object, ...]
Read = Callable[[bytes], "Values | None"]
Pick = Callable[[Values, Delivery, Any], object]
"""From what was read of the body, the request around it, and the document around the event, to one value."""

Piece = str | Callable[[Any], object]
Locator = Piece | tuple[Piece, ...]


class Document(Protocol):
    """Reads a body that is no JSON into names and values; ValueError when it cannot."""

    def __call__(self, delivery: Delivery, /) -> Any: ...


TimeUnit = Literal["s", "ms", "utc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locators:
    """Where a provider says what: "body:data.object.id", "header:X-GitHub-Delivery", "query:id", or nowhere.

    Alternatives are separated by "|": the first that is there counts. Pieces of an id are joined by a colon, and all
    of them must be there; pieces of a type by a full stop, and the first must be. In a batch "body:" is one event of it
    and "outer:" what stands around. A function is given the whole body, for what no path can say.

    Times are epoch seconds or ISO 8601 with an offset; `time_unit` says so where they are text ("s"), milliseconds
    ("ms"), or ISO without an offset ("utc").
    """

    event_id: Locator | None = None
    delivery_id: Locator | None = None
    type: Locator | None = None
    object_id: Locator | None = None
    account: Locator | None = None
    event_time: Locator | None = None
    version: Locator | None = None
    api_version: Locator | None = None
    time_unit: TimeUnit | None = None

    def __post_init__(self) -> None:
        for entry in fields(self):
            if entry.name != "time_unit":
                _check(entry.name, getattr(self, entry.name), many=entry.name in MANY)


MANY = frozenset({"event_id", "type", "object_id", "version"})
"""Facts that may come in pieces."""


class Reader:
    """All locators of one provider, compiled: one pass over the body, then one lookup for each fact."""

    __slots__ = (
        "_account",
        "_api_version",
        "_delivery_id",
        "_document",
        "_event_id",
        "_event_time",
        "_nothing",
        "_object_id",
        "_paths",
        "_read",
        "_type",
        "_version",
    )

    def __init__(
        self,
        locators: Locators,
        *,
        read_with: Callable[[Sequence[Path]], Read] | None = None,
        document: Document | None = None,
    ) -> None:
        paths: list[Path] = []
        self._event_id = _id(locators.event_id, paths)
        self._delivery_id = _text(locators.delivery_id, paths)
        self._type = _joined(locators.type, paths)
        self._object_id = _id(locators.object_id, paths)
        self._account = _text(locators.account, paths)
        self._event_time = _time(locators.event_time, paths, locators.time_unit)
        self._version = _id(locators.version, paths)
        self._api_version = _text(locators.api_version, paths)
        self._nothing: Values = (None,) * len(paths)
        self._read = (read_with or body_reader)(paths) if paths and document is None else None
        self._document = document
        self._paths = paths

    def facts(self, delivery: Delivery, outer: Any = None) -> Facts:
        """What the request says about its event; an unreadable body is a fact as well."""
        if self._document is not None:
            found = self._read_document(self._document, delivery)
        else:
            found = self._nothing if self._read is None else self._read(delivery.body)
        values = self._nothing if found is None else found
        return Facts(
            self._event_id(values, delivery, outer),
            self._delivery_id(values, delivery, outer),
            self._type(values, delivery, outer),
            self._object_id(values, delivery, outer),
            self._account(values, delivery, outer),
            self._event_time(values, delivery, outer),
            self._version(values, delivery, outer),
            self._api_version(values, delivery, outer),
            NOT_JSON if found is None else None,
        )

    def _read_document(self, document: Document, delivery: Delivery) -> Values | None:
        try:
            whole = document(delivery)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None
        return tuple([walk(whole, path) for path in self._paths])


TextPick = Callable[[Values, Delivery, Any], "str | None"]
TimePick = Callable[[Values, Delivery, Any], "float | None"]


def _nothing(values: Values, delivery: Delivery, outer: Any) -> None:
    del values, delivery, outer


def _text(locator: Locator | None, paths: list[Path]) -> TextPick:
    """Ids and names: text is kept as it is, a whole number becomes text, anything else is as if it were not there."""
    if locator is None:
        return _nothing
    picks = _picks(locator, paths)
    if len(picks) == 1:
        only = picks[0]
        return lambda values, delivery, outer: as_text(only(values, delivery, outer))

    def first(values: Values, delivery: Delivery, outer: Any) -> str | None:
        for pick in picks:
            text = as_text(pick(values, delivery, outer))
            if text is not None:
                return text
        return None

    return first


def _id(locator: Locator | None, paths: list[Path]) -> TextPick:
    """An id in pieces: only all of them together tell one thing from another."""
    if not isinstance(locator, tuple):
        return _text(locator, paths)
    pieces = [_text(piece, paths) for piece in locator]

    def join(values: Values, delivery: Delivery, outer: Any) -> str | None:
        found = [piece(values, delivery, outer) for piece in pieces]
        return None if None in found else ":".join([text for text in found if text is not None])

    return join


def _joined(locator: Locator | None, paths: list[Path]) -> TextPick:
    """A type in pieces: the first has to be there, the others refine it."""
    if not isinstance(locator, tuple):
        return _text(locator, paths)
    head, *rest = [_text(piece, paths) for piece in locator]

    def join(values: Values, delivery: Delivery, outer: Any) -> str | None:
        name = head(values, delivery, outer)
        if name is None:
            return None
        pieces = [piece(values, delivery, outer) for piece in rest]
        return ".".join([name, *(piece for piece in pieces if piece is not None)])

    return join


def _time(locator: Locator | None, paths: list[Path], unit: TimeUnit | None) -> TimePick:
    if locator is None:
        return _nothing
    picks = _picks(locator, paths)

    def first(values: Values, delivery: Delivery, outer: Any) -> float | None:
        for pick in picks:
            time = as_time(_in_unit(pick(values, delivery, outer), unit))
            if time is not None:
                return time
        return None

    return first


def _in_unit(value: object, unit: TimeUnit | None) -> object:
    """A time as `as_time` takes it."""
    if unit is None:
        return value
    if isinstance(value, str) and unit == "utc":
        return value if value.endswith("Z") or "+" in value[10:] else f"{value}Z"
    if isinstance(value, str) and len(value) < 40 and value.replace(".", "", 1).isdecimal() and value.isascii():
        value = float(value)
    if unit == "ms" and isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if abs(value) < 10**20 else None
    return value


def _picks(locator: Locator, paths: list[Path]) -> list[Pick]:
    if callable(locator):
        index = _index((), paths)
        return [lambda values, _, __: _called(locator, values[index])]
    assert isinstance(locator, str)
    return [_pick(part, paths) for part in locator.split("|")]


def _called(function: Callable[[Any], object], document: Any) -> object:
    """Bodies are foreign: where a function does not find what it looks for, there is nothing."""
    try:
        return function(document)
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration):
        return None


def _pick(locator: str, paths: list[Path]) -> Pick:
    kind, _, rest = locator.partition(":")
    if kind == "header":
        name = header_name(rest)
        return lambda _, delivery, __: only_header(delivery.headers, name)
    if kind == "query":
        field = rest.encode()
        return lambda _, delivery, __: _only_field(delivery.query, field)
    path = tuple(rest.split("."))
    if kind == "outer":
        return lambda _, __, outer: walk(outer, path)
    index = _index(path, paths)
    return lambda values, _, __: values[index]


def _index(path: Path, paths: list[Path]) -> int:
    if path not in paths:
        paths.append(path)
    return paths.index(path)


def _only_field(query: bytes, name: bytes) -> str | None:
    try:
        values = [value for key, value in form_fields(query) if key == name]
    except ValueError:
        return None
    return values[0].decode("utf-8", "replace") if len(values) == 1 else None


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
    return callable(piece) or (isinstance(piece, str) and all(map(_possible_alternative, piece.split("|"))))


def _possible_alternative(locator: str) -> bool:
    kind, _, rest = locator.partition(":")
    return bool(rest) and (kind in ("header", "query") or (kind in ("body", "outer") and all(rest.split("."))))


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
    if () in paths or _overlap(paths) or any(name.isdecimal() for path in paths for name in path):
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
        return tuple([walk(document, path) for path in paths])

    return read


def _integer(digits: str) -> int | str:
    # Python refuses long ones (a limit of 4300 digits, or as low as 640); as an identity, text is as good.
    return int(digits) if len(digits) <= INTEGER_DIGITS_MAX else digits


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
    "Document",
    "Locator",
    "Locators",
    "Reader",
    "as_text",
    "as_time",
    "body_reader",
    "json_reader",
    "msgspec_reader",
    "only_header",
]
