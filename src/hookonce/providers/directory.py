"""Every provider by the name that code, configuration files and commands use; those of plug-ins beside ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points

import hookonce.providers.catalogue  # noqa: F401 - importing it registers them
from hookonce.errors import ConfigurationError
from hookonce.providers.base import Endpoint
from hookonce.providers.generic import DESCRIBED, Basic, Generic, Hmac, Jwt, SecretUrl, StandardWebhooks, Token
from hookonce.providers.known import REGISTERED

GENERIC: Mapping[str, Callable[..., Endpoint]] = {
    "hmac": Hmac,
    "jwt": Jwt,
    "basic": Basic,
    "token": Token,
    "secret_url": SecretUrl,
    "standard_webhooks": StandardWebhooks,
}

PLUGINS = "hookonce.providers"
"""The entry point under which other packages declare theirs: a name, and a class or function that makes an endpoint."""


@cache
def _plugins() -> dict[str, Callable[..., Endpoint]]:
    found: dict[str, Callable[..., Endpoint]] = {}
    for entry in entry_points(group=PLUGINS):
        if entry.name in REGISTERED or entry.name in GENERIC:
            raise ConfigurationError(
                f"the plug-in {entry.value} declares a provider {entry.name!r}, and there is one", do="rename it there"
            )
        found[entry.name] = entry.load()
    return found


class _Directory(Mapping[str, Callable[..., Endpoint]]):
    """Ours at once; those of plug-ins when somebody asks for a name that is not ours, or for all."""

    def __getitem__(self, name: str) -> Callable[..., Endpoint]:
        ours = REGISTERED.get(name) or GENERIC.get(name)
        return ours if ours is not None else _plugins()[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**REGISTERED, **GENERIC, **_plugins()})

    def __len__(self) -> int:
        return len(REGISTERED) + len(GENERIC) + len(_plugins())


PROVIDERS: Mapping[str, Callable[..., Endpoint]] = _Directory()
REQUIRED = inspect.Parameter.empty


def options_of(provider: str) -> dict[str, object]:
    """What can be said of a source of this provider, each with its default; REQUIRED where there is none."""
    declare = PROVIDERS[provider]
    found: dict[str, object] = {}
    for level in inspect.getmro(declare) if isinstance(declare, type) else (declare,):
        if level is Endpoint:
            break
        if isinstance(level, type) and "__init__" not in vars(level):
            continue
        parameters = inspect.signature(level).parameters.values()
        for parameter in parameters:
            if parameter.kind is parameter.KEYWORD_ONLY:
                found.setdefault(parameter.name, parameter.default)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            break
    if isinstance(declare, type) and issubclass(declare, Generic):
        found = {**found, **{name: value for name, value in DESCRIBED.items() if name not in found}}
    found.pop("name", None)
    return found
