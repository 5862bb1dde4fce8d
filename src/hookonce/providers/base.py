"""What a provider is, and the endpoint that a user declares: a name, a provider, and the secrets to verify with."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hookonce.errors import ConfigurationError
from hookonce.model import Answer, Delivery, Facts, Secret
from hookonce.providers.locate import Document, Locators, Reader
from hookonce.schemes.base import SECRETS_MAX, Scheme

SecretInput = str | bytes | Secret
Secrets = SecretInput | Sequence[SecretInput] | None
"""What users may give: None is what an unset environment variable looks like, and it is refused by name."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a provider delivers: what an answer must look like, and how long it may send the same event again.

    `horizon_days` is the latest moment at which the same event may come again, by itself or by hand. `guard` is the second
    guard for ids that nobody signs: the same signed body under another id is a replay (F73). `bare`: refusals are empty.

    `tested_version` is the API version that the handlers were tested with. Events of another one are counted and
    logged; with `hold_other_versions` they wait for a person instead of running.
    """

    retries: bool = True
    horizon_days: float = 30.0
    timeout_seconds: float = 10.0
    plain_ok: bool = False
    bare: bool = False
    id_signed: bool = False
    guard: bool = True
    content_encodings: tuple[str, ...] = ()
    tested_version: str | None = None
    hold_other_versions: bool = False

    def __post_init__(self) -> None:
        if self.hold_other_versions and self.tested_version is None:
            raise ConfigurationError(
                "hold_other_versions is set, and tested_version is not: every version would be another one",
                code="HO101",
                do='say tested_version="2025-09-30.clover", as your handlers were tested, then: hookonce check',
            )

    def tested(self, api_version: str | None) -> bool:
        """Whether handlers know this API version. Where nobody said which one they know, they know all."""
        return self.tested_version in (None, api_version)

    def holds(self, api_version: str | None) -> bool:
        return self.hold_other_versions and not self.tested(api_version)


Greet = Callable[[Delivery, tuple[Secret, ...]], "Answer | None"]
"""A handshake that nobody signs: answers a request that is one, and is None for any other."""

Reply = Callable[[Delivery, tuple[Secret, ...]], "Answer | None"]
"""A handshake inside a request that has been verified: its answer, or None for an event."""


class Split(Protocol):
    """Takes a batch apart: its events, each as its very bytes, and the document around them. ValueError when it cannot."""

    def __call__(self, delivery: Delivery, /) -> tuple[list[bytes], Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One kind of sender: how it signs, where it says what, and how it behaves.

    `fingerprint` names what tells one event from another where there is no id: places in the request, or
    "body" for all of it, or "arrival". An id that is there counts before it. It shows as such (`fp:...`).
    """

    name: str
    scheme: Scheme
    locators: Locators
    profile: Profile = Profile()
    document: Document | None = None
    split: Split | None = None
    greet: Greet | None = None
    reply: Reply | None = None
    acknowledge: Answer | None = None
    fingerprint: tuple[str, ...] = ()
    types: frozenset[str] = frozenset()
    _reader: Reader = field(init=False, repr=False, compare=False)
    _prints: Reader | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "_reader", Reader(self.locators, document=self.document))
        named = tuple(place for place in self.fingerprint if place not in (WHOLE_BODY, EACH_ARRIVAL))
        # Read as the pieces of one id: all of them together, or nothing.
        keep(self, "_prints", Reader(Locators(event_id=named), document=self.document) if named else None)

    def facts(self, delivery: Delivery, outer: Any = None) -> Facts:
        """What a verified request says about its event. Never raises."""
        return self._reader.facts(delivery, outer)

    def print_of(self, delivery: Delivery, outer: Any = None) -> bytes | None:
        """What stands for the id of an event that has none, or None where that is not there either."""
        if self.fingerprint == (EACH_ARRIVAL,):
            return os.urandom(16)
        if self._prints is not None:
            found = self._prints.facts(delivery, outer).event_id
            return None if found is None else found.encode("utf-8", "surrogatepass")
        return hashlib.sha256(delivery.body).digest() if self.fingerprint else None

    @property
    def signs_all(self) -> bool:
        """Whether one signature is one event: it covers the body, and the body is no batch."""
        return self.split is None and bool(getattr(self.scheme, "body_bound", False))

    @property
    def plain(self) -> bool:
        """Whether a request is one event and its answer a status: then it may take the short way through the server."""
        special = (self.split, self.greet, self.reply, self.acknowledge, getattr(self.scheme, "prepare", None))
        return not self.profile.bare and all(one is None for one in special)


WHOLE_BODY = "body"
EACH_ARRIVAL = "arrival"
"""For senders whose requests for different events are equal: each arrival counts as an event, and none as a duplicate."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One source of events as the user declares it. The name is part of its URL and of every event's identity."""

    name: str
    provider: Provider
    secrets: tuple[Secret, ...]

    def __post_init__(self) -> None:
        if not _nameable(self.name):
            raise ConfigurationError(
                f"{self.name!r} cannot be a source's name",
                code="HO101",
                do="use up to 63 lower-case letters, digits, - and _, beginning with a letter or a digit",
            )


def _nameable(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


SecretCheck = Callable[[bytes], "str | None"]


def read_secrets(given: Secrets, *, name: str, check: SecretCheck | None = None) -> tuple[Secret, ...]:
    """Turn what the user gave into secrets, or say everything that is wrong with them without showing them."""
    listed = _listed(given)
    problems = []
    secrets = []
    for number, item in enumerate(listed, start=1):
        which = f"{name}: secret {number}" if len(listed) > 1 else f"{name}: the secret"
        secret, problem = _read_secret(item)
        problem = problem or _problem(item, secret, check)
        if problem:
            problems.append(f"{which} {problem}")
        secrets.append(secret)
    if not listed:
        problems.append(f"{name}: there is no secret: nothing could be verified")
    if len(listed) > SECRETS_MAX:
        problems.append(f"{name}: {len(listed)} secrets, but at most {SECRETS_MAX} are tried: remove the expired ones")
    if problems:
        raise ConfigurationError(problems[0] if len(problems) == 1 else problems, code="HO101")
    return tuple(secrets)


def _listed(given: object) -> list[object]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        given = [given]
    return [_trimmed(item) for item in given]


def _trimmed(item: object) -> object:
    """A key in PEM or JSON, out of a file that ends with a line break: around those white space means nothing."""
    match item:
        case Secret(value=bytes(value)) if value.lstrip()[:1] in (b"-", b"{"):
            return replace(item, value=value.strip())
        case bytes() if item.lstrip()[:1] in (b"-", b"{"):
            return item.strip()
        case str() if item.lstrip()[:1] in ("-", "{"):
            return item.strip()
        case _:
            return item


def _read_secret(item: object) -> tuple[Secret, str | None]:
    match item:
        case Secret(value=bytes()):
            return item, None
        case bytes():
            return Secret(value=item), None
        case str():
            try:
                # A byte that is no UTF-8 reaches os.environ as a surrogate, and this turns it back into that byte.
                return Secret(value=item.encode("utf-8", "surrogateescape")), None
            except UnicodeEncodeError:
                return Secret(value=b""), "holds characters that cannot be encoded"
        case None:
            return Secret(value=b""), "is missing: is its environment variable set?"
        case _:
            return Secret(value=b""), f"is of type {type(item).__name__}: give text, bytes or a Secret"


def _problem(item: object, secret: Secret, check: SecretCheck | None) -> str | None:
    value = secret.value
    if not value.strip():
        return "is empty"
    if value != value.strip() or (isinstance(item, str) and item != item.strip()):
        return "has a space or a line break around it: remove it (a file often ends with one)"
    if secret.not_after is not None and secret.not_after.tzinfo is None:
        return "has a not_after without a time zone"
    return check(value) if check is not None else None


__all__ = [
    "EACH_ARRIVAL",
    "WHOLE_BODY",
    "Endpoint",
    "Greet",
    "Profile",
    "Provider",
    "Reply",
    "SecretInput",
    "Secrets",
    "Split",
    "read_secrets",
]
