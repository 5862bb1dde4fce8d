"""Why a request was refused: found out by trial, outside the request, and kept for a while for whoever asks.

Nothing here lets anything in. A trial asks only "would it have verified, if ...?".
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hookonce.errors import NotFound, Reason, VerificationError
from hookonce.model import Delivery, Secret
from hookonce.providers.base import Endpoint
from hookonce.storage.operation import Operation, Statement

KEPT_ROWS = 1_000
"""Refused requests that are kept; the oldest go first."""

KEPT_BYTES = 64 * 1024
LISTED = 20
RIGHT_BUT = frozenset({Reason.TOO_OLD, Reason.IN_THE_FUTURE})
"""Reasons that are given only once the signature was found right."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a refused request was refused for, as far as can be told."""

    code: str
    seen: str
    tried: str = ""
    looked_at: str = ""
    likely: str = ""
    do: str = ""

    def __str__(self) -> str:
        lines = [f"{self.code} {self.seen}"]
        for name in ("tried", "looked_at", "likely", "do"):
            text = getattr(self, name)
            if text:
                lines.append(f"  {name.replace('_', ' '):10} {text}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refused request, as it was kept."""

    request_id: str
    at: float
    source: str
    reason: str
    cause: str
    address: str
    method: str
    path: str
    query: bytes
    headers: bytes
    raw: bytes

    def delivery(self) -> Delivery:
        """The request again, to try another secret on it."""
        lines = [line.split(b": ", 1) for line in self.headers.split(b"\r\n") if b": " in line]
        pairs = [(name, value) for name, value in lines]
        return Delivery(self.source, pairs, self.raw, self.path, self.query, self.address, self.method)


# -- by trial ---------------------------------------------------------------------------------------------------------


def find_cause(
    endpoint: Endpoint, others: Sequence[Endpoint], delivery: Delivery, error: VerificationError, now: float
) -> Cause:
    """The likeliest cause of a refusal. `others` are the sources beside this one."""
    name = endpoint.name
    size = f"{len(delivery.body):,} bytes"
    match error.reason:
        case Reason.TOO_OLD | Reason.IN_THE_FUTURE:
            return _clock(endpoint, delivery, error, now)
        case Reason.SIGNATURE_MISSING | Reason.TIMESTAMP_MISSING:
            return _missing(endpoint, delivery, error)
        case Reason.SIGNATURE_MISMATCH | Reason.SIGNATURE_MALFORMED | Reason.TIMESTAMP_MALFORMED:
            tried = ", ".join(str(secret) for secret in endpoint.secrets) or "published keys"
            for found in _trials(endpoint, others, delivery, now):
                return dataclasses.replace(found, tried=found.tried or tried)
            return Cause(
                "HO101",
                f"{name}: {error.seen} ({size})",
                tried,
                "re-encoded body, line ends, whitespace in the secret, expired secrets, other sources, the public URL: "
                "none matches",
                "this endpoint has another signing secret, or somebody else sent this",
                "copy the signing secret of THIS endpoint from the provider; then: hookonce explain ID --secret-stdin",
            )
        case Reason.ID_MISSING:
            return Cause(
                "HO117",
                f"{name}: authentic, but the event's id is not where it should be",
                looked_at=_words(endpoint),
                likely="another kind of event, or another API version, than this source was described for",
                do="hookonce providers show; for a sender of your own correct event_id, or say fingerprint",
            )
        case _:
            return Cause("HO101", f"{name}: {error.seen} ({size})", likely=error.reason.value.replace("_", " "))


def _words(endpoint: Endpoint) -> str:
    where = endpoint.provider.locators.event_id
    return " + ".join(map(str, where)) if isinstance(where, tuple) else str(where)


def _clock(endpoint: Endpoint, delivery: Delivery, error: VerificationError, now: float) -> Cause:
    signed_at = _signed_at(endpoint, delivery)
    apart = (
        "" if signed_at is None else f"; signed {abs(now - signed_at):,.0f} s {'ago' if signed_at < now else 'ahead'}"
    )
    ahead = error.reason is Reason.IN_THE_FUTURE
    return Cause(
        "HO106",
        f"{endpoint.name}: the signature is right, but its time is not: {error.seen}{apart}",
        likely=f"this machine's clock is {'behind' if ahead else 'ahead'}, or it is a {'test' if ahead else 'replayed or late'} request",
        do="timedatectl, chronyc tracking. Of a single request that is late do not widen the tolerance",
    )


def _signed_at(endpoint: Endpoint, delivery: Delivery) -> float | None:
    """When it was signed: the moment at which it would have been accepted, found by halving."""
    unbound = getattr(endpoint.provider.scheme, "tolerance", None)
    if unbound is None and not dataclasses.is_dataclass(endpoint.provider.scheme):
        return None
    low, high = 0.0, 4_102_444_800.0
    for _ in range(60):
        middle = (low + high) / 2
        reason = _reason(endpoint, delivery, middle)
        if reason is None:
            return endpoint.provider.scheme.verify(delivery, endpoint.secrets, middle).signed_at
        if reason is Reason.IN_THE_FUTURE:
            low = middle
        elif reason is Reason.TOO_OLD:
            high = middle
        else:
            return None
    return None


def _missing(endpoint: Endpoint, delivery: Delivery, error: VerificationError) -> Cause:
    names = sorted({name.decode("latin-1") for name, _ in delivery.headers})
    like = [name for name in names if "sign" in name or "hmac" in name or name in ("authorization", "verif-hash")]
    there = f"; there is {', '.join(like)}" if like else "; no header looks like a signature"
    return Cause(
        "HO101",
        f"{endpoint.name}: {error.seen}{there}",
        likely="another provider, a proxy that drops headers, or a person with a browser"
        if like
        else "a person, a scanner, or a proxy that drops headers",
        do="let the proxy pass all headers; is the provider set up with a secret for this endpoint?",
    )


def _reason(endpoint: Endpoint, delivery: Delivery, now: float) -> Reason | None:
    try:
        endpoint.provider.scheme.verify(delivery, endpoint.secrets, now)
    except VerificationError as error:
        return error.reason
    except Exception:
        return Reason.SIGNATURE_MALFORMED
    return None


def fits(endpoint: Endpoint, delivery: Delivery, now: float) -> bool:
    """Whether the signature is right, whatever its time."""
    reason = _reason(endpoint, delivery, now)
    return reason is None or reason in RIGHT_BUT


def _trials(endpoint: Endpoint, others: Sequence[Endpoint], delivery: Delivery, now: float) -> Iterator[Cause]:
    yield from _other_secrets(endpoint, others, delivery, now)
    yield from _spelled_secrets(endpoint, delivery, now)
    yield from _other_bodies(endpoint, delivery, now)
    yield from _other_urls(endpoint, delivery, now)


def _with(endpoint: Endpoint, secrets: Sequence[Secret]) -> Endpoint:
    return Endpoint(endpoint.name, endpoint.provider, tuple(secrets))


def _other_secrets(endpoint: Endpoint, others: Sequence[Endpoint], delivery: Delivery, now: float) -> Iterator[Cause]:
    for secret in endpoint.secrets:
        if secret.not_after is None or secret.not_after.timestamp() > now:
            continue
        if fits(_with(endpoint, [dataclasses.replace(secret, not_after=None)]), delivery, now):
            yield Cause(
                "HO108",
                f"{endpoint.name}: signed with a secret that is not valid here since {secret.not_after:%Y-%m-%d %H:%M %Z}",
                f"{secret}",
                likely="the provider still signs with the old secret",
                do="let the old one be valid until the provider has changed over",
            )
    for other in others:
        if other.name != endpoint.name and other.secrets and fits(_with(endpoint, other.secrets), delivery, now):
            yield Cause(
                "HO108",
                f"{endpoint.name}: not signed with this source's secret, but it matches the source {other.name!r}",
                likely=_live(delivery) or "the provider posts to the wrong endpoint",
                do=f"let that endpoint of the provider post to .../{other.name}",
            )


def _live(delivery: Delivery) -> str:
    if b'"livemode": false' in delivery.body or b'"livemode":false' in delivery.body:
        return "the body says livemode=false: it comes from the provider's test mode"
    return ""


def _spelled_secrets(endpoint: Endpoint, delivery: Delivery, now: float) -> Iterator[Cause]:
    spellings: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("with a line break at its end", lambda value: value + b"\n"),
        ("without the white space around it", bytes.strip),
        ('without its "whsec_"', lambda value: value.removeprefix(b"whsec_")),
        ("in lower case", bytes.lower),
        ("without the quotes around it", lambda value: value.strip(b"\"'")),
    ]
    for said, change in spellings:
        for secret in endpoint.secrets:
            changed = Secret(value=change(secret.value))
            if changed.value != secret.value and fits(_with(endpoint, [changed]), delivery, now):
                yield Cause(
                    "HO101",
                    f"{endpoint.name}: the signature matches the secret {said}",
                    f"{secret}",
                    likely="the secret was copied with too much, or too little",
                    do="configure it exactly as the provider shows it",
                )


def _other_bodies(endpoint: Endpoint, delivery: Delivery, now: float) -> Iterator[Cause]:
    for said, body in _bodies(delivery.body):
        if body != delivery.body and fits(endpoint, dataclasses.replace(delivery, body=body), now):
            yield Cause(
                "HO102",
                f"{endpoint.name}: the signature matches the body {said}",
                likely="a proxy or a middleware read the body and wrote it anew",
                do="pass the body on untouched: mount the inbox outermost, switch body rewriting off in the proxy",
            )


def _bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "with a line break at its end", body + b"\n"
    yield "with CR LF at its end", body + b"\r\n"
    yield "without the white space at its ends", body.strip()
    yield "with CR LF as line ends", body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    yield "with LF as line ends", body.replace(b"\r\n", b"\n")
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return
    for ascii_only in (False, True):
        yield "as compact JSON", _json(document, ascii_only, separators=(",", ":"))
        yield "as JSON with spaces", _json(document, ascii_only)
        for indent in (2, 4):
            yield "as indented JSON", _json(document, ascii_only, indent=indent)
    yield "as compact JSON with sorted keys", _json(document, False, separators=(",", ":"), sort_keys=True)


def _json(document: Any, ascii_only: bool, **how: Any) -> bytes:
    return json.dumps(document, ensure_ascii=ascii_only, **how).encode("utf-8", "surrogatepass")


def _other_urls(endpoint: Endpoint, delivery: Delivery, now: float) -> Iterator[Cause]:
    scheme: Any = endpoint.provider.scheme
    if not dataclasses.is_dataclass(scheme) or not hasattr(scheme, "url") or isinstance(scheme, type):
        return
    for url in dict.fromkeys(_urls(scheme.url or "", delivery)):
        tried: Any = dataclasses.replace(scheme, url=url)
        provider = dataclasses.replace(endpoint.provider, scheme=tried)
        if url != scheme.url and fits(Endpoint(endpoint.name, provider, endpoint.secrets), delivery, now):
            yield Cause(
                "HO101",
                f"{endpoint.name}: the signature matches the public URL {url}",
                f"{scheme.url}",
                likely="the URL that is configured here is not the one that the provider posts to",
                do=f'url = "{url}"',
            )


def _urls(configured: str, delivery: Delivery) -> Iterator[str]:
    host = next((value.decode("latin-1") for name, value in delivery.headers if name == b"host"), "")
    query = f"?{delivery.query.decode('latin-1')}" if delivery.query else ""
    for base in filter(None, (configured, f"https://{host}{delivery.path}" if host else "")):
        for one in (base, base.rstrip("/"), base.rstrip("/") + "/", base.partition("?")[0] + query):
            yield one
            yield one.replace("https://", "http://", 1)
            yield one.replace("http://", "https://", 1)


# -- kept -------------------------------------------------------------------------------------------------------------


def rejection_insert(rejection: Rejection, *, now: float | None) -> Operation[None]:
    """Keep one, and let the oldest go."""
    yield Statement(
        "rejection_insert",
        {
            "request_id": rejection.request_id,
            "source": rejection.source,
            "reason": rejection.reason,
            "cause": rejection.cause,
            "address": rejection.address,
            "method": rejection.method,
            "path": rejection.path,
            "query": rejection.query,
            "headers": rejection.headers,
            "raw": rejection.raw[:KEPT_BYTES],
            "now": now,
        },
    )
    yield Statement("rejection_trim", {"kept": KEPT_ROWS})


def rejection_shown(request_id: str) -> Operation[Rejection]:
    """The one with this id; NotFound when it was not kept."""
    rows = yield Statement("rejection_show", {"request_id": request_id})
    if not rows:
        raise NotFound(
            f"the request {request_id} is not here: one a minute and source is looked at, and the last {KEPT_ROWS:,} are kept",
            do="hookonce explain",
        )
    return _rejection(rows[0])


def rejections_listed(*, limit: int = LISTED) -> Operation[list[Rejection]]:
    """The latest."""
    rows = yield Statement("rejection_list", {"limit": limit})
    return [_rejection(row) for row in rows]


def _rejection(row: Sequence[Any]) -> Rejection:
    return Rejection(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], bytes(row[8]), bytes(row[9]), bytes(row[10])
    )
