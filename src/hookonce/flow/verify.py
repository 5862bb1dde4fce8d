"""Stage verify: is it authentic? The source's scheme decides over the raw bytes, with any secret that is active."""

from __future__ import annotations

import contextlib
from functools import cache

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Verified
from hookonce.providers import StandardWebhooks
from hookonce.providers.base import Endpoint


def verify(endpoint: Endpoint, delivery: Delivery, now: float) -> Verified:
    """Verified, or VerificationError: whatever the bytes, nothing else is raised."""
    try:
        return endpoint.provider.scheme.verify(delivery, endpoint.secrets, now)
    except VerificationError:
        raise
    except Exception as error:
        # A scheme that fails in an unforeseen way must not open the door, and must not tell the sender.
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{type(error).__name__} in the scheme") from error


@cache
def _nobody() -> Endpoint:
    """A source that nobody can sign for. Built when first needed: importing hookonce loads no third-party module."""
    return StandardWebhooks(secret="whsec_bm9ib2R5IGhhcyB0aGlzIHNlY3JldA==", name="nobody")  # noqa: S106 - opens nothing


def verify_nobody(delivery: Delivery, now: float) -> None:
    """Take the time that verification takes, for a source that does not exist. Always raises VerificationError."""
    nobody = _nobody()
    signed = nobody.provider.scheme.sign(b"", nobody.secrets[0], now, "msg_0")
    with contextlib.suppress(VerificationError):
        verify(nobody, Delivery(source="", headers=signed, body=delivery.body + b"."), now)
    raise VerificationError(Reason.UNKNOWN_SOURCE)
