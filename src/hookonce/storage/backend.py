"""What a database must offer: short transactions for our own steps, and lanes for the handlers'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from hookonce.storage.operation import Operation
from hookonce.storage.statements import Dialect

T = TypeVar("T")

Colour = Literal["sync", "async"]


@dataclass(frozen=True, slots=True)
class Hands:
    """What handlers are given and how they may be written, decided by what the inbox was built with."""

    gives: frozenset[str]
    colours: frozenset[Colour]
    because: str


class Backend(Protocol):
    """One database. Belongs to one event loop; opens its connections when they are first needed."""

    dialect: Dialect
    hands: Hands
    bodies_apart: bool
    groups_max: int
    handler_seconds: float
    lanes_max: int
    where: str

    async def run(
        self, operation: Operation[T], *, within: float | None = None, urgent: bool = False, single: bool = False
    ) -> T:
        """Run an operation in a transaction of its own, on a connection of ours.

        `within`: after so many seconds the connection is taken away and Unavailable is raised. `urgent`: before
        everything that is not. `single`: its steps need no common transaction.
        """
        ...

    async def read(self, operation: Operation[T]) -> T:
        """Run an operation that only looks."""
        ...

    async def script(self, text: str) -> None:
        """Run a migration: many statements, one transaction."""
        ...

    def lane(self) -> Any:
        """A lane for handlers that block; called and used in a thread."""
        ...

    async def async_lane(self) -> Any:
        """A lane for handlers on this event loop."""
        ...

    async def facts(self) -> Mapping[str, str]:
        """What `hookonce check` tells about this database."""
        ...

    async def close(self) -> None: ...


Factory = Callable[[], Backend]
