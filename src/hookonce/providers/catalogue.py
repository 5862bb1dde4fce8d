"""The providers we know, each as the endpoint that a user declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hookonce.errors import ConfigurationError
from hookonce.providers.base import Endpoint, Profile, Provider, Secrets, read_secrets
from hookonce.providers.locate import Locators
from hookonce.schemes.base import TOLERANCE_SECONDS
from hookonce.schemes.hmac import Algorithm, Encoding, HmacScheme, Unit, header_name
from hookonce.schemes.standard_webhooks import KeyForm, StandardWebhooksScheme, decode_key
from hookonce.schemes.stripe import StripeScheme

API_KEY_PREFIXES = (b"sk_", b"rk_", b"pk_")
ASYMMETRIC_PREFIXES = (b"whpk_", b"whsk_")


class Stripe(Endpoint):
    """Stripe: give the endpoint's signing secret (`whsec_...`), and the one of `stripe listen` beside it if you like."""

    __slots__ = ()

    def __init__(
        self,
        secret: Secrets,
        *,
        name: str = "stripe",
        tolerance: float = TOLERANCE_SECONDS,
        tested_version: str | None = None,
        hold_other_versions: bool = False,
    ) -> None:
        provider = Provider(
            name="stripe",
            scheme=StripeScheme(tolerance=tolerance),
            locators=Locators(
                event_id="body:id",
                type="body:type",
                # Thin events name their object beside the data, and their account as a context.
                object_id="body:data.object.id|body:related_object.id",
                account="body:account|body:context",
                event_time="body:created",
                api_version="body:api_version",
            ),
            profile=Profile(
                retries=True,
                horizon_days=30.0,
                timeout_seconds=10.0,
                id_signed=True,
                tested_version=tested_version,
                hold_other_versions=hold_other_versions,
            ),
        )
        super().__init__(name, provider, read_secrets(secret, name=name, check=_no_api_key))


class GitHub(Endpoint):
    """GitHub: the id is in a header that nobody signs, and a delivery that fails is not sent again by itself."""

    __slots__ = ()

    def __init__(self, secret: Secrets, *, name: str = "github") -> None:
        provider = Provider(
            name="github",
            scheme=HmacScheme(header="X-Hub-Signature-256", prefix="sha256="),
            locators=Locators(
                event_id="header:X-GitHub-Delivery",
                delivery_id="header:X-GitHub-Delivery",
                type=("header:X-GitHub-Event", "body:action"),
            ),
            profile=Profile(retries=False, horizon_days=3.0, timeout_seconds=10.0, id_signed=False),
        )
        super().__init__(name, provider, read_secrets(secret, name=name))


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
        provider = Provider(
            name="standard_webhooks",
            scheme=StandardWebhooksScheme(tolerance=tolerance, key=key),
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
        check = None if key == "raw" else _decodable
        super().__init__(name, provider, read_secrets(secret, name=name, check=check))


class Hmac(Endpoint):
    """Any sender with one HMAC in one header. Where the event's id is has to be said: it is never made up."""

    __slots__ = ()

    def __init__(
        self,
        secret: Secrets,
        *,
        header: str,
        event_id: str | None = None,
        name: str = "hmac",
        algorithm: Algorithm = "sha256",
        encoding: Encoding = "hex",
        prefix: str = "",
        signed: str = "{body}",
        timestamp_header: str | None = None,
        timestamp_unit: Unit = "s",
        tolerance: float = TOLERANCE_SECONDS,
        delivery_id: str | None = None,
        type: str | tuple[str, ...] | None = None,  # noqa: A002
        object_id: str | None = None,
        account: str | None = None,
        event_time: str | None = None,
        version: str | None = None,
        api_version: str | None = None,
        retries: bool = True,
        horizon_days: float = 30.0,
        timeout_seconds: float = 10.0,
        plain_ok: bool = False,
        content_encodings: tuple[str, ...] = (),
        tested_version: str | None = None,
        hold_other_versions: bool = False,
    ) -> None:
        if not event_id:
            raise ConfigurationError(
                f"{name}: where is the event's id? Without one, duplicates cannot be told from new events",
                code="HO101",
                do='say event_id="body:id" or event_id="header:X-Acme-Event-Id", as the sender documents it',
            )
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
        locators = Locators(
            event_id=event_id,
            delivery_id=delivery_id,
            type=type,
            object_id=object_id,
            account=account,
            event_time=event_time,
            version=version,
            api_version=api_version,
        )
        profile = Profile(
            retries=retries,
            horizon_days=horizon_days,
            timeout_seconds=timeout_seconds,
            plain_ok=plain_ok,
            id_signed=_signs(scheme, event_id),
            content_encodings=content_encodings,
            tested_version=tested_version,
            hold_other_versions=hold_other_versions,
        )
        provider = Provider(name="hmac", scheme=scheme, locators=locators, profile=profile)
        super().__init__(name, provider, read_secrets(secret, name=name))


def _signs(scheme: HmacScheme, locator: str) -> bool:
    """Whether the signature covers every place that the id may come from."""
    headers = [header_name(part.removeprefix("header:")) for part in locator.split("|") if part.startswith("header:")]
    return scheme.signed_headers.issuperset(headers)


def _no_api_key(value: bytes) -> str | None:
    prefix = value[:3]
    if prefix not in API_KEY_PREFIXES:
        return None
    return f'starts with "{prefix.decode()}": that is an API key; a signing secret starts with "whsec_"'


def _decodable(value: bytes) -> str | None:
    if value.startswith(ASYMMETRIC_PREFIXES):
        return 'is an asymmetric key ("whpk_" or "whsk_"), which is not supported: use the "whsec_" one'
    if not decode_key(value):
        return 'is not "whsec_" and base64: copy all of it, or say key="raw" if the sender signs with the text itself'
    return None


PROVIDERS: Mapping[str, Callable[..., Endpoint]] = MappingProxyType(
    {"stripe": Stripe, "github": GitHub, "standard_webhooks": StandardWebhooks, "hmac": Hmac}
)
"""Every provider by the name that configuration files use."""

__all__ = ["PROVIDERS", "GitHub", "Hmac", "StandardWebhooks", "Stripe"]
