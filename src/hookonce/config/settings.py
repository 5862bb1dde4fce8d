"""The settings that were read, and the endpoints that they describe. A secret is shown as a fingerprint only."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hookonce.errors import ConfigurationError
from hookonce.model import Secret
from hookonce.providers import PROVIDERS, Endpoint
from hookonce.schemes.keys import is_private

PREFIX = "HOOKONCE_"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it came from."""

    name: str
    value: Any
    origin: str

    @property
    def given(self) -> bool:
        """Whether somebody said so: a default never overrides what the application says."""
        return self.origin != "default"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is to be found. A literal one is never shown."""

    text: str = field(repr=False)
    not_after: datetime | None
    origin: str

    @property
    def kind(self) -> str:
        prefix = self.text.partition(":")[0]
        return prefix if prefix in ("env", "file") and ":" in self.text else "literal"

    @property
    def label(self) -> str:
        """How people refer to it."""
        return f"literal in {self.origin}" if self.kind == "literal" else self.text.replace(":", " ", 1)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One [sources.NAME]. Of one that is not `sound` only the secrets are looked at: the problems are listed already."""

    name: str
    provider: str
    options: Mapping[str, Setting]
    secrets: tuple[SecretReference, ...]
    origin: str
    sound: bool


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that was said, by whom, and what is wrong with it."""

    file: Path | None
    settings: Mapping[str, Setting]
    sources: Mapping[str, SourceSettings]
    problems: Sequence[str]
    environ: Mapping[str, str] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    @property
    def folder(self) -> Path:
        """What relative paths in the file are relative to."""
        return self.file.resolve().parent if self.file else Path.cwd()

    @property
    def development(self) -> bool:
        return bool(self["environment"] == "development")

    def require(self) -> None:
        """Raise ConfigurationError with everything that is wrong with the file, the environment and the flags."""
        if self.problems:
            raise ConfigurationError(list(self.problems), do="correct all of it, then: hookonce check")

    def endpoints(self) -> tuple[list[Endpoint], list[str], list[str]]:
        """The endpoints of [sources] with their secrets read; what is wrong with them; what deserves a warning."""
        endpoints: list[Endpoint] = []
        problems: list[str] = []
        warnings: list[str] = []
        for source in self.sources.values():
            secrets = [self._secret(source, reference, problems, warnings) for reference in source.secrets]
            if not source.sound:
                continue
            whole = [secret for secret in secrets if secret is not None]
            try:
                options = {name: self._option(setting) for name, setting in source.options.items()}
                # With a stand-in for a secret that could not be read, the rest is still checked.
                given = whole or ([_stand_in(source.provider)] if source.secrets else None)
                endpoint = PROVIDERS[source.provider](given, name=source.name, **options)
            except ConfigurationError as error:
                problems += [f"{source.origin}: sources.{source.name}: {_line(problem)}" for problem in error.problems]
            except (TypeError, ValueError, AttributeError) as error:
                problems.append(f"{source.origin}: sources.{source.name} cannot be used: {error}")
            else:
                if len(whole) == len(secrets):
                    endpoints.append(endpoint)
        return endpoints, problems, warnings

    def _option(self, setting: Setting) -> Any:
        """Tokens and certificates may stand elsewhere, like secrets."""
        if isinstance(setting.value, str) and setting.value.startswith(("env:", "file:")):
            return self.read_secret(SecretReference(setting.value, None, setting.origin)).decode()
        return setting.value

    def _secret(
        self, source: SourceSettings, reference: SecretReference, problems: list[str], warnings: list[str]
    ) -> Secret | None:
        where = f"{reference.origin}: sources.{source.name}.secrets"
        try:
            secret = Secret(value=self.read_secret(reference), label=reference.label, not_after=reference.not_after)
        except ValueError as error:
            problems.append(f"{where}: {error}")
            return None
        if reference.kind == "literal" and not reference.origin.startswith(PREFIX):
            said = f"{where}: a secret stands in the file itself (fingerprint {secret.id})"
            if not self.development:
                problems.append(f'{said}: move it and write "env:NAME" or "file:/path"')
                return None
            warnings.append(f"{said}: fine for development only")
        if is_private(secret.value):
            said = f"{where}: this is a private key ({secret}): whoever has it can send in the provider's name"
            if not self.development:
                problems.append(f"{said}; configure the provider's public key")
                return None
            warnings.append(f"{said}: fine for development only")
        if secret.not_after is not None and secret.not_after <= datetime.now(UTC):
            warnings.append(f"{where}: {secret} is no longer valid since {secret.not_after.isoformat()}: remove it")
        return secret

    def read_secret(self, reference: SecretReference) -> bytes:
        """The bytes of a secret. ValueError says what is wrong, and never what it is."""
        match reference.kind:
            case "env":
                name = reference.text.removeprefix("env:")
                value = self.environ.get(name)
                if value is None:
                    raise ValueError(f"the environment variable {name} is not set")
                return value.encode("utf-8", "surrogateescape")
            case "file":
                path = self.folder / reference.text.removeprefix("file:")
                try:
                    return path.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
                except OSError as error:
                    raise ValueError(f"{path} cannot be read: {error.strerror}") from error
            case _:
                return reference.text.encode()


_STAND_IN = Secret(value=b"whsec_" + base64.b64encode(b"stands in for one that is missing"))


def _stand_in(provider: str) -> Secret:
    """A secret of the right form, so that only what is wrong is said to be wrong."""
    make = getattr(PROVIDERS[provider], "new_secret", None)
    return _STAND_IN if make is None else Secret(value=make())


def _line(problem: object) -> str:
    """A problem of a provider in one line."""
    if isinstance(problem, ConfigurationError):
        return f"{problem.seen}{f' ({problem.do})' if problem.do else ''}"
    return str(problem)
