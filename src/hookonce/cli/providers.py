"""`hookonce providers`: who is known, what each signs, and how to configure it."""

from __future__ import annotations

from typing import Any

import click

from hookonce.cli.errors import DONE
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output
from hookonce.config.values import did_you_mean
from hookonce.errors import NotFound
from hookonce.providers.base import EACH_ARRIVAL, WHOLE_BODY
from hookonce.providers.directory import GENERIC, PROVIDERS, REQUIRED, options_of
from hookonce.providers.known import REGISTERED, Known
from hookonce.providers.locate import Locator


@click.group(short_help="Who is known, what each signs, and how to configure it.")
def providers() -> None:
    """List the providers, or tell all about one."""


@providers.command("list")
@global_options
@click.pass_obj
def list_(options: Options) -> int:
    """List every provider that can be configured."""
    output = Output(options)
    lines = [_line(name) for name in sorted(PROVIDERS)]
    if output.json:
        for line in lines:
            output.record(line)
    else:
        output.table(
            ("NAME", "PROVIDER", "SIGNATURE", "CONFIDENCE"),
            [(line["name"], line["title"], line["signature"], line["confidence"]) for line in lines],
        )
        output.say(f"{len(lines)} providers; tell all about one: hookonce providers show NAME")
    return DONE


@providers.command()
@click.argument("name")
@global_options
@click.pass_obj
def show(options: Options, *, name: str) -> int:
    """Tell what a provider signs, where its ids stand, how it retries, and how to configure it."""
    output = Output(options)
    if name not in PROVIDERS:
        raise NotFound(
            f"there is no provider {name!r}{did_you_mean(name, list(PROVIDERS))}", do="hookonce providers list"
        )
    found = about(name)
    if output.json:
        output.record(found)
        return DONE
    output.data(f"{found['title']} ({name}), {found['confidence']}")
    for field in ("about", "signature", "signed", "timestamp", "secret", "event id", "delivery id", "type", "object"):
        _tell(output, field, found)
    for field in ("account", "time", "version", "batch", "handshake", "retries", "answer within", "note"):
        _tell(output, field, found)
    output.data()
    for line in _example(name):
        output.data(line)
    return DONE


@providers.command()
@click.argument("name")
@global_options
@click.pass_obj
def key(options: Options, *, name: str) -> int:
    """Make a secret of the form that this provider gives, for development: `hookonce send` can sign with it."""
    output = Output(options)
    declared = REGISTERED.get(name)
    if declared is None:
        raise NotFound(
            f"there is no provider {name!r}{did_you_mean(name, list(REGISTERED))}", do="hookonce providers list"
        )
    secret = declared.new_secret().decode()
    if output.json:
        output.record({"provider": name, "secret": secret})
    else:
        output.data(secret)
    return DONE


def about(name: str) -> dict[str, Any]:
    """Everything that the declaration says, in words."""
    declared = REGISTERED.get(name)
    if declared is None:
        return {
            "name": name,
            "title": GENERIC[name].__name__ if name in GENERIC else name,
            "confidence": "described by you",
            "about": (PROVIDERS[name].__doc__ or "").strip().split("\n")[0],
            "options": _options(name),
        }
    where = declared.locators
    described: dict[str, str] = getattr(declared.scheme, "describe", dict)()
    return {
        "name": name,
        "title": declared.title,
        "confidence": declared.confidence,
        "about": (declared.__doc__ or "").strip().split("\n")[0],
        **described,
        "secret": declared.secret_is + (" (optional)" if declared.secret_optional else ""),
        "event id": _words(where.event_id) or _print_words(declared),
        "delivery id": _words(where.delivery_id),
        "type": _words(where.type, "."),
        "object": _words(where.object_id),
        "account": _words(where.account),
        "time": _words(where.event_time),
        "version": _words(where.version),
        "batch": "several events in one request" if declared.split is not None else None,
        "handshake": declared.handshake_says,
        "retries": declared.retries_say,
        "answer within": f"{declared.profile.timeout_seconds:g} s",
        "note": declared.note or None,
        "options": _options(name),
    }


def _line(name: str) -> dict[str, Any]:
    found = about(name)
    kind = str(found.get("signature", "as you describe it"))
    return {key: found[key] for key in ("name", "title", "confidence")} | {"signature": kind}


def _options(name: str) -> dict[str, Any]:
    return {option: None if default is REQUIRED else default for option, default in options_of(name).items()}


def _print_words(declared: type[Known]) -> str:
    if declared.fingerprint == (EACH_ARRIVAL,):
        return "none: every arrival is an event of its own"
    if declared.fingerprint == (WHOLE_BODY,):
        return "none: the digest of the body stands for it"
    return f"none: {' + '.join(declared.fingerprint)} stand for it"


def _words(locator: Locator | None, joined: str = ":") -> str | None:
    match locator:
        case None:
            return None
        case str():
            return locator.replace("|", " or ")
        case tuple():
            return f" {joined} ".join(_words(piece) or "" for piece in locator)
        case _:
            return (locator.__doc__ or locator.__name__).strip().split("\n")[0]


def _tell(output: Output, field: str, found: dict[str, Any]) -> None:
    if found.get(field):
        output.data(f"  {field:14}{found[field]}")


def _example(name: str) -> list[str]:
    declared = REGISTERED.get(name)
    lines = [f"[sources.{name}]", f'provider = "{name}"']
    if declared is None or not declared.secret_optional:
        lines.append(f'secrets = ["env:{name.upper()}_SECRET"]')
    if declared is not None and declared.url_needed:
        lines.append(f'url = "https://example.com/webhooks/{name}"')
    lines += [f'{option} = "..."' for option, default in options_of(name).items() if default is REQUIRED]
    return lines
