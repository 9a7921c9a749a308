"""Questions besides messages, and their answers: a number for each kind, then MessagePack.

ASK      u8 kind of question, MessagePack
ANSWER   MessagePack, in fragments when it is long; for questions answered with stored batches
         a head, then frames as in a slice
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final, NamedTuple, get_args

import msgspec

from penstock.vocabulary import requests as q
from penstock.vocabulary.backups import BackupPlan
from penstock.vocabulary.errors import InvalidArgument, ProtocolError, Unsupported
from penstock.vocabulary.reading import PlannedRange, ReaderState
from penstock.wire.frames import JOINED_BYTES_MAX, Type, fragments
from penstock.wire.frames_claims import is_place
from penstock.wire.frames_slices import list_frames, read_frames

KINDS: Final[dict[int, type]] = {
    1: q.CreateTopic,
    2: q.AlterTopic,
    3: q.DeleteTopic,
    4: q.ListTopics,
    5: q.DescribeTopic,
    6: q.CreateSubscription,
    7: q.AlterSubscription,
    8: q.DeleteSubscription,
    9: q.ListSubscriptions,
    10: q.OpenReader,
    11: q.DescribeReader,
    12: q.PlanRanges,
    13: q.ReadRange,
    14: q.CommitReader,
    15: q.ReleaseReader,
    16: q.Peek,
    17: q.Redrive,
    18: q.PurgeDead,
    19: q.Stats,
    20: q.Seek,
    21: q.ConfirmTime,
    22: q.Explain,
    23: q.TopicLog,
    24: q.BeginBackup,
    25: q.ReadBackup,
    26: q.EndBackup,
    27: q.TakeEpoch,
}
"""The number of each question; numbers are never used again for another."""
NUMBERS: Final = {kind: number for number, kind in KINDS.items()}

_ANSWERS: Final[dict[type, Any]] = {
    q.OpenReader: ReaderState,
    q.DescribeReader: ReaderState,
    q.PlanRanges: list[PlannedRange],
    q.BeginBackup: BackupPlan,
    q.ReadBackup: bytes,
}
_NEXT: Final = Struct("<Q")
_PLACE: Final = Struct("<I")

_encode = msgspec.msgpack.Encoder().encode


# -- questions -----------------------------------------------------------------------------------


class _Explain(NamedTuple):
    topic: str
    subscription: str | None
    position: str | None
    id: str | None
    key: Any
    consumer: str | None


def encode_question(request: q.Request) -> bytes:
    """The payload of ASK. Raises Unsupported, InvalidArgument."""
    number = NUMBERS.get(type(request))
    if number is None:
        raise Unsupported(f"{type(request).__name__} cannot be asked over a network")
    body: Any = request
    if isinstance(request, q.Explain):
        # A key is text or bytes, which no typed decoder tells apart.
        body = _Explain(
            request.topic, request.subscription, request.position, request.id, request.key,
            request.consumer,
        )  # fmt: skip
    try:
        return bytes((number,)) + _encode(body)
    except (TypeError, OverflowError, ValueError) as error:
        raise InvalidArgument(f"{type(request).__name__} cannot be sent: {error}") from error


_DECODERS: Final[dict[int, Any]] = {
    number: msgspec.msgpack.Decoder(_Explain if kind is q.Explain else kind)
    for number, kind in KINDS.items()
}


def decode_question(payload: memoryview) -> q.Request:
    """What is asked. Raises ProtocolError, Unsupported, InvalidArgument."""
    if not len(payload):
        raise ProtocolError("a question is empty")
    decoder = _DECODERS.get(payload[0])
    if decoder is None:
        raise Unsupported(
            f"this server does not know questions of kind {payload[0]}; update the server"
        )
    try:
        request = decoder.decode(payload[1:])
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{KINDS[payload[0]].__name__}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a question cannot be decoded: {error}") from error
    if isinstance(request, _Explain):
        if not isinstance(request.key, str | bytes | None):
            raise InvalidArgument("a key is text or bytes")
        return q.Explain(**request._asdict())
    for name in ("start", "to"):
        if not is_place(getattr(request, name, None)):
            raise InvalidArgument(f"{getattr(request, name)!r:.80} is no place in a topic")
    found: q.Request = request
    return found


def is_known(request: type) -> bool:
    """True when this kind of question has a number."""
    return request in NUMBERS


def every_question() -> tuple[type, ...]:
    """Every kind of question of the vocabulary."""
    return get_args(q.Request)


# -- answers -------------------------------------------------------------------------------------


def encode_answer(number: int, request: q.Request, answer: Any) -> list[bytes]:
    """The frames of ANSWER."""
    if isinstance(request, q.ReadRange):
        frames, at = answer
        return list_frames(Type.ANSWER, number, _NEXT.pack(at), frames)
    if isinstance(request, q.Peek):
        pieces: list[bytes] = []
        head = _encode([partition for partition, _ in answer])
        pieces += list_frames(
            Type.ANSWER, number, _PLACE.pack(len(head)) + head, [frame for _, frame in answer]
        )
        return pieces
    return fragments(Type.ANSWER, number, _encode(answer))


class Answers:
    """The parts of one answer put together. A part must be read before the next bytes come."""

    def __init__(self, request: q.Request) -> None:
        self._request = request
        self._frames: list[Any] = []
        self._read: Callable[[memoryview], None] | None = None
        if isinstance(request, q.ReadRange):
            self._read = self._read_range
        elif isinstance(request, q.Peek):
            self._read = self._read_peek
        self._held = 0
        self._next = 0
        self._partitions: list[int] = []
        self._pieces: list[bytes] = []

    def add(self, payload: memoryview) -> None:
        """Takes a part in. Raises ProtocolError."""
        self._held += len(payload)
        if self._held > JOINED_BYTES_MAX:
            raise ProtocolError(f"an answer has more than {JOINED_BYTES_MAX} bytes")
        if self._read is None:
            self._pieces.append(bytes(payload))
            return
        try:
            self._read(payload)
        except (StructError, ValueError) as error:
            raise ProtocolError(f"an answer cannot be decoded: {error}") from error

    def _read_range(self, payload: memoryview) -> None:
        (self._next,) = _NEXT.unpack_from(payload)
        self._frames += read_frames(payload, _NEXT.size)

    def _read_peek(self, payload: memoryview) -> None:
        (length,) = _PLACE.unpack_from(payload)
        start = _PLACE.size + length
        self._partitions = msgspec.msgpack.decode(payload[_PLACE.size : start], type=list[int])
        self._frames += read_frames(payload, start)

    def whole(self) -> Any:
        """The answer. Raises ProtocolError."""
        if isinstance(self._request, q.ReadRange):
            return self._frames, self._next
        try:
            if isinstance(self._request, q.Peek):
                return list(zip(self._partitions, self._frames, strict=True))
            kind = _ANSWERS.get(type(self._request), Any)
            return msgspec.msgpack.decode(b"".join(self._pieces), type=kind)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"an answer cannot be decoded: {error}") from error
