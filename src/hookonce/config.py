"""Settings, and where each came from: flag, else environment, else one file, else default. All mistakes at once."""

from __future__ import annotations

import base64
import difflib
import inspect
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from hookonce.errors import ConfigurationError
from hookonce.model import Secret
from hookonce.providers import PROVIDERS, Endpoint
from hookonce.providers.base import NAME

PREFIX = "HOOKONCE_"
FILE_NAME = "hookonce.toml"
SYSTEM_FILE = Path("/etc/hookonce/hookonce.toml")
NOT_SETTINGS = frozenset({"HOOKONCE_CONFIG", "HOOKONCE_FAILPOINTS"})

_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZES = {"": 1, "b": 1, "kb": 1_000, "kib": 1 << 10, "mb": 1_000_000, "mib": 1 << 20, "gb": 10**9, "gib": 1 << 30}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_LINE_TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]")
_LINE_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_REFERENCE = re.compile(r"([a-z]+):")


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
            raise ValueError(f"one of {', '.join(names)}{_did_you_mean(str(value), names)}")
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
    "server.grace_seconds": Key(_between(read_seconds, 0, 3_600, "at most an hour"), 25.0),
    "server.processes": Key(_whole(1, 64), 1),
    "worker.concurrency": Key(_whole(1, 256), 8),
    "worker.lease_seconds": Key(_between(read_seconds, 1, 3_600, "from 1s to 1h"), 10.0),
    "worker.group": Key(_whole(1, 1_000), 32),
    "log.level": Key(_choice("debug", "info", "warning", "error"), "info"),
    "log.format": Key(_choice("auto", "console", "json"), "auto"),
}
"""Every setting outside [sources]. A key that is not here is a mistake."""

TABLES = frozenset(name.partition(".")[0] for name in KEYS if "." in name)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it came from."""

    name: str
    value: Any
    origin: str

    @property
    def given(self) -> bool:
        """Whether somebody said so: a default never overrides what the application says."""
        return self.origin != "default"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is to be found. A literal one is never shown."""

    text: str = field(repr=False)
    not_after: datetime | None
    origin: str

    @property
    def kind(self) -> str:
        prefix = self.text.partition(":")[0]
        return prefix if prefix in ("env", "file") and ":" in self.text else "literal"

    @property
    def label(self) -> str:
        """How people refer to it."""
        return f"literal in {self.origin}" if self.kind == "literal" else self.text.replace(":", " ", 1)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One [sources.NAME]. Of one that is not `sound` only the secrets are looked at: the problems are listed already."""

    name: str
    provider: str
    options: Mapping[str, Setting]
    secrets: tuple[SecretReference, ...]
    origin: str
    sound: bool


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that was said, by whom, and what is wrong with it."""

    file: Path | None
    settings: Mapping[str, Setting]
    sources: Mapping[str, SourceSettings]
    problems: Sequence[str]
    environ: Mapping[str, str] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    @property
    def folder(self) -> Path:
        """What relative paths in the file are relative to."""
        return self.file.resolve().parent if self.file else Path.cwd()

    @property
    def development(self) -> bool:
        return bool(self["environment"] == "development")

    def require(self) -> None:
        """Raise ConfigurationError with everything that is wrong with the file, the environment and the flags."""
        if self.problems:
            raise ConfigurationError(list(self.problems), do="correct all of it, then: hookonce check")

    def endpoints(self) -> tuple[list[Endpoint], list[str], list[str]]:
        """The endpoints of [sources] with their secrets read; what is wrong with them; what deserves a warning."""
        endpoints: list[Endpoint] = []
        problems: list[str] = []
        warnings: list[str] = []
        for source in self.sources.values():
            secrets = [self._secret(source, reference, problems, warnings) for reference in source.secrets]
            if not source.sound:
                continue
            whole = [secret for secret in secrets if secret is not None]
            options = {name: setting.value for name, setting in source.options.items()}
            try:
                # With a stand-in for a secret that could not be read, the rest is still checked.
                endpoint = PROVIDERS[source.provider](whole or [_STAND_IN], name=source.name, **options)
            except ConfigurationError as error:
                problems += [f"{source.origin}: sources.{source.name}: {_line(problem)}" for problem in error.problems]
            except (TypeError, ValueError, AttributeError) as error:
                problems.append(f"{source.origin}: sources.{source.name} cannot be used: {error}")
            else:
                if secrets and len(whole) == len(secrets):
                    endpoints.append(endpoint)
        return endpoints, problems, warnings

    def _secret(
        self, source: SourceSettings, reference: SecretReference, problems: list[str], warnings: list[str]
    ) -> Secret | None:
        where = f"{reference.origin}: sources.{source.name}.secrets"
        try:
            secret = Secret(value=self.read_secret(reference), label=reference.label, not_after=reference.not_after)
        except ValueError as error:
            problems.append(f"{where}: {error}")
            return None
        if reference.kind == "literal" and not reference.origin.startswith(PREFIX):
            said = f"{where}: a secret stands in the file itself (fingerprint {secret.id})"
            if not self.development:
                problems.append(f'{said}: move it and write "env:NAME" or "file:/path"')
                return None
            warnings.append(f"{said}: fine for development only")
        if secret.not_after is not None and secret.not_after <= datetime.now(UTC):
            warnings.append(f"{where}: {secret} is no longer valid since {secret.not_after.isoformat()}: remove it")
        return secret

    def read_secret(self, reference: SecretReference) -> bytes:
        """The bytes of a secret. ValueError says what is wrong, and never what it is."""
        match reference.kind:
            case "env":
                name = reference.text.removeprefix("env:")
                value = self.environ.get(name)
                if value is None:
                    raise ValueError(f"the environment variable {name} is not set")
                return value.encode("utf-8", "surrogateescape")
            case "file":
                path = self.folder / reference.text.removeprefix("file:")
                try:
                    return path.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
                except OSError as error:
                    raise ValueError(f"{path} cannot be read: {error.strerror}") from error
            case _:
                return reference.text.encode()


_STAND_IN = Secret(value=b"whsec_" + base64.b64encode(b"stands in for one that is missing"))


def load(
    *, file: str | None = None, flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Read everything once. Mistakes are in `problems`; only a file that is not there or is no TOML is raised."""
    environ = os.environ if environ is None else environ
    path = find_file(file, environ)
    reader = _Reader(path)
    reader.defaults(environ)
    reader.file()
    reader.environment(environ)
    reader.flags(flags or {})
    reader.file_paths()
    return Config(path, reader.settings, reader.read_sources(), tuple(reader.problems), environ)


def find_file(given: str | None, environ: Mapping[str, str]) -> Path | None:
    """Exactly one file, never merged: --config, else HOOKONCE_CONFIG, else ./hookonce.toml, else the system's."""
    named = given or environ.get("HOOKONCE_CONFIG")
    if named:
        path = Path(named)
        if not path.is_file():
            raise ConfigurationError(
                f"there is no file {path} ({'--config' if given else 'HOOKONCE_CONFIG'})", do="correct the path"
            )
        return path
    return next((path for path in (Path(FILE_NAME), SYSTEM_FILE) if path.is_file()), None)


class _Reader:
    """Collects settings from the weakest to the strongest, and every problem on the way."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.settings: dict[str, Setting] = {}
        self.problems: list[str] = []
        self._sources: dict[str, dict[str, Setting]] = {}
        self._where: dict[str, str] = {}
        self._lines: dict[tuple[str, ...], int] = {}

    def defaults(self, environ: Mapping[str, str]) -> None:
        self.settings = {name: Setting(name, key.default, "default") for name, key in KEYS.items()}
        if environ.get("DATABASE_URL"):
            self._set("database", environ["DATABASE_URL"], "DATABASE_URL")

    def file(self) -> None:
        if self.path is None:
            return
        try:
            text = self.path.read_bytes().decode()
            document = tomllib.loads(text)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{self.path} cannot be read: {error}", do="correct the file") from error
        self._lines = dict(_key_lines(text))
        sources = document.pop("sources", {})
        for name, value in document.items():
            if name in TABLES and isinstance(value, dict):
                for inner, inner_value in value.items():
                    self._set(f"{name}.{inner}", inner_value, self._at(name, inner))
            elif name in TABLES:
                self.problems.append(f"{self._at(name)}: {name} is a table: write [{name}]")
            else:
                self._set(name, value, self._at(name))
        if not isinstance(sources, dict):
            self.problems.append(f"{self._at('sources')}: sources is a table: write [sources.NAME]")
            return
        for name, table in sources.items():
            self._source_table(name, table)

    def _source_table(self, name: str, table: object) -> None:
        where = self._at("sources", name)
        if not isinstance(table, dict):
            self.problems.append(f"{where}: sources.{name} is a table: write [sources.{name}]")
            return
        self._where[name] = where
        for key, value in table.items():
            self._sources.setdefault(name, {})[key] = Setting(key, value, self._at("sources", name, key))

    def _at(self, *path: str) -> str:
        """File and line of a key, or of the nearest table around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return f"{self.path}:{self._lines[path]}" if path else f"{self.path}"

    def environment(self, environ: Mapping[str, str]) -> None:
        for variable in sorted(environ):
            if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or not environ[variable]:
                continue
            name = variable.removeprefix(PREFIX).lower().replace("__", ".")
            if name.startswith("sources.") and name.count(".") == 2:
                _, source, key = name.split(".")
                given: object = environ[variable]
                if key == "secrets":
                    given = [part.strip() for part in environ[variable].split(",") if part.strip()]
                self._sources.setdefault(source, {})[key] = Setting(key, given, variable)
                self._where.setdefault(source, variable)
            elif name in KEYS or "__" in variable or _close(name, KEYS, 0.8):
                # Other HOOKONCE_ variables are not ours to judge: Kubernetes makes some for a service of this name.
                self._set(name, environ[variable], variable)

    def flags(self, flags: Mapping[str, object]) -> None:
        for name, value in flags.items():
            if value is not None:
                self._set(name, value, f"--{name.rpartition('.')[2].replace('_', '-')}")

    def _set(self, name: str, value: object, origin: str) -> None:
        key = KEYS.get(name)
        if key is None:
            self.problems.append(f"{origin}: there is no setting {name}{_did_you_mean(name, [*KEYS, 'sources'])}")
            return
        try:
            self.settings[name] = Setting(name, key.read(value), origin)
        except ValueError as error:
            # A database URL may hold a password.
            seen = "what stands here" if name == "database" else repr(value)
            self.problems.append(f"{origin}: {name} is {seen}, but must be {error}")

    def file_paths(self) -> None:
        """A relative SQLite path in the file starts at the file; on the command line, where the user stands."""
        database = self.settings["database"]
        if self.path is not None and database.origin.startswith(f"{self.path}:"):
            relative = re.fullmatch(r"(sqlite(?:\+\w+)?):///([^/?][^?]*)(\?.*)?", database.value)
            if relative and relative[2] != ":memory:":
                where = self.path.resolve().parent / relative[2]
                value = f"{relative[1]}:///{where}{relative[3] or ''}"
                self.settings["database"] = Setting("database", value, database.origin)

    # -- sources ----------------------------------------------------------------------------------------------

    def read_sources(self) -> dict[str, SourceSettings]:
        return {name: self._source(name, dict(given), self._where[name]) for name, given in self._sources.items()}

    def _source(self, name: str, given: dict[str, Setting], where: str) -> SourceSettings:
        before = len(self.problems)
        if NAME.fullmatch(name) is None:
            self.problems.append(f"{where}: {name!r} cannot be a source's name: use lower-case letters, digits, - and _")
        provider = given.pop("provider", None)
        secrets = self._secrets(name, given.pop("secrets", None), where)
        options: dict[str, Setting] = {}
        if provider is None:
            self.problems.append(f"{where}: sources.{name} has no provider: one of {', '.join(PROVIDERS)}")
        elif provider.value not in PROVIDERS:
            known = f"one of {', '.join(PROVIDERS)}{_did_you_mean(str(provider.value), PROVIDERS)}"
            self.problems.append(f"{provider.origin}: sources.{name}.provider is {provider.value!r}, but must be {known}")
        else:
            options = self._options(name, provider.value, given, where)
        called = str(provider.value) if provider else ""
        return SourceSettings(name, called, options, secrets, where, sound=len(self.problems) == before)

    def _options(self, name: str, provider: str, given: Mapping[str, Setting], where: str) -> dict[str, Setting]:
        parameters = dict(inspect.signature(PROVIDERS[provider]).parameters)
        for own in ("secret", "name"):
            parameters.pop(own, None)
        options = {}
        for key, setting in given.items():
            if key not in parameters:
                meant = _did_you_mean(key, [*parameters, "provider", "secrets"])
                self.problems.append(f"{setting.origin}: there is no setting sources.{name}.{key} for {provider}{meant}")
                continue
            try:
                options[key] = Setting(key, _option(key, parameters[key].default, setting.value), setting.origin)
            except ValueError as error:
                self.problems.append(f"{setting.origin}: sources.{name}.{key} is {setting.value!r}, but must be {error}")
        for key, parameter in parameters.items():
            if parameter.default is parameter.empty and key not in given:
                self.problems.append(f"{where}: sources.{name} needs {key}")
        return options

    def _secrets(self, name: str, given: Setting | None, where: str) -> tuple[SecretReference, ...]:
        if given is None or given.value in ([], ""):
            self.problems.append(f'{where}: sources.{name} has no secrets: write secrets = ["env:NAME"]')
            return ()
        listed = given.value if isinstance(given.value, list) else [given.value]
        return tuple(reference for item in listed if (reference := self._reference(name, item, given.origin)))

    def _reference(self, name: str, item: object, origin: str) -> SecretReference | None:
        not_after: object = None
        if isinstance(item, dict):
            unknown = set(item) - {"from", "not_after"}
            if unknown or "from" not in item:
                self.problems.append(f'{origin}: sources.{name}.secrets: an entry is {{ from = "env:NAME", not_after = time }}')
                return None
            not_after = item.get("not_after")
            item = item["from"]
            if not_after is not None and (not isinstance(not_after, datetime) or not_after.tzinfo is None):
                self.problems.append(
                    f"{origin}: sources.{name}.secrets: not_after is a time with its zone, such as 2026-12-01T00:00:00Z"
                )
                return None
        if not isinstance(item, str) or not item:
            self.problems.append(f'{origin}: sources.{name}.secrets: an entry is "env:NAME" or "file:/path"')
            return None
        prefix = _REFERENCE.match(item)
        if prefix and prefix[1] not in ("env", "file"):
            self.problems.append(
                f'{origin}: sources.{name}.secrets: "{prefix[1]}:" is not a place that secrets are read from: '
                'write "env:NAME" or "file:/path"'
            )
            return None
        return SecretReference(item, not_after if isinstance(not_after, datetime) else None, origin)


def _option(key: str, default: object, value: object) -> object:
    """A provider's option in the type that its default has."""
    match default:
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


def _line(problem: object) -> str:
    """A problem of a provider in one line."""
    if isinstance(problem, ConfigurationError):
        return f"{problem.seen}{f' ({problem.do})' if problem.do else ''}"
    return str(problem)


def _key_lines(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The line of every key and table. The TOML parser does not tell; a message with a line is worth this sketch of one."""
    seen: set[tuple[str, ...]] = set()
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _LINE_TABLE.match(line):
            path = table = _parts(match[1])
        elif match := _LINE_KEY.match(line):
            path = (*table, *_parts(match[1]))
        else:
            continue
        for length in range(1, len(path) + 1):
            if path[:length] not in seen:
                seen.add(path[:length])
                yield path[:length], number


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _close(name: str, known: Mapping[str, object] | Sequence[str], cutoff: float = 0.6) -> str | None:
    """The known name that somebody may have meant: also one that was written without its table."""
    short: dict[str, str] = {full.rpartition(".")[2]: full for full in known}
    found = difflib.get_close_matches(name, [*known, *short], 1, cutoff)
    found = found or difflib.get_close_matches(name.rpartition(".")[2], list(short), 1, cutoff)
    return short.get(found[0], found[0]) if found else None


def _did_you_mean(name: str, known: Mapping[str, object] | Sequence[str]) -> str:
    close = _close(name, known)
    return f"; did you mean {close}?" if close else ""


__all__ = ["KEYS", "Address", "Config", "SecretReference", "Setting", "SourceSettings", "find_file", "load"]
