"""Letters as MQTT publishes, and back.

MQTT 5 carries the common envelope in user properties. MQTT 3.1.1 has a body and nothing else: what
does not fit is refused by name before anything is sent.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import uuid4

from penstock.drivers.foreign.envelope import Letter, seal, unseal
from penstock.vocabulary.errors import Unsupported

FIVE: Final = 5
"""The version whose messages have headers."""
RETAINED: Final = "mqtt-retained"
"""Header of a message the broker had kept when the subscription came."""


class Packet(NamedTuple):
    """A publish."""

    topic: str
    body: bytes
    qos: int = 1
    is_retained: bool = False
    headers: dict[str, str] | None = None
    expires_s: int | None = None


class Incoming(NamedTuple):
    """A message as it arrived."""

    topic: str
    body: bytes
    qos: int
    mid: int
    is_dup: bool
    is_retained: bool
    headers: dict[str, str]


def packed(
    topic: str, letters: Sequence[Letter], version: int, qos: int, wall: int, *, is_retained: bool
) -> list[Packet]:
    """The publishes of letters. Raises Unsupported: nothing of them is sent."""
    if version < FIVE:
        for letter in letters:
            _refuse_beyond_body(letter)
        return [Packet(topic, letter.body or b"", qos, is_retained) for letter in letters]
    for letter in letters:
        letter.published_at = letter.published_at or wall
    return [
        Packet(
            topic, letter.body or b"", qos, is_retained, seal(letter),
            _seconds_left(letter.expires_at, wall),
        )
        for letter in letters
    ]  # fmt: skip


def _seconds_left(expires_at: int, wall: int) -> int | None:
    """Whole seconds, never too few: the consumer knows the exact time."""
    return max(1, -((wall - expires_at) // 1000)) if expires_at else None


def _refuse_beyond_body(letter: Letter) -> None:
    asked = {
        "an id": letter.is_given,
        "headers": bool(letter.headers),
        "a key": letter.key is not None,
        "an absent body": letter.body is None,
        "expires_at": bool(letter.expires_at),
        "redrive to one subscription": bool(letter.target),
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise Unsupported(
                f"{what}: not available on mqtt: URLs with version=3.1.1, whose messages are a "
                "body and nothing else; use MQTT 5"
            )


def opened(message: Incoming, wall: int) -> Letter:
    """The letter in a message. Never raises."""
    id = uuid4().hex
    letter = unseal(message.headers, message.body, id=id, at=wall)
    if message.is_retained:
        letter.headers = {**letter.headers, RETAINED: "true"}
    letter.position = letter.id
    return letter
