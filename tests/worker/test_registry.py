"""Declaring handlers: what they are given, and what is refused before the first event."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from hookonce import ConfigurationError, Event, Inbox
from hookonce.registry import wanted
from tests.flow.box import Box, Place, acme, bare


class Session:
    """Stands for SQLAlchemy's: known by its name."""


def test_parameters_by_name_and_by_annotation() -> None:
    """What a parameter stands for is read from its annotation, else from its name; defaults are left alone."""

    def by_name(event, conn): ...
    def reordered(connection, event): ...
    def by_annotation(what: Event, db: sqlite3.Connection): ...
    def with_session(event, s: Session): ...
    def with_default(event, limit=10, *, flag=True): ...
    def many(batch: list[Event], conn): ...
    def many_more(batch: Sequence[Event]): ...
    def unresolved(event: NotThere, conn: NorThis): ...  # type: ignore[name-defined] # noqa: F821
    async def coloured(event, conn): ...

    found = [wanted(f) for f in (by_name, reordered, by_annotation, with_session, with_default, unresolved, coloured)]
    assert found == [
        ("event", "conn"),
        ("conn", "event"),
        ("event", "conn"),
        ("event", "session"),
        ("event",),
        ("event", "conn"),
        ("event", "conn"),
    ]
    assert [wanted(f, batch=9) for f in (many, many_more)] == [("event", "conn"), ("event",)]


def test_parameters_that_cannot_be_given() -> None:
    """An unknown parameter and a handler without an event are refused, and the message says what there is."""

    def unknown(event, mailer): ...
    def keyword_only(event, *, mailer): ...
    def no_event(conn): ...

    for function in (unknown, keyword_only):
        with pytest.raises(ConfigurationError, match="mailer") as caught:
            wanted(function)
        assert "event, conn, session" in str(caught.value)
    with pytest.raises(ConfigurationError, match="takes no event"):
        wanted(no_event)


def inbox(place: Place) -> Inbox:
    return place.inbox(acme(), bare())


def test_two_handlers_for_one_type(lite: Place) -> None:
    """HO112: which one should run? Both places are named; another source is another matter."""
    one = inbox(lite)

    @one.registry.sources["acme"].on("a", "b")
    def first(event: Event) -> None: ...

    with pytest.raises(ConfigurationError) as caught:

        @one.registry.sources["acme"].on("c", "b")
        def second(event: Event) -> None: ...

    assert caught.value.code == "HO112"
    assert str(caught.value).count("test_registry.py:") == 2
    one.registry.sources["bare"].on("a")(first)


def test_colours(lite: Place, pg: Place) -> None:
    """HO109: a connection that blocks takes no `async def`; PostgreSQL takes both."""

    async def coloured(event: Event) -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        inbox(lite).registry.sources["acme"].on("*")(coloured)
    assert caught.value.code == "HO109"
    assert "def coloured" in str(caught.value) and "test_registry.py:" in str(caught.value)
    inbox(pg).registry.sources["acme"].on("*")(coloured)


def test_there_is_no_session_without_sqlalchemy(lite: Place) -> None:
    """What this inbox cannot give is refused at once, with the reason."""

    def ask(event: Event, session: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="session") as caught:
        inbox(lite).registry.sources["acme"].on("*")(ask)
    assert "event, conn" in str(caught.value)


@pytest.mark.parametrize("settings", [{"attempts": 0}, {"batch": 0}, {"attempts": -1}])
def test_counts_start_at_one(lite: Place, settings: dict[str, int]) -> None:
    """No attempt at all is a mistake, not a setting."""
    with pytest.raises(ConfigurationError):
        inbox(lite).registry.sources["acme"].on("*", **settings)(lambda event: None)


def test_sources_have_names_of_their_own(lite: Place) -> None:
    """Two sources of one name would share identities."""
    with pytest.raises(ConfigurationError, match="two sources"):
        inbox(lite).source(acme())


def test_the_most_exact_pattern_wins(lite: Place) -> None:
    """A plain type before a glob, a longer glob before a shorter one, and nobody for what nobody asked for."""
    source = inbox(lite).registry.sources["acme"]
    names = {}
    for pattern in ("invoice.*", "*.paid", "invoice.paid", "invoice.paid.*", "[ab]?"):
        source.on(pattern)(lambda event: None)
        names[source.handlers[-1]] = pattern

    def chosen(kind: str | None) -> str | None:
        found = source.handler_for(kind)
        return found and names[found]

    assert chosen("invoice.paid") == "invoice.paid"
    assert chosen("invoice.sent") == "invoice.*"
    assert chosen("invoice.paid.late") == "invoice.paid.*"
    assert chosen("order.paid") == "*.paid"
    assert chosen("Invoice.sent") is None
    assert chosen(None) is None and chosen("") is None
    assert chosen("a" * 100_000 + "!") is None


async def test_an_unlisted_type_is_kept_and_skipped(box: Box) -> None:
    """Acknowledged, stored, counted, not run; a handler without types takes everything, with or without one."""

    @box.source.on("known")
    def apply(event: Event, conn: Any) -> None:
        conn.execute(f"INSERT INTO effect (note) VALUES ('{event.type}')")

    await box.send("evt_1", "known")
    await box.send("evt_2", "unknown")
    await box.drain()
    assert box.place.effects() == ["known"]
    rows = box.place.sql("SELECT state, result FROM hookonce_receipt ORDER BY id")
    assert rows == [("processed", "applied"), ("processed", "skipped")]
    assert box.inbox.counters.handled["acme", "skipped"] == 1


async def test_an_event_as_its_handler_sees_it(box: Box) -> None:
    """Bytes, ids, times, headers and values of the body, with a clear error for what is not there."""
    seen: list[Event] = []

    @box.source.on("*")
    def look(event: Event) -> None:
        seen.append(event)

    await box.send("evt_1", "a.b", items=[{"n": 1}, {"n": 2}])
    await box.drain()
    (event,) = seen
    assert (event.id, event.source, event.type, event.object_id) == ("evt_1", "acme", "a.b", "obj_evt_1")
    assert (event.attempt, event.generation, event.receipt_id) == (1, 0, 1)
    assert event.received_at.timestamp() == box.clock.time() and event.created_at is None
    assert event.headers["webhook-id"] == "evt_1"
    assert event["data.items.1.n"] == 2 and event.get("data.items.7.n", "none") == "none"
    assert event.raw.startswith(b'{"type": "a.b"')
    for path in ("data.nothing", "data.items.x", "type.more", "data.items.9"):
        with pytest.raises(KeyError, match=r"a\.b"):
            event[path]
