"""The states of a receipt: every pair of them, as the model says and as the SQL of both databases allows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hookonce.flow.claim import claim_due, claim_suspect, release
from hookonce.flow.operate import Act, act
from hookonce.flow.settle import settle
from hookonce.model import EDGES, OPEN_STATES, Claim, ClaimId, Outcome, ReceiptId, Result, State, receipt_key
from hookonce.storage.connect import backend_factory
from hookonce.storage.operation import Many, Operation, Row
from tests.flow.box import Place, postgres_place, sqlite_place

NOW = 1_800_000_000.0
CLAIM = Claim(ReceiptId(1), 5, ClaimId("mine"), "acme", "a", None, 2, 0, 0, None, "evt_1", None, "c")
ORDER = Act(action="replay", actor="tests", reason="to see")


def mark(claim: Claim, xid: str) -> Operation[list[Row]]:
    rows = yield Many(
        "work_mark", [(claim.id, claim.token, "applied")], {"claim_id": claim.claim_id, "xid": xid, "now": NOW}
    )
    return list(rows)


def marked(claim: Claim) -> Operation[list[Row]]:
    """The lock and the mark, in one transaction, as T2 does it."""
    values = {"claim_id": claim.claim_id, "limit_ms": "5000", "idle_ms": "5000"}
    rows = yield Many("work_lock", [(claim.id, claim.token)], values)
    return (yield from mark(claim, rows[0][11] if rows else "0"))


def outcome(state: State) -> Outcome:
    return Outcome(state=state, error="why", delay_seconds=5.0)


def transitions(claim: Claim) -> dict[str, Any]:
    """Every operation that changes a state, by name."""
    due = {"lease_seconds": 10.0, "now": NOW}
    return {
        "claim": lambda: claim_due(limit=1, **due),
        "claim a suspect": lambda: claim_suspect(crashes_max=3, **due),
        "claim a suspect for the last time": lambda: claim_suspect(crashes_max=1, **due),
        "release": lambda: release([claim], now=NOW),
        "mark": lambda: marked(claim),
        "replay": lambda: act(claim.id, ORDER, now=NOW),
        "discard": lambda: act(claim.id, replace(ORDER, action="discard"), now=NOW),
        **{
            f"settle as {state}": lambda state=state: settle(claim, outcome(state), seconds=0.1, now=NOW)
            for state in (State.RETRYING, State.FAILED, State.WAITING, State.DISCARDED)
        },
    }


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A migrated database, of both kinds in turn."""
    if request.param == "sqlite":
        yield sqlite_place(tmp_path, tmp_path)
        return
    server = request.getfixturevalue("postgres")
    found, name = postgres_place(server)
    yield found
    server.drop_database(name)


def put(place: Place, state: State) -> None:
    """One receipt in this state, in our claim, and due."""
    time = "to_timestamp(1000)" if place.dialect == "postgres" else "1000"
    key = "'\\x" + "00" * 32 + "'" if place.dialect == "postgres" else "x'" + "00" * 32 + "'"
    place.sql("DELETE FROM hookonce_receipt")
    place.sql("DELETE FROM hookonce_body")
    overriding = "OVERRIDING SYSTEM VALUE" if place.dialect == "postgres" else ""
    place.sql(
        "INSERT INTO hookonce_receipt (id, key, source, event_id, body_digest, secret_id, correlation_id, address,"
        f" received_at, state, due_at, attempts, token, claim_id) {overriding} VALUES (1, {key}, 'acme', 'evt_1', {key}, 's',"
        f" 'c', 'a', {time}, '{state}', {time}, 2, 5, 'mine')"
    )
    place.sql(f"INSERT INTO hookonce_body (receipt_id, raw, headers) VALUES (1, {key}, {key})")


def test_only_the_edges_of_the_model_exist(place: Place) -> None:
    """Every statement from every state: a row changes along an edge of the model or not at all, and each edge is used."""
    taken: set[tuple[State, State]] = set()

    async def run() -> None:
        backend = backend_factory(place.url)()
        for state in State:
            for name, operation in transitions(CLAIM).items():
                put(place, state)
                await backend.run(operation())
                ((after, token),) = place.sql("SELECT state, token FROM hookonce_receipt")
                changed = (State(after), token) != (state, 5)
                if changed:
                    taken.add((state, State(after)))
                    assert State(after) in EDGES[state], f"{name}: {state} -> {after}"
        await backend.close()

    asyncio.run(run())
    assert taken == {(state, after) for state, reached in EDGES.items() for after in reached}


@pytest.mark.parametrize(
    "stale",
    [
        replace(CLAIM, token=4),
        replace(CLAIM, token=6),
        replace(CLAIM, claim_id=ClaimId("another")),
        replace(CLAIM, id=ReceiptId(2)),
    ],
    ids=["older token", "newer token", "another claim", "another receipt"],
)
def test_who_does_not_hold_the_claim_changes_nothing(place: Place, stale: Claim) -> None:
    """Token, claim id and state fence every write of a worker."""

    async def run() -> None:
        backend = backend_factory(place.url)()
        put(place, State.PROCESSING)
        before = place.sql("SELECT * FROM hookonce_receipt")
        for name, operation in transitions(stale).items():
            if name.startswith(("settle", "mark", "release")):
                await backend.run(operation())
                assert place.sql("SELECT * FROM hookonce_receipt") == before, name
        assert place.count("attempt") == 0
        await backend.close()

    asyncio.run(run())


@pytest.mark.parametrize("state", ["", "done", "PROCESSED", "recieved"])
def test_the_database_knows_the_states(place: Place, state: str) -> None:
    """A state that the model does not have is refused by the table itself."""
    put(place, State.RECEIVED)
    with pytest.raises(Exception, match=r"(?i)check"):
        place.sql(f"UPDATE hookonce_receipt SET state = '{state}'")


def test_every_pair_of_states() -> None:
    """The edges of the articles, the three that we add, and no other."""
    lifecycle = {
        ("received", "processing"),
        ("processing", "processed"),
        ("processing", "retrying"),
        ("retrying", "processing"),
        ("processing", "failed"),
        ("failed", "received"),
    }
    added = {
        ("processing", "processing"),  # taken over from a worker that died
        ("processing", "received"),  # handed back without having begun
        ("processed", "received"),  # replayed by a person
        ("processing", "waiting"),
        ("waiting", "processing"),
        ("waiting", "received"),
        ("processing", "discarded"),
        *((state, "discarded") for state in ("received", "retrying", "waiting", "failed")),
    }
    assert {(str(a), str(b)) for a in State for b in State if b in EDGES[a]} == lifecycle | added
    assert set(EDGES) == set(State)
    assert not EDGES[State.DISCARDED]


def test_open_states_lead_on_by_themselves() -> None:
    """From each open state the flow reaches an end without anybody's help; from the others only a person leads on."""
    assert {state for state in State if State.PROCESSING in EDGES[state]} == OPEN_STATES
    assert State.PROCESSED not in OPEN_STATES and State.FAILED not in OPEN_STATES


ARTICLES: dict[str, tuple[State, Result | None]] = {
    "received": (State.RECEIVED, None),
    "PENDING": (State.RECEIVED, None),
    "queued": (State.RECEIVED, None),
    "processing": (State.PROCESSING, None),
    "in flight": (State.PROCESSING, None),
    "processed": (State.PROCESSED, Result.APPLIED),
    "success": (State.PROCESSED, Result.APPLIED),
    "COMPLETED": (State.PROCESSED, Result.APPLIED),
    "skipped": (State.PROCESSED, Result.SKIPPED),
    "retrying": (State.RETRYING, None),
    "failed": (State.FAILED, Result.GAVE_UP),
    "dead": (State.FAILED, Result.GAVE_UP),
    "poison": (State.FAILED, Result.CRASH_LOOP),
    "not ready": (State.WAITING, Result.TOO_EARLY),
    "ignored": (State.DISCARDED, Result.DISCARDED),
}


def test_the_words_of_the_articles_can_be_said(place: Place) -> None:
    """Each status that the articles name is one pair of state and result, and fits the table."""
    put(place, State.RECEIVED)
    for state, result in ARTICLES.values():
        value = f"'{result}'" if result else "NULL"
        place.sql(f"UPDATE hookonce_receipt SET state = '{state}', result = {value}")
        assert place.sql("SELECT state, result FROM hookonce_receipt") == [(state, result)]
    assert {state for state, _ in ARTICLES.values()} == set(State)


def test_what_has_no_time_of_processing_is_not_processed(place: Place) -> None:
    """Whatever is done from whatever state: processed_at is there exactly while the state is processed."""

    async def run() -> None:
        backend = backend_factory(place.url)()
        for state in State:
            for name, operation in transitions(CLAIM).items():
                put(place, state)
                place.sql("UPDATE hookonce_receipt SET processed_at = received_at WHERE state = 'processed'")
                await backend.run(operation())
                ((after, at),) = place.sql("SELECT state, processed_at FROM hookonce_receipt")
                assert (at is not None) == (State(after) is State.PROCESSED), f"{name}: {state} -> {after}"
        await backend.close()

    asyncio.run(run())


def test_identities_are_split_by_length() -> None:
    """No two ways of cutting the same text into parts make the same identity."""
    parts = [("ab", "c", "d"), ("a", "bc", "d"), ("a", "b", "cd"), ("abc", "", "d"), ("", "abcd", "")]
    keys = {
        receipt_key(source=source, account=account, kind="event", identity=identity.encode())
        for source, account, identity in parts
    }
    kinds = {receipt_key(source="a", account=None, kind=kind, identity=b"x") for kind in ("event", "body", "guard")}
    assert len(keys) == 5 and len(kinds) == 3
