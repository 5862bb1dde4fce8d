"""Stage verify: is it authentic? The source's scheme decides over the raw bytes, with any secret that is active."""

from __future__ import annotations

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.providers import StandardWebhooks
from hookonce.providers.base import Endpoint

_NOBODY = StandardWebhooks(secret=Secret(value=b"whsec_" + b"bm9ib2R5IGhhcyB0aGlzIHNlY3JldA=="), name="nobody")


def verify(endpoint: Endpoint, delivery: Delivery, now: float) -> Verified:
    """Verified, or VerificationError: whatever the bytes, nothing else is raised."""
    try:
        return endpoint.provider.scheme.verify(delivery, endpoint.secrets, now)
    except VerificationError:
        raise
    except Exception as error:
        # A scheme that fails in an unforeseen way must not open the door, and must not tell the sender.
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{type(error).__name__} in the scheme") from error


def verify_nobody(delivery: Delivery, now: float) -> None:
    """Take the time that verification takes, for a source that does not exist. Always raises VerificationError."""
    signed = [*_NOBODY.provider.scheme.sign(b"", _NOBODY.secrets[0], now, "msg_0")]
    verify(_NOBODY, Delivery(source="", headers=signed, body=delivery.body + b"."), now)
    raise VerificationError(Reason.UNKNOWN_SOURCE)
