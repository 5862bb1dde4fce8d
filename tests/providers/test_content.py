"""What is peculiar to senders of content and work: handshakes that nobody signs, compressed bodies, batches, made-up ids."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import hmac
import json
import stat
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hookonce.cli.providers import about
from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.flow.verify import verify
from hookonce.model import Answer, Delivery, Facts
from hookonce.providers import PROVIDERS
from hookonce.providers.base import Endpoint
from hookonce.providers.known import REGISTERED

Headers = Sequence[tuple[bytes, bytes]]

NOW = 1_800_000_000.0
MILLISECONDS = b"1800000000000"
SECRET = "the gate at berth four"
NAMES = (
    *("contentful", "sanity", "hygraph", "kontent_ai", "webflow", "cloudinary", "mux", "notion", "airtable"),
    *("typeform", "dropbox", "box", "smartsheet", "monday", "asana", "trello", "calendly", "cal_com", "zendesk"),
    *("clickup", "strava", "attio", "hubspot_v1", "hubspot_v2", "hubspot_v3", "pipedrive", "nylas"),
)


def request(body: bytes = b"", headers: Headers = (), *, query: bytes = b"", method: str = "POST") -> Delivery:
    return Delivery("source", list(headers), body, "/webhooks/source", query, method=method)


def refusal(endpoint: Endpoint, delivery: Delivery, now: float = NOW) -> Reason:
    """Why the scheme itself refuses it, without the net that verify puts below."""
    with pytest.raises(VerificationError) as caught:
        endpoint.provider.scheme.verify(delivery, endpoint.secrets, now)
    return caught.value.reason


def greeted(endpoint: Endpoint, delivery: Delivery) -> Answer | None:
    assert endpoint.provider.greet is not None
    return endpoint.provider.greet(delivery, endpoint.secrets)


def events(endpoint: Endpoint, document: Any, headers: Headers = ()) -> list[Facts]:
    """What is read of each event of a batch."""
    assert endpoint.provider.split is not None
    bodies, outer = endpoint.provider.split(request(json.dumps(document).encode(), headers))
    return [endpoint.provider.facts(request(body, headers), outer) for body in bodies]


def hex_of(text: bytes, key: bytes = SECRET.encode()) -> bytes:
    return hmac.new(key, text, "sha256").hexdigest().encode()


def base64_of(text: bytes, key: bytes = SECRET.encode()) -> bytes:
    return b64encode(hmac.new(key, text, "sha256").digest())


def test_these_are_all_that_content_and_work_declare() -> None:
    """No provider of the two modules is left out here."""
    modules = ("hookonce.providers.catalogue.content", "hookonce.providers.catalogue.work")
    assert {name for name, declared in REGISTERED.items() if declared.__module__ in modules} == set(NAMES)
    assert len(NAMES) == 27


@pytest.mark.parametrize("name", NAMES)
def test_each_is_registered_and_can_be_shown(name: str) -> None:
    """The command line tells its title, its confidence and what it signs."""
    declared = REGISTERED[name]
    assert PROVIDERS[name] is declared
    found = about(name)
    assert (found["name"], found["title"], found["confidence"]) == (name, declared.title, declared.confidence)
    assert found["signature"]
    assert found["note"] == (declared.note or None)


# Contentful

CONTENTFUL_SECRET = "0123456789abcdef" * 4
LISTED = b"content-type,x-contentful-signed-headers,x-contentful-timestamp,x-contentful-topic"
CANONICAL = b"\n".join(
    (
        b"POST",
        b"/a%20b/c?x%253D1%2526y%253D%25255B",
        b"content-type:application/json;x-contentful-signed-headers:" + LISTED + b";"
        b"x-contentful-timestamp:1800000000000;x-contentful-topic:T",
        b"{}",
    )
)
CONTENTFUL = Delivery(
    "contentful",
    [
        (b"content-type", b"application/json "),
        (b"x-contentful-signed-headers", LISTED),
        (b"x-contentful-timestamp", MILLISECONDS),
        (b"x-contentful-topic", b"T"),
        (b"x-contentful-crn", b"not listed"),
        (b"x-contentful-signature", hex_of(CANONICAL, CONTENTFUL_SECRET.encode())),
    ],
    b"{}",
    "/a b/c",
    b"x=1&y=%5B",
)


def contentful(**changed: bytes) -> Delivery:
    """The genuine request with other headers."""
    named = {name.replace("_", "-").encode(): value for name, value in changed.items()}
    return dataclasses.replace(CONTENTFUL, headers=[(key, named.get(key, value)) for key, value in CONTENTFUL.headers])


def test_contentful_signs_the_whole_request() -> None:
    """Worked by hand: the path escaped, the query escaped twice more, the listed headers trimmed, then the body."""
    verified = verify(PROVIDERS["contentful"](CONTENTFUL_SECRET), CONTENTFUL, NOW)
    assert verified.signed_at == NOW
    assert refusal(PROVIDERS["contentful"](CONTENTFUL_SECRET[::-1]), CONTENTFUL) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(
    "changed", [{"query": b"x=1"}, {"query": b""}, {"method": "PUT"}, {"path": "/a b/d"}, {"body": b"{} "}]
)
def test_no_part_of_a_contentful_request_can_be_changed(changed: dict[str, Any]) -> None:
    """Query, method, path and body are all in what is signed."""
    endpoint = PROVIDERS["contentful"](CONTENTFUL_SECRET)
    assert refusal(endpoint, dataclasses.replace(CONTENTFUL, **changed)) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize(
    "changed",
    [
        {"content_type": b"text/plain"},
        {"x_contentful_topic": b"U"},
        {"x_contentful_topic": b""},
        {"x_contentful_timestamp": b"1800000000001"},
        {"x_contentful_signed_headers": LISTED.removeprefix(b"content-type,")},
        {"x_contentful_signed_headers": LISTED + b",x-contentful-crn"},
    ],
)
def test_a_changed_signed_header_is_not_contentfuls(changed: dict[str, bytes]) -> None:
    """A listed header of another value, and a list that is shorter or longer than the one that was signed."""
    assert refusal(PROVIDERS["contentful"](CONTENTFUL_SECRET), contentful(**changed)) is Reason.SIGNATURE_MISMATCH


def test_a_header_that_is_not_listed_is_not_signed() -> None:
    """It may change, and be absent, without harm to the signature."""
    endpoint = PROVIDERS["contentful"](CONTENTFUL_SECRET)
    assert verify(endpoint, contentful(x_contentful_crn=b"other"), NOW)
    kept = [header for header in CONTENTFUL.headers if header[0] != b"x-contentful-crn"]
    assert verify(endpoint, dataclasses.replace(CONTENTFUL, headers=kept), NOW)


@pytest.mark.parametrize(
    "listed",
    [
        b"",
        LISTED.replace(b"x-contentful-timestamp,", b""),
        LISTED.replace(b"x-contentful-signed-headers,", b""),
        LISTED + b",content-type",
        LISTED + b"".join(b",x-%d" % number for number in range(80)),
    ],
)
def test_a_list_of_signed_headers_without_the_time_is_malformed(listed: bytes) -> None:
    """Neither the time nor the list itself can be left out of it, no name is there twice, and it has an end."""
    endpoint = PROVIDERS["contentful"](CONTENTFUL_SECRET)
    assert refusal(endpoint, contentful(x_contentful_signed_headers=listed)) is Reason.SIGNATURE_MALFORMED


def test_a_listed_header_is_there_exactly_once() -> None:
    """Missing, or there twice, nobody knows what was signed."""
    endpoint = PROVIDERS["contentful"](CONTENTFUL_SECRET)
    without = [header for header in CONTENTFUL.headers if header[0] != b"content-type"]
    doubled = [*CONTENTFUL.headers, (b"content-type", b"x")]
    for headers in (without, doubled):
        assert refusal(endpoint, dataclasses.replace(CONTENTFUL, headers=headers)) is Reason.SIGNATURE_MALFORMED


def test_a_contentful_request_is_good_for_thirty_seconds() -> None:
    """Unless a tolerance is configured; then for as long as that."""
    endpoint = PROVIDERS["contentful"](CONTENTFUL_SECRET)
    assert verify(endpoint, CONTENTFUL, NOW + 30)
    assert refusal(endpoint, CONTENTFUL, NOW + 31) is Reason.TOO_OLD
    assert refusal(endpoint, CONTENTFUL, NOW - 301) is Reason.IN_THE_FUTURE
    patient = PROVIDERS["contentful"](CONTENTFUL_SECRET, tolerance=120)
    assert verify(patient, CONTENTFUL, NOW + 120)
    assert refusal(patient, CONTENTFUL, NOW + 121) is Reason.TOO_OLD


def test_contentful_signs_the_path_of_the_configured_address() -> None:
    """Where a proxy has changed the path, url= says which one was signed."""
    behind = dataclasses.replace(CONTENTFUL, path="/internal")
    assert verify(PROVIDERS["contentful"](CONTENTFUL_SECRET, url="https://h.example/a b/c"), behind, NOW)
    elsewhere = PROVIDERS["contentful"](CONTENTFUL_SECRET, url="https://h.example/zz")
    assert refusal(elsewhere, CONTENTFUL) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize("secret", ["short", "a" * 63, "a" * 65])
def test_a_secret_of_contentful_has_64_characters(secret: str) -> None:
    """One of another length was not copied whole."""
    with pytest.raises(ConfigurationError, match="64"):
        PROVIDERS["contentful"](secret)


# Hygraph

HYGRAPH_BODY = '{"a":"é\\"\u2028\x7f"}'.encode()
HYGRAPH_TEXT = (
    '{"Body":"{\\"a\\":\\"é\\\\\\"\u2028\x7f\\"}","EnvironmentName":"dev","TimeStamp":1800000000000}'.encode()
)


def hygraph(pieces: bytes, body: bytes = HYGRAPH_BODY) -> Delivery:
    return request(body, [(b"gcms-signature", b"sign=" + base64_of(HYGRAPH_TEXT) + pieces)])


def test_hygraph_signs_its_body_inside_of_json() -> None:
    """Quotes are escaped once more, and what JavaScript leaves alone is left alone."""
    verified = verify(PROVIDERS["hygraph"](SECRET), hygraph(b", env=dev, t=1800000000000"), NOW)
    assert verified.signed_at == NOW


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        (b", env=prod, t=1800000000000", Reason.SIGNATURE_MISMATCH),
        (b", env=dev, t=1800000000001", Reason.SIGNATURE_MISMATCH),
        (b", t=1800000000000", Reason.SIGNATURE_MALFORMED),
        (b", env=dev", Reason.SIGNATURE_MALFORMED),
        (b", env=dev, env=dev, t=1800000000000", Reason.SIGNATURE_MALFORMED),
        (b", env=dev, t=-1", Reason.TIMESTAMP_MALFORMED),
    ],
)
def test_environment_and_time_of_hygraph_are_signed(pieces: bytes, reason: Reason) -> None:
    """Another one of them is a mismatch; without one, or with one twice, there is no signature."""
    assert refusal(PROVIDERS["hygraph"](SECRET), hygraph(pieces)) is reason


def test_a_hygraph_body_that_is_no_text_is_refused() -> None:
    """What is signed is text, so it cannot have been signed."""
    delivery = hygraph(b", env=dev, t=1800000000000", b"\xff")
    assert refusal(PROVIDERS["hygraph"](SECRET), delivery) is Reason.SIGNATURE_MALFORMED


def test_hygraph_is_as_old_as_it_likes_unless_told() -> None:
    """A tolerance bounds its age; without one only the future is."""
    delivery = hygraph(b", env=dev, t=1800000000000")
    assert verify(PROVIDERS["hygraph"](SECRET), delivery, NOW + 86_400)
    assert refusal(PROVIDERS["hygraph"](SECRET), delivery, NOW - 301) is Reason.IN_THE_FUTURE
    strict = PROVIDERS["hygraph"](SECRET, tolerance=5)
    assert verify(strict, delivery, NOW + 5)
    assert refusal(strict, delivery, NOW + 6) is Reason.TOO_OLD


# HubSpot

HUBSPOT_SECRET = "yyyyyyyy-yyyy-yyyy-yyyy-yyyyyyyyyyyy"
HUBSPOT_URL = "https://www.example.com/webhook_uri"
HUBSPOT_EVENTS = (
    b'[{"eventId":1,"subscriptionId":12345,"portalId":62515,"occurredAt":1564113600000,'
    b'"subscriptionType":"contact.creation","attemptNumber":0,"objectId":123,"changeSource":"CRM",'
    b'"changeFlag":"NEW","appId":54321}]'
)


def hubspot(version: bytes, signature: bytes, body: bytes, method: str = "POST") -> Delivery:
    headers = [(b"x-hubspot-signature", signature), (b"x-hubspot-signature-version", version)]
    return request(body, headers, method=method)


def hubspot_v3(signed: bytes, body: bytes, query: bytes = b"") -> Delivery:
    headers = [(b"x-hubspot-signature-v3", base64_of(signed)), (b"x-hubspot-request-timestamp", MILLISECONDS)]
    return request(body, headers, query=query)


def test_hubspots_published_example_of_v1() -> None:
    """The hash in its documentation verifies, under its version and no other."""
    endpoint = PROVIDERS["hubspot_v1"](HUBSPOT_SECRET)
    published = b"232db2615f3d666fe21a8ec971ac7b5402d33b9a925784df3ca654d05f4817de"
    assert verify(endpoint, hubspot(b"v1", published, HUBSPOT_EVENTS), NOW)
    assert refusal(endpoint, hubspot(b"v1", published, HUBSPOT_EVENTS + b" ")) is Reason.SIGNATURE_MISMATCH
    assert refusal(endpoint, hubspot(b"v2", published, HUBSPOT_EVENTS)) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize(
    ("method", "body", "published"),
    [
        ("GET", b"", b"eee2dddcc73c94d699f5e395f4b9d454a069a6855fbfa152e91e88823087200e"),
        (
            "POST",
            b'{"example_field":"example_value"}',
            b"9569219f8ba981ffa6f6f16aa0f48637d35d728c7e4d93d0d52efaa512af7900",
        ),
    ],
)
def test_hubspots_published_examples_of_v2(method: str, body: bytes, published: bytes) -> None:
    """Method and address are hashed as well."""
    endpoint = PROVIDERS["hubspot_v2"](HUBSPOT_SECRET, url=HUBSPOT_URL)
    assert verify(endpoint, hubspot(b"v2", published, body, method), NOW)
    assert refusal(endpoint, hubspot(b"v2", published, body, "PUT")) is Reason.SIGNATURE_MISMATCH
    elsewhere = PROVIDERS["hubspot_v2"](HUBSPOT_SECRET, url=HUBSPOT_URL + "/")
    assert refusal(elsewhere, hubspot(b"v2", published, body, method)) is Reason.SIGNATURE_MISMATCH


def test_a_hubspot_hash_that_was_extended_is_refused() -> None:
    """Behind the padding that an extension needs a body is no text, even where its hash is right."""
    extended = HUBSPOT_EVENTS + b"\x80"
    for version, front, options in ((b"v1", "", {}), (b"v2", "POST" + HUBSPOT_URL, {"url": HUBSPOT_URL})):
        endpoint = PROVIDERS[f"hubspot_{version.decode()}"](HUBSPOT_SECRET, **options)
        right = hashlib.sha256((HUBSPOT_SECRET + front).encode() + extended).hexdigest().encode()
        assert refusal(endpoint, hubspot(version, right, extended)) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize(
    ("query", "signed"),
    [
        (b"", b""),
        (b"a=%3A%2f&b=%20x", b"?a=:/&b=%20x"),
        (b"a=%3A%2F%3F%40%21%24%27%28%29%2A%2C%3B", b"?a=:/?@!$'()*,;"),
        (b"a=%3a%2f%3f%40%21%24%27%28%29%2a%2c%3b", b"?a=:/?@!$'()*,;"),
        (b"a=%26%3D%25%2B%5B%C3%A9", b"?a=%26%3D%25%2B%5B%C3%A9"),
        (b"a=%253A%252F", b"?a=%253A%252F"),
        (b"a=b+c", b"?a=b+c"),
    ],
)
def test_hubspot_v3_undoes_some_escapes(query: bytes, signed: bytes) -> None:
    """Twelve characters are unescaped, in either case and only once; the others stay as they were sent."""
    endpoint = PROVIDERS["hubspot_v3"](SECRET, url=HUBSPOT_URL)
    text = b"POST" + HUBSPOT_URL.encode() + signed + HUBSPOT_EVENTS + MILLISECONDS
    assert verify(endpoint, hubspot_v3(text, HUBSPOT_EVENTS, query), NOW).signed_at == NOW


def test_hubspot_v3_does_not_sign_what_was_sent() -> None:
    """A signature over the address with all of its escapes is not one of HubSpot's."""
    endpoint = PROVIDERS["hubspot_v3"](SECRET, url=HUBSPOT_URL)
    text = b"POST" + HUBSPOT_URL.encode() + b"?a=%3A" + HUBSPOT_EVENTS + MILLISECONDS
    assert refusal(endpoint, hubspot_v3(text, HUBSPOT_EVENTS, b"a=%3A")) is Reason.SIGNATURE_MISMATCH


def test_hubspot_v3_covers_everything_for_five_minutes() -> None:
    """Another body, query, method or moment is refused."""
    endpoint = PROVIDERS["hubspot_v3"](SECRET, url=HUBSPOT_URL)
    genuine = hubspot_v3(b"POST" + HUBSPOT_URL.encode() + b"{}" + MILLISECONDS, b"{}")
    assert verify(endpoint, genuine, NOW + 300)
    assert refusal(endpoint, genuine, NOW + 301) is Reason.TOO_OLD
    for changed in ({"body": b"[]"}, {"query": b"a=1"}, {"method": "PUT"}):
        assert refusal(endpoint, dataclasses.replace(genuine, **changed)) is Reason.SIGNATURE_MISMATCH


@pytest.mark.parametrize("name", ["hubspot_v2", "hubspot_v3", "trello"])
def test_who_signs_its_address_needs_it(name: str) -> None:
    """Without url= nothing could be verified, and that is said at the start."""
    with pytest.raises(ConfigurationError, match="address"):
        PROVIDERS[name](SECRET)


@pytest.mark.parametrize("name", ["hubspot_v1", "hubspot_v2", "hubspot_v3"])
def test_a_card_of_hubspot_is_one_event(name: str) -> None:
    """A body that is no list is the one event that it holds; one that is no JSON is neither."""
    provider = PROVIDERS[name](SECRET, **({} if name == "hubspot_v1" else {"url": HUBSPOT_URL})).provider
    assert provider.split is not None
    assert provider.split(request(b'{"objectId":5}'))[0] == [b'{"objectId":5}']
    assert provider.facts(request(b'{"objectId":5}')).object_id == "5"
    with pytest.raises(ValueError):
        provider.split(request(b"{"))


def test_an_id_of_hubspot_has_four_parts() -> None:
    """Two events of one batch with the same eventId are two."""
    one = {"eventId": 4, "subscriptionType": "contact.creation", "objectId": 7, "occurredAt": 1_800_000_000_000}
    found = events(PROVIDERS["hubspot_v1"](SECRET), [one, {**one, "objectId": 8}])
    assert [facts.event_id for facts in found] == [
        "4:contact.creation:7:1800000000000",
        "4:contact.creation:8:1800000000000",
    ]
    assert {facts.event_time for facts in found} == {NOW}


# Cloudinary


def cloudinary(algorithm: str) -> Delivery:
    digest = hashlib.new(algorithm, b"{}" + b"1800000000" + SECRET.encode()).hexdigest()
    return request(b"{}", [(b"x-cld-signature", digest.encode()), (b"x-cld-timestamp", b"1800000000")])


@pytest.mark.parametrize(("algorithm", "other"), [("sha1", "sha256"), ("sha256", "sha1")])
def test_cloudinary_hashes_as_the_account_is_set(algorithm: str, other: str) -> None:
    """Body, time and secret, with the one algorithm that is configured."""
    endpoint = PROVIDERS["cloudinary"](SECRET, algorithm=algorithm)
    assert verify(endpoint, cloudinary(algorithm), NOW)
    assert refusal(endpoint, cloudinary(other)) is Reason.SIGNATURE_MISMATCH


def test_cloudinary_has_sha1_as_its_default_and_no_md5() -> None:
    """An algorithm that it does not have is refused at the start."""
    assert verify(PROVIDERS["cloudinary"](SECRET), cloudinary("sha1"), NOW)
    with pytest.raises(ConfigurationError, match="md5"):
        PROVIDERS["cloudinary"](SECRET, algorithm="md5")


def test_a_tolerance_bounds_the_two_hours_of_cloudinary() -> None:
    """Two hours by themselves, or what is configured."""
    assert verify(PROVIDERS["cloudinary"](SECRET), cloudinary("sha1"), NOW + 7200)
    assert refusal(PROVIDERS["cloudinary"](SECRET), cloudinary("sha1"), NOW + 7201) is Reason.TOO_OLD
    strict = PROVIDERS["cloudinary"](SECRET, tolerance=60)
    assert refusal(strict, cloudinary("sha1"), NOW + 61) is Reason.TOO_OLD


# secrets that come in a handshake

TOKEN = "tök"
ASKED = b"token=t%C3%B6k"


def asana(given: bytes = b"abc123", query: bytes = ASKED) -> Delivery:
    return request(headers=[(b"x-hook-secret", given)], query=query)


def notion(token: Any = "secret_abc") -> Delivery:
    return request(json.dumps({"verification_token": token}).encode())


def shaking(name: str, file: Path | str | None) -> Endpoint:
    """An endpoint whose secret is yet to come."""
    options: dict[str, Any] = {"handshake_token": TOKEN} if name == "asana" else {}
    return PROVIDERS[name]("later", handshake_file=None if file is None else str(file), **options)


def shake(name: str, secret: str) -> Delivery:
    return asana(secret.encode()) if name == "asana" else notion(secret)


def unanswered(name: str, endpoint: Endpoint, delivery: Delivery) -> bool:
    """Asana's is refused with its reason, for the log; Notion's is then a request without a signature."""
    if name == "notion":
        return greeted(endpoint, delivery) is None
    with pytest.raises(VerificationError) as caught:
        greeted(endpoint, delivery)
    return caught.value.reason is Reason.SIGNATURE_MISSING


@pytest.mark.parametrize("name", ["asana", "notion"])
def test_the_secret_of_a_handshake_is_written_once(name: str, tmp_path: Path) -> None:
    """For this user only, before it is answered; one that comes later changes nothing."""
    file = tmp_path / "secret"
    endpoint = shaking(name, file)
    answer = greeted(endpoint, shake(name, "first"))
    assert answer is not None and answer.status == 200
    assert file.read_text() == "first"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert unanswered(name, endpoint, shake(name, "second"))
    assert file.read_text() == "first"


@pytest.mark.parametrize("name", ["asana", "notion"])
def test_a_file_that_is_there_is_never_overwritten(name: str, tmp_path: Path) -> None:
    """Whatever it holds, and whatever it is: an empty file, a folder, a link to nowhere."""
    empty, folder, link, nowhere = (tmp_path / kind for kind in ("empty", "folder", "link", "nowhere"))
    empty.touch(0o640)
    mode = empty.stat().st_mode
    folder.mkdir()
    link.symlink_to(nowhere)
    for file in (empty, folder, link):
        assert unanswered(name, shaking(name, file), shake(name, "evil")), file
    assert empty.read_bytes() == b""
    assert empty.stat().st_mode == mode
    assert list(folder.iterdir()) == []
    assert not nowhere.exists()


@pytest.mark.parametrize("name", ["asana", "notion"])
def test_a_secret_that_cannot_be_written_is_not_answered(name: str, tmp_path: Path) -> None:
    """Answered, it would be lost: the handshake is refused, and the reason is told."""
    folder = tmp_path / "gone"
    folder.mkdir()
    endpoint = shaking(name, folder / "secret")
    folder.rmdir()
    with pytest.raises(VerificationError) as caught:
        greeted(endpoint, shake(name, "first"))
    assert caught.value.reason is Reason.SIGNATURE_MISSING
    assert "first" not in str(caught.value)


@pytest.mark.parametrize("file", ["", " ", "/nowhere/at/all/secret"])
@pytest.mark.parametrize("name", ["asana", "notion"])
def test_a_handshake_file_needs_a_folder(name: str, file: str) -> None:
    """Where there is none, that is said at the start."""
    with pytest.raises(ConfigurationError, match="handshake_file"):
        shaking(name, file)


def test_notion_is_not_answered_without_a_file() -> None:
    """Nobody signs this handshake: with nowhere to keep the token it is a request like any other."""
    assert greeted(PROVIDERS["notion"](SECRET), notion()) is None


@pytest.mark.parametrize("token", [5, None, ["secret_abc"], "", "two\nlines", "a" * 1_001])
def test_notion_is_not_answered_for_what_is_no_token(token: Any, tmp_path: Path) -> None:
    """A token is a printable line that is not long; nothing is written for anything else."""
    file = tmp_path / "secret"
    assert greeted(shaking("notion", file), notion(token)) is None
    assert not file.exists()


def test_a_signed_request_is_no_handshake_of_notion(tmp_path: Path) -> None:
    """An event that speaks of a token is still an event."""
    file = tmp_path / "secret"
    signed = dataclasses.replace(notion(), headers=[(b"x-notion-signature", b"sha256=00")])
    assert greeted(shaking("notion", file), signed) is None
    assert not file.exists()


def test_asana_gets_its_secret_back() -> None:
    """In the header in which it came, if the token in the address is the one configured."""
    answer = greeted(shaking("asana", None), asana())
    assert answer == Answer(headers=((b"x-hook-secret", b"abc123"),))


@pytest.mark.parametrize("query", [b"", b"token=", b"token=no", b"token=tok", ASKED + b"&" + ASKED, b"other=t%C3%B6k"])
def test_asana_without_the_configured_token_is_not_answered(query: bytes, tmp_path: Path) -> None:
    """Missing, empty, another one, or there twice: no answer, and nothing is written."""
    file = tmp_path / "secret"
    assert greeted(shaking("asana", file), asana(query=query)) is None
    assert not file.exists()


@pytest.mark.parametrize("query", [b"", b"token=", b"token=None", ASKED])
def test_asana_is_not_answered_where_no_token_is_configured(query: bytes, tmp_path: Path) -> None:
    """Nothing matches a token that is not there, and a file does not stand in for it."""
    file = tmp_path / "secret"
    assert greeted(PROVIDERS["asana"]("later"), asana(query=query)) is None
    assert greeted(PROVIDERS["asana"]("later", handshake_file=str(file)), asana(query=query)) is None
    assert not file.exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "GET"},
        {"headers": []},
        {"headers": [(b"x-hook-secret", b"")]},
        {"headers": [(b"x-hook-secret", b"a\r\nb")]},
        {"headers": [(b"x-hook-secret", b"\xe9")]},
        {"headers": [(b"x-hook-secret", b"a" * 1_001)]},
        {"headers": [(b"x-hook-secret", b"abc123"), (b"x-hook-secret", b"abc123")]},
        {"headers": [(b"x-hook-secret", b"abc123"), (b"x-hook-signature", b"00")]},
    ],
)
def test_what_is_no_handshake_of_asana_is_not_answered(changed: dict[str, Any], tmp_path: Path) -> None:
    """Even with the token: another method, a secret that no header can carry back, or a signature beside it."""
    file = tmp_path / "secret"
    assert greeted(shaking("asana", file), dataclasses.replace(asana(), **changed)) is None
    assert not file.exists()


def test_asana_may_repeat_its_handshake(tmp_path: Path) -> None:
    """The secret that the file holds is answered once more."""
    file = tmp_path / "secret"
    endpoint = shaking("asana", file)
    first = greeted(endpoint, asana())
    assert first is not None
    assert greeted(endpoint, asana()) == first
    file.write_text("abc123\n")
    assert greeted(endpoint, asana()) == first
    assert unanswered("asana", endpoint, asana(b"abc"))


@pytest.mark.parametrize("token", ["", " ", "\n"])
@pytest.mark.parametrize(("name", "option"), [("asana", "handshake_token"), ("strava", "verify_token")])
def test_an_empty_token_is_refused_at_the_start(name: str, option: str, token: str) -> None:
    """It would let everybody in."""
    with pytest.raises(ConfigurationError, match=option):
        PROVIDERS[name](SECRET, **{option: token})


# challenges that come back


@pytest.mark.parametrize("name", ["dropbox", "nylas"])
def test_a_challenge_comes_back_as_text(name: str) -> None:
    """Unescaped, and as nothing that a browser would run."""
    for query, body in ((b"challenge=a%20b", b"a b"), (b"challenge=" + b"x" * 1_000, b"x" * 1_000)):
        answer = greeted(PROVIDERS[name](SECRET), request(method="GET", query=query))
        assert answer is not None
        assert (answer.status, answer.body) == (200, body)
        assert answer.content_type.startswith("text/plain")


@pytest.mark.parametrize(
    "query",
    [b"", b"challenge=", b"challenge=a&challenge=b", b"challenge=" + b"x" * 1_001, b"challenge=%0a", b"other=a"],
)
@pytest.mark.parametrize("name", ["dropbox", "nylas"])
def test_not_every_challenge_comes_back(name: str, query: bytes) -> None:
    """Only one that is there once, is not long, and is a printable line."""
    assert greeted(PROVIDERS[name](SECRET), request(method="GET", query=query)) is None


@pytest.mark.parametrize("name", ["dropbox", "nylas"])
def test_a_challenge_is_a_get(name: str) -> None:
    """A POST with the same query is an event."""
    assert greeted(PROVIDERS[name](SECRET), request(query=b"challenge=a")) is None


def test_smartsheet_gets_its_challenge_in_a_header() -> None:
    """Whenever it asks; a request with events is none that asks."""
    endpoint = PROVIDERS["smartsheet"](SECRET)
    asks = request(b'{"challenge":"uuid-1","webhookId":1}', [(b"smartsheet-hook-challenge", b"uuid-1")])
    answer = Answer(headers=((b"smartsheet-hook-response", b"uuid-1"),))
    assert greeted(endpoint, asks) == answer
    assert greeted(endpoint, asks) == answer
    assert greeted(endpoint, dataclasses.replace(asks, body=b'{"events":[]}')) is None
    assert greeted(endpoint, dataclasses.replace(asks, method="GET")) is None
    for headers in ([], [(b"smartsheet-hook-challenge", b"a\r\nb")], [*asks.headers, *asks.headers]):
        assert greeted(endpoint, dataclasses.replace(asks, headers=headers)) is None


def test_trello_asks_with_head() -> None:
    """HEAD is answered, POST is an event."""
    endpoint = PROVIDERS["trello"](SECRET, url="https://x.example/t")
    assert greeted(endpoint, request(method="HEAD")) == Answer()
    assert greeted(endpoint, request()) is None


def strava(token: bytes = b"v", challenge: bytes = b"15f7", mode: bytes = b"subscribe") -> bytes:
    return b"token=s&hub.mode=%b&hub.challenge=%b&hub.verify_token=%b" % (mode, challenge, token)


def test_strava_gets_its_challenge_as_json() -> None:
    """If it knows the token that was configured."""
    answer = greeted(PROVIDERS["strava"](SECRET, verify_token="v"), request(method="GET", query=strava()))
    assert answer is not None
    assert json.loads(answer.body) == {"hub.challenge": "15f7"}
    assert answer.content_type == "application/json"


@pytest.mark.parametrize(
    "query", [b"", strava(token=b"w"), strava(token=b""), strava(challenge=b""), strava(mode=b"unsubscribe")]
)
def test_strava_is_not_answered_without_its_token(query: bytes) -> None:
    """Another token, none, nothing to send back, or another mode; and no token fits where none is configured."""
    assert greeted(PROVIDERS["strava"](SECRET, verify_token="v"), request(method="GET", query=query)) is None
    assert greeted(PROVIDERS["strava"](SECRET), request(method="GET", query=query)) is None
    assert greeted(PROVIDERS["strava"](SECRET), request(method="GET", query=strava())) is None
    assert greeted(PROVIDERS["strava"](SECRET, verify_token="v"), request(query=strava())) is None


# monday.com

MONDAY_SECRET = "thirty-two characters of a secret"
MONDAY_URL = "https://h.example/m"


def segment(document: Any) -> bytes:
    return urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=")


def monday(claims: dict[str, Any], algorithm: str = "HS256") -> Delivery:
    """A request with a token over these claims."""
    text = segment({"alg": algorithm, "typ": "JWT"}) + b"." + segment(claims)
    digest = hmac.new(MONDAY_SECRET.encode(), text, "sha256").digest() if algorithm == "HS256" else b""
    return request(b"{}", [(b"authorization", text + b"." + urlsafe_b64encode(digest).rstrip(b"="))])


def test_a_token_of_monday_is_for_this_address_if_that_is_configured() -> None:
    """Without url= any address will do."""
    genuine = monday({"aud": MONDAY_URL, "iat": int(NOW), "exp": int(NOW) + 300})
    assert verify(PROVIDERS["monday"](MONDAY_SECRET, url=MONDAY_URL), genuine, NOW)
    assert verify(PROVIDERS["monday"](MONDAY_SECRET), genuine, NOW)
    elsewhere = PROVIDERS["monday"](MONDAY_SECRET, url="https://h.example/other")
    assert refusal(elsewhere, genuine) is Reason.SIGNATURE_MISMATCH
    assert refusal(PROVIDERS["monday"](MONDAY_SECRET[::-1]), genuine) is Reason.SIGNATURE_MISMATCH


def test_a_token_of_monday_ends() -> None:
    """It has to say when, and has to be signed."""
    endpoint = PROVIDERS["monday"](MONDAY_SECRET)
    assert refusal(endpoint, monday({"exp": int(NOW) - 60})) is Reason.TOO_OLD
    assert refusal(endpoint, monday({"iat": int(NOW)})) is Reason.SIGNATURE_MALFORMED
    assert refusal(endpoint, monday({"exp": int(NOW) + 300}, "none")) is Reason.SIGNATURE_MALFORMED


def test_mondays_challenge_is_answered_once_its_token_is_genuine() -> None:
    """It is a reply, not a greeting; a body with an event is an event, whatever stands beside it."""
    provider = PROVIDERS["monday"](MONDAY_SECRET).provider
    assert provider.greet is None
    assert provider.reply is not None
    answer = provider.reply(request(b'{"challenge":"c"}'), ())
    assert answer is not None
    assert json.loads(answer.body) == {"challenge": "c"}
    assert answer.content_type == "application/json"
    for body in (b'{"challenge":"c","event":{}}', b'{"challenge":5}', b'{"challenge":""}', b'{"event":{}}'):
        assert provider.reply(request(body), ()) is None


# Nylas

NYLAS_BODY = b'{"id":"i","type":"message.created","time":1}'
INFLATED = 8 << 20


def nylas(body: bytes, encoding: bytes = b"gzip") -> Facts:
    return PROVIDERS["nylas"](SECRET).provider.facts(request(body, [(b"content-encoding", encoding)]))


def test_nylas_signs_the_bytes_that_it_sends() -> None:
    """Compressed or not: what was signed is not inflated first."""
    endpoint, body = PROVIDERS["nylas"](SECRET), gzip.compress(NYLAS_BODY, mtime=0)
    assert verify(endpoint, request(body, [(b"x-nylas-signature", hex_of(body))]), NOW)
    inflated = request(body, [(b"x-nylas-signature", hex_of(NYLAS_BODY))])
    assert refusal(endpoint, inflated) is Reason.SIGNATURE_MISMATCH


def test_a_body_of_nylas_is_read_compressed_or_not() -> None:
    """As the header says."""
    assert nylas(gzip.compress(NYLAS_BODY)).event_id == "i"
    assert nylas(gzip.compress(NYLAS_BODY), b"GZIP").event_id == "i"
    assert nylas(NYLAS_BODY, b"identity").event_id == "i"
    assert PROVIDERS["nylas"](SECRET).provider.facts(request(NYLAS_BODY)).event_id == "i"


@pytest.mark.parametrize(
    "body",
    [b"", NYLAS_BODY, gzip.compress(NYLAS_BODY)[:-9], gzip.compress(NYLAS_BODY)[:-1], gzip.compress(b"no JSON")],
)
def test_a_body_that_cannot_be_inflated_is_unreadable(body: bytes) -> None:
    """Empty, not compressed, cut short, or with something else inside."""
    assert nylas(body).problem == "not_json"


@pytest.mark.parametrize(
    ("length", "problem"), [(INFLATED, None), (INFLATED + 1, "not_json"), (9 * INFLATED, "not_json")]
)
def test_a_body_is_inflated_up_to_a_bound(length: int, problem: str | None) -> None:
    """Eight mebibytes and no byte more, however few bytes were sent."""
    assert nylas(gzip.compress(NYLAS_BODY.ljust(length), 1)).problem == problem


# Zendesk


@pytest.mark.parametrize(
    ("kind", "body", "type"),
    [
        (b"application/xml", b"<a/>", None),
        (b"", b"", None),
        (b"application/x-www-form-urlencoded", b"type=x", "x"),
        (b"application/json; charset=utf-8", b'{"type":"x"}', "x"),
    ],
)
def test_a_body_of_zendesk_may_be_of_any_kind(kind: bytes, body: bytes, type: str | None) -> None:
    """The id is in a header; the type is read where the body can be."""
    headers = [(b"x-zendesk-webhook-invocation-id", b"inv"), (b"content-type", kind)]
    facts = PROVIDERS["zendesk"](SECRET).provider.facts(request(body, headers))
    assert (facts.event_id, facts.type, facts.problem) == ("inv", type, None)


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_zendesk_signs_time_and_body(body: bytes) -> None:
    """Where there is no body, the time alone."""
    at = b"2027-01-15T08:00:00Z"
    headers = [
        (b"x-zendesk-webhook-signature", base64_of(at + body)),
        (b"x-zendesk-webhook-signature-timestamp", at),
    ]
    assert verify(PROVIDERS["zendesk"](SECRET), request(body, headers), NOW).signed_at == NOW


# batches, and ids that are made of pieces


def test_a_change_of_smartsheets_own_status_is_an_event() -> None:
    """It has no id: the digest of its body stands for one."""
    endpoint = PROVIDERS["smartsheet"](SECRET)
    document = {"nonce": "n", "timestamp": "2026-03-04T10:11:12.000+00:00", "newWebhookStatus": "DISABLED_BY_OWNER"}
    (facts,) = events(endpoint, document)
    assert (facts.type, facts.event_id) == ("DISABLED_BY_OWNER", None)
    body = json.dumps(document).encode()
    assert endpoint.provider.print_of(request(body), document) == hashlib.sha256(body).digest()


def test_an_id_of_smartsheet_is_made_of_nonce_and_change() -> None:
    """Two cells of one row are two events, and a row is told by its sheet."""
    cell = {"objectType": "cell", "eventType": "updated", "rowId": 1}
    row = {"objectType": "row", "eventType": "created", "id": 9}
    document = {"nonce": "n", "scopeObjectId": 7, "events": [{**cell, "columnId": 2}, {**cell, "columnId": 3}, row]}
    assert [facts.event_id for facts in events(PROVIDERS["smartsheet"](SECRET), document)] == [
        "n:cell:updated:1:2",
        "n:cell:updated:1:3",
        "n:row:created:9:7",
    ]


def test_an_id_of_attio_is_made_of_a_header_and_what_changed() -> None:
    """Nobody signs that header, and equal bytes are no replay: so there is no second guard."""
    endpoint = PROVIDERS["attio"](SECRET)
    record = {"workspace_id": "w", "object_id": "o", "record_id": "r", "attribute_id": "a"}
    document = {
        "events": [
            {"event_type": "record.updated", "id": record},
            {"event_type": "note.created", "id": {"workspace_id": "w", "note_id": "n"}},
        ]
    }
    found = events(endpoint, document, [(b"idempotency-key", b"k")])
    assert [facts.event_id for facts in found] == ["k:record.updated:r:a", "k:note.created:n:w"]
    assert not endpoint.provider.profile.id_signed
    assert not endpoint.provider.profile.guard


def test_a_heartbeat_of_asana_is_no_event() -> None:
    """A batch of none is answered, and holds nothing."""
    assert events(PROVIDERS["asana"](SECRET), {"events": []}) == []


def test_pipedrives_first_version_is_read_as_well() -> None:
    """It has no correlation id: the time in microseconds stands for it."""
    meta = {"action": "added", "object": "deal", "id": 5, "timestamp": int(NOW), "timestamp_micro": 1800000000123456}
    facts = PROVIDERS["pipedrive"]("user:password").provider.facts(request(json.dumps({"meta": meta}).encode()))
    assert (facts.event_id, facts.type, facts.event_time) == ("1800000000123456:deal:5:added", "deal.added", NOW)


def test_clickup_without_a_history_has_no_id() -> None:
    """The webhook alone is none: the digest of the body stands for it."""
    provider = PROVIDERS["clickup"](SECRET).provider
    delivery = request(b'{"event":"taskDeleted","task_id":"t","webhook_id":"w"}')
    facts = provider.facts(delivery)
    assert (facts.event_id, facts.object_id) == (None, "t")
    assert provider.print_of(delivery) == hashlib.sha256(delivery.body).digest()


# Box

BOX_TIME = b"2027-01-15T00:00:00-08:00"


def box(**signatures: bytes) -> Delivery:
    headers = [
        (b"box-signature-version", b"1"),
        (b"box-signature-algorithm", b"HmacSHA256"),
        (b"box-delivery-timestamp", BOX_TIME),
        *((b"box-signature-" + which.encode(), value) for which, value in signatures.items()),
    ]
    return request(b"{}", headers)


def test_one_of_the_two_signatures_of_box_has_to_fit() -> None:
    """While keys are rotated either may be the one that we know."""
    endpoint, good = PROVIDERS["box"](["old", "new"]), base64_of(b"{}" + BOX_TIME, b"new")
    assert verify(endpoint, box(primary=b"AAAA", secondary=good), NOW).signed_at == NOW
    assert verify(endpoint, box(primary=good), NOW)
    assert refusal(endpoint, box(primary=b"AAAA", secondary=b"AAAA")) is Reason.SIGNATURE_MISMATCH
    assert refusal(endpoint, box()) is Reason.SIGNATURE_MISSING


@pytest.mark.parametrize("name", [b"box-signature-version", b"box-signature-algorithm"])
def test_box_says_how_it_signs(name: bytes) -> None:
    """Without its version and its algorithm a signature is none."""
    genuine = box(primary=base64_of(b"{}" + BOX_TIME))
    kept = [header for header in genuine.headers if header[0] != name]
    for headers in (kept, [*kept, (name, b"2")]):
        changed = dataclasses.replace(genuine, headers=headers)
        assert refusal(PROVIDERS["box"](SECRET), changed) is Reason.SIGNATURE_MALFORMED


@pytest.mark.parametrize(
    ("offset", "reason"), [(-61, Reason.IN_THE_FUTURE), (-60, None), (600, None), (601, Reason.TOO_OLD)]
)
def test_a_delivery_of_box_is_good_for_ten_minutes(offset: int, reason: Reason | None) -> None:
    """And its clock may be a minute ahead."""
    endpoint, genuine = PROVIDERS["box"](SECRET), box(primary=base64_of(b"{}" + BOX_TIME))
    if reason is None:
        assert verify(endpoint, genuine, NOW + offset)
    else:
        assert refusal(endpoint, genuine, NOW + offset) is reason


@pytest.mark.parametrize("query", [b"a=\x80\x00\x00", b"a=\xff", b"a=b\n", b"a= b"])
def test_a_hash_with_the_secret_in_front_cannot_be_extended_in_the_address(query: bytes) -> None:
    """HubSpot v2: the padding of an extension would have to stand in the query, where only printable ASCII may."""
    endpoint = PROVIDERS["hubspot_v2"](HUBSPOT_SECRET, url=HUBSPOT_URL)
    signed = HUBSPOT_SECRET.encode() + b"POST" + HUBSPOT_URL.encode() + b"?" + query + b"[]"
    headers = [
        (b"x-hubspot-signature-version", b"v2"),
        (b"x-hubspot-signature", hashlib.sha256(signed).hexdigest().encode()),
    ]
    delivery = Delivery("hubspot_v2", headers, b"[]", "/h", query)
    assert refusal(endpoint, delivery) is Reason.SIGNATURE_MALFORMED
