"""Senders whose secret may become a key in two ways, and nobody says which: what one scheme refuses, the other is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes.base import Described


@dataclass(frozen=True, slots=True, kw_only=True)
class EitherScheme(Described):
    """Two schemes that differ in their key only. The first one signs, for development."""

    first: Any
    second: Any
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            object.__setattr__(self, "first", replace(self.first, tolerance=self.tolerance))
            object.__setattr__(self, "second", replace(self.second, tolerance=self.tolerance))

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept what either accepts; only a signature that does not fit is worth a second look."""
        try:
            verified: Verified = self.first.verify(delivery, secrets, now)
        except VerificationError as error:
            if error.reason is not Reason.SIGNATURE_MISMATCH:
                raise
            verified = self.second.verify(delivery, secrets, now)
        return verified

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        headers: list[tuple[bytes, bytes]] = self.first.sign(body, secret, now, message_id)
        return headers

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        sealed: Delivery = self.first.seal(unsigned, secret, now, message_id)
        return sealed

    def new_secret(self) -> bytes:
        return bytes(self.first.new_secret())

    @property
    def body_bound(self) -> bool:
        return bool(self.first.body_bound and self.second.body_bound)

    def covers_header(self, name: str) -> bool:
        return bool(self.first.covers_header(name) and self.second.covers_header(name))

    def secret_problem(self, value: bytes) -> str | None:
        """A secret that one of them can use is none."""
        problem: str | None = self.first.secret_problem(value)
        return problem and self.second.secret_problem(value)

    def describe(self) -> Mapping[str, str]:
        described: Mapping[str, str] = self.first.describe()
        return described


__all__ = ["EitherScheme"]
