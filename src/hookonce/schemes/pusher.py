"""A time inside the signed body that the sender writes as it signs: beside a batch, where no sample fills it in."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from hookonce.model import Delivery, Secret
from hookonce.schemes.signature import SignatureScheme


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedBodyScheme(SignatureScheme):
    """`writes` is the member of the body with the time, in milliseconds."""

    writes: str = "time_ms"

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        document = json.loads(unsigned.body)
        if isinstance(document, dict):
            document[self.writes] = int(now * 1000)
            unsigned = replace(unsigned, body=json.dumps(document, ensure_ascii=False).encode())
        return super(StampedBodyScheme, self).seal(unsigned, secret, now, message_id)


__all__ = ["StampedBodyScheme"]
