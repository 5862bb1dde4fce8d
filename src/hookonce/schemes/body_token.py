"""Senders whose body is a JSON web token and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hookonce.errors import Reason, VerificationError
from hookonce.schemes.jwt import JwtScheme
from hookonce.schemes.request import Request

_TOKEN = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+[\r\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyTokenScheme(JwtScheme):
    """The body is the token: what stands around it nobody signed, so nothing may, but for the end of a line."""

    at: str = "body"

    def _token(self, request: Request) -> bytes:
        if request.body and _TOKEN.fullmatch(request.body) is None:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "the body is no token, or more than one")
        return JwtScheme._token(self, request)  # noqa: SLF001 - what super() would be: a class with slots has none


__all__ = ["BodyTokenScheme"]
