"""What a person may do to a receipt: replay or discard it. Each act and its audit row are one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from hookonce.errors import Refused
from hookonce.model import State
from hookonce.storage.operation import Operation, Statement

REASON_CHARS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a receipt stands, and what follows for the act that was asked for. `refusal` is empty when it may be done."""

    id: int
    source: str = ""
    type: str | None = None
    event_id: str | None = None
    state: State | None = None
    body: bool = False
    refusal: str = ""

    @property
    def error(self) -> Refused:
        """The refusal as people read it."""
        return Refused(f"receipt {self.id}: {self.refusal}", do=f"hookonce show {self.id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Who does what, and why."""

    action: str
    actor: str
    reason: str


def standing(receipt_id: int, action: str) -> Operation[Standing]:
    """Whether `action` may be done to a receipt now. Writes nothing."""
    rows = yield Statement("receipt_standing", {"id": receipt_id})
    if not rows:
        return Standing(id=receipt_id, refusal="there is none")
    identity, source, kind, event_id, state, body = rows[0]
    why_not = _replay_refusal if action == "replay" else _discard_refusal
    return Standing(
        id=identity,
        source=source,
        type=kind,
        event_id=event_id,
        state=State(state),
        body=bool(body),
        refusal=why_not(State(state), body=bool(body)),
    )


def act(receipt_id: int, order: Act, *, now: float | None) -> Operation[Standing]:
    """Replay or discard one receipt and write down who did it. What was not allowed comes back with a refusal.

    A refusal is a value, not an exception: nothing was written, and the connection is as good as before.
    """
    before = yield from standing(receipt_id, order.action)
    if before.refusal or before.state is None:
        return before
    name = _statement(order.action, before.state)
    rows = yield Statement(name, {"id": receipt_id, "from_state": before.state.value, **_time(name, now)})
    if not rows:
        # Read, then written: a worker was faster. The statement names the state that it is allowed from.
        return Standing(id=receipt_id, state=before.state, refusal="its state changed at this moment: try again")
    yield Statement(
        "audit_insert",
        {
            "id": receipt_id,
            "actor": order.actor,
            "action": order.action,
            "from_state": before.state.value,
            "reason": order.reason[:REASON_CHARS_MAX],
            "now": now,
        },
    )
    return before


def _statement(action: str, state: State) -> str:
    if action == "discard":
        return "receipt_discard"
    return "receipt_release_waiting" if state is State.WAITING else "receipt_replay"


def _time(name: str, now: float | None) -> dict[str, float | None]:
    return {} if name == "receipt_discard" else {"now": now}


def _replay_refusal(state: State, *, body: bool) -> str:
    if not body:
        return "its body was purged: there is nothing left to run"
    match state:
        case State.PROCESSED | State.FAILED | State.WAITING:
            return ""
        case State.RECEIVED | State.RETRYING:
            return f"it is {state} and will be worked on by itself"
        case State.PROCESSING:
            return "it is being worked on"
        case State.DISCARDED:
            return "it was discarded, which is for good"


def _discard_refusal(state: State, *, body: bool) -> str:
    del body  # what is thrown away need not be there any more
    match state:
        case State.RECEIVED | State.RETRYING | State.WAITING | State.FAILED:
            return ""
        case State.PROCESSED:
            return "it is processed: what its handler did cannot be undone"
        case State.PROCESSING:
            return "it is being worked on: wait for its end"
        case State.DISCARDED:
            return "it is discarded already"
