"""Senders that we do not know: described by the user, in code or in a configuration file."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from hookonce.errors import ConfigurationError
from hookonce.providers.base import Endpoint, Profile, Provider, Secrets, read_secrets
from hookonce.providers.known import signs_id
from hookonce.providers.locate import Locators
from hookonce.schemes.base import TOLERANCE_SECONDS, Scheme
from hookonce.schemes.hmac import Algorithm, Encoding, HmacScheme, Unit
from hookonce.schemes.jwt import Bound, JwtScheme
from hookonce.schemes.standard_webhooks import KeyForm, StandardWebhooksScheme
from hookonce.schemes.token import TokenScheme


class Described(TypedDict, total=False):
    """Where such a sender says what, and how it delivers. Where its event's id is has to be said: it is never made up."""

    event_id: str | None
    fingerprint: tuple[str, ...]
    delivery_id: str | None
    type: str | tuple[str, ...] | None
    object_id: str | None
    account: str | None
    event_time: str | None
    version: str | None
    api_version: str | None
    retries: bool
    horizon_days: float
    timeout_seconds: float
    plain_ok: bool
    content_encodings: tuple[str, ...]
    tested_version: str | None
    hold_other_versions: bool


DESCRIBED: Described = {
    "event_id": None,
    "fingerprint": (),
    "delivery_id": None,
    "type": None,
    "object_id": None,
    "account": None,
    "event_time": None,
    "version": None,
    "api_version": None,
    "retries": True,
    "horizon_days": 30.0,
    "timeout_seconds": 10.0,
    "plain_ok": False,
    "content_encodings": (),
    "tested_version": None,
    "hold_other_versions": False,
}
"""What is so where nobody says otherwise."""

LOCATED = ("event_id", "delivery_id", "type", "object_id", "account", "event_time", "version", "api_version")


class Generic(Endpoint):
    """What the descriptions have in common."""

    __slots__ = ()

    def _described(self, kind: str, name: str, scheme: Scheme, secret: Secrets, given: Described) -> None:
        getattr(scheme, "require", lambda: None)()
        said: dict[str, Any] = {**DESCRIBED, **given}
        fingerprint = tuple(said.pop("fingerprint"))
        if not said["event_id"] and not fingerprint:
            raise ConfigurationError(
                f"{name}: where is the event's id? Without one, duplicates cannot be told from new events",
                code="HO101",
                do='say event_id="body:id" or event_id="header:X-Acme-Event-Id", as the sender documents it',
            )
        locators = Locators(**{field: said.pop(field) for field in LOCATED})
        profile = Profile(id_signed=signs_id(scheme, locators.event_id), **said)
        provider = Provider(name=kind, scheme=scheme, locators=locators, profile=profile, fingerprint=fingerprint)
        check = getattr(scheme, "secret_problem", None)
        super().__init__(name, provider, read_secrets(secret, name=name, check=check))


class Hmac(Generic):
    """Any sender with one HMAC in one header."""

    __slots__ = ()

    def __init__(
        self,
        secret: Secrets,
        *,
        header: str,
        name: str = "hmac",
        algorithm: Algorithm = "sha256",
        encoding: Encoding = "hex",
        prefix: str = "",
        signed: str = "{body}",
        timestamp_header: str | None = None,
        timestamp_unit: Unit = "s",
        tolerance: float = TOLERANCE_SECONDS,
        **described: Unpack[Described],
    ) -> None:
        scheme = HmacScheme(
            header=header,
            algorithm=algorithm,
            encoding=encoding,
            prefix=prefix,
            signed=signed,
            timestamp_header=timestamp_header,
            timestamp_unit=timestamp_unit,
            tolerance=tolerance,
        )
        self._described("hmac", name, scheme, secret, described)


class Token(Generic):
    """Any sender that shows a fixed token in a header. It signs nothing: whoever sees the token can send."""

    __slots__ = ()

    def __init__(
        self,
        secret: Secrets,
        *,
        header: str = "Authorization",
        prefix: str = "",
        name: str = "token",
        **described: Unpack[Described],
    ) -> None:
        self._described("token", name, TokenScheme(at=f"header:{header}", prefix=prefix), secret, described)


class Basic(Generic):
    """Any sender with user and password (HTTP Basic); the secret is "user:password"."""

    __slots__ = ()

    def __init__(self, secret: Secrets, *, name: str = "basic", **described: Unpack[Described]) -> None:
        self._described("basic", name, TokenScheme(at="header:Authorization", basic=True), secret, described)


class SecretUrl(Generic):
    """Any sender that only knows a URL: the secret is a field of its query, `?token=...`."""

    __slots__ = ()

    def __init__(
        self, secret: Secrets, *, field: str = "token", name: str = "secret_url", **described: Unpack[Described]
    ) -> None:
        self._described("secret_url", name, TokenScheme(at=f"query:{field}"), secret, described)


class Jwt(Generic):
    """Any sender with a JSON web token. The secret is the shared one, a public key, or a set of keys (JWKS).

    `body_claim` holds a sha256 of the body, in `body_encoding`; without one the body is not covered.
    """

    __slots__ = ()

    def __init__(
        self,
        secret: Secrets,
        *,
        header: str = "Authorization",
        prefix: str = "Bearer",
        algorithms: tuple[str, ...] = ("HS256",),
        issuer: str | None = None,
        audience: str | None = None,
        body_claim: str | None = None,
        body_encoding: Encoding = "hex",
        tolerance: float | None = None,
        name: str = "jwt",
        **described: Unpack[Described],
    ) -> None:
        claims = {"iss": issuer, "aud": audience}
        scheme = JwtScheme(
            at=f"header:{header}",
            prefix=prefix or None,
            algorithms=algorithms,
            claims={claim: value for claim, value in claims.items() if value is not None},
            bound=() if body_claim is None else (Bound(body_claim, body_encoding),),
            age=tolerance,
        )
        self._described("jwt", name, scheme, secret, described)


class StandardWebhooks(Endpoint):
    """Whoever follows standardwebhooks.com, or sends through Svix."""

    __slots__ = ()

    def __init__(
        self,
        secret: Secrets,
        *,
        name: str = "standard_webhooks",
        tolerance: float = TOLERANCE_SECONDS,
        key: KeyForm = "base64",
        object_id: str | None = "body:data.id",
        account: str | None = None,
        version: str | None = None,
    ) -> None:
        scheme = StandardWebhooksScheme(tolerance=tolerance, key=key)
        provider = Provider(
            name="standard_webhooks",
            scheme=scheme,
            locators=Locators(
                event_id="header:webhook-id|header:svix-id",
                type="body:type",
                object_id=object_id,
                account=account,
                event_time="body:timestamp",
                version=version,
            ),
            profile=Profile(retries=True, horizon_days=30.0, timeout_seconds=15.0, id_signed=True),
        )
        super().__init__(name, provider, read_secrets(secret, name=name, check=scheme.secret_problem))


__all__ = ["DESCRIBED", "Basic", "Described", "Hmac", "Jwt", "SecretUrl", "StandardWebhooks", "Token"]
