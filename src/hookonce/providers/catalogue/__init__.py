"""The providers we know, by what they do. Importing this registers all of them."""

from hookonce.providers.catalogue import (
    ai,
    banking,
    billing,
    calls,
    cloud,
    commerce,
    content,
    developer,
    identity,
    mail,
    messaging,
    payments,
    work,
)

__all__ = [
    "ai",
    "banking",
    "billing",
    "calls",
    "cloud",
    "commerce",
    "content",
    "developer",
    "identity",
    "mail",
    "messaging",
    "payments",
    "work",
]
