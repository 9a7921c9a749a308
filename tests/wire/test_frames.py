"""The codec of frames: whole, byte by byte, cut at random, changed and invented."""

import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import frames
from penstock.wire.frames import (
    HEADER_BYTES,
    MORE,
    Malformed,
    Reader,
    Type,
    frame,
    frame_of,
    read_all,
)

PAYLOADS = [b"", b"x", b"hello" * 20, bytes(range(256)) * 40]


def sample() -> list[tuple[int, int, int, bytes]]:
    kinds = [Type.ACK, Type.PUBLISH, Type.PING, Type.ATTACH]
    return [
        (kind, MORE if n % 2 else 0, n * 1_000_003 & 0xFFFF_FFFF, payload)
        for n, (kind, payload) in enumerate(zip(kinds, PAYLOADS, strict=True))
    ]


def encoded(rows: list[tuple[int, int, int, bytes]]) -> bytes:
    return b"".join(frame(kind, number, payload, flags) for kind, flags, number, payload in rows)


def taken(reader: Reader) -> Iterator[tuple[int, int, int, bytes]]:
    for found in read_all(reader):
        assert not isinstance(found, Malformed), found.text
        kind, flags, number, payload = found
        yield kind, flags, number, bytes(payload)


def test_frames_come_out_as_they_went_in() -> None:
    reader = Reader(frames.FROM_CLIENT)
    reader.feed(encoded(sample()))
    assert list(taken(reader)) == sample()
    assert not reader.has_begun


def test_byte_by_byte_is_the_same_as_whole() -> None:
    reader = Reader(frames.FROM_CLIENT)
    got: list[tuple[int, int, int, bytes]] = []
    for byte in encoded(sample()):
        room = reader.room()
        assert len(room) > 0
        room[0] = byte
        reader.took(1)
        got += taken(reader)
    assert got == sample()


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_any_cuts_are_the_same_as_whole(seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    rows = sample() * rounds
    data = encoded(rows)
    reader = Reader(frames.FROM_CLIENT)
    got: list[tuple[int, int, int, bytes]] = []
    at = 0
    while at < len(data):
        room = reader.room()
        count = min(len(room), len(data) - at, chance.choice([1, 3, 19, 20, 21, 700, 5_000]))
        room[:count] = data[at : at + count]
        reader.took(count)
        at += count
        got += taken(reader)
    assert got == rows


def test_a_frame_in_pieces_has_the_same_bytes() -> None:
    pieces = [b"head", b"batch" * 100, b""]
    whole = frame(Type.PUBLISH, 7, b"".join(pieces), MORE)
    assert b"".join(frame_of(Type.PUBLISH, 7, pieces, MORE)) == whole


def test_a_long_payload_goes_in_fragments() -> None:
    payload = random.Random(1).randbytes(2 * frames.PART_BYTES_CUT + 17)
    reader = Reader(frames.FROM_SERVER)
    reader.feed(b"".join(frames.fragments(Type.ANSWER, 9, payload)))
    got = list(taken(reader))
    assert [flags for _, flags, _, _ in got] == [MORE, MORE, 0]
    assert b"".join(part for _, _, _, part in got) == payload


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(frames.FROM_CLIENT))
def test_a_length_over_the_limit_is_refused_before_anything_is_allocated(kind: int) -> None:
    reader = Reader(frames.FROM_CLIENT)
    reader.feed(frames.HEADER.pack(frames.FROM_CLIENT[kind] + 1, kind, 0, 0, 1, 0))
    found = reader.next()
    assert isinstance(found, Malformed)
    assert str(frames.FROM_CLIENT[kind]) in found.text


def test_two_gibibytes_cost_nothing() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        reader = Reader(frames.FROM_CLIENT)
        reader.feed(frames.HEADER.pack(2 * 1024**3, Type.PUBLISH, 0, 0, 1, 0))
        found = reader.next()
        assert isinstance(found, Malformed)
        assert "2147483648" in found.text
        assert tracemalloc.get_traced_memory()[1] - before < 64 * 1024
    finally:
        tracemalloc.stop()


def test_the_longest_frame_is_taken() -> None:
    payload = bytes(frames.PUBLISH_BYTES_MAX)
    reader = Reader(frames.FROM_CLIENT)
    data = frame(Type.PUBLISH, 1, payload)
    at = 0
    while at < len(data):
        room = reader.room()
        count = min(len(room), len(data) - at)
        room[:count] = data[at : at + count]
        reader.took(count)
        at += count
        if at < len(data):
            assert reader.next() is None
    ((_, _, _, got),) = taken(reader)
    assert len(got) == len(payload)
    assert reader.capacity <= frames.PUBLISH_BYTES_MAX + HEADER_BYTES + frames.BUFFER_BYTES_USUAL
    reader.shrink()
    assert reader.capacity == frames.BUFFER_BYTES_FIRST


def test_small_frames_take_little_memory() -> None:
    reader = Reader(frames.FROM_CLIENT)
    data = encoded([(Type.PING, 0, n, b"") for n in range(10_000)])
    at = count = 0
    while at < len(data):
        room = reader.room()
        size = min(len(room), len(data) - at)
        room[:size] = data[at : at + size]
        reader.took(size)
        at += size
        count += len(list(taken(reader)))
    assert count == 10_000
    assert reader.capacity <= frames.BUFFER_BYTES_USUAL


def test_only_hello_comes_first() -> None:
    reader = Reader(frames.BEFORE_HELLO)
    reader.feed(frame(Type.PUBLISH, 1, b"x"))
    assert isinstance(reader.next(), Malformed)


def test_unknown_types_and_a_wrong_zero_are_refused() -> None:
    for head in (
        frames.HEADER.pack(0, 200, 0, 0, 0, 0),
        frames.HEADER.pack(0, Type.PING, 0, 9, 0, 0),
    ):
        reader = Reader(frames.FROM_CLIENT)
        reader.feed(head)
        assert isinstance(reader.next(), Malformed)


def test_every_changed_bit_is_noticed() -> None:
    whole = frame(Type.ACK, 77, b"payload of an ack")
    for bit in range(len(whole) * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        reader = Reader(frames.FROM_CLIENT)
        reader.feed(data)
        found = reader.next()
        # A longer length waits for bytes that never come; everything else is refused.
        assert found is None or isinstance(found, Malformed)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_invented_bytes_never_do_harm(parts: list[bytes]) -> None:
    reader = Reader(frames.FROM_CLIENT)
    for part in parts:
        reader.feed(part)
        for found in read_all(reader):
            assert isinstance(found, Malformed)
            return
        assert reader.capacity <= frames.UNIT_BYTES_MAX + HEADER_BYTES


def test_limits_of_both_sides_know_every_type() -> None:
    assert set(frames.FROM_CLIENT) | set(frames.FROM_SERVER) == set(Type)
