"""The providers we know, by what they do. Importing this registers all of them."""

from hookonce.providers.catalogue import (
    ai,
    banking,
    cloud,
    commerce,
    content,
    developer,
    identity,
    messaging,
    payments,
    work,
)

__all__ = ["ai", "banking", "cloud", "commerce", "content", "developer", "identity", "messaging", "payments", "work"]
