"""`hookonce verify`: the verdict on captured requests, without a server and without a network."""

from __future__ import annotations

import hashlib
import json
from typing import IO, Any

import click

from hookonce.cli.context import read_config
from hookonce.cli.errors import DONE, FAILURES
from hookonce.cli.options import Options, global_options
from hookonce.cli.output import Output
from hookonce.cli.send import find_endpoint
from hookonce.errors import ConfigurationError, HookonceError, VerificationError
from hookonce.flow import judge
from hookonce.model import Facts, Verified


@click.command(short_help="Judge captured requests, one JSON object a line.")
@click.option("--requests", required=True, type=click.File("rb"), help="The file; - is standard input.")
@global_options
@click.pass_obj
def verify(options: Options, *, requests: IO[bytes]) -> int:
    """Judge captured requests offline. Each line has provider (or source, for one of hookonce.toml), method, url, headers,
    body_b64, secrets, now_unix, and config for what else a verifier needs. Answered line by line; exit 1 unless all are valid.
    """
    output = Output(options)
    every = True
    for number, line in enumerate(requests, start=1):
        if line.strip():
            found = {"line": number, **_verdict(options, line)}
            every = every and found["valid"]
            click.echo(json.dumps(found, ensure_ascii=True))
    output.say("all are valid" if every else "not all are valid")
    return DONE if every else FAILURES


def _verdict(options: Options, line: bytes) -> dict[str, Any]:
    provider = None
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ConfigurationError("a line is a JSON object")
        provider = document.get("provider") or document.get("source")
        named = document.get("source") if "provider" not in document else None
        endpoint = find_endpoint(read_config(options), str(named)) if named else None
        verified, events = judge.judge(judge.read(document, endpoint=endpoint))
    except VerificationError as error:
        return {"provider": provider, "valid": False, "reason": error.reason.value, "seen": error.seen}
    except HookonceError as error:
        return {"provider": provider, "valid": False, "reason": "configuration", "seen": error.seen}
    except (ValueError, RecursionError):
        return {"provider": provider, "valid": False, "reason": "not_json", "seen": "this line is no JSON"}
    return {"provider": provider, "valid": True, "reason": None, **_told(verified, events)}


def _told(verified: Verified, events: list[tuple[Facts, bytes]]) -> dict[str, Any]:
    listed = [_identities(facts, body) for facts, body in events]
    first = listed[0] if listed else _identities(Facts(), b"")
    return {"secret": verified.secret_id, "signed_at": verified.signed_at, **first, "events": listed}


def _identities(facts: Facts, body: bytes) -> dict[str, Any]:
    return {
        "event_id": facts.event_id,
        "delivery_id": facts.delivery_id,
        "type": facts.type,
        "object_id": facts.object_id,
        "account": facts.account,
        "event_time": facts.event_time,
        "version": facts.version_key,
        "api_version": facts.api_version,
        "body_sha256": hashlib.sha256(body).hexdigest(),
        "problem": facts.problem,
    }
