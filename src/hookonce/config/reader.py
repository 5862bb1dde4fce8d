"""Reading: from the weakest place to the strongest, noting where each value came from and every mistake."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from hookonce.config.settings import PREFIX, Config, SecretReference, Setting, SourceSettings
from hookonce.config.values import KEYS, TABLES, closest, did_you_mean, read_option
from hookonce.errors import ConfigurationError
from hookonce.providers import PROVIDERS
from hookonce.providers.base import NAME
from hookonce.providers.directory import REQUIRED, options_of

FILE_NAME = "hookonce.toml"
SYSTEM_FILE = Path("/etc/hookonce/hookonce.toml")
NOT_SETTINGS = frozenset({"HOOKONCE_CONFIG", "HOOKONCE_FAILPOINTS"})

_LINE_TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]")
_LINE_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_REFERENCE = re.compile(r"([a-z]+):")


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
            elif name in KEYS or "__" in variable or closest(name, KEYS, 0.8):
                # Other HOOKONCE_ variables are not ours to judge: Kubernetes makes some for a service of this name.
                self._set(name, environ[variable], variable)

    def flags(self, flags: Mapping[str, object]) -> None:
        for name, value in flags.items():
            if value is not None:
                self._set(name, value, f"--{name.rpartition('.')[2].replace('_', '-')}")

    def _set(self, name: str, value: object, origin: str) -> None:
        key = KEYS.get(name)
        if key is None:
            self.problems.append(f"{origin}: there is no setting {name}{did_you_mean(name, [*KEYS, 'sources'])}")
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
            self.problems.append(
                f"{where}: {name!r} cannot be a source's name: use lower-case letters, digits, - and _"
            )
        provider = given.pop("provider", None)
        optional = provider is not None and getattr(PROVIDERS.get(str(provider.value)), "secret_optional", False)
        secrets = self._secrets(name, given.pop("secrets", None), where, optional=optional)
        options: dict[str, Setting] = {}
        if provider is None:
            self.problems.append(f"{where}: sources.{name} has no provider: one of {', '.join(PROVIDERS)}")
        elif provider.value not in PROVIDERS:
            known = f"one of {', '.join(PROVIDERS)}{did_you_mean(str(provider.value), PROVIDERS)}"
            self.problems.append(
                f"{provider.origin}: sources.{name}.provider is {provider.value!r}, but must be {known}"
            )
        else:
            options = self._options(name, provider.value, given, where)
        called = str(provider.value) if provider else ""
        return SourceSettings(name, called, options, secrets, where, sound=len(self.problems) == before)

    def _options(self, name: str, provider: str, given: Mapping[str, Setting], where: str) -> dict[str, Setting]:
        known = options_of(provider)
        options = {}
        for key, setting in given.items():
            if key not in known:
                meant = did_you_mean(key, [*known, "provider", "secrets"])
                self.problems.append(
                    f"{setting.origin}: there is no setting sources.{name}.{key} for {provider}{meant}"
                )
                continue
            try:
                options[key] = Setting(key, read_option(key, known[key], setting.value), setting.origin)
            except ValueError as error:
                self.problems.append(
                    f"{setting.origin}: sources.{name}.{key} is {setting.value!r}, but must be {error}"
                )
        for key, default in known.items():
            if default is REQUIRED and key not in given:
                self.problems.append(f"{where}: sources.{name} needs {key}")
        return options

    def _secrets(self, name: str, given: Setting | None, where: str, *, optional: bool) -> tuple[SecretReference, ...]:
        if given is None and optional:
            return ()
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
                self.problems.append(
                    f'{origin}: sources.{name}.secrets: an entry is {{ from = "env:NAME", not_after = time }}'
                )
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
