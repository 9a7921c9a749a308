"""The binary protocol: one frame after another, each with its length, its type and a checksum.

Server and remote driver use the same reader and the same `frame`. Nothing here knows what a
payload means; `frames_hello`, `frames_publish`, `frames_slices`, `frames_claims`, `frames_asks` and
`frames_errors` do. All numbers are little endian:

    +--------+------+-------+-----+-----+----------+
    | u32    | u8   | u8    | u16 | u32 | u64      |
    | length | type | flags | 0   | id  | checksum |   length of the payload alone
    +--------+------+-------+-----+-----+----------+
    | payload                                      |
    +----------------------------------------------+

`id` is the number of a request, which its answer repeats, or of a channel: one consumer of this
connection. The checksum is the xxh3-64 of the payload, seeded with what stands before it.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, Final

from xxhash import xxh3_64, xxh3_64_intdigest

from penstock.vocabulary.limits import BATCH_BYTES_MAX, KIB, MIB

VERSION: Final = 1
"""The newest protocol this program speaks, and the oldest."""
PORT: Final = 8001

HEADER: Final = Struct("<IBBHIQ")
HEADER_BYTES: Final = HEADER.size
MORE: Final = 0x01
"""Flag: the next frame of this type and id goes on with the same message."""
RECENT: Final = 0x02
"""Flag of a publish or unit: first sent less than `RECENT_S_MAX` ago, so it is not forgotten."""
RECENT_S_MAX: Final = 3 * 24 * 3600.0

HELLO_BYTES_MAX: Final = 4 * KIB
SMALL_BYTES_MAX: Final = 64 * KIB
LIST_BYTES_MAX: Final = 1 * MIB
PUBLISH_BYTES_MAX: Final = BATCH_BYTES_MAX + 64 * KIB
UNIT_BYTES_MAX: Final = 13 * MIB
"""Messages of different make take half as much again as each alone; and the acks."""
PART_BYTES_MAX: Final = BATCH_BYTES_MAX + MIB
"""What comes from a server is cut into parts: a batch and the lists of what is meant of it."""
PART_BYTES_CUT: Final = 1 * MIB
"""A part that has grown so far is sent."""
JOINED_BYTES_MAX: Final = 256 * MIB
"""Most bytes of one message that comes in several frames."""

BUFFER_BYTES_FIRST: Final = 4 * KIB
BUFFER_BYTES_USUAL: Final = 256 * KIB

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_SPREAD: Final = 0x9E37_79B9_7F4A_7C15


class Type(IntEnum):
    """What a frame is. Numbers are never used again for something else."""

    HELLO = 1
    WELCOME = 2
    ERROR = 3
    GOODBYE = 4
    PING = 5
    PONG = 6
    PUBLISH = 16
    STORED = 17
    UNIT = 18
    COMMITTED = 19
    MAP = 20
    BEHIND = 21
    ATTACH = 32
    ATTACHED = 33
    SLICE = 34
    ACK = 35
    GIVE_BACK = 36
    EXTEND = 37
    CONFIRMED = 38
    REFUSED = 39
    REVOKED = 40
    CLOSED = 41
    DETACH = 42
    FLUSH = 43
    DONE = 44
    FOLLOW = 48
    FOLLOWED = 49
    JOINED = 50
    LEAVE = 51
    ASK = 64
    ANSWER = 65


FROM_CLIENT: Final[dict[int, int]] = {
    Type.HELLO: HELLO_BYTES_MAX,
    Type.GOODBYE: SMALL_BYTES_MAX,
    Type.PING: SMALL_BYTES_MAX,
    Type.PONG: SMALL_BYTES_MAX,
    Type.PUBLISH: PUBLISH_BYTES_MAX,
    Type.UNIT: UNIT_BYTES_MAX,
    Type.MAP: SMALL_BYTES_MAX,
    Type.ATTACH: LIST_BYTES_MAX,
    Type.ACK: LIST_BYTES_MAX,
    Type.GIVE_BACK: SMALL_BYTES_MAX,
    Type.EXTEND: LIST_BYTES_MAX,
    Type.DETACH: LIST_BYTES_MAX,
    Type.FLUSH: SMALL_BYTES_MAX,
    Type.FOLLOW: LIST_BYTES_MAX,
    Type.LEAVE: SMALL_BYTES_MAX,
    Type.ASK: LIST_BYTES_MAX,
}
"""What a client may send, and how long each may be."""

BEFORE_HELLO: Final[dict[int, int]] = {Type.HELLO: HELLO_BYTES_MAX}

FROM_SERVER: Final[dict[int, int]] = {
    Type.WELCOME: SMALL_BYTES_MAX,
    Type.ERROR: LIST_BYTES_MAX,
    Type.GOODBYE: SMALL_BYTES_MAX,
    Type.PING: SMALL_BYTES_MAX,
    Type.PONG: SMALL_BYTES_MAX,
    Type.STORED: PART_BYTES_MAX,
    Type.COMMITTED: PART_BYTES_MAX,
    Type.MAP: SMALL_BYTES_MAX,
    Type.BEHIND: SMALL_BYTES_MAX,
    Type.ATTACHED: LIST_BYTES_MAX,
    Type.SLICE: PART_BYTES_MAX,
    Type.CONFIRMED: SMALL_BYTES_MAX,
    Type.REFUSED: PART_BYTES_MAX,
    Type.REVOKED: PART_BYTES_MAX,
    Type.CLOSED: SMALL_BYTES_MAX,
    Type.DONE: SMALL_BYTES_MAX,
    Type.FOLLOWED: SMALL_BYTES_MAX,
    Type.JOINED: LIST_BYTES_MAX,
    Type.ANSWER: PART_BYTES_MAX,
}
"""What a server may send, and how long each may be."""


Part = bytes | bytearray | memoryview


class Malformed:
    """Bytes that are no frame: the connection cannot go on."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


Arrived = tuple[int, int, int, memoryview]
"""Type, flags, id and payload of a frame. The payload is valid until the next call."""


# -- out -----------------------------------------------------------------------------------------


def frame(kind: int, number: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """A small frame as one piece."""
    length = len(payload)
    seed = (length | kind << 32 | flags << 40) + number * _SPREAD & _MASK
    return HEADER.pack(length, kind, flags, 0, number, xxh3_64_intdigest(payload, seed)) + payload


def frame_of(kind: int, number: int, parts: Sequence[bytes], flags: int = 0) -> list[bytes]:
    """A frame in pieces: batches are not copied."""
    length = sum(map(len, parts))
    checksum = xxh3_64(seed=(length | kind << 32 | flags << 40) + number * _SPREAD & _MASK)
    for part in parts:
        checksum.update(part)
    return [HEADER.pack(length, kind, flags, 0, number, checksum.intdigest()), *parts]


def fragments(kind: int, number: int, payload: bytes) -> list[bytes]:
    """A payload of any length, in as many frames as it needs."""
    if len(payload) <= PART_BYTES_CUT:
        return [frame(kind, number, payload)]
    view = memoryview(payload)
    pieces: list[bytes] = []
    for start in range(0, len(payload), PART_BYTES_CUT):
        end = start + PART_BYTES_CUT
        flags = MORE if end < len(payload) else 0
        pieces += frame_of(kind, number, [bytes(view[start:end])], flags)
    return pieces


# -- in ------------------------------------------------------------------------------------------


class Reader:
    """Bytes into frames. Fill `room()`, say how much with `took()`, then `next()` until None.

    Never holds more than the longest frame allowed, and no more than usual while frames are small.
    """

    __slots__ = ("_buffer", "_end", "_limits", "_start", "_view", "_wanted", "frames")

    def __init__(self, limits: dict[int, int]) -> None:
        self._limits = limits
        self._buffer = bytearray(BUFFER_BYTES_FIRST)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._wanted = HEADER_BYTES
        self.frames = 0
        """How many came."""

    @property
    def has_begun(self) -> bool:
        """True while a frame has come in part."""
        return self._end > self._start

    @property
    def held(self) -> int:
        """Bytes that came and are not part of a frame that was taken out."""
        return self._end - self._start

    @property
    def wanted(self) -> int:
        """Bytes of the frame that has begun, as far as that is known."""
        return self._wanted

    @property
    def capacity(self) -> int:
        """Bytes of memory it takes."""
        return len(self._buffer)

    def allow(self, limits: dict[int, int]) -> None:
        """From now on these types may come, each so long at most."""
        self._limits = limits

    def first(self, count: int) -> bytes:
        """The first bytes that are not taken out yet."""
        return bytes(self._view[self._start : min(self._end, self._start + count)])

    def room(self) -> memoryview:
        """Where the next bytes go."""
        size = len(self._buffer)
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start and (self._end == size or self._start + self._wanted > size):
            held = self._end - self._start
            self._buffer[:held] = self._buffer[self._start : self._end]
            self._start, self._end = 0, held
        if self._start + self._wanted > size:
            self._grow(self._start + self._wanted)
        elif self._end == size:
            self._grow(min(4 * size, BUFFER_BYTES_USUAL))
        return self._view[self._end :]

    def _grow(self, size: int) -> None:
        larger = bytearray(size)
        larger[: self._end] = self._view[: self._end]
        self._buffer, self._view = larger, memoryview(larger)

    def took(self, count: int) -> None:
        """So many bytes were put into `room()`."""
        self._end += count

    def feed(self, data: Part) -> None:
        """Takes bytes in, for whoever has them already."""
        end = self._end + len(data)
        if end > len(self._buffer):
            self._grow(end)
        self._view[self._end : end] = data
        self._end = end

    def shrink(self) -> None:
        """Gives memory back while nothing is under way."""
        if self._start == self._end and len(self._buffer) > BUFFER_BYTES_FIRST:
            self._buffer = bytearray(BUFFER_BYTES_FIRST)
            self._view = memoryview(self._buffer)
            self._start = self._end = 0
            self._wanted = HEADER_BYTES

    def next(self) -> Arrived | Malformed | None:
        """The next whole frame; None when more bytes are needed."""
        start = self._start
        held = self._end - start
        if held < HEADER_BYTES:
            self._wanted = HEADER_BYTES
            return None
        length, kind, flags, zero, number, checksum = HEADER.unpack_from(self._buffer, start)
        limit = self._limits.get(kind, -1)
        if length > limit or zero:
            return _refuse(kind, length, zero, limit)
        end = start + HEADER_BYTES + length
        if end > self._end:
            self._wanted = HEADER_BYTES + length
            return None
        payload = self._view[start + HEADER_BYTES : end]
        seed = (length | kind << 32 | flags << 40) + number * _SPREAD & _MASK
        if xxh3_64_intdigest(payload, seed) != checksum:
            return Malformed(f"a frame of type {kind} does not match its checksum")
        self._start = end
        self.frames += 1
        return kind, flags, number, payload


def _refuse(kind: int, length: int, zero: int, limit: int) -> Malformed:
    if limit < 0:
        return Malformed(f"frames of type {kind} are not expected here")
    if zero:
        return Malformed(f"a frame of type {kind} has {zero} where 0 must stand")
    return Malformed(f"a frame of type {kind} has {length} bytes; allowed are {limit}")


def read_all(reader: Reader) -> Iterable[Any]:
    """Every frame that is whole; ends after Malformed."""
    while (found := reader.next()) is not None:
        yield found
        if isinstance(found, Malformed):
            return
