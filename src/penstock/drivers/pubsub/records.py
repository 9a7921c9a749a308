"""Letters as messages of Pub/Sub: a body, attributes and an ordering key. Pure.

An attribute holds 1,024 bytes. A header of the application that is longer is refused by name; one
of ours is cut into `name`, `name~1`, `name~2`, …
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from xxhash import xxh3_64_hexdigest

from penstock.drivers.foreign.envelope import DEAD_MARK, MARK, Letter, seal, unseal
from penstock.vocabulary.errors import Unsupported

VALUE_BYTES_MAX: Final = 1024
NAME_BYTES_MAX: Final = 256
REQUEST_COUNT_MAX: Final = 1_000
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Below the 10 MB that one request may have."""
PART: Final = "~"
SOURCE: Final = "CloudPubSubDeadLetterSource"
"""Attributes with which Pub/Sub itself tells the story of a dead letter."""
_TOLD: Final = {
    SOURCE + "DeliveryCount": DEAD_MARK + "attempts",
    SOURCE + "Subscription": DEAD_MARK + "subscription",
}


class Record(NamedTuple):
    """A message as Pub/Sub has it."""

    data: bytes
    attributes: dict[str, str]
    ordering_key: str
    size: int


def packed(topic: str, letter: Letter) -> Record:
    """The message that carries a letter. Raises Unsupported for a header that is too long."""
    for name, value in letter.headers.items():
        if name.startswith(DEAD_MARK):
            continue
        if len(value.encode()) > VALUE_BYTES_MAX:
            raise Unsupported(
                f"topic {topic!r}: header {name!r} has {len(value.encode())} bytes; pubsub: URLs "
                f"carry headers of up to {VALUE_BYTES_MAX} bytes: shorten it, or put it in the body"
            )
        if len(name.encode()) > NAME_BYTES_MAX:
            raise Unsupported(
                f"topic {topic!r}: the name of header {name[:40]!r}… has {len(name.encode())} "
                f"bytes; pubsub: URLs carry names of up to {NAME_BYTES_MAX} bytes"
            )
    found: dict[str, str] = {}
    for name, value in seal(letter).items():
        if name.startswith(MARK) and len(value) > VALUE_BYTES_MAX:
            for at, low in enumerate(range(0, len(value), VALUE_BYTES_MAX)):
                found[f"{name}{PART}{at}" if at else name] = value[low : low + VALUE_BYTES_MAX]
        else:
            found[name] = value
    body = letter.body or b""
    size = len(body) + sum(len(name) + len(value) + 8 for name, value in found.items())
    return Record(body, found, ordering_key(letter.key), size + 64)


def ordering_key(key: bytes | str | None) -> str:
    """What Pub/Sub orders by: text as it is, bytes in base64; nothing without a key."""
    if key is None:
        return ""
    text = key if isinstance(key, str) else b64encode(key).decode()
    return text if len(text.encode()) <= VALUE_BYTES_MAX else xxh3_64_hexdigest(text.encode())


def opened(
    message_id: str, data: bytes, attributes: Mapping[str, str], published_ns: int
) -> Letter:  # fmt: skip
    """The letter in a message, whoever wrote it."""
    letter = unseal(_joined(attributes), data, id=message_id, at=published_ns // 1_000_000)
    letter.sequence = published_ns
    for theirs, ours in _TOLD.items():
        if theirs in letter.headers:
            letter.headers.setdefault(DEAD_MARK + "why", "max_attempts")
            letter.headers.setdefault(ours, letter.headers[theirs])
    letter.position = message_id
    return letter


def _joined(attributes: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in attributes.items():
        whole, mark, _ = name.rpartition(PART)
        if mark and whole.startswith(MARK) and whole in attributes:
            continue
        at, text = 1, value
        while name.startswith(MARK) and f"{name}{PART}{at}" in attributes:
            text += attributes[f"{name}{PART}{at}"]
            at += 1
        found[name] = text
    return found


def chains_of(records: Sequence[Record]) -> list[list[list[int]]]:
    """Which records go together in a request, which has one ordering key and limits of its own.

    The requests of one chain follow each other; chains are of different keys.
    """
    chains: dict[str, list[list[int]]] = {}
    sizes: dict[str, int] = {}
    for at, record in enumerate(records):
        key = record.ordering_key
        chain = chains.setdefault(key, [[]])
        size = sizes.get(key, 0) + record.size
        if chain[-1] and (len(chain[-1]) >= REQUEST_COUNT_MAX or size > REQUEST_BYTES_MAX):
            chain.append([])
            size = record.size
        chain[-1].append(at)
        sizes[key] = size
    return list(chains.values())


def place(letter: Letter) -> tuple[int, int, str]:
    """Sorts letters by their publishing."""
    digits = "".join(mark for mark in letter.position if mark.isdigit())
    return letter.sequence, int(digits or 0), letter.position
