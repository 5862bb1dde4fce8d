"""From options to a configuration, and from a configuration to an inbox."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from hookonce.cli.errors import problems_of
from hookonce.cli.options import Options
from hookonce.cli.output import Output
from hookonce.config import Config, load
from hookonce.errors import ConfigurationError, HookonceError, SchemaError
from hookonce.inbox import Inbox
from hookonce.registry import is_named_only
from hookonce.storage.connect import backend_factory, default_database

BOUNDS = ("body_bytes_max", "body_seconds", "source_rate", "address_rate", "event_age_seconds")
WORKER = ("concurrency", "lease_seconds", "group")


@dataclass(frozen=True, slots=True)
class Built:
    """An inbox, when one could be built, and what was wrong on the way to it."""

    inbox: Inbox | None
    problems: list[str]
    warnings: list[str]


def read_config(options: Options, **flags: object) -> Config:
    """The configuration, with its mistakes still inside."""
    return load(file=options.config, flags={"database": options.database, **flags})


def open_inbox(config: Config, output: Output) -> Inbox:
    """The inbox to serve and work with. ConfigurationError lists everything that is wrong."""
    built = build(config)
    if built.problems or built.inbox is None:
        raise ConfigurationError(built.problems, do="correct all of it, then: hookonce check")
    for warning in built.warnings:
        output.warn(warning)
    return built.inbox


def open_database(config: Config, *, must_exist: bool = True) -> Inbox:
    """The inbox to look into: only its database matters, so missing secrets do not stand in the way."""
    config.require()
    inbox = None
    if config["app"] and not config.settings["database"].origin.startswith("--"):
        try:
            inbox = load_app(config)
        except ConfigurationError:
            if not config.settings["database"].given:
                raise
    if must_exist:
        require_file(config, inbox)
    return inbox or Inbox(config["database"])


def require_file(config: Config, inbox: Inbox | None) -> None:
    """Looking into a SQLite file must not make one."""
    url = config["database"] if inbox is None or inbox.database is None else inbox.database
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)(?:\?.*)?", url) if isinstance(url, str) else None
    if match and not Path(unquote(match[1])).exists():
        raise SchemaError(
            f"there is no file {Path(unquote(match[1])).absolute()}",
            do="hookonce migrate (`hookonce run` does it by itself), or name another --database",
        )


def build(config: Config) -> Built:
    """Everything that can be built, and every problem met: none hides another."""
    problems = list(config.problems)
    endpoints, wrong, warnings = config.endpoints()
    problems += wrong
    inbox = _inbox(config, problems)
    if inbox is None:
        return Built(None, problems, warnings)
    for endpoint in endpoints:
        try:
            inbox.source(endpoint)
        except ConfigurationError as error:
            problems.append(f"sources.{endpoint.name}: {error.seen}: one in the file, one in the application")
    problems += [
        f"the application names the source {source.name}, and there is no [sources.{source.name}]"
        for source in inbox.registry
        if is_named_only(source.endpoint) and source.name not in config.sources
    ]
    if not inbox.registry.sources and not problems:
        warnings.append("there are no sources: nobody can send anything")
    said = config.settings["database"]
    if config["app"] and inbox.database is not None and said.origin not in ("default", "DATABASE_URL"):
        warnings.append(f"{said.origin}: the application brings its own database, this one is not used")
    inbox.adjust(
        bounds={name: config[f"server.{name}"] for name in BOUNDS if config.settings[f"server.{name}"].given},
        worker={name: config[f"worker.{name}"] for name in WORKER if config.settings[f"worker.{name}"].given},
    )
    return Built(inbox, problems, warnings)


def _inbox(config: Config, problems: list[str]) -> Inbox | None:
    """The application's, or a bare one on the configured database."""
    try:
        return load_app(config) if config["app"] else Inbox(config["database"])
    except HookonceError as error:
        problems += [_with_advice(error, problem) for problem in problems_of(error)]
        return None


def _with_advice(error: HookonceError, problem: str) -> str:
    """One line among others: its code when it has one of its own, and what to do."""
    code = "" if error.code == ConfigurationError.code else f"{error.code} "
    return f"{code}{problem}{f'; do: {error.do}' if error.do else ''}"


def load_app(config: Config) -> Inbox:
    """Import `app` from the configuration's folder or the current one: an Inbox, or a function that makes one."""
    module_name, _, attribute = config["app"].partition(":")
    for folder in (Path.cwd(), config.folder):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    with default_database(config["database"]):
        backend_factory(config["database"])  # a database that cannot be is said as such, not as a fault of the import
        try:
            found: Any = importlib.import_module(module_name)
            for part in attribute.split("."):
                found = getattr(found, part)
            if callable(found) and not isinstance(found, Inbox):
                found = found()
        except HookonceError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"app = {config['app']!r} cannot be loaded: {type(error).__name__}: {error}{_place(error)}",
                do=f"looked in {config.folder} and {Path.cwd()}",
            ) from error
    if not isinstance(found, Inbox):
        raise ConfigurationError(f"app = {config['app']!r} is a {type(found).__name__}", do="name an Inbox there")
    return found


def _place(error: Exception) -> str:
    """Where in the user's own code it happened."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    own = [f for f in frames if f.filename != __file__]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
