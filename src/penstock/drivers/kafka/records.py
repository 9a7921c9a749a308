"""Letters as Kafka records: key, value, headers. Pure.

The key of a message is the key of its record, so that any other producer chooses the same
partition; an absent body is an absent value. In a dead-letter topic, which is compacted, the key
of the record is the letter's own, and a record without value says that the letter was removed.

Headers of other programs may be bytes or come twice. Bytes that are no UTF-8 become `base64:…`; the
second header `a` is named `a#2`.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from penstock.drivers.foreign.envelope import (
    ABSENT,
    BODY,
    ID,
    KEY,
    KEY_B64,
    Letter,
    is_plain,
    seal,
    unseal,
)

REMOVED: Final = "penstock-removed"
BASE64: Final = "base64:"


class Record(NamedTuple):
    """What is stored of a letter."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def record_of(letter: Letter) -> Record:
    """The record that carries a letter."""
    if letter.is_plain:
        return Record(None, letter.body, [(ID, letter.id.encode())])
    if is_simple(letter):
        key = letter.key
        raw = key.encode() if isinstance(key, str) else None
        return Record(raw, letter.body, [(ID, letter.id.encode())])
    headers = seal(letter)
    headers.pop(BODY, None)
    headers.pop(KEY, None)
    key = letter.key
    raw = key.encode() if isinstance(key, str) else key
    return Record(raw, letter.body, [(name, value.encode()) for name, value in headers.items()])


def plain_records(bodies: Sequence[bytes], id_start: str, sequence: int) -> list[Record]:
    """The records of bodies that have nothing but made ids. Tuples, which are made quickly."""
    start = id_start.encode()
    found = [
        (None, body, [(ID, b"%s%x" % (start, number))])
        for number, body in enumerate(bodies, sequence)
    ]
    return cast("list[Record]", found)


def is_simple(letter: Letter) -> bool:
    """True when a letter has body, id and a key of text at most, as most do."""
    return (
        not letter.headers
        and not isinstance(letter.key, bytes)
        and not letter.expires_at
        and not letter.attempts
        and not letter.target
        and not letter.published_at
        and not letter.deliver_at
        and is_plain(letter.id)
    )


def dead_record_of(letter: Letter) -> Record:
    """The record that carries a dead letter: its key tells it from every other one."""
    headers = [(name, value.encode()) for name, value in seal(letter).items()]
    return Record(letter.dedup.encode(), letter.body or b"", headers)


def removal_of(key: bytes) -> Record:
    """The record that removes a dead letter."""
    return Record(key, None, [(REMOVED, b"1")])


def is_removal(value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None) -> bool:
    """True for a record that only says that another one is gone."""
    return value is None and any(name == REMOVED for name, _ in headers or ())


def opened(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None,
    partition: int, offset: int, at: int,
) -> Letter:  # fmt: skip
    """The letter in a record, whoever wrote it. Never raises."""
    position = f"{partition}:{offset}"
    if headers and len(headers) == 1 and headers[0][0] == ID and headers[0][1]:  # most are so
        return Letter(
            body=value, id=_text(headers[0][1]), key=None if key is None else _text_or_bytes(key),
            published_at=at, partition=partition, offset=offset, position=position, token=key,
        )  # fmt: skip
    read = _headers(headers) if headers else None
    letter = unseal(read, value or b"", id=position, at=at)
    if value is None or (read is not None and read.get(BODY) == ABSENT and ID in read):
        letter.body = None
    if letter.key is None and key is not None and (read is None or not _has_own_key(read)):
        letter.key = _text_or_bytes(key)
    letter.partition, letter.offset, letter.position = partition, offset, position
    letter.token = key
    return letter


def _has_own_key(headers: dict[str, str]) -> bool:
    """True when the key of the record is not that of the message: a dead letter, or bytes."""
    return KEY in headers or KEY_B64 in headers or "penstock-dead-why" in headers


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        unique, number = name, 1
        while unique in found:
            number += 1
            unique = f"{name}#{number}"
        found[unique] = _text(value or b"")
    return found


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return BASE64 + b64encode(data).decode()


def _text_or_bytes(data: bytes) -> bytes | str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
