"""Stage settle: what follows from an attempt. Decided here as a value, written by whoever still holds the claim.

Success is the last statement of T2 (flow/handle.py). Everything else is T3, a transaction of its own.
"""

from __future__ import annotations

from hookonce.errors import Discard, HandlerMisuse, HandlerTimeout, Park, Retry, StorageError, Unreadable
from hookonce.model import Claim, Outcome, Result, State
from hookonce.registry import Handler
from hookonce.storage.operation import Operation, Statement

ERROR_CHARS_MAX = 4_000

INFRASTRUCTURE_DELAY_SECONDS = 2.0
"""The wait after something failed that no handler is to blame for."""


APPLIED = Outcome(state=State.PROCESSED, result=Result.APPLIED)

SKIPPED = Outcome(state=State.PROCESSED, result=Result.SKIPPED)
"""No handler takes this type: it is kept, and can be replayed when one does."""


def decide(error: BaseException, claim: Claim, handler: Handler, chance: float) -> Outcome:
    """What follows from an attempt that ended with `error`. `chance`, from 0 to 1, spreads the retries."""
    text = describe(error)
    last = claim.attempts >= handler.attempts_max
    match error:
        case Discard():
            return Outcome(state=State.DISCARDED, result=Result.DISCARDED, error=text)
        case Park() if claim.last_result == Result.TOO_EARLY:
            return Outcome(state=State.FAILED, result=Result.TOO_EARLY, error=text)
        case Park():
            return Outcome(state=State.WAITING, result=Result.TOO_EARLY, error=text, delay_seconds=error.wait)
        case HandlerMisuse():
            return Outcome(state=State.FAILED, result=Result.MISUSE, error=text)
        case Unreadable():
            return Outcome(state=State.FAILED, result=Result.UNREADABLE, error=text)
        case StorageError():
            delay = INFRASTRUCTURE_DELAY_SECONDS * (1.0 + chance)
            return Outcome(state=State.RETRYING, error=text, delay_seconds=delay, counted=False)
        case _ if last:
            return Outcome(state=State.FAILED, result=Result.GAVE_UP, error=text)
        case Retry() if error.after is not None:
            return Outcome(state=State.RETRYING, error=text, delay_seconds=error.after)
        case Retry() | HandlerTimeout() | BaseException():
            return Outcome(
                state=State.RETRYING, error=text, delay_seconds=handler.backoff.delay(claim.attempts, chance)
            )


def settle(claim: Claim, outcome: Outcome, *, seconds: float, now: float | None) -> Operation[bool]:
    """Write an outcome that is not success. False: the claim no longer holds, nothing was written."""
    rows = yield Statement(
        "receipt_settle",
        {
            "id": claim.id,
            "token": claim.token,
            "claim_id": claim.claim_id,
            "state": outcome.state.value,
            "result": outcome.result.value if outcome.result else None,
            "error": outcome.error,
            "delay_seconds": outcome.delay_seconds,
            "counted": int(outcome.counted),
            "now": now,
        },
    )
    if not rows:
        return False
    yield Statement(
        "attempt_insert",
        {
            "id": claim.id,
            "generation": claim.generation,
            "attempt": claim.attempts,
            "seconds": seconds,
            "state": outcome.state.value,
            "result": outcome.result.value if outcome.result else None,
            "error": outcome.error,
            "counted": int(outcome.counted),
            "now": now,
        },
    )
    return True


def describe(error: BaseException) -> str:
    """An error as a column and a log line may hold it: one line, printable, bounded."""
    name = type(error).__name__
    text = f"{name}: {error}" if str(error) else name
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)[
        :ERROR_CHARS_MAX
    ]
