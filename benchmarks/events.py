"""The events that are sent: unique Stripe-style bodies of 2 KB, signed as Stripe signs."""

from __future__ import annotations

import hmac
import random
import time
from functools import cache

SECRET = "whsec_benchmarks_only"
BODY_BYTES = 2048
ID_DIGITS = 8
AMOUNT = 4200

_HEAD = '{"id":"'
_OBJECT = (
    '","object":"event","api_version":"2026-01-28","created":1763500000,"type":"invoice.paid","livemode":false,'
    '"pending_webhooks":1,"request":{"id":"req_8HqLmV2","idempotency_key":null},"data":{"object":{"id":"in_1NabcQ",'
    '"object":"invoice","account_country":"US","amount_due":4200,"amount_paid":4200,"currency":"usd",'
    '"customer":"cus_P4hT9s","lines":['
)
_TAIL = "]}}}"


@cache
def template() -> tuple[str, str]:
    """What stands before and after the event's id; the load generator is given the same."""
    chance = random.Random(7)
    lines: list[str] = []
    while len(_HEAD) + len(_OBJECT) + len(",".join(lines)) + len(_TAIL) < BODY_BYTES - 200:
        lines.append(
            f'{{"id":"il_{chance.getrandbits(64):016x}","amount":{chance.randrange(100, 99_999)},"quantity":1,'
            f'"period":{{"start":{1_760_000_000 + chance.randrange(10**6)},"end":{1_763_000_000 + chance.randrange(10**6)}}}}}'
        )
    tail = _OBJECT + ",".join(lines) + _TAIL
    padding = BODY_BYTES - len(_HEAD) - len(event_id("0000000000", 0)) - len(tail) - len(',"note":""')
    return _HEAD, f'{tail[:-1]},"note":"{"x" * max(0, padding)}"}}'


def event_id(prefix: str, number: int) -> str:
    return f"evt_{prefix}_{number:0{ID_DIGITS}d}"


def body(name: str) -> bytes:
    head, tail = template()
    return f"{head}{name}{tail}".encode()


def headers(content: bytes) -> dict[str, str]:
    """What a genuine sender would send with this body now."""
    at = str(int(time.time()))
    signature = hmac.digest(SECRET.encode(), at.encode() + b"." + content, "sha256").hex()
    return {"content-type": "application/json", "stripe-signature": f"t={at},v1={signature}"}
