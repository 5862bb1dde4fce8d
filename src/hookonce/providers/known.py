"""What all providers we know have in common: a declaration of class attributes, and the options a user may give.

Linear in catalogue/developer.py is a short example, Slack in catalogue/messaging.py one with a handshake.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, ClassVar, Literal, cast

from hookonce.errors import ConfigurationError
from hookonce.model import Answer, Delivery, Secret
from hookonce.providers.base import Endpoint, Profile, Provider, Secrets, Split, read_secrets
from hookonce.providers.locate import Document, Locator, Locators
from hookonce.schemes.base import Scheme

Confidence = Literal["settled", "likely", "unsure"]
"""Settled: tried against the provider's own code. Likely: from its documentation. Unsure: confirm before relying on it."""

GATEWAYS: Mapping[str, str] = {
    "hookdeck": "header:X-Hookdeck-EventID",
    "svix": "header:svix-id|header:webhook-id",
    "gethook": "header:X-GetHook-Event-ID",
}
"""Where a gateway in front of us says which event of its own this is."""


def types_of(name: str) -> frozenset[str]:
    """The event types that a provider names itself, from data with its source and date."""
    text = (files("hookonce.providers") / "data" / f"{name}_types.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


REGISTERED: dict[str, type[Known]] = {}
"""Every provider by the name that code, configuration files and commands use."""


class Known(Endpoint):
    """A provider that we know. Give its signing secret; everything else is known.

    `url` is the public address it posts to, for senders that sign it. `event_id` says where else the event's id is;
    `fingerprint` what stands for one where there is none. `gateway` is what stands between it and us: with
    `identity="gateway"` its ids decide what is the same event, otherwise the sender's own do.
    """

    __slots__ = ()

    id: ClassVar[str] = ""
    title: ClassVar[str] = ""
    confidence: ClassVar[Confidence] = "settled"
    scheme: ClassVar[Scheme]
    locators: ClassVar[Locators] = Locators()
    profile: ClassVar[Profile] = Profile()
    fingerprint: ClassVar[tuple[str, ...]] = ()
    document: ClassVar[Document | None] = None
    split: ClassVar[Split | None] = None
    acknowledge: ClassVar[Answer | None] = None
    types: ClassVar[frozenset[str]] = frozenset()
    url_needed: ClassVar[bool] = False
    secret_is: ClassVar[str] = "the signing secret"
    secret_optional: ClassVar[bool] = False
    retries_say: ClassVar[str] = ""
    handshake_says: ClassVar[str] = "none"
    note: ClassVar[str] = ""
    sample_type: ClassVar[str] = "test.created"
    sample: ClassVar[Any] = None
    sample_as: ClassVar[Literal["json", "form"]] = "json"
    sample_query: ClassVar[str] = ""
    sample_id: ClassVar[str | None] = "evt_0123456789"
    sample_options: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(
        cls,
        *,
        id: str | None = None,
        title: str = "",
        confidence: Confidence = "settled",
        **rest: Any,
    ) -> None:
        super().__init_subclass__(**rest)
        if id is not None:
            cls.id, cls.title, cls.confidence = id, title, confidence
            REGISTERED[id] = cls

    def __init__(
        self,
        secret: Secrets = None,
        *,
        name: str | None = None,
        tolerance: float | None = None,
        url: str | None = None,
        event_id: str | None = None,
        fingerprint: tuple[str, ...] = (),
        gateway: str | None = None,
        identity: str = "original",
        tested_version: str | None = None,
        hold_other_versions: bool = False,
    ) -> None:
        name = self.id if name is None else name
        scheme = self._scheme(name, tolerance=tolerance, url=url)
        getattr(scheme, "require", lambda: None)()
        locators = self._locators(name, event_id=event_id, gateway=gateway, identity=identity)
        profile = dataclasses.replace(
            self.profile,
            id_signed=signs_id(scheme, locators.event_id),
            tested_version=tested_version,
            hold_other_versions=hold_other_versions,
        )
        provider = Provider(
            name=self.id,
            scheme=scheme,
            locators=locators,
            profile=profile,
            document=type(self).document,
            split=type(self).split,
            greet=self.greet if type(self).greet is not Known.greet else None,
            reply=self.reply if type(self).reply is not Known.reply else None,
            acknowledge=self.acknowledge,
            fingerprint=tuple(fingerprint) or (() if event_id else self.fingerprint),
            types=self.types,
        )
        check = self._secret_check(scheme)
        missing = self.secret_optional and secret in (None, (), [])
        if not missing and getattr(scheme, "keys_at", None) is not None:
            # Who brings the keys means those: nothing is fetched beside them.
            provider = dataclasses.replace(provider, scheme=dataclasses.replace(cast("Any", scheme), keys_at=None))
        super().__init__(name, provider, () if missing else read_secrets(secret, name=name, check=check))

    def greet(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        """Answer a handshake that nobody signs; None for any other request."""
        return None

    def reply(self, delivery: Delivery, secrets: tuple[Secret, ...]) -> Answer | None:
        """Answer a handshake that was verified; None for an event."""
        return None

    @classmethod
    def new_secret(cls) -> bytes:
        """A secret of the form that this provider gives, for development and tests."""
        found = getattr(cls.scheme, "new_secret", None)
        return b"development-only" if found is None else bytes(found())

    @staticmethod
    def secret_problem(value: bytes) -> str | None:
        """What is wrong with a secret, beyond what its scheme can see."""
        del value
        return None

    def _secret_check(self, scheme: Scheme) -> Any:
        found = getattr(scheme, "secret_problem", lambda _: None)
        return lambda value: self.secret_problem(value) or found(value)

    def _scheme(self, name: str, **given: Any) -> Scheme:
        """The scheme with what the user said of it."""
        scheme: Any = self.scheme
        if self.url_needed and given["url"] is None:
            raise ConfigurationError(
                f"{name}: {self.title} signs the address that it posts to, and behind a proxy that is not the one we see",
                code="HO101",
                do=f'say url="https://example.com/webhooks/{name}", exactly as it is configured at {self.title}',
            )
        options = {field.name for field in dataclasses.fields(scheme) if field.init}
        said = {option: value for option, value in given.items() if value is not None}
        for option in said.keys() - options:
            raise ConfigurationError(
                f"{name}: {self.title} has no use for {option}", code="HO101", do=f"leave out {option}"
            )
        changed: Scheme = dataclasses.replace(scheme, **said) if said else scheme
        return changed

    def _locators(self, name: str, *, event_id: str | None, gateway: str | None, identity: str) -> Locators:
        changes: dict[str, Any] = {} if event_id is None else {"event_id": event_id}
        if identity not in ("original", "gateway"):
            raise ConfigurationError(f'{name}: identity is "original" or "gateway", not {identity!r}', code="HO101")
        if gateway is not None:
            if gateway not in GATEWAYS:
                known = ", ".join(GATEWAYS)
                raise ConfigurationError(f"{name}: gateway is one of {known}, not {gateway!r}", code="HO101")
            changes["event_id" if identity == "gateway" else "delivery_id"] = GATEWAYS[gateway]
        elif identity == "gateway":
            raise ConfigurationError(f'{name}: identity="gateway", but there is no gateway', code="HO101")
        return dataclasses.replace(self.locators, **changes) if changes else self.locators


def signs_id(scheme: Any, locator: Locator | None) -> bool:
    """Whether the signature covers every place that the id may come from."""
    if locator is None or not hasattr(scheme, "body_bound"):
        return False
    pieces = locator if isinstance(locator, tuple) else (locator,)
    firm = bool(getattr(scheme, "body_firm", scheme.body_bound))
    if not all(isinstance(piece, str) for piece in pieces) and not firm:
        return False
    places = [place for piece in pieces if isinstance(piece, str) for place in piece.split("|")]
    return all(_signed(scheme, place, firm) for place in places)


def _signed(scheme: Any, place: str, firm: bool) -> bool:
    kind, _, name = place.partition(":")
    return bool(scheme.covers_header(name)) if kind == "header" else kind != "query" and firm


__all__ = ["GATEWAYS", "REGISTERED", "Confidence", "Known", "signs_id", "types_of"]
