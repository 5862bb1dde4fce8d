"""Locators: what is read from a body, what is not, and that the fast reader says exactly what the slow one says."""

from __future__ import annotations

import json
import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hookonce.errors import ConfigurationError
from hookonce.model import Delivery, Facts, receipt_key
from hookonce.providers.locate import (
    EPOCH_MAX,
    EPOCH_MIN,
    Locators,
    Reader,
    as_text,
    as_time,
    body_reader,
    json_reader,
    msgspec_reader,
)

PATHS = [("id",), ("type",), ("data", "object", "id"), ("data", "n"), ("created",)]
SLOW = json_reader(PATHS)
FAST = msgspec_reader(PATHS, SLOW)
LOCATORS = Locators(
    event_id="body:id",
    type="body:type",
    object_id="body:data.object.id",
    event_time="body:created",
    version="body:data.n",
)


@pytest.fixture(params=["msgspec", "json"])
def reader(request):
    """Both readers, which must not differ."""
    return Reader(LOCATORS, read_with=json_reader if request.param == "json" else None)


def facts(reader: Reader, body: bytes, headers=()) -> Facts:
    """What a reader says about a request."""
    return reader.facts(Delivery("s", list(headers), body))


def test_reads_every_fact(reader):
    """Ids, type, object, version and time come out of their places."""
    body = (
        b'{"id":"evt_1","type":"a.b","created":1700000000,"data":{"object":{"id":"o","x":[1]},"n":7,"m":{}},"z":null}'
    )
    assert facts(reader, body) == Facts("evt_1", None, "a.b", "o", None, 1700000000.0, "7", None, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"{",
        b'{"id":"evt_1"',
        b'{"id":"evt_1"}x',
        b'{"id":"evt_1",}',
        b"{'id':'evt_1'}",
        b'{"id":"evt_1","x":"\xff"}',
        b'{"id":"evt_1","x":"\x00"}',
        b'{"id":"evt_1"}\x00',
        b"\x00",
        b"[" * 100_000,
        b'{"id":"evt_1","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"id":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b"payload=%7B%7D",
        b"<xml/>",
        b"\x1f\x8b\x08\x00",
    ],
)
def test_an_unreadable_body_is_a_fact(reader, body):
    """Whatever is no JSON gives no facts but says so, and nothing raises."""
    assert facts(reader, body) == Facts(problem="not_json")


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"1", b'"id"', b"true", b"NaN", b"{}", b'[{"id":"evt_1"}]', b'{"ID":"evt_1"}']
)
def test_json_without_the_places_has_no_facts(reader, body):
    """Readable JSON in another shape is no problem, there is just nothing in it."""
    assert facts(reader, body) == Facts()


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"evt_1","x":NaN}',
        b'{"id":"evt_1","x":-Infinity,"created":NaN}',
        b'{"id":"evt_1","x":1e400,"created":1e400}',
        b'{"id":"evt_1","x":' + b"9" * 5000 + b"}",
        b'{"id":"evt_1","x":"\\ud800"}',
        b'{"id":"evt_1","x":"\\u0000"}',
        b'{"id":"evt_1","x":"\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"id":"evt_1"}',
        '{"id":"evt_1"}'.encode("utf-16"),
        '{"id":"evt_1"}'.encode("utf-16-le"),
        '{"id":"evt_1"}'.encode("utf-32"),
        b'{"id":"first","id":"evt_1"}',
        b'{"\\u0069d":"evt_1"}',
        b'{"id":"evt_1","data":null}',
        b'{"id":"evt_1","data":[1]}',
        b'{"id":"evt_1","data":{"object":"text"}}',
        b'{"id":"evt_1","data":{"object":{"id":"o"}},"data":{}}',
        b'{"id":"evt_1","type":{},"created":"soon"}',
    ],
)
def test_an_odd_body_keeps_its_id(reader, body):
    """Strange numbers, encodings, escapes, repetitions and shapes elsewhere do not cost us the identity."""
    assert facts(reader, body) == Facts(event_id="evt_1")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'"evt"', "evt"),
        (b'""', None),
        (b"17", "17"),
        (b"-0", "0"),
        (b"18446744073709551617", "18446744073709551617"),
        (b"9" * 5000, "9" * 5000),
        (b"1.0", None),
        (b"1e3", None),
        (b"true", None),
        (b"false", None),
        (b"null", None),
        (b'{"a":1}', None),
        (b'["evt"]', None),
        (b'"\\ud800"', "\ud800"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"a\\u0000b"', "a\x00b"),
        (b'" evt "', " evt "),
    ],
)
def test_what_counts_as_an_id(reader, text, value):
    """Text and whole numbers do; nothing is guessed from anything else, and the empty text is no identity."""
    found = facts(reader, b'{"id":' + text + b"}")
    assert found == Facts(event_id=value)


def test_ids_with_lone_surrogates_are_identities():
    """A lone surrogate survives up to the receipt's key, and two of them stay apart."""
    ids = [facts(Reader(LOCATORS), b'{"id":"\\ud80%d"}' % number).event_id for number in (0, 1)]
    keys = {receipt_key(source="s", account=None, kind="e", identity=i.encode("utf-8", "surrogatepass")) for i in ids}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1700000000, 1700000000.0),
        (1700000000.25, 1700000000.25),
        (0, 0.0),
        (-1, -1.0),
        ("2023-11-14T22:13:20Z", 1700000000.0),
        ("2023-11-14T22:13:20.250000+00:00", 1700000000.25),
        ("2023-11-14T23:13:20+01:00", 1700000000.0),
        ("2023-11-14T22:13:20", None),
        ("2023-11-14", None),
        ("1700000000", None),
        ("", None),
        ("soon", None),
        ("\ud800", None),
        ("2" * 100_000, None),
        ("0001-01-01T00:00:00+23:59", None),
        ("9999-12-31T23:59:59-23:59", None),
        (True, None),
        (None, None),
        ([], None),
        ({}, None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        (1700000000000000, None),
        (EPOCH_MIN, EPOCH_MIN),
        (EPOCH_MIN - 1, None),
        (EPOCH_MAX, None),
    ],
)
def test_what_counts_as_a_time(value, seconds):
    """Seconds, or ISO 8601 with an offset, within the years that a datetime can hold; never a guess."""
    assert as_time(value) == seconds


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_conversions_never_raise(value):
    """Whatever JSON may hold becomes a usable text, a usable time, or None."""
    text, time = as_text(value), as_time(value)
    assert text is None or (isinstance(text, str) and text)
    assert time is None or (math.isfinite(time) and EPOCH_MIN <= time < EPOCH_MAX)


def test_header_facts():
    """Headers are read as latin-1, only if they are there exactly once, and not if they are empty."""
    reader = Reader(Locators(event_id="header:X-Id", type="header:X-Type|body:type", event_time="header:X-At"))
    body = b'{"type":"fallback"}'
    assert facts(reader, body, [(b"x-id", b"\xff\x00"), (b"x-type", b"t")]) == Facts(event_id="ÿ\x00", type="t")
    assert facts(reader, body, [(b"x-id", b"a"), (b"x-id", b"a"), (b"x-type", b"")]) == Facts(type="fallback")
    assert facts(reader, body, [(b"x-at", b"2023-11-14T22:13:20Z")]) == Facts(type="fallback", event_time=1700000000.0)


def test_header_facts_survive_an_unreadable_body():
    """What the headers say is kept when the body says nothing."""
    reader = Reader(Locators(event_id="header:X-Id", type=("header:X-Type", "body:action")))
    headers = [(b"x-id", b"1"), (b"x-type", b"push")]
    assert facts(reader, b"a=b", headers) == Facts(event_id="1", type="push", problem="not_json")


def test_a_body_that_nobody_reads_is_no_problem():
    """With locators in headers only, the body may be anything."""
    assert facts(Reader(Locators(event_id="header:X-Id")), b"<xml/>", [(b"x-id", b"1")]) == Facts(event_id="1")


def test_types_in_pieces():
    """The first piece is needed, the others are joined when they are there."""
    reader = Reader(Locators(type=("body:a", "body:b", "body:c")))
    assert facts(reader, b'{"a":"x","b":"y","c":"z"}').type == "x.y.z"
    assert facts(reader, b'{"a":"x","c":"z"}').type == "x.z"
    assert facts(reader, b'{"a":"x","b":{},"c":""}').type == "x"
    assert facts(reader, b'{"b":"y"}').type is None


def test_alternatives_are_tried_in_order():
    """The first alternative with a usable value counts, for texts and for times."""
    reader = Reader(Locators(event_id="body:a|body:b.c|header:X-Id", event_time="body:t|body:u"))
    headers = [(b"x-id", b"h")]
    assert facts(reader, b'{"a":"1","b":{"c":"2"}}', headers).event_id == "1"
    assert facts(reader, b'{"a":{},"b":{"c":"2"}}', headers).event_id == "2"
    assert facts(reader, b'{"b":[]}', headers).event_id == "h"
    assert facts(reader, b'{"t":"soon","u":5}').event_time == 5.0


def test_a_value_wanted_whole_and_in_parts():
    """One path may be the beginning of another."""
    reader = Reader(Locators(event_id="body:data|body:data.id"))
    assert facts(reader, b'{"data":"x"}').event_id == "x"
    assert facts(reader, b'{"data":{"id":"y"}}').event_id == "y"


@pytest.mark.parametrize(
    "name", ["Ünïcode", "with space", "class", "__init__", "f0", 'quo"te', "back\\slash", "a\nb", "a/b"]
)
def test_any_name_can_be_a_path(name):
    """Names that are no Python identifiers are read like any other."""
    reader = Reader(Locators(event_id=f"body:{name}.{name}", type="body:other"))
    for ascii_only in (True, False):
        body = json.dumps({name: {name: "x"}, "other": "t"}, ensure_ascii=ascii_only).encode()
        assert facts(reader, body) == Facts(event_id="x", type="t")


def test_works_without_msgspec(monkeypatch):
    """The standard library is enough."""
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setitem(sys.modules, "msgspec.json", None)
    assert body_reader([("id",)])(b'{"id":"x"}') == ("x",)


def test_the_fast_reader_is_used(monkeypatch):
    """With msgspec installed, an ordinary body never meets the slow parser."""
    read = body_reader(PATHS)
    monkeypatch.setattr(json, "loads", None)
    assert read('{"id":"x","data":{"n":2},"é":[{}]}'.encode()) == ("x", None, None, 2, None)


@pytest.mark.parametrize(
    "locators",
    [
        {"event_id": ""},
        {"event_id": "id"},
        {"event_id": "body:"},
        {"event_id": "body:a..b"},
        {"event_id": "body:.a"},
        {"event_id": "header:"},
        {"event_id": "header:X Y"},
        {"event_id": "cookie:id"},
        {"event_id": "body:a|"},
        {"event_id": 5},
        {"account": ("body:a", "body:b")},
        {"type": ()},
        {"type": ("body:a", None)},
    ],
)
def test_what_cannot_be_a_locator_fails_at_construction(locators):
    """A locator that could never find anything is found before any request."""
    with pytest.raises(ConfigurationError) as caught:
        Reader(Locators(**locators))
    assert caught.value.code == "HO101"


names = st.sampled_from(["id", "type", "data", "object", "n", "created", "x", "é"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**60), 10**60)
    | st.floats()
    | st.text()
    | st.sampled_from(["\ud800", "\x00", "evt_1", 1e308, -0.0])
)
documents = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5))


def same(body: bytes) -> None:
    """Both readers give the same answer."""
    fast, slow = FAST(body), SLOW(body)
    assert repr(fast) == repr(slow)  # as text, so that NaN equals itself and 1, 1.0 and True differ


@given(st.dictionaries(names, documents, max_size=6), st.booleans(), st.sampled_from([None, 2]))
def test_both_readers_agree_on_json(document, ascii_only, indent):
    """For every document that Python can write, msgspec and the standard library find the same values."""
    same(json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass"))


pieces = st.sampled_from([
    b'{"id":', b'"id":', b'{"data":', b'"data":', b'{"object":', b'"n":', b"{", b"}", b"}}", b"[", b"]", b",", b":", b'"',
    b'"x"', b'"a":1,', b"1", b"-", b"0", b"01", b"1.5", b"1e5", b"E400", b".", b"NaN", b"true", b"null", b"\\", b"\\u",
    b"d800", b"\\ud83d\\ude00", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xc3\xa9", b"\xef\xbb\xbf", b" ", b"\n", b"\x0b",
    b"\x7f", b"9" * 700, b"9" * 5000,
])  # fmt: skip


@given(st.lists(pieces, max_size=14).map(b"".join))
@example(b'{"x":"\xff"}')
@example(b'{"id":1,"id":2,"data":{"n":1},"data":{}}')
@example(b'{"id":' + b"9" * 4301 + b"}")
def test_both_readers_agree_on_pieces(body):
    """For bodies put together from the right and the wrong pieces, they agree as well: on values and on failure."""
    same(body)


@given(
    st.dictionaries(names, documents, min_size=1, max_size=4).map(lambda d: json.dumps(d).encode()),
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=2)), max_size=3),
)
def test_both_readers_agree_on_damaged_json(body, changes):
    """A few bytes overwritten anywhere lead both to the same answer."""
    damaged = bytearray(body)
    for at, data in changes:
        start = at % len(damaged)
        damaged[start : start + len(data)] = data
    same(bytes(damaged))


@given(st.binary(max_size=60), st.lists(st.tuples(st.binary(max_size=10), st.binary(max_size=20)), max_size=4))
def test_arbitrary_requests_never_raise(body, headers):
    """Random bytes anywhere give Facts."""
    reader = Reader(Locators(event_id="body:id|header:X-Id", type=("header:X-Type", "body:a"), event_time="body:t"))
    assert isinstance(facts(reader, body, [*headers, (b"x-id", body), (b"x-type", body)]), Facts)
