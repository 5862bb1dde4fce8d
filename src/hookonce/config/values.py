"""What can be set, what its values may be, and which name was probably meant."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZES = {"": 1, "b": 1, "kb": 1_000, "kib": 1 << 10, "mb": 1_000_000, "mib": 1 << 20, "gb": 10**9, "gib": 1 << 30}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


# -- what values may be: each reader returns the value or raises ValueError with what it should have been -------------


def read_seconds(value: object) -> float:
    """A duration: a number of seconds, or "250ms", "10s", "5m", "2h", "1d"."""
    if isinstance(value, str) and (match := _AMOUNT.fullmatch(value)) and (match[2] or "s") in _DURATIONS:
        return float(match[1]) * _DURATIONS[match[2] or "s"]
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0:
        return float(value)
    raise ValueError('a duration such as "10s", "5m" or a number of seconds')


def read_bytes(value: object) -> int:
    """A size: a number of bytes, or "64KiB", "1MiB"."""
    if isinstance(value, str) and (match := _AMOUNT.fullmatch(value)) and match[2].lower() in _SIZES:
        return int(float(match[1]) * _SIZES[match[2].lower()])
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError('a size such as "1MiB" or a number of bytes')


def read_address(value: object) -> Address:
    """HOST:PORT."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not port.isdigit() or len(port) > 5 or not 0 <= int(port) < 65_536:
        raise ValueError('HOST:PORT, such as "127.0.0.1:8080"')
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _rate(value: object) -> float:
    number = float(value) if isinstance(value, str) and _AMOUNT.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number) or number < 0:
        raise ValueError("requests a second; 0 means no limit")
    return float(number)


def _app(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", value):
        raise ValueError('"module:attribute", such as "shop.main:inbox"')
    return value


def _url_path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or not value.isascii() or "?" in value or " " in value:
        raise ValueError('a path that begins with "/"')
    return value.rstrip("/")


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and value.isdigit() and len(value) < 19 else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most:,}")
        return number

    return read


def _addresses(value: object) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else value
    if isinstance(listed, list | tuple) and all(isinstance(one, str) and _is_network(one.strip()) for one in listed):
        return tuple(one.strip() for one in listed)
    raise ValueError('a list of addresses or networks, such as ["127.0.0.1", "10.0.0.0/8"], or "*"')


def _is_network(text: str) -> bool:
    if text == "*":
        return True
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _between(reader: Callable[[object], Any], least: float, most: float, says: str) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        number = reader(value)
        if not least <= number <= most:
            raise ValueError(says)
        return number

    return read


def _choice(*names: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)}{did_you_mean(str(value), names)}")
        return str(value)

    return read


@dataclass(frozen=True, slots=True)
class Key:
    """One setting there is: how its value is read, and what it is when nobody says."""

    read: Callable[[object], Any]
    default: Any = None


_positive = _between(read_seconds, 0.001, 86_400, "more than nothing and at most a day")

KEYS: Mapping[str, Key] = {
    "database": Key(_text, "sqlite:///hookonce.db"),
    "app": Key(_app),
    "environment": Key(_choice("development", "production"), "production"),
    "server.listen": Key(read_address, Address("127.0.0.1", 8080)),
    "server.path": Key(_url_path, "/webhooks"),
    "server.body_bytes_max": Key(_between(read_bytes, 1, 1 << 30, "from 1 byte to 1GiB"), 1 << 20),
    "server.body_seconds": Key(_positive, 10.0),
    "server.head_seconds": Key(_positive, 10.0),
    "server.source_rate": Key(_rate, 10_000.0),
    "server.address_rate": Key(_rate, 2_000.0),
    "server.event_age_seconds": Key(_between(read_seconds, 1, 34_560_000, "from 1s to 400d")),
    "server.grace_seconds": Key(_between(read_seconds, 0, 3_600, "at most an hour"), 25.0),
    "server.drain_seconds": Key(_between(read_seconds, 0, 600, "at most ten minutes"), 0.0),
    "server.connections_max": Key(_whole(1, 1_000_000), 10_000),
    "server.address_connections_max": Key(_whole(0, 1_000_000), 0),
    "server.trusted_proxies": Key(_addresses, ()),
    "server.processes": Key(_whole(1, 64), 1),
    "worker.concurrency": Key(_whole(1, 256), 8),
    "worker.lease_seconds": Key(_between(read_seconds, 1, 3_600, "from 1s to 1h"), 10.0),
    "worker.group": Key(_whole(1, 1_000), 32),
    "log.level": Key(_choice("debug", "info", "warning", "error"), "info"),
    "log.format": Key(_choice("auto", "console", "json"), "auto"),
}
"""Every setting outside [sources]. A key that is not here is a mistake."""

TABLES = frozenset(name.partition(".")[0] for name in KEYS if "." in name)


def read_option(key: str, default: object, value: object) -> object:
    """A provider's option in the type that its default has."""
    match default:
        case None if key == "tolerance":
            return read_seconds(value)
        case None if isinstance(value, bool):
            raise ValueError("a text")
        case bool():
            if isinstance(value, bool):
                return value
            if value in ("true", "false"):
                return value == "true"
            raise ValueError("true or false")
        case float() if key.endswith("_days"):
            return _days(value)
        case float():
            return read_seconds(value)
        case tuple():
            return _texts(value)
        case _ if isinstance(value, list):
            return _texts(value)
        case None if isinstance(value, dict) and all(isinstance(one, str) for one in value.values()):
            return dict(value)
        case _:
            if isinstance(value, str):
                return value
            raise ValueError("a text")


def _days(value: object) -> float:
    try:
        return _rate(value)
    except ValueError:
        raise ValueError("a number of days") from None


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise ValueError("a list of texts")


def closest(name: str, known: Mapping[str, object] | Sequence[str], cutoff: float = 0.6) -> str | None:
    """The known name that somebody may have meant: also one that was written without its table."""
    short: dict[str, str] = {full.rpartition(".")[2]: full for full in known}
    found = difflib.get_close_matches(name, [*known, *short], 1, cutoff)
    found = found or difflib.get_close_matches(name.rpartition(".")[2], list(short), 1, cutoff)
    return short.get(found[0], found[0]) if found else None


def did_you_mean(name: str, known: Mapping[str, object] | Sequence[str]) -> str:
    close = closest(name, known)
    return f"; did you mean {close}?" if close else ""
