"""The receiver as a plain WSGI callable. All threads of the server share the commits of one background loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

from hookonce.asgi.app import Desk
from hookonce.asgi.responses import Message, answer_messages
from hookonce.errors import KeysUnavailable, Reason, VerificationError
from hookonce.model import Arrival, Delivery, Stored

Environ = dict[str, Any]
StartResponse = Callable[..., Any]


class WsgiApp:
    """WSGI: POST `path`/<source>. The server bounds the time that a body may take; the size is bounded here."""

    def __init__(
        self, desk: Desk, submit: Callable[[Sequence[Arrival]], list[Stored | BaseException]], *, path: str = ""
    ) -> None:
        self._desk = desk
        self._submit = submit
        self._prefix = path.rstrip("/") + "/"

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start, end = self._answer(environ)
        status: int = start["status"]
        headers = [(name.decode(), value.decode()) for name, value in start["headers"]]
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [end["body"]]

    def _answer(self, environ: Environ) -> tuple[Message, Message]:
        desk = self._desk
        address = environ.get("REMOTE_ADDR", "")
        path = environ.get("PATH_INFO", "")
        source = path[len(self._prefix) :] if path.startswith(self._prefix) else ""
        method = environ.get("REQUEST_METHOD", "")
        retry_after = desk.receiver.admit(source, address)
        delivery = None
        try:
            if retry_after:
                raise VerificationError(Reason.RATE_LIMITED)
            body = _body(environ, desk.receiver.bounds.body_bytes_max) if method == "POST" else b""
            query = environ.get("QUERY_STRING", "").encode("latin-1")
            delivery = Delivery(source, _headers(environ), body, path, query, address, method)
            return self._open(delivery)
        except VerificationError as error:
            return desk.no(source, desk.refuse(source, address, error, delivery), retry_after)

    def _open(self, delivery: Delivery) -> tuple[Message, Message]:
        desk = self._desk
        greeted = desk.receiver.greet(delivery)
        if greeted is not None:
            return answer_messages(desk.greeted(delivery.source, greeted))
        if delivery.method != "POST":
            raise VerificationError(Reason.WRONG_METHOD)
        need = desk.receiver.needs(delivery)
        if need is not None:
            try:
                need()
            except KeysUnavailable as error:
                return desk.no(delivery.source, desk.unverifiable(delivery.source, error), desk.resend_after())
        opened = desk.receiver.open(delivery)
        if opened.answer is not None:
            return answer_messages(desk.greeted(delivery.source, opened.answer))
        outcomes = self._submit(opened.arrivals)
        return desk.answer(delivery.source, opened.arrivals, outcomes)


def _body(environ: Environ, bytes_max: int) -> bytes:
    announced = environ.get("CONTENT_LENGTH") or "0"
    if not (announced.isascii() and announced.isdigit()) or len(announced) > 18 or int(announced) > bytes_max:
        raise VerificationError(Reason.BODY_TOO_LARGE, "the announced length is not allowed")
    if environ.get("HTTP_TRANSFER_ENCODING"):
        body: bytes = environ["wsgi.input"].read(bytes_max + 1)
        if len(body) > bytes_max:
            raise VerificationError(Reason.BODY_TOO_LARGE, f"more than {bytes_max} bytes")
        return body
    body = environ["wsgi.input"].read(int(announced))
    if len(body) != int(announced):
        reason = Reason.BODY_CUT_SHORT if body else Reason.BODY_EATEN
        raise VerificationError(reason, f"Content-Length was {announced}, {len(body)} bytes came")
    return body


def _headers(environ: Environ) -> list[tuple[bytes, bytes]]:
    """Header names as ASGI has them. WSGI has joined repeated ones with a comma already."""
    headers = [
        (name[5:].lower().replace("_", "-").encode("latin-1"), value.encode("latin-1"))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    named = [(b"content-type", "CONTENT_TYPE"), (b"content-length", "CONTENT_LENGTH")]
    return headers + [(name, environ[key].encode("latin-1")) for name, key in named if environ.get(key)]
