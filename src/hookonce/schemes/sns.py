"""Amazon SNS: named fields of a JSON message, signed with RSA by a certificate that lies where the message says.

Anybody can have a topic, and Amazon signs for all of them: the address of the certificate is pinned to Amazon's hosts, and
`topics` says whose messages are meant.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hookonce.errors import Reason, VerificationError
from hookonce.model import Delivery, Secret, Verified
from hookonce.schemes import keys
from hookonce.schemes.base import Described, active, check_tolerance, secret_id
from hookonce.schemes.hmac import ENCODERS
from hookonce.schemes.remote import Published
from hookonce.schemes.signature import FUTURE_SECONDS, check_age, decode_signature, read_moment, write_moment

HOST = r"https://sns\.[a-z]{2}(?:-[a-z]+)+-[0-9]{1,2}\.amazonaws\.com(?:\.cn)?"
CERTIFICATE = re.compile(HOST + r"/[A-Za-z0-9/_-]{1,200}\.pem")
CONFIRMATION = re.compile(HOST + r"/\?[!-~]{1,2000}")
"""Whole addresses: no port, no user, no other host than Amazon's."""

DIGESTS: Mapping[object, keys.Asymmetric] = {"1": "rsa-sha1", "2": "rsa-sha256"}
NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
SUBSCRIPTION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
LINES: Mapping[object, tuple[str, ...]] = {
    "Notification": NOTIFICATION,
    "SubscriptionConfirmation": SUBSCRIPTION,
    "UnsubscribeConfirmation": SUBSCRIPTION,
}
"""What each kind of message signs, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnsScheme(Described):
    """`certs` are certificates by their addresses. `offline`: keys were configured, and nothing is fetched."""

    tolerance: float = 25_200.0
    topics: tuple[str, ...] = ()
    certs: Mapping[str, str] = field(default_factory=dict)
    offline: bool = False
    published: Published = field(default_factory=lambda: Published(readable=keys.public_key), compare=False, repr=False)

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)

    # -- verify -------------------------------------------------------------------------------------------------------

    def verify(self, delivery: Delivery, secrets: Sequence[Secret], now: float) -> Verified:
        """Accept a message of a topic that is meant, signed with a key that we know or that Amazon shows."""
        message = read_message(delivery.body)
        digest = DIGESTS.get(_text(message, "SignatureVersion"))
        if digest is None:
            raise VerificationError(Reason.SIGNATURE_MALFORMED, "this SignatureVersion is not known")
        signed = signed_lines(message)
        signature = decode_signature(_text(message, "Signature").encode("utf-8", "surrogatepass"), "base64")
        matched = self._prove(certificate_of(message), active(secrets, now), digest, signed, signature)
        self._check_topic(message)
        signed_at = read_moment(message["Timestamp"].encode("utf-8", "surrogatepass"), "iso")
        check_age(signed_at, now, self.tolerance, FUTURE_SECONDS)
        return Verified(matched, hashlib.sha256(signed).digest(), signed_at)

    def _prove(
        self, url: str, secrets: Sequence[Secret], digest: keys.Asymmetric, signed: bytes, signature: bytes
    ) -> str:
        found = [secret.value for secret in secrets]
        if url in self.certs:
            found.append(self.certs[url].encode())
        published = self.published.get(url)
        if published is not None:
            found.append(published)
        for value in found:
            key = _key(value)
            if key is not None and keys.check(key, digest, signed, signature):
                return secret_id(value)
        raise VerificationError(Reason.SIGNATURE_MISMATCH, "no known key made this signature")

    def _check_topic(self, message: Mapping[str, Any]) -> None:
        if self.topics and message.get("TopicArn") not in self.topics:
            raise VerificationError(Reason.SIGNATURE_MISMATCH, "the message is of a topic that is not in topics")

    def prepare(self, delivery: Delivery) -> Callable[[], None] | None:
        """How to fetch the certificate. Only for a message of a topic that is meant: strangers must not make us ask."""
        try:
            message = read_message(delivery.body)
            self._check_topic(message)
            url = certificate_of(message)
        except VerificationError:
            return None
        return None if self.offline or url in self.certs else self.published.need(url)

    # -- sign ---------------------------------------------------------------------------------------------------------

    def sign(self, body: bytes, secret: Secret, now: float, message_id: str) -> list[tuple[bytes, bytes]]:
        """Nothing: the signature is in the body. See `seal`."""
        del body, secret, now, message_id
        return []

    def seal(self, unsigned: Delivery, secret: Secret, now: float, message_id: str) -> Delivery:
        """The message with its time and its signature. A body that is no message becomes one."""
        message: dict[str, Any] = {
            **self._envelope(unsigned.body, message_id),
            "Timestamp": write_moment(now, "iso").decode(),
            "SignatureVersion": "2",
        }
        made = keys.sign(secret.value, "rsa-sha256", signed_lines(message))
        message["Signature"] = ENCODERS["base64"](made).decode()
        return replace(unsigned, body=json.dumps(message, ensure_ascii=False).encode())

    def _envelope(self, body: bytes, message_id: str) -> Mapping[str, Any]:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and found.get("Type") in LINES:
            return found
        return {
            "Type": "Notification",
            "MessageId": message_id,
            "TopicArn": (*self.topics, "arn:aws:sns:eu-west-1:000000000000:development")[0],
            "Message": body.decode("utf-8", "replace"),
            "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-development.pem",
        }

    # -- tell ---------------------------------------------------------------------------------------------------------

    def new_secret(self) -> bytes:
        return keys.new_private_key("rsa-sha256").strip()

    def require(self) -> None:
        keys.require()

    @property
    def body_bound(self) -> bool:
        """Some fields are signed, MessageAttributes and the bytes themselves are not."""
        return False

    def secret_problem(self, value: bytes) -> str | None:
        return keys.key_problem(value)

    def describe(self) -> Mapping[str, str]:
        return {
            "signature": "body:Signature (RSA, SHA-1 or SHA-256 as body:SignatureVersion says, base64)",
            "signed": "names and values, one a line: " + ", ".join(NOTIFICATION),
            "timestamp": f"body:Timestamp (iso), at most {self.tolerance:g} s old, at most {FUTURE_SECONDS:g} s ahead",
        }


def read_message(body: bytes) -> Mapping[str, Any]:
    """The message; a name that is there twice could be read in two ways."""
    try:
        message = json.loads(body, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise VerificationError(Reason.SIGNATURE_MISSING, "the signature is in the body, which is no JSON") from None
    if not isinstance(message, dict) or "Signature" not in message:
        raise VerificationError(Reason.SIGNATURE_MISSING, "there is no Signature in the message")
    return message


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str):
        raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{name} is missing, or no text")
    return value


def signed_lines(message: Mapping[str, Any]) -> bytes:
    """What was signed. Only Message may have lines of its own: else values could move from one name to another."""
    lines = []
    for name in LINES.get(_text(message, "Type"), ()):
        if name == "Subject" and message.get(name) is None:
            continue
        value = _text(message, name)
        if "\n" in value and name != "Message":
            raise VerificationError(Reason.SIGNATURE_MALFORMED, f"{name} has a line break")
        lines.append(f"{name}\n{value}\n")
    if not lines:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "this Type of message is not known")
    return "".join(lines).encode("utf-8", "surrogatepass")


def certificate_of(message: Mapping[str, Any]) -> str:
    """Where its certificate is, if that is at Amazon."""
    url = _text(message, "SigningCertURL")
    if CERTIFICATE.fullmatch(url) is None:
        raise VerificationError(Reason.SIGNATURE_MALFORMED, "SigningCertURL is not an address of Amazon SNS")
    return url


def _key(value: bytes) -> Any:
    try:
        return keys.public_key(value)
    except Exception:
        return None


__all__ = ["CONFIRMATION", "SnsScheme", "certificate_of", "read_message", "signed_lines"]
