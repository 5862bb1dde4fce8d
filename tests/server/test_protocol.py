"""One connection: deadlines, bounds, and requests that can be read in two ways."""

import asyncio
import contextlib
import resource
import socket
import time

import httptools
import pytest

from hookonce.errors import ConfigurationError
from hookonce.server import protocol
from hookonce.server.direct import Direct, ProxyHeaders
from tests.server.running import (
    BOUND_SECONDS,
    Served,
    body_of,
    read_answer,
    read_to_end,
    signature,
    signed,
    status_of,
)

BODY = body_of("evt_smuggled")
SIZE = b"%d" % len(BODY)
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


def signed_head() -> bytes:
    """The beginning of a request whose body is BODY."""
    return b"POST /webhooks/stripe HTTP/1.1\r\nHost: test\r\n" + signature(BODY)


def ambiguous() -> dict[str, bytes]:
    """Requests that two servers may read in two ways, validly signed: a signature lasts as long as a clock allows."""
    head = signed_head()
    return {
        "both lengths": head + b"Content-Length: " + SIZE + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED,
        "both lengths, other order": head + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + CHUNKED,
        "two lengths": head + b"Content-Length: " + SIZE + b"\r\nContent-Length: 6\r\n\r\n" + BODY,
        "the same length twice": head + (b"Content-Length: " + SIZE + b"\r\n") * 2 + b"\r\n" + BODY,
        "a list of lengths": head + b"Content-Length: " + SIZE + b", 7\r\n\r\n" + BODY,
        "a signed length": head + b"Content-Length: +" + SIZE + b"\r\n\r\n" + BODY,
        "a negative length": head + b"Content-Length: -1\r\n\r\n" + BODY,
        "a space before the colon": head + b"Content-Length : " + SIZE + b"\r\n\r\n" + BODY,
        "an empty length": head + b"Content-Length:\r\n\r\n" + BODY,
        "a folded header": head + b"X-A: b\r\n c\r\nContent-Length: " + SIZE + b"\r\n\r\n" + BODY,
        "a folded length": head + b"Content-Length: " + SIZE + b"\r\n 7\r\n\r\n" + BODY,
        "a folded coding": head + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKED,
        "an unknown coding": head + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED,
        "a coding after chunked": head + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKED,
        "a coding before chunked": head + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED,
        "chunked twice": head + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n" + CHUNKED,
        "a control character in the coding": head + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKED,
        "a quoted coding": head + b'Transfer-Encoding: "chunked"\r\n\r\n' + CHUNKED,
        "chunks in HTTP/1.0": head.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED,
        "bare line feeds": (head + b"Content-Length: " + SIZE + b"\r\n\r\n").replace(b"\r\n", b"\n") + BODY,
        "bare carriage returns": (head + b"Content-Length: " + SIZE + b"\r\n\r\n").replace(b"\r\n", b"\r") + BODY,
        "a chunk size that is none": head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a chunk size in C": head + b"Transfer-Encoding: chunked\r\n\r\n0x" + CHUNKED,
        "a chunk size below zero": head + b"Transfer-Encoding: chunked\r\n\r\n-1\r\na\r\n0\r\n\r\n",
        "a chunk size without end": head + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n",
        "chunks with bare line feeds": head + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED.replace(b"\r\n", b"\n"),
        "a chunk longer than it says": head + b"Transfer-Encoding: chunked\r\n\r\n1\r\n" + BODY + b"\r\n0\r\n\r\n",
        "a zero byte in a header": head + b"X-A: a\0b\r\nContent-Length: " + SIZE + b"\r\n\r\n" + BODY,
        "two hosts": head + b"Host: other\r\nContent-Length: " + SIZE + b"\r\n\r\n" + BODY,
        "HTTP/2.0 in text": head.replace(b"1.1", b"2.0") + b"Content-Length: " + SIZE + b"\r\n\r\n" + BODY,
        "HTTP/1.2": head.replace(b"1.1", b"1.2") + b"Content-Length: " + SIZE + b"\r\n\r\n" + BODY,
        "a path outside ASCII": head.replace(b"/stripe", b"/\xff") + b"Content-Length: " + SIZE + b"\r\n\r\n" + BODY,
        "an offer, and both lengths": head
        + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        + CHUNKED,
        "CONNECT": b"CONNECT other:443 HTTP/1.1\r\nHost: other\r\n\r\n",
        "no request at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    }


def test_smuggling_corpus(database):
    """What can be read in two ways is answered 400 and stored by nobody; afterwards the server is as before."""
    with Served(database) as served:
        seen = {name: status_of(served.exchange(request)) for name, request in ambiguous().items()}
        assert {name: status for name, status in seen.items() if status != 400} == {}
        assert served.post("evt_smuggled") == 202
        assert "Traceback" not in served.output()


def test_unambiguous_requests_pass(database):
    """The same body is accepted with a length, in chunks, in chunks with an extension, and after a 100 Continue."""
    head = signed_head()
    plain = head + b"Content-Length: " + SIZE + b"\r\n"
    with Served(database) as served:
        assert status_of(served.exchange(plain + b"\r\n" + BODY)) == 202
        assert status_of(served.exchange(head + b"Transfer-Encoding: Chunked\r\n\r\n" + CHUNKED)) == 200
        extended = CHUNKED.replace(b"\r\n", b";a=b\r\n", 1)
        assert status_of(served.exchange(head + b"Transfer-Encoding: chunked\r\n\r\n" + extended)) == 200
        with served.connect() as sock:
            sock.sendall(plain + b"Expect: 100-continue\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 100")
            sock.sendall(BODY)
            assert status_of(read_answer(sock)) == 200


def test_trailers_are_no_headers(database):
    """A signature after the body is not a signature."""
    unsigned = b"POST /webhooks/stripe HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Served(database) as served:
        trailed = CHUNKED[:-2] + signature(BODY) + b"\r\n"
        assert status_of(served.exchange(unsigned + trailed)) == 401


def test_request_before_garbage_is_answered_first(database):
    """Garbage behind a complete request ends the connection, but the request is answered as itself."""
    with Served(database) as served, served.connect() as sock:
        sock.sendall(signed("evt_first") + b"\0\0 garbage\r\n\r\n")
        answer = read_to_end(sock)
        assert status_of(answer) == 202
        assert answer.count(b"HTTP/1.1 ") == 1


def test_pipelined_requests_are_answered_in_order(database):
    """Requests sent at once are answered one after the other, on the same connection."""
    with Served(database) as served, served.connect() as sock:
        sock.sendall(signed("evt_1") + signed("evt_2") + signed("evt_1", headers=b"Connection: close\r\n"))
        answers = read_to_end(sock)
        assert [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]] == [202, 202, 200]


def test_offer_of_another_protocol_is_declined(database):
    """What Java's client sends with every request is read as if it had not been offered, body included."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    with Served(database) as served, served.connect() as sock:
        sock.sendall(signed("evt_1", headers=offer) + signed("evt_2", headers=offer)[:-5])
        assert status_of(read_answer(sock)) == 202
        sock.sendall(signed("evt_2")[-5:] + signed("evt_3", headers=b"Connection: close\r\n"))
        assert [int(part[:3]) for part in read_to_end(sock).split(b"HTTP/1.1 ")[1:]] == [202, 202]
        with served.connect() as other:
            other.sendall(signed("evt_4", headers=offer.replace(b"Upgrade,", b"close, Upgrade,", 1)))
            assert status_of(read_to_end(other)) == 202


@pytest.mark.parametrize("sent", [b"", b"POST /webhooks/stripe HTTP/1.1\r\nHost: te", b"\r\n\r\n"])
def test_slow_head_is_cut_off(database, sent):
    """A connection whose first head is not complete in time is closed, and told so if it had begun."""
    with Served(database, head_seconds=1.0) as served, served.connect() as sock:
        began = time.monotonic()
        sock.sendall(sent)
        assert status_of(read_to_end(sock)) == (408 if sent.startswith(b"POST") else 0)
        assert 0.9 < time.monotonic() - began < 5.0


def test_dripping_head_is_cut_off_on_a_used_connection(database):
    """One byte after the other does not prolong the deadline, also for the second request of a connection."""
    with Served(database, head_seconds=1.0) as served, served.connect() as sock:
        sock.sendall(signed("evt_1"))
        assert status_of(read_answer(sock)) == 202
        sock.settimeout(0.05)
        began = time.monotonic()
        answer = b""
        for byte in signed("evt_2") * 10:
            with contextlib.suppress(OSError):
                sock.sendall(bytes([byte]))
            try:
                answer = sock.recv(1000)
                break
            except TimeoutError:
                continue
        assert answer == b"" or status_of(answer) == 408
        assert 0.9 < time.monotonic() - began < 6.0


def test_endless_head_is_cut_off(database):
    """A head may not grow without bound."""
    with Served(database) as served, served.connect() as sock:
        sock.sendall(b"POST /webhooks/stripe HTTP/1.1\r\nHost: test\r\n")
        with contextlib.suppress(OSError):
            for number in range(4000):
                sock.sendall(b"X-%d: %b\r\n" % (number, b"a" * 100))
        sock.settimeout(BOUND_SECONDS)
        assert status_of(read_to_end(sock)) in (431, 0)
        assert served.post("evt_after") == 202


def test_slow_body_is_answered_408(database):
    """The body has a deadline of its own, and the connection ends with the answer."""
    with Served(database, bounds={"body_seconds": 0.5}) as served, served.connect() as sock:
        sock.sendall(signed("evt_slow")[:-10])
        assert status_of(read_to_end(sock)) == 408


def test_connections_above_the_limit_are_told_503(database):
    """Above the limit a request is answered 503 with Retry-After; when others leave there is room again."""
    with Served(database, connections_max=20) as served, contextlib.ExitStack() as stack:
        held = [stack.enter_context(served.connect()) for _ in range(20)]
        for sock in held:
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: test\r\n\r\n")
            assert status_of(read_answer(sock)) == 200
        refused = served.exchange(signed("evt_1"))
        assert status_of(refused) == 503
        assert b"retry-after: 5" in refused
        held[0].sendall(signed("evt_2"))
        assert status_of(read_answer(held[0])) == 202
        held[1].close()
        deadline = time.monotonic() + BOUND_SECONDS
        while served.post("evt_3") == 503:
            assert time.monotonic() < deadline


def test_connections_of_one_address(database):
    """The limit for each address counts that address only."""
    with Served(database, address_connections_max=2) as served, contextlib.ExitStack() as stack:
        for _ in range(2):
            sock = stack.enter_context(served.connect())
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: test\r\n\r\n")
            assert status_of(read_answer(sock)) == 200
        assert served.post("evt_1") == 503
        with socket.create_connection(("127.0.0.1", served.port), source_address=("127.0.0.2", 0)) as other:
            other.sendall(signed("evt_2"))
            assert status_of(read_answer(other)) == 202


def test_two_thousand_slow_sockets_do_not_slow_others(database):
    """With 2,000 half-sent heads open, every good request is accepted, and about as fast as before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 5000, f"this test opens 2,000 sockets; the hard limit on files is {hard}: ulimit -Hn 20000"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with Served(database, worker=False, head_seconds=60.0) as served, contextlib.ExitStack() as stack:
            measure(served, "warm", 200)
            alone = measure(served, "alone", 1500)
            for _ in range(2000):
                stack.enter_context(served.connect()).sendall(b"POST /webhooks/stripe HTTP/1.1\r\nHost: te")
            beside = measure(served, "beside", 1500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(f"p99 alone {alone * 1e3:.1f} ms, beside 2,000 slow sockets {beside * 1e3:.1f} ms")
    assert beside < max(5 * alone, 0.1)


def measure(served, name, count):
    """The 99th percentile of the seconds that an accepted request takes, on 16 connections kept alive."""
    seconds = []

    async def client(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        for index in range(count // 16):
            began = time.perf_counter()
            writer.write(signed(f"evt_{name}_{number}_{index}"))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 202"), head
            await reader.readexactly(len(b'{"received":true}'))
            seconds.append(time.perf_counter() - began)
        writer.close()

    async def clients():
        await asyncio.gather(*(client(number) for number in range(16)))

    asyncio.run(clients())
    return sorted(seconds)[int(len(seconds) * 0.99)]


def test_lenient_parser_is_refused_at_start(monkeypatch):
    """An httptools that takes what is ambiguous is a configuration error, not a hole."""
    protocol.refuse_lenient_parser()

    class Lenient:
        def __init__(self, _):
            pass

        def feed_data(self, data):
            pass

    monkeypatch.setattr(httptools, "HttpRequestParser", Lenient)
    with pytest.raises(ConfigurationError):
        protocol.refuse_lenient_parser()


def test_a_made_up_address_is_not_believed():
    """A client sends a line of its own, its proxy adds another below it: the address is the one that the proxy saw."""
    direct = Direct(None, None, {}, ProxyHeaders(["127.0.0.1"]))
    forwarded = b"x-forwarded-for"
    assert direct.address_of("127.0.0.1", [(forwarded, b"6.6.6.6"), (forwarded, b"10.1.2.3")]) == "10.1.2.3"
    assert direct.address_of("127.0.0.1", [(forwarded, b"6.6.6.6, 10.1.2.3")]) == "10.1.2.3"
    assert direct.address_of("10.9.9.9", [(forwarded, b"6.6.6.6")]) == "10.9.9.9"
    assert direct.address_of("127.0.0.1", []) == "127.0.0.1"
    assert len(direct.address_of("127.0.0.1", [(forwarded, b"x" * 60_000)])) < 100
