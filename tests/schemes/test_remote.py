"""Keys that are fetched: kept a while, asked for rarely, by few at a time, and believed only over a verified connection."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hookonce.errors import KeysUnavailable
from hookonce.schemes import remote
from hookonce.schemes.remote import (
    AGAIN_SECONDS,
    ASKED_MAX,
    AT_ONCE,
    FETCH_BYTES_MAX,
    KEEP_SECONDS,
    KEPT_MAX,
    ONE_ASKS_SECONDS,
    Published,
    https_get,
)

URL = "https://keys.example/tides.pem"
BOUND = 10.0
"""Seconds after which a test that hangs fails instead."""


class Watch:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Site:
    """The other side: what it was asked for, and whether it answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if self.down:
            raise KeysUnavailable("keys.example does not answer")
        return f"key {len(self.asked)}".encode()


@pytest.fixture
def watch() -> Watch:
    """The clock of one test."""
    return Watch()


@pytest.fixture
def site() -> Site:
    """The other side of one test."""
    return Site()


@pytest.fixture
def published(site: Site, watch: Watch) -> Published:
    """Nothing has been fetched yet."""
    return Published(site, watch)


def load(published: Published, url: str = URL) -> None:
    need = published.need(url)
    assert need is not None
    need()


# keeping


def test_a_document_is_fetched_once_and_kept(published: Published, site: Site, watch: Watch) -> None:
    """Before that there is none; afterwards nothing is needed for an hour."""
    assert published.get(URL) is None
    load(published)
    assert published.get(URL) == b"key 1"
    for seconds in (0.0, 1.0, KEEP_SECONDS - 2.0):
        watch.now += seconds
        assert published.need(URL) is None
    assert published.get(URL) == b"key 1"
    assert site.asked == [URL]


def test_asking_whether_it_is_needed_fetches_nothing(published: Published, site: Site) -> None:
    """It says how to: fetching blocks, and is done elsewhere."""
    assert published.need(URL) is not None
    assert site.asked == []


def test_it_is_fetched_again_when_it_is_old(published: Published, site: Site, watch: Watch) -> None:
    """What was there serves until the new one has come."""
    load(published)
    watch.now += KEEP_SECONDS
    need = published.need(URL)
    assert need is not None
    assert published.get(URL) == b"key 1"
    need()
    assert published.get(URL) == b"key 2"
    assert published.need(URL) is None
    assert site.asked == [URL] * 2


def test_a_key_that_is_not_in_it_is_looked_for_now_and_then(published: Published, site: Site, watch: Watch) -> None:
    """Unknown key ids make us ask again, but only after a while, so that nobody can make us ask all the time."""
    load(published)
    watch.now += AGAIN_SECONDS - 1.0
    assert published.need(URL, again=True) is None
    watch.now += 1.0
    need = published.need(URL, again=True)
    assert need is not None
    need()
    assert published.get(URL) == b"key 2"
    need()
    assert published.need(URL, again=True) is None
    assert site.asked == [URL] * 2


def test_a_stale_one_serves_while_the_address_does_not_answer(published: Published, site: Site, watch: Watch) -> None:
    """It stays; the address is tried now and then, and in between nobody waits for it."""
    load(published)
    watch.now += KEEP_SECONDS
    site.down = True
    for tries in (2, 3):
        load(published)
        assert len(site.asked) == tries
        assert published.get(URL) == b"key 1"
        watch.now += AGAIN_SECONDS - 1.0
        assert published.need(URL) is None
        watch.now += 1.0
    site.down = False
    load(published)
    assert published.get(URL) == b"key 4"


def test_two_that_found_it_old_fetch_it_once(published: Published, site: Site, watch: Watch) -> None:
    """Whoever comes second, at once or later, goes on with what is there by then."""
    load(published)
    watch.now += KEEP_SECONDS
    for need in [published.need(URL) for _ in range(3)]:
        assert need is not None
        need()
        watch.now += ONE_ASKS_SECONDS
    assert site.asked == [URL] * 2


def test_addresses_do_not_share_documents(published: Published, site: Site) -> None:
    """Each has its own."""
    load(published)
    load(published, URL + "?other")
    assert (published.get(URL), published.get(URL + "?other")) == (b"key 1", b"key 2")


# asking


def test_an_unknown_address_is_asked_once_a_second(published: Published, site: Site, watch: Watch) -> None:
    """Who comes in between is told to come again without anybody being asked."""
    site.down = True
    for tries in (1, 2):
        with pytest.raises(KeysUnavailable):
            load(published)
        watch.now += ONE_ASKS_SECONDS - 0.1
        with pytest.raises(KeysUnavailable, match="a moment ago"):
            load(published)
        assert len(site.asked) == tries
        watch.now += 0.2
    site.down = False
    load(published)
    assert published.get(URL) == b"key 3"


def test_many_who_need_it_at_once_are_one_fetch(watch: Watch) -> None:
    """While one fetches, the others are told to come again; they do not wait."""
    asked: list[str] = []
    others_done = threading.Event()

    def fetch(url: str) -> bytes:
        asked.append(url)
        assert others_done.wait(BOUND)
        return b"key"

    published = Published(fetch, watch)
    with ThreadPoolExecutor(12) as pool:
        ended = as_completed([pool.submit(load, published) for _ in range(12)], BOUND)
        refused = [next(ended).exception() for _ in range(11)]
        others_done.set()
        assert next(ended).exception() is None
    assert asked == [URL]
    assert all(isinstance(one, KeysUnavailable) for one in refused)
    assert published.get(URL) == b"key"


class Slow:
    """A site that answers nobody before it is told to."""

    def __init__(self) -> None:
        self.waiting = threading.Semaphore(0)
        self.answer = threading.Event()
        self.asked: list[str] = []

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        self.waiting.release()
        assert self.answer.wait(BOUND)
        return b"key"


@contextlib.contextmanager
def all_busy(published: Published, slow: Slow) -> Iterator[None]:
    """As many fetches on their way as there may be, each of another address."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(load, published, f"{URL}?{number}") for number in range(AT_ONCE)]
        try:
            for _ in running:
                assert slow.waiting.acquire(timeout=BOUND)
            yield
        finally:
            slow.answer.set()
        for one in running:
            one.result(BOUND)


def test_few_fetch_at_the_same_time(watch: Watch) -> None:
    """Made-up addresses take as many threads as are meant for this, and no more; when they are done there is room."""
    slow = Slow()
    published = Published(slow, watch)
    with all_busy(published, slow):
        with pytest.raises(KeysUnavailable, match="wait for others"):
            load(published)
        assert len(slow.asked) == AT_ONCE
    assert published.get(URL) is None
    watch.now += ONE_ASKS_SECONDS
    load(published)
    assert published.get(URL) == b"key"


def test_a_stale_one_serves_while_all_are_busy(watch: Watch) -> None:
    """There is no room to fetch it again, and no need to send anybody away."""
    slow = Slow()
    slow.answer.set()
    published = Published(slow, watch)
    load(published)
    assert slow.waiting.acquire(timeout=BOUND)
    watch.now += KEEP_SECONDS
    slow.answer.clear()
    with all_busy(published, slow):
        load(published)
        assert published.get(URL) == b"key"
        assert slow.asked.count(URL) == 1


@pytest.mark.parametrize("failure", [KeysUnavailable("no network"), ValueError("a bug"), OSError("no network")])
def test_who_fails_makes_room(watch: Watch, failure: Exception) -> None:
    """However it fails: after many failures others can still fetch."""

    def fetch(url: str) -> bytes:
        if url != URL:
            raise failure
        return b"key"

    published = Published(fetch, watch)
    for number in range(3 * AT_ONCE):
        with pytest.raises(type(failure)):
            load(published, f"{URL}?{number}")
    load(published)
    assert published.get(URL) == b"key"


# remembering


def test_the_documents_that_are_kept_are_bounded(published: Published, site: Site) -> None:
    """The oldest go first."""
    addresses = [f"{URL}?{number}" for number in range(KEPT_MAX + 10)]
    for url in addresses:
        load(published, url)
    kept = [url for url in addresses if published.get(url) is not None]
    assert kept == addresses[-KEPT_MAX:]


def test_a_document_that_is_fetched_again_takes_no_room_of_others(
    published: Published, site: Site, watch: Watch
) -> None:
    """It takes its own place, and counts as the newest."""
    addresses = [f"{URL}?{number}" for number in range(KEPT_MAX)]
    for url in addresses:
        load(published, url)
    watch.now += KEEP_SECONDS
    load(published, addresses[5])
    assert all(published.get(url) is not None for url in addresses)
    for number in range(6):
        load(published, f"{URL}?new{number}")
    assert [url for url in addresses if published.get(url) is None] == [*addresses[:5], addresses[6]]


def test_the_addresses_that_are_remembered_are_bounded(published: Published, site: Site) -> None:
    """Whoever makes addresses up fills no memory; those of late are still not asked twice."""
    site.down = True
    addresses = [f"{URL}?{number}" for number in range(ASKED_MAX + 50)]
    for url in addresses:
        with pytest.raises(KeysUnavailable):
            load(published, url)
    assert len(published._asked) == ASKED_MAX
    assert published._kept == {}
    with pytest.raises(KeysUnavailable, match="a moment ago"):
        load(published, addresses[-ASKED_MAX])
    assert len(site.asked) == len(addresses)


# HTTPS


class Answers(BaseHTTPRequestHandler):
    """Good and bad answers by their paths."""

    timeout = BOUND
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        match self.path:
            case "/keys?all=1" | "/":
                self.answer(200, b"the keys")
            case "/most":
                self.answer(200, b"k" * FETCH_BYTES_MAX)
            case "/more":
                self.answer(200, b"k" * (FETCH_BYTES_MAX + 1))
            case "/endless":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"k" * 2 * FETCH_BYTES_MAX)
            case "/moved" | "/found" | "/kept":
                self.answer({"/moved": 301, "/found": 302, "/kept": 308}[self.path], b"elsewhere", "/keys?all=1")
            case "/noise":
                self.wfile.write(b"this is no HTTP\r\n\r\n")
            case "/hangs":
                self.server.stopping.wait(BOUND)
            case "/error":
                self.answer(500, b"the keys")
            case "/part":
                self.answer(206, b"the")
            case "/broken":
                self.send_response(200)
                self.send_header("Content-Length", "100")
                self.end_headers()
                self.wfile.write(b"the ke")
            case "/drips":
                self.send_response(200)
                self.send_header("Content-Length", "100000")
                self.end_headers()
                with contextlib.suppress(OSError):
                    while not self.server.stopping.wait(0.05):
                        self.wfile.write(b"k")
            case _:
                self.answer(404, b"the keys")

    def answer(self, status: int, body: bytes, location: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


class Server(HTTPServer):
    """On the loopback, on a port of its own, for as long as one test lasts."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.asked: list[str] = []
        self.stopping = threading.Event()
        self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is what some of these tests are about."""


def write_certificate(folder: Path, name: x509.GeneralName) -> tuple[Path, Path]:
    """A self-signed certificate for this name and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Harbour Lane")])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return certificate_file, key_file


@contextlib.contextmanager
def serving(folder: Path, name: x509.GeneralName) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_certificate(folder, name))
    with Server(context) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.stopping.set()
            server.shutdown()
            thread.join(BOUND)
            assert not thread.is_alive()


LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server under its right name, with a certificate that nobody knows."""
    with serving(tmp_path, LOOPBACK) as one:
        yield one


@pytest.fixture
def trusted(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The same server, with its certificate among those of the system."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    return server


@pytest.mark.parametrize(("path", "expected"), [
    ("/keys?all=1", b"the keys"), ("", b"the keys"), ("/most", b"k" * FETCH_BYTES_MAX),
])  # fmt: skip
def test_a_document_comes_over_https(trusted: Server, path: str, expected: bytes) -> None:
    """With its query, and up to the limit."""
    assert https_get(trusted.url + path) == expected
    assert trusted.asked == [path or "/"]


def test_a_certificate_that_nobody_knows_is_refused(server: Server) -> None:
    """Self-signed: whoever is in between could have made it; nothing is asked."""
    with pytest.raises(KeysUnavailable, match="SSLCertVerificationError"):
        https_get(server.url + "/keys?all=1")
    assert server.asked == []


def test_a_certificate_of_another_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the system knows it."""
    with serving(tmp_path, x509.DNSName("keys.example")) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        with pytest.raises(KeysUnavailable, match="SSLCertVerificationError"):
            https_get(server.url + "/keys?all=1")
        assert server.asked == []


@pytest.mark.parametrize("path", ["/moved", "/found", "/kept"])
def test_redirects_are_not_followed(trusted: Server, path: str) -> None:
    """Not even to the same host: the address was pinned."""
    with pytest.raises(KeysUnavailable, match="answered 30"):
        https_get(trusted.url + path)
    assert trusted.asked == [path]


@pytest.mark.parametrize("path", ["/more", "/endless"])
def test_a_document_over_the_limit_is_none(trusted: Server, path: str) -> None:
    """By one byte, or without an end: no more than the limit is read."""
    with pytest.raises(KeysUnavailable, match="where its keys should be"):
        https_get(trusted.url + path)


@pytest.mark.parametrize("path", ["/nowhere", "/error", "/part", "/noise"])
def test_another_answer_is_no_document(trusted: Server, path: str) -> None:
    """Errors, parts, and what is no HTTP at all."""
    with pytest.raises(KeysUnavailable):
        https_get(trusted.url + path)
    assert trusted.asked == [path]


def test_who_does_not_answer_is_not_waited_for(trusted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a moment."""
    monkeypatch.setattr(remote, "FETCH_SECONDS", 0.2)
    with pytest.raises(KeysUnavailable, match="does not answer: TimeoutError"):
        https_get(trusted.url + "/hangs")


def test_an_answer_that_breaks_off_is_none(trusted: Server) -> None:
    """Half a certificate is not kept for an hour."""
    with pytest.raises(KeysUnavailable, match=r"broke off|IncompleteRead"):
        https_get(trusted.url + "/broken")


def test_who_drips_is_cut_off(trusted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps a socket alive, but not the whole fetch."""
    monkeypatch.setattr(remote, "FETCH_SECONDS", 0.4)
    with pytest.raises(KeysUnavailable):
        https_get(trusted.url + "/drips")


def test_what_is_no_key_takes_no_keys_place(site: Site, watch: Watch) -> None:
    """An answer that cannot be read is as if there were none; one that could be read before goes on serving."""

    def readable(document: bytes) -> None:
        if document != b"key 1":
            raise ValueError("a page in HTML")

    published = Published(site, watch, readable=readable)
    load(published)
    watch.now += KEEP_SECONDS
    load(published)
    assert published.get(URL) == b"key 1"
    other = URL + "?other"
    with pytest.raises(KeysUnavailable, match="no key"):
        load(published, other)
    assert published.get(other) is None


def test_where_nobody_listens_there_are_no_keys(tmp_path: Path) -> None:
    """A server that has gone."""
    with serving(tmp_path, LOOPBACK) as server:
        url = server.url
    with pytest.raises(KeysUnavailable, match="does not answer"):
        https_get(url + "/keys?all=1")


def test_proxies_of_the_environment_are_not_used(trusted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address itself is asked; the proxy would not answer."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert https_get(trusted.url + "/keys?all=1") == b"the keys"


def test_published_documents_come_over_https(trusted: Server) -> None:
    """By default: fetched from the server once, and kept."""
    published = Published()
    url = trusted.url + "/keys?all=1"
    load(published, url)
    assert published.get(url) == b"the keys"
    assert published.need(url) is None
    assert trusted.asked == ["/keys?all=1"]
