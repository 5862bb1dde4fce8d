"""Signed requests for tests: what a provider would send, made with the declarations that verify it, so that they cannot drift.

request = signed(stripe, "invoice.paid", id="evt_1", data={"data": {"object": {"id": "in_7"}}})
client.post("/webhooks/stripe", content=request.body, headers=request.headers)
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hookonce.errors import ConfigurationError
from hookonce.model import Delivery
from hookonce.providers.base import Endpoint
from hookonce.providers.samples import sample
from hookonce.registry import Source
from hookonce.schemes.base import active, sealed


@dataclass(frozen=True, slots=True)
class Signed:
    """A request as it would come in."""

    body: bytes
    headers: dict[str, str]
    query: str = ""
    method: str = "POST"


def signed(
    source: Source | Endpoint,
    type: str | None = None,  # noqa: A002 - an event has a type
    *,
    id: str | None = None,  # noqa: A002 - and an id
    data: Mapping[str, Any] | None = None,
    body: bytes | None = None,
    at: float | None = None,
    seed: int = 0,
) -> Signed:
    """A realistic event of this source's provider, signed with its first secret that is valid.

    `data` is put over the sample, names in names; `body` replaces it altogether. `at` is when it is signed.
    """
    endpoint = source.endpoint if isinstance(source, Source) else source
    moment = time.time() if at is None else at
    declared = endpoint.provider
    kind = type if type is not None else str(getattr(endpoint, "sample_type", "test.created"))
    made = sample(declared.name, kind, event_id=id, seed=seed, created=int(moment))
    whole = made.body if body is None else body
    if data is not None:
        whole = json.dumps(_over(json.loads(whole), data), separators=(",", ":"), ensure_ascii=False).encode()
    secrets = active(endpoint.secrets, moment)
    if not secrets:
        raise ConfigurationError(f"{endpoint.name} has no secret that is valid: nothing can be signed")
    unsigned = Delivery(endpoint.name, made.headers, whole, f"/{endpoint.name}", made.query)
    message_id = id or f"msg_{seed}"
    request = sealed(declared.scheme, unsigned, secrets[0], moment, message_id)
    return Signed(
        request.body,
        {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers},
        request.query.decode("latin-1"),
        request.method,
    )


def _over(document: Any, data: Any) -> Any:
    """What is said replaces what was there; objects are gone into."""
    if not isinstance(document, dict) or not isinstance(data, Mapping):
        return data
    return {**document, **{name: _over(document.get(name), value) for name, value in data.items()}}


__all__ = ["Signed", "signed"]
