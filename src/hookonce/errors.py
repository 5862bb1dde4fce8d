"""Every error a user can meet, grouped by who has to act.

HookonceError
|- ConfigurationError      the developer, at start: one error lists every problem found
|- VerificationError       the sender: answered 4xx, the reason stays in our log
|- StorageError            the operator: answered 5xx, so that the sender sends again
|  |- Unavailable          the database cannot be reached or does not answer in time
|  |- NotDurable           a commit came back, but not as a durable one
|  |- Busy                 a bounded queue is full
|  |- DiskFailure          the disk failed under an embedded database: stop, do not write on
|  |- RowRefused           the database refuses this row, and would refuse it again
|  `- SchemaError          tables missing, older or newer than this version
|- HandlerError            the handler's author: the attempt is counted
|  |- HandlerMisuse        it left its transaction; the event fails and waits for a person
|  |- HandlerTimeout       it took longer than allowed; its connection was taken away
|  `- Unreadable           the body is not what the handler reads; no attempt can change that
|- LostClaim               nobody: another worker owns the event now, the result is dropped
|- ListenError             the operator: the address to listen on is taken, or not ours (server/children.py)
`- NotFound, Refused       the person at the command line

Signal                     raised by handlers to answer: Retry, Park, Discard
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum


class HookonceError(Exception):
    """Something went wrong that Hookonce can name: a code, what was seen, and what to do about it."""

    code = "HO100"

    def __init__(self, seen: str, *, code: str | None = None, likely: str = "", do: str = "") -> None:
        super().__init__(seen)
        self.seen = seen
        self.likely = likely
        self.do = do
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        lines = [f"{self.code} {self.seen}"]
        if self.likely:
            lines.append(f"  likely     {self.likely}")
        if self.do:
            lines.append(f"  do         {self.do}")
        return "\n".join(lines)


class ConfigurationError(HookonceError):
    """The configuration cannot work; `problems` lists everything that is wrong, not only the first."""

    code = "HO121"

    def __init__(self, problems: Sequence[HookonceError | str] | str, *, code: str | None = None, do: str = "") -> None:
        listed = [problems] if isinstance(problems, str) else list(problems)
        self.problems: list[HookonceError | str] = list(listed)
        super().__init__("\n".join(str(problem) for problem in listed), code=code, do=do)

    def __str__(self) -> str:
        if len(self.problems) == 1 and isinstance(self.problems[0], str):
            return super().__str__()
        return "\n".join(str(problem) for problem in self.problems)


class Reason(StrEnum):
    """Why a request was refused. Logged and counted; the sender sees only the status."""

    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_MALFORMED = "signature_malformed"
    SIGNATURE_MISMATCH = "signature_mismatch"
    TIMESTAMP_MISSING = "timestamp_missing"
    TIMESTAMP_MALFORMED = "timestamp_malformed"
    TOO_OLD = "too_old"
    IN_THE_FUTURE = "in_the_future"
    EVENT_TOO_OLD = "event_too_old"
    UNKNOWN_SOURCE = "unknown_source"
    WRONG_METHOD = "wrong_method"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TOO_SLOW = "body_too_slow"
    BODY_EATEN = "body_eaten"
    BODY_CUT_SHORT = "body_cut_short"
    ENCODING_REFUSED = "encoding_refused"
    RATE_LIMITED = "rate_limited"
    ID_MISSING = "id_missing"


class VerificationError(HookonceError):
    """The request is not authentic. A scheme raises this and nothing else, whatever the bytes."""

    code = "HO101"

    def __init__(self, reason: Reason, seen: str = "") -> None:
        super().__init__(seen or reason.value.replace("_", " "))
        self.reason = reason


class StorageError(HookonceError):
    """The database did not do what was asked; nothing was acknowledged."""

    code = "HO107"


class Unavailable(StorageError):
    """The database cannot be reached, was cut off, or did not answer in time. Trying again may help."""


class Conflict(Unavailable):
    """A deadlock, a lock time-out or a serialization failure: try again at once, nobody is to blame."""


class NotDurable(StorageError):
    """COMMIT returned, but with a warning or without having written: not a promise we may pass on."""


class Busy(StorageError):
    """The bounded queue in front of the database is full, or the answer would come too late."""

    code = "HO122"


class DiskFailure(StorageError):
    """The disk reported an I/O error. Going on could acknowledge what was never written: the process ends."""

    code = "HO128"


class KeysUnavailable(HookonceError):
    """The sender's public keys cannot be fetched, so that nothing of it can be verified for now."""

    code = "HO131"


class RowRefused(StorageError):
    """The database refuses this very row and would refuse it again."""

    code = "HO123"


class SchemaError(StorageError):
    """Our tables are missing, older than this version needs, or newer than it knows."""

    code = "HO103"


class HandlerError(HookonceError):
    """The handler failed in a way that we recognise."""

    code = "HO124"


class HandlerMisuse(HandlerError):
    """The handler left the transaction it was given: what it wrote may have been committed apart."""

    code = "HO111"


class HandlerTimeout(HandlerError):
    """The handler ran longer than its time limit; its transaction was rolled back."""

    code = "HO125"


class Unreadable(HandlerError):
    """The body cannot be read as what the handler expects. It is kept, and the event waits for a person."""

    code = "HO116"


class LostClaim(HookonceError):
    """Another worker owns this event by now: the result is dropped."""

    code = "HO119"


class NotFound(HookonceError):
    """There is no such receipt, source or handler."""

    code = "HO126"


class Refused(HookonceError):
    """The action is not allowed in the state that the receipt is in."""

    code = "HO127"


class Signal(Exception):
    """A handler's answer other than "done": everything it wrote is rolled back, the answer is recorded."""


class Retry(Signal):
    """Run this event again, after `after` (seconds or a timedelta), or after the handler's own backoff."""

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after = after.total_seconds() if isinstance(after, timedelta) else after


class Park(Signal):
    """Too early: wait (at most `wait`) until what the event needs is there, then run it again."""

    def __init__(self, reason: str = "", *, key: str = "", wait: float | timedelta = timedelta(hours=1)) -> None:
        super().__init__(reason or (f"waiting for {key}" if key else "parked by the handler"))
        self.key = key
        self.wait = wait.total_seconds() if isinstance(wait, timedelta) else wait


class Discard(Signal):
    """This event must never run again; the reason is kept."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
