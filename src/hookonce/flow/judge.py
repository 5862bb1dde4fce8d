"""Stage verify for requests that were captured: judged without a server and without a network (`hookonce verify`)."""

from __future__ import annotations

import base64
import dataclasses
import json
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from hookonce.errors import ConfigurationError, HookonceError
from hookonce.flow.receive import check_encoding, print_name
from hookonce.flow.verify import verify
from hookonce.model import Delivery, Facts, Verified
from hookonce.providers.base import Endpoint
from hookonce.providers.directory import PROVIDERS, options_of

ALIASES: Mapping[str, tuple[str, ...]] = {
    "notification_url": ("url",),
    "ca_pem": ("ca", "root"),
    "root_der_b64": ("root",),
    "root_pem": ("root",),
    "iss": ("issuer", "client_key"),
    "ttl": ("tolerance",),
    "verify_token": ("verify_token", "verification_token"),
}
"""Other names under which a verifier's inputs are known."""

KEYS = ("public_key", "public_key_pem", "cert_pem", "jwks", "certs")
"""Inputs that are keys: where a provider has no option of that name, they stand for its secrets."""


@dataclasses.dataclass(frozen=True, slots=True)
class Captured:
    """One request as it was captured, and what is needed to judge it."""

    endpoint: Endpoint
    delivery: Delivery
    now: float


def read(document: Mapping[str, Any], *, endpoint: Endpoint | None = None) -> Captured:
    """What one line of a capture says. ConfigurationError names what is missing or wrong in it."""
    url = str(document.get("url") or "")
    split = urlsplit(url)
    delivery = Delivery(
        source=str(document.get("source") or document.get("provider") or ""),
        headers=_headers(document.get("headers") or {}),
        body=_body(document),
        path=split.path,
        query=split.query.encode("utf-8", "surrogatepass"),
        method=str(document.get("method") or "POST").upper(),
    )
    now = document.get("now_unix")
    if isinstance(now, bool) or not isinstance(now, int | float):
        raise ConfigurationError("now_unix is the moment to judge by, in seconds since 1970")
    return Captured(endpoint or _endpoint(document, url), delivery, float(now))


def judge(captured: Captured) -> tuple[Verified, list[tuple[Facts, bytes]]]:
    """Verified, with the events in it and their bodies; VerificationError says why not."""
    endpoint, delivery = captured.endpoint, captured.delivery
    provider = endpoint.provider
    check_encoding(endpoint, delivery.headers)
    verified = verify(endpoint, delivery, captured.now)
    if provider.split is None:
        return verified, [(_facts(endpoint, delivery, None), delivery.body)]
    try:
        bodies, outer = provider.split(delivery)
    except (ValueError, LookupError, RecursionError):
        return verified, [(Facts(problem="not_json"), delivery.body)]
    events = [dataclasses.replace(delivery, body=body) for body in bodies]
    return verified, [(_facts(endpoint, event, outer), event.body) for event in events]


def _facts(endpoint: Endpoint, delivery: Delivery, outer: Any) -> Facts:
    facts = endpoint.provider.facts(delivery, outer)
    if facts.event_id is None and (found := endpoint.provider.print_of(delivery, outer)) is not None:
        return dataclasses.replace(facts, event_id=print_name(found))
    return facts


def _headers(given: object) -> list[tuple[bytes, bytes]]:
    pairs = given.items() if isinstance(given, Mapping) else given
    found: list[tuple[bytes, bytes]] = []
    try:
        for name, value in pairs:  # type: ignore[attr-defined]
            listed = value if isinstance(value, list) else [value]
            found += [(_bytes(name).lower(), _bytes(one)) for one in listed]
    except (TypeError, ValueError) as error:
        raise ConfigurationError("headers are an object, or a list of pairs of name and value") from error
    return found


def _bytes(text: object) -> bytes:
    """Header text as it was on the wire: bytes above ASCII are what they are."""
    if not isinstance(text, str):
        text = str(text)
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _body(document: Mapping[str, Any]) -> bytes:
    given = document.get("body_b64", "")
    if not isinstance(given, str):
        raise ConfigurationError("body_b64 is the body in base64")
    try:
        return base64.b64decode(given, validate=True)
    except (Base64Error, ValueError) as error:
        raise ConfigurationError("body_b64 is no base64") from error


def _endpoint(document: Mapping[str, Any], url: str) -> Endpoint:
    provider = document.get("provider")
    if provider not in PROVIDERS:
        raise ConfigurationError(f"there is no provider {provider!r}", do="hookonce providers list")
    config = document.get("config") or {}
    secrets = document.get("secrets") or []
    if not isinstance(config, Mapping) or not isinstance(secrets, Sequence):
        raise ConfigurationError("config is an object, and secrets a list of texts")
    known = dict(options_of(str(provider)))
    scheme = getattr(PROVIDERS[str(provider)], "scheme", None)
    if scheme is not None and not hasattr(scheme, "url"):
        known.pop("url", None)  # an option of all providers, and of no use to those that sign no address
    options: dict[str, Any] = {}
    keys: list[str] = []
    for name, value in config.items():
        option = next((one for one in (name, *ALIASES.get(name, ())) if one in known), None)
        if option is not None and option != "tolerance":
            options[option] = value
        elif option == "tolerance":
            options[option] = float(value)
        elif name in KEYS:
            keys += _as_secrets(value)
    if "url" in known and "url" not in options and url:
        options["url"] = url.partition("?")[0].partition("#")[0]
    given = [secrets] if isinstance(secrets, str) else [str(secret) for secret in secrets]
    try:
        return PROVIDERS[str(provider)](given or keys or None, **options)
    except HookonceError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ConfigurationError(f"{provider}: {error}") from error


def _as_secrets(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [str(one) for one in value]
        case _:
            return [json.dumps(value)]


__all__ = ["Captured", "judge", "read"]
