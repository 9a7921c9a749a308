"""Many messages into batches: by partition, and small enough to travel. Nothing is sent here."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock.batch import encode_many, encode_plain, encode_short
from penstock.batch.encode import key_hashes
from penstock.client.receipts import Parcel
from penstock.drivers.port import Capabilities
from penstock.vocabulary.errors import InvalidArgument, TooLarge, Unsupported, UsageError
from penstock.vocabulary.limits import MIB
from penstock.vocabulary.message import Message

COUNT_CUT: Final = 10_000
BYTES_CUT: Final = 1 * MIB
"""Batches are cut at about this size, so that one does not hold up the others."""
SLACK: Final = 2
"""A batch may turn out so many times larger than foreseen before it is cut again."""


def json_body(body: Any, value: Any) -> bytes:
    """The body of a message given as a JSON value. Raises InvalidArgument."""
    if body is not None:
        raise InvalidArgument("give either body or json, not both")
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"json is a value that JSON cannot hold: {error}") from error


def with_hint(body: Any, error: InvalidArgument) -> InvalidArgument:
    """The error of a body that is none, with what its caller may have meant."""
    if body is None or isinstance(body, bytes | str | bytearray | memoryview):
        return error
    return InvalidArgument(f"{error.text}; for a JSON value use json=")


def check_list(messages: Any) -> Sequence[Any]:
    """The messages as a list or tuple. Raises InvalidArgument for one message, or none at all."""
    if isinstance(messages, (list, tuple)):
        return messages
    if isinstance(messages, (str, bytes, bytearray, memoryview, Message, dict)):
        raise InvalidArgument(
            f"publish_many takes a list of messages, not one {type(messages).__name__}; "
            "for one message use publish"
        )
    try:
        return list(messages)
    except TypeError as error:
        raise InvalidArgument(
            f"publish_many takes a list of messages, not {type(messages).__name__}"
        ) from error


def has_fields(messages: Sequence[Any]) -> bool:
    """True when there is more to look at than bodies."""
    if messages and isinstance(messages[0], Message):
        return True
    return any(issubclass(kind, Message) for kind in set(map(type, messages)))


def pack_plain(messages: Sequence[Any], partition: int) -> Parcel | None:
    """The commonest list, plain bytes and not too many, as one batch; None for any other."""
    first = messages[0]
    if type(first) is not bytes or len(messages) * len(first) > BYTES_CUT:
        return None
    batch = encode_plain(messages, BYTES_CUT) if len(messages) <= COUNT_CUT else None
    return None if batch is None else Parcel(partition, batch, range(len(messages)))


def check_fields(messages: Sequence[Any], can: Capabilities) -> None:
    """Raises Unsupported when a message asks for what the URL cannot do."""
    if can.has_priority and can.has_delay and can.has_expiry and can.has_dedup:
        return
    for index, message in enumerate(messages):
        if isinstance(message, Message):
            try:
                refuse_unsupported(
                    can, message.priority, message.deliver_at, message.expires_at, message.id
                )
            except Unsupported as error:
                raise Unsupported(f"message {index}: {error.text}") from error


def refuse_unsupported(
    can: Capabilities, priority: int, deliver_at: float | None, expires_at: float | None,
    id: str | None = None,
) -> None:  # fmt: skip
    """Raises Unsupported rather than ignoring what a message asks for."""
    if priority and not can.has_priority:
        raise Unsupported(f"priority is not available on {can.scheme}: URLs; leave it at 0")
    if deliver_at is not None and not can.has_delay:
        raise Unsupported(
            f"deliver_at and delay_s are not available on {can.scheme}: URLs; leave them out"
        )
    if expires_at is not None and not can.has_expiry:
        raise Unsupported(
            f"expires_at and ttl_s are not available on {can.scheme}: URLs; leave them out"
        )
    if id is not None and not can.has_dedup:
        raise Unsupported(
            f"id is not available on {can.scheme}: URLs, which would store a second message of the "
            "same id: leave it out, and send what tells messages apart as a header"
        )


def pack_all(
    messages: Sequence[Any], partitions: int, turn: int, can: Capabilities
) -> list[Parcel]:
    """The batches of any list. Raises Unsupported, and what `pack` raises."""
    is_plain = not has_fields(messages)
    if not is_plain:
        check_fields(messages, can)
    return pack(messages, partitions, turn, is_plain=is_plain)


def pack(messages: Sequence[Any], partitions: int, turn: int, *, is_plain: bool) -> list[Parcel]:
    """The messages as batches, each for one partition, in the order of the list.

    Messages with neither key nor id go where it is `turn`. Raises TooLarge, InvalidArgument; the
    text names the first message that is wrong.
    """
    spread = turn % partitions
    if partitions == 1 or is_plain:
        return list(_cut(messages, range(len(messages)), spread))
    places: dict[int, list[int]] = {}
    for index, message in enumerate(messages):
        places.setdefault(_partition(message, partitions, spread), []).append(index)
    parcels: list[Parcel] = []
    for partition, indexes in places.items():
        parcels.extend(_cut([messages[index] for index in indexes], indexes, partition))
    return parcels


def partition_of(key: bytes | str | None, id: str | None, partitions: int, spread: int) -> int:
    """The partition of a message: by its key, else by its given id, else the one whose turn it is.

    Raises InvalidArgument when key or id is not what it must be.
    """
    chosen = id if key is None else key
    if chosen is None:
        return spread
    try:
        return key_hashes((chosen,))[0] % partitions
    except (TypeError, UnicodeEncodeError) as error:
        field = "id" if key is None else "key"
        raise InvalidArgument(f"{field} must be text or bytes, not {chosen!r:.80}") from error


def _partition(message: Any, partitions: int, spread: int) -> int:
    if not isinstance(message, Message):
        return spread
    return partition_of(message.key, message.id, partitions, spread)


def _cut(messages: Sequence[Any], indexes: Sequence[int], partition: int) -> Iterator[Parcel]:
    step = len(messages)
    if 0 < step <= COUNT_CUT and _size(messages[0]) * step <= BYTES_CUT:
        batch = encode_short(messages, BYTES_CUT)
        if batch is not None and len(batch) <= SLACK * BYTES_CUT:
            yield Parcel(partition, batch, indexes)
            return
    size = _total(messages)
    if size > BYTES_CUT:
        step = step * BYTES_CUT // size + 1
    step = max(1, min(step, COUNT_CUT))
    for start in range(0, len(messages), step):
        part = messages if step == len(messages) else messages[start : start + step]
        yield from _encode(part, indexes[start : start + step], partition)


def _total(messages: Sequence[Any]) -> int:
    """About how many bytes the bodies have."""
    try:
        return sum(map(len, messages))
    except TypeError:
        pass
    try:
        return sum(map(len, [message.body for message in messages]))
    except (AttributeError, TypeError):
        return sum(map(_size, messages))


def _size(message: Any) -> int:
    body = message.body if isinstance(message, Message) else message
    return len(body) if isinstance(body, (bytes, str)) else 0


def _encode(messages: Sequence[Any], indexes: Sequence[int], partition: int) -> Iterator[Parcel]:
    try:
        batch = encode_many(messages)
    except UsageError as error:
        if len(messages) == 1 or not isinstance(error, TooLarge):
            raise _named(messages, indexes, error) from error
        batch = b""
    if batch and (len(batch) <= SLACK * BYTES_CUT or len(messages) == 1):
        yield Parcel(partition, batch, indexes)
        return
    half = len(messages) // 2
    yield from _encode(messages[:half], indexes[:half], partition)
    yield from _encode(messages[half:], indexes[half:], partition)


def _named(messages: Sequence[Any], indexes: Sequence[int], error: UsageError) -> UsageError:
    """The error with the place in the caller's list of the first message that is wrong."""
    for index, message in zip(indexes, messages, strict=True):
        try:
            encode_many([message])
        except UsageError as found:
            text = found.text.removeprefix("message 0: ")
            return type(found)(f"message {index}: {text}")
    return error
