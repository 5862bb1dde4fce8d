"""Sources and handlers: who may send, and what runs for which event."""

from __future__ import annotations

import difflib
import fnmatch
import inspect
import random
import typing
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hookonce.errors import ConfigurationError, Reason, VerificationError
from hookonce.event import Event
from hookonce.model import Delivery, Secret, Verified
from hookonce.providers.base import Endpoint, Provider
from hookonce.providers.locate import Locators

HandlerFunction = Callable[..., None] | Callable[..., Coroutine[Any, Any, None]]
F = TypeVar("F", bound=Callable[..., Any])

ATTEMPTS_MAX = 12
CRASHES_MAX = 3
TYPES_MAX = 1_000
"""Event types for which the handler is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """When to try again. The wait is never shorter than what the schedule says: jitter only adds."""

    first_seconds: float = 5.0
    factor: float = 2.0
    max_seconds: float = 3_600.0
    jitter: float = 0.25
    fixed: tuple[float, ...] = ()

    def delay(self, attempt: int, chance: float) -> float:
        """Seconds to wait after the `attempt`-th failure; `chance` is a number from 0 to 1."""
        if self.fixed:
            base = self.fixed[min(attempt, len(self.fixed)) - 1]
        else:
            base = min(self.first_seconds * self.factor ** min(attempt - 1, 64), self.max_seconds)
        return base * (1.0 + self.jitter * chance)

    @classmethod
    def of(cls, given: Backoff | Sequence[float] | float | None) -> Backoff:
        """A schedule from what users write: a Backoff, a list of seconds, or one number of seconds."""
        match given:
            case None:
                return cls()
            case Backoff():
                return given
            case int() | float():
                return cls(fixed=(float(given),))
            case _:
                return cls(fixed=tuple(float(seconds) for seconds in given))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One function and the rules under which it runs."""

    function: HandlerFunction
    source: str
    pattern: str
    attempts_max: int = ATTEMPTS_MAX
    backoff: Backoff = field(default_factory=Backoff)
    timeout_seconds: float | None = None
    batch: int = 1
    wants: tuple[str, ...] = ("event",)

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def where(self) -> str:
        code = getattr(self.function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else self.name

    def takes(self, event_type: str | None) -> bool:
        """Whether this handler is for that type. Patterns are globs; no regular expression meets foreign text."""
        return self.pattern == "*" or fnmatch.fnmatchcase(event_type or "", self.pattern)


class Source:
    """One endpoint that a provider sends to, and its handlers."""

    def __init__(self, endpoint: Endpoint, register: Callable[[Handler], None]) -> None:
        self.endpoint = endpoint
        self.handlers: list[Handler] = []
        self._found: dict[str | None, Handler | None] = {}
        self._register = register

    @property
    def name(self) -> str:
        return self.endpoint.name

    def on(
        self,
        *types: str,
        attempts: int = ATTEMPTS_MAX,
        backoff: Backoff | Sequence[float] | float | None = None,
        timeout: float | None = None,
        batch: int = 1,
        unknown_ok: bool = False,
    ) -> Callable[[F], F]:
        """Run the decorated function for these event types (globs: "invoice.*", "*").

        It runs inside the transaction that records the event as processed. What it writes on the connection or
        session it is given is committed with that record, or not at all. It never commits.
        """

        def decorate(function: F) -> F:
            for pattern in types or ("*",):
                if not unknown_ok:
                    self._check_type(pattern, function)
                handler = Handler(
                    function=function,
                    source=self.name,
                    pattern=pattern,
                    attempts_max=attempts,
                    backoff=Backoff.of(backoff),
                    timeout_seconds=timeout,
                    batch=batch,
                    wants=wanted(function, batch=batch),
                )
                self._check(handler)
                self._register(handler)
                self.handlers.append(handler)
                self._found.clear()
            return function

        return decorate

    def _check_type(self, pattern: str, function: Callable[..., Any]) -> None:
        """A type that the provider does not have is a typing error, or too new for us to know."""
        known = self.endpoint.provider.types
        if not known or any(fnmatch.fnmatchcase(one, pattern) for one in known):
            return
        near = difflib.get_close_matches(pattern, known, 1)
        code = function.__code__
        raise ConfigurationError(
            f"{self.name} has no event type {pattern!r} ({code.co_filename}:{code.co_firstlineno})",
            code="HO105",
            do=f"{f'did you mean {near[0]!r}?  ' if near else ''}New or beta type: on({pattern!r}, unknown_ok=True)",
        )

    def _check(self, handler: Handler) -> None:
        if handler.attempts_max < 1 or handler.batch < 1:
            raise ConfigurationError(f"{handler.where}: attempts and batch start at 1")
        for other in self.handlers:
            if other.pattern == handler.pattern:
                raise ConfigurationError(
                    f"two handlers for {self.name} {handler.pattern!r}: {other.where} and {handler.where}",
                    code="HO112",
                    do="call both from one handler, or give them different types",
                )

    def handler_for(self, event_type: str | None) -> Handler | None:
        """The handler with the most exact pattern: a plain type before a glob, a longer glob before a shorter one."""
        if event_type in self._found:
            return self._found[event_type]
        exact = [h for h in self.handlers if h.pattern == event_type]
        taking = exact or sorted((h for h in self.handlers if h.takes(event_type)), key=lambda h: -len(h.pattern))
        found = taking[0] if taking else None
        if len(self._found) < TYPES_MAX:
            self._found[event_type] = found
        return found


class _Unconfigured:
    """Stands for a scheme until the configuration brings one: refuses everything, signs nothing."""

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "this source is not configured")

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        raise ConfigurationError("this source is not configured")


# Locates nothing: it is made at import, and reading bodies would load msgspec where that is installed.
_NAMED_ONLY = Provider(name="", scheme=_Unconfigured(), locators=Locators())


def named_only(name: str) -> Endpoint:
    """A source of which the application knows the name only."""
    return Endpoint(name, _NAMED_ONLY, ())


def is_named_only(endpoint: Endpoint) -> bool:
    """Whether provider and secrets are still to come."""
    return endpoint.provider is _NAMED_ONLY


class Registry:
    """All sources by name."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def __iter__(self) -> Iterator[Source]:
        return iter(self.sources.values())

    def add(self, source: Source) -> None:
        if source.name in self.sources:
            raise ConfigurationError(
                f"there are two sources named {source.name!r}", do='give one of them another name="..."'
            )
        self.sources[source.name] = source

    def handler_for(self, source: str, event_type: str | None) -> Handler | None:
        found = self.sources.get(source)
        return None if found is None else found.handler_for(event_type)


_BY_ANNOTATION = {
    "Event": "event",
    "Connection": "conn",
    "AsyncConnection": "conn",
    "Session": "session",
    "AsyncSession": "session",
}
_BY_NAME = {"event": "event", "events": "event", "conn": "conn", "connection": "conn", "session": "session"}


def wanted(function: Callable[..., Any], *, batch: int = 1) -> tuple[str, ...]:
    """What each parameter of a handler stands for, in order: "event", "conn" or "session"."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        hints = {}  # names that exist for the type checker only: the parameter's own name decides
    found: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            if parameter.default is parameter.empty and parameter.kind is parameter.KEYWORD_ONLY:
                raise _unknown(function, name)
            continue
        meaning = _meaning(name, hints.get(name))
        if meaning is not None:
            found.append(meaning)
        elif parameter.default is parameter.empty:
            raise _unknown(function, name)
    if "event" not in found:
        raise ConfigurationError(
            f"{function.__qualname__} takes no event",
            do=f"def {function.__name__}({'events' if batch > 1 else 'event'}, ...)",
        )
    return tuple(found)


def _meaning(name: str, hint: Any) -> str | None:
    if typing.get_origin(hint) in (list, Sequence) and typing.get_args(hint) == (Event,):
        return "event"
    by_hint = _BY_ANNOTATION.get(getattr(hint, "__name__", "")) if isinstance(hint, type) else None
    return by_hint or _BY_NAME.get(name)


def _unknown(function: Callable[..., Any], name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{function.__qualname__}: nothing can be given for the parameter {name!r}",
        do="parameters are given by annotation or name: event, conn, session",
    )


def chance() -> float:
    """Jitter. Not a secret, not a key."""
    return random.random()  # noqa: S311 - spreads retries, protects nothing
