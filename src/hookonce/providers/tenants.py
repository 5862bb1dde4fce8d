"""Providers whose keys are their tenant's own: published at an address under the tenant's domain, or configured."""

from __future__ import annotations

import re

from hookonce.errors import ConfigurationError

HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::\d{1,5})?", re.IGNORECASE)


def keys_address(name: str, domain: str, document: str) -> str:
    """Where a tenant publishes its keys."""
    if HOST.fullmatch(domain) is None:
        raise ConfigurationError(
            f"{name}: domain is {domain!r}: give the host alone, such as shop.example.com", code="HO101"
        )
    return f"https://{domain}/.well-known/{document}"


def no_keys(name: str, option: str) -> ConfigurationError:
    """What to say where neither a key nor the place of one was given."""
    return ConfigurationError(
        f"{name}: there is no key: nothing could be verified", code="HO101", do=f"say {option}, or give the public key"
    )


__all__ = ["keys_address", "no_keys"]
