"""Handshakes that several providers share: a challenge that comes back, and a secret that is shown once.

Nobody signs them. So what comes back is short and printable, and what is kept is kept once, where the configuration says.
"""

from __future__ import annotations

import hmac
import json
import os
from pathlib import Path
from typing import Any

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.locate import only_header
from hookonce.schemes.request import fields

ECHO_MAX = 1_000
"""Characters that are sent back, or kept, at most."""


def query_field(delivery: Delivery, name: str) -> str | None:
    """A field of the query that is there exactly once. ValueError if it is no text."""
    wanted = name.encode()
    values = [value for key, value in fields(delivery.query) if key == wanted]
    return values[0].decode() if len(values) == 1 else None


def printable(text: str | None) -> str | None:
    """A text that can be sent back to anybody: not empty, not long, one line."""
    return text if text and len(text) <= ECHO_MAX and text.isprintable() else None


def printable_header(delivery: Delivery, name: bytes) -> str | None:
    """A header that is there exactly once, of printable ASCII."""
    text = printable(only_header(delivery.headers, name))
    return text if text is not None and text.isascii() else None


def echo_query(delivery: Delivery, name: str) -> Answer | None:
    """GET with a challenge in its query: the challenge comes back as text."""
    text = printable(query_field(delivery, name)) if delivery.method == "GET" else None
    return None if text is None else Answer(body=text.encode())


def matches(expected: str | None, given: str | None) -> bool:
    """Whether this is the token that was configured, told in constant time. Nothing matches where none was."""
    if not expected or given is None:
        return False
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogatepass"))


def check_token(source: str, option: str, token: str | None) -> str | None:
    """A token as it was configured; an empty one would let everybody in."""
    if token is not None and not token.strip():
        raise ConfigurationError(f"{source}: {option} is empty", code="HO101", do="choose a long random text")
    return token


def check_file(source: str, option: str, path: str | None) -> str | None:
    """A file that may be written later; what can be known of it now is whether there is a folder for it."""
    if path is not None and not (path.strip() and Path(path).parent.is_dir()):
        raise ConfigurationError(f"{source}: {option}={path!r} is in no folder that exists", code="HO101")
    return path


def keep_once(path: str, secret: str) -> bool:
    """Write a secret to a file that only we can read. False if there is such a file already: it is left as it is.

    Where it cannot be written the handshake is refused, and the log says why: answered, it would be lost.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise _unwritten(error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secret.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        Path(path).unlink(missing_ok=True)
        raise _unwritten(error) from error
    return True


def holds(path: str, secret: str) -> bool:
    """Whether this file holds this very secret: a handshake that is repeated is no new one."""
    try:
        with Path(path).open("rb") as file:
            return hmac.compare_digest(file.read(2 * ECHO_MAX).strip(), secret.encode())
    except OSError:
        return False


def _unwritten(error: OSError) -> VerificationError:
    return VerificationError(
        Reason.SIGNATURE_MISSING, f"a handshake, and its secret cannot be written: {type(error).__name__}"
    )


def echo(text: str) -> Answer | None:
    """A challenge, as it came; what is too long for one is none."""
    return Answer(body=text.encode()) if len(text) <= ECHO_MAX else None


def json_answer(document: Any) -> Answer:
    """A small JSON document."""
    return Answer(body=json.dumps(document).encode(), content_type="application/json")


def query_of(delivery: Delivery) -> dict[bytes, bytes]:
    """The fields of the query."""
    return dict(fields(delivery.query))


def is_secret(shown: bytes, secrets: tuple[Secret, ...]) -> bool:
    """Whether this is one of the secrets. All of them are compared, so that the time tells nothing."""
    return sum(hmac.compare_digest(shown, secret.value) for secret in secrets) > 0


def header_of(delivery: Delivery, name: bytes) -> bytes | None:
    """A header that is there once."""
    values = [value for key, value in delivery.headers if key == name]
    return values[0] if len(values) == 1 else None


__all__ = [
    "ECHO_MAX",
    "check_file",
    "check_token",
    "echo",
    "echo_query",
    "header_of",
    "holds",
    "is_secret",
    "json_answer",
    "keep_once",
    "matches",
    "printable",
    "printable_header",
    "query_field",
    "query_of",
]
