"""`hookonce check`: everything that could keep it from working, found before it matters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from hookonce.cli.context import Built, build, read_config, require_file
from hookonce.cli.errors import DONE, FAILURES, error_text, problems_of
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output, plural
from hookonce.config import Config
from hookonce.errors import HookonceError, SchemaError, StorageError
from hookonce.inbox import Inbox
from hookonce.storage import migrate as steps
from hookonce.storage.backend import Backend


@dataclass(slots=True)
class Findings:
    """What was looked at, and what is wrong with it."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    database: dict[str, str] = field(default_factory=dict)
    schema: str = "unknown"
    sources: list[dict[str, Any]] = field(default_factory=list)


@click.command(short_help="Find everything that would keep it from working.")
@global_options
@click.pass_obj
def check(options: Options) -> int:
    """Look at the configuration, the database, the schema, the secrets and the handlers. Exit 1 when something is wrong."""
    output = Output(options)
    try:
        config = read_config(options)
        findings = look(config, build(config))
        file = str(config.file) if config.file else None
    except HookonceError as error:
        findings = Findings(problems=problems_of(error))
        file = options.config or "not read"
    if output.json:
        output.record(
            {
                "ok": not findings.problems,
                "config": file,
                "database": findings.database,
                "schema": findings.schema,
                "sources": findings.sources,
                "problems": findings.problems,
                "warnings": findings.warnings,
            }
        )
    else:
        _tell(output, findings, file)
    return FAILURES if findings.problems else DONE


def look(config: Config, built: Built) -> Findings:
    """All of it: one thing that is wrong hides nothing else."""
    findings = Findings(problems=list(built.problems), warnings=list(built.warnings))
    if built.inbox is None:
        return findings
    findings.sources = [_source(source, config) for source in built.inbox.registry]
    if any(not source["handlers"] for source in findings.sources) and config["app"]:
        silent = [source["name"] for source in findings.sources if not source["handlers"]]
        findings.warnings.append(f"no handler takes anything of {', '.join(silent)}: its events are kept as skipped")
    if not config["app"]:
        findings.warnings.append(
            'no application is configured: events are kept, nothing runs (app = "module:attribute")'
        )
    _look_at_database(findings, config, built.inbox)
    return findings


def _source(source: Any, config: Config) -> dict[str, Any]:
    declared = "file" if source.name in config.sources else "application"
    return {
        "name": source.name,
        "provider": source.endpoint.provider.name,
        "declared": declared,
        "url": f"http://{config['server.listen']}{config['server.path']}/{source.name}",
        "secrets": [str(secret) for secret in source.endpoint.secrets],
        "handlers": [{"pattern": handler.pattern, "function": handler.name} for handler in source.handlers],
    }


def _look_at_database(findings: Findings, config: Config, inbox: Inbox) -> None:
    async def ask(backend: Backend) -> None:
        findings.database = dict(await backend.facts())
        findings.warnings += _doubts(findings.database)
        if findings.database.get("integrity", "ok") != "ok":
            damage = f"the database is damaged: {findings.database['integrity']}"
            findings.problems.append(f"HO107 {damage}; do: stop; restore the last backup")
        todo = await steps.pending(backend)
        findings.schema = "current" if not todo else f"{plural(len(todo), 'migration')} to apply"
        if todo:
            await steps.require_current(backend)

    try:
        require_file(config, inbox)
        asyncio.run(inbox.with_backend(ask))
    except (SchemaError, StorageError) as error:
        findings.problems.append(error_text(error).replace("\n  do         ", "; do: ").replace("\n", " "))


def _doubts(facts: Mapping[str, str]) -> list[str]:
    """Settings with which what was acknowledged could be lost."""
    doubts = [
        f"the server runs with {name} = off: what was accepted can be lost in a power failure"
        for name in ("fsync", "full_page_writes")
        if facts.get(name) == "off"
    ]
    if facts.get("synchronous_commit") == "off":
        doubts.append("synchronous_commit = off on the server: accepting and handling ask for more by themselves")
    if facts.get("read_only") == "yes":
        doubts.append("the server is a read-only standby: nothing can be accepted there")
    if facts.get("mode", "").startswith("guarded"):
        doubts.append(f"SQLite is {facts['mode']}: safe, a little slower; pip install pysqlite3 brings a newer one")
    return doubts


def _tell(output: Output, findings: Findings, file: str | None) -> None:
    output.data(f"config    {file or 'no file'}")
    for name, value in findings.database.items():
        output.data(f"{name:9} {value}")
    output.data(f"schema    {findings.schema}")
    for source in findings.sources:
        output.data(f"source    {source['name']} ({source['provider']}, from the {source['declared']})")
        output.data(f"  url       {source['url']}")
        for secret in source["secrets"]:
            output.data(f"  secret    {secret}")
        for handler in source["handlers"]:
            output.data(f"  handler   {handler['pattern']} -> {handler['function']}")
    for warning in findings.warnings:
        output.data(f"{click.style('warning', fg='yellow')}   {warning}")
    for problem in findings.problems:
        output.data(f"{click.style('problem', fg='red')}   {problem}")
    output.data(plural(len(findings.problems), "problem") if findings.problems else "no problems")
