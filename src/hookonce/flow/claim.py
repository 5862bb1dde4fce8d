"""Stage claim (T1): whose turn is it. Committed before any handler runs, so that a crash can be counted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from hookonce.model import Claim, ClaimId, ReceiptId, State
from hookonce.storage.operation import Many, Operation, Row, Statement

LEASE_SECONDS = 10.0
"""How long a claim holds from T1 until T2 has the row lock. In T2 the row lock takes over, for as long as it takes."""

CRASHED = "the worker that held this event died without a word"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A receipt taken over from a dead worker: either ours to try again, or given up as a crash loop."""

    claim: Claim
    given_up: bool


def new_claim_id() -> ClaimId:
    """Random, because a claim lost in a failover may be issued again with the same token."""
    return ClaimId(uuid.uuid4().hex)


def claim_due(
    *, limit: int, lease_seconds: float, now: float | None, claim_id: ClaimId | None = None
) -> Operation[list[Claim]]:
    """Take what is due, oldest first, at most `limit`."""
    claim_id = claim_id or new_claim_id()
    rows = yield Statement(
        "receipt_claim", {"limit": limit, "lease_seconds": lease_seconds, "claim_id": claim_id, "now": now}
    )
    if len(rows) > limit:
        raise AssertionError(f"claimed {len(rows)} receipts, asked for {limit}")
    return sorted((_claim(row, claim_id) for row in rows), key=lambda claim: claim.id)


def claim_suspect(
    *, lease_seconds: float, crashes_max: int, now: float | None, claim_id: ClaimId | None = None
) -> Operation[Suspect | None]:
    """Take over one receipt whose worker died, or that has seen a worker die before."""
    claim_id = claim_id or new_claim_id()
    rows = yield Statement(
        "receipt_claim_suspect",
        {
            "lease_seconds": lease_seconds,
            "claim_id": claim_id,
            "crashes_max": crashes_max,
            "error": CRASHED,
            "now": now,
        },
    )
    return Suspect(_claim(rows[0], claim_id), rows[0][9] == State.FAILED) if rows else None


def release(claims: Sequence[Claim], *, now: float | None) -> Operation[int]:
    """Hand back what was claimed and not begun. All of one claim id; a claim that no longer holds is left alone."""
    ordered = sorted(claims, key=lambda claim: claim.id)
    rows = yield Many(
        "receipt_release", [(c.id, c.token) for c in ordered], {"claim_id": ordered[0].claim_id, "now": now}
    )
    return len(rows)


def disown(claim_ids: Sequence[ClaimId], *, now: float | None) -> Operation[int]:
    """Hand back, uncounted, what was claimed under these ids by somebody who never heard the answer."""
    rows = yield Many("receipt_disown", [(claim_id,) for claim_id in claim_ids], {"now": now})
    return len(rows)


def _claim(row: Row, claim_id: ClaimId) -> Claim:
    return Claim(
        id=ReceiptId(row[0]),
        token=row[1],
        claim_id=claim_id,
        source=row[2],
        type=row[3],
        problem=row[4],
        attempts=row[5],
        crashes=row[6],
        generation=row[7],
        last_result=row[8],
        event_id=row[10],
        object_id=row[11],
        correlation_id=row[12],
    )
