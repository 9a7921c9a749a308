"""How a connection begins: HELLO of the client, WELCOME of the server, or a readable refusal."""

from typing import Any, Final

import msgspec

from penstock.vocabulary import limits
from penstock.vocabulary.errors import ProtocolError, Unsupported
from penstock.vocabulary.message import Durability, Kind
from penstock.wire import frames

MAGIC: Final = b"PENS"
METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")
NAME_CHARACTERS_MAX: Final = 256
UNIT_MAPS: Final = "unit-maps"
"""Feature of a server: each batch of a unit may tell for how many partitions it was split."""


class Hello(msgspec.Struct, kw_only=True):
    """What a client says first. Fields that are not known are skipped: newer clients may come."""

    low: int = frames.VERSION
    """The oldest version of the protocol it speaks."""
    high: int = frames.VERSION
    client: str = ""
    features: list[str] = []


class Abilities(msgspec.Struct, kw_only=True):
    """What the broker behind a server can do."""

    durability: Durability = Durability.SYNCED
    kinds: tuple[Kind, ...] = (Kind.SHARED, Kind.KEY_SHARED, Kind.MULTICAST)
    qos: tuple[int, ...] = (0, 1, 2)
    has_order_per_key: bool = True
    has_replay: bool = True
    has_dead_letters: bool = True
    has_readers: bool = True
    has_priority: bool = True
    has_delay: bool = True
    has_expiry: bool = True
    has_dedup: bool = True
    has_transactions: bool = True
    has_patterns: bool = True
    message_bytes_max: int = limits.BODY_BYTES_MAX


class Welcome(msgspec.Struct, kw_only=True):
    """What a server answers."""

    version: int
    server: str
    store: bytes
    """Which store this is: 16 bytes, the same for as long as it exists."""
    generation: int
    """How often the broker was started on it."""
    wall: int
    """The broker's time in Unix milliseconds."""
    reattach_s: float = 0.0
    abilities: Abilities = msgspec.field(default_factory=Abilities)
    limits: dict[str, int] = {}
    features: list[str] = []


_encode = msgspec.msgpack.Encoder().encode
_hello: Final = msgspec.msgpack.Decoder(Hello)
_welcome: Final = msgspec.msgpack.Decoder(Welcome)


def encode_hello(hello: Hello) -> bytes:
    """The payload of HELLO."""
    return MAGIC + _encode(hello)


def decode_hello(payload: Any) -> Hello:
    """What a client says. Raises ProtocolError."""
    data = bytes(payload)
    if not data.startswith(MAGIC):
        raise ProtocolError("HELLO does not begin with PENS")
    try:
        return _hello.decode(data[len(MAGIC) :])
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"HELLO cannot be decoded: {error}") from error


def choose_version(hello: Hello) -> int:
    """The newest version both speak. Raises Unsupported."""
    if not hello.low <= frames.VERSION <= hello.high:
        raise Unsupported(
            f"this server speaks version {frames.VERSION} of the protocol, the client "
            f"{hello.low} to {hello.high}: "
            + ("update the client" if hello.high < frames.VERSION else "update the server")
        )
    return frames.VERSION


def encode_welcome(welcome: Welcome) -> bytes:
    """The payload of WELCOME."""
    return _encode(welcome)


def decode_welcome(payload: Any) -> Welcome:
    """What a server says. Raises ProtocolError."""
    try:
        return _welcome.decode(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"WELCOME cannot be decoded: {error}") from error


# -- somebody else -------------------------------------------------------------------------------


def is_foreign(first: bytes) -> bool:
    """True when the first bytes of a connection cannot be those of a HELLO."""
    whole = frames.HEADER.pack(0, frames.Type.HELLO, 0, 0, 0, 0)
    # Length is at most 4 KiB; type, flags and zero stand for themselves; the magic follows.
    if len(first) > 1 and first[1] > frames.HELLO_BYTES_MAX >> 8:
        return True
    if any(first[2:4]) or first[4:8] != whole[4:8][: max(0, len(first) - 4)]:
        return True
    magic = first[frames.HEADER_BYTES :]
    return not MAGIC.startswith(magic[: len(MAGIC)])


def refuse_foreign(first: bytes, where: str) -> bytes:
    """What somebody is told who speaks another protocol; `where` names the right ports."""
    line = f"This port speaks Penstock's binary protocol, for programs; {where}\r\n"
    if not first.startswith(METHODS):
        return line.encode()
    head = (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(line.encode())}\r\nConnection: close\r\n\r\n"
    )
    return (head + line).encode()
