"""Reading a batch: lazily, with limits, and never anything but MalformedBatch on bad bytes."""

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from penstock.batch import Batch, Columns, encode_columns, encode_many, encode_one
from penstock.batch import format as layout
from penstock.batch.view import plain_bodies
from penstock.vocabulary.errors import InvalidArgument, MalformedBatch
from penstock.vocabulary.limits import BATCH_BYTES_MAX, BODY_BYTES_MAX
from penstock.vocabulary.message import Message

FULL = Columns(
    bodies=[b"first", None, b"", b"fourth"],
    keys=["north", b"\x00\xff", None, ""],
    ids=["a", None, "c", "d"],
    headers=[None, {"type": "order"}, None, {"source": "é"}],
    priorities=[0, -3, 9, 0],
    deliver_at=[0, 1, 2, 0],
    expires_at=[5, 0, 0, 2**62],
    published_at=[1, 2, 3, 4],
    attempts=[0, 1, 0, 2**32 - 1],
)
"""Four messages with every column and every kind of value."""


def read_all(data: bytes, *, verify: bool = True) -> Columns | None:
    """Everything one can ask of a batch; None when it was refused."""
    try:
        batch = Batch(data, verify=verify)
        columns = batch.columns()
        batch.check()
        batch.select(range(batch.count))
    except MalformedBatch:
        return None
    return columns


def with_column(kind: int, column: bytes, *, count: int = 1) -> Batch:
    return Batch(layout.assemble(count, [(kind, column)]))


def test_every_column_comes_back() -> None:
    batch = Batch(encode_columns(FULL))
    batch.check()
    assert batch.columns() == FULL


def test_absent_columns_are_none() -> None:
    batch = Batch(encode_one(b"body"))
    assert batch.columns() == Columns(bodies=[b"body"])
    assert batch.key_hashes is None


def test_a_column_is_decoded_once() -> None:
    batch = Batch(encode_columns(FULL))
    assert batch.bodies is batch.bodies
    assert batch.keys is batch.keys
    assert batch.priorities is batch.priorities


@pytest.mark.parametrize(
    "keys", [["a", "b"], [b"a", b"b"], ["a", None], [b"a", None], ["a", b"a", None]]
)
def test_keys_keep_being_text_or_bytes(keys: list[Any]) -> None:
    assert Batch(encode_columns(Columns(bodies=[None] * len(keys), keys=keys))).keys == keys


# -- select -------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_select_rebuilds_the_messages_at_the_indexes(indexes: list[int]) -> None:
    rows = list(zip(*msgspec.structs.astuple(FULL), strict=True))
    picked = zip(*(rows[index] for index in indexes), strict=True)
    expected = Columns(**dict(zip(FULL.__struct_fields__, map(list, picked), strict=True)))
    assert Batch(encode_columns(FULL)).select(indexes) == encode_columns(expected)


def test_selecting_all_gives_the_same_bytes() -> None:
    data = encode_columns(FULL)
    assert Batch(data).select(range(4)) == data


def test_select_leaves_out_columns_that_become_defaults() -> None:
    data = encode_many([Message(body=b"a"), Message(body=b"b", key="k", priority=1)])
    assert Batch(data).select([0]) == encode_one(b"a")


@pytest.mark.parametrize("indexes", [[], [4], [-1], [0, 4]])
def test_select_refuses_indexes_outside_the_batch(indexes: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="batch of 4"):
        Batch(encode_columns(FULL)).select(indexes)


# -- check --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (Columns(bodies=[b"", b"x" * (BODY_BYTES_MAX + 1)]), "message 1: body of 1048577 bytes"),
        (Columns(bodies=[b"x" * BODY_BYTES_MAX] * 8), "batch of 8388677 bytes is over the limit"),
        (Columns(bodies=[None], keys=["x" * 1025]), "message 0: key of 1025 bytes"),
        (Columns(bodies=[None], keys=[b"x" * 1025]), "message 0: key of 1025 bytes"),
        (Columns(bodies=[None], ids=["é" * 129]), "message 0: id of 258 bytes"),
        (Columns(bodies=[None], headers=[dict.fromkeys(map(str, range(65)), "")]), "65 headers"),
        (Columns(bodies=[None], headers=[{"": "x" * 16_385}]), "of 16385 bytes is over the limit"),
        (Columns(bodies=[None, None], deliver_at=[0, -1]), "message 1: deliver_at of -1 ms"),
        (Columns(bodies=[None], expires_at=[-1]), "message 0: expires_at of -1 ms"),
        (Columns(bodies=[None], published_at=[-1]), "message 0: published_at of -1 ms"),
    ],
)
def test_check_refuses_what_is_over_a_limit(columns: Columns, text: str) -> None:
    batch = Batch(encode_columns(columns))
    with pytest.raises(MalformedBatch, match=text):
        batch.check()


def test_check_accepts_everything_at_its_limit() -> None:
    room = BATCH_BYTES_MAX - len(encode_columns(Columns(bodies=[b"x" * BODY_BYTES_MAX] * 7)))
    bodies: list[bytes | None] = [b"x" * BODY_BYTES_MAX] * 7
    bodies.append(b"x" * (room - 5))
    data = encode_columns(Columns(bodies=bodies))
    assert len(data) == BATCH_BYTES_MAX
    Batch(data).check()
    headers = {str(number): "x" * 200 for number in range(64)}
    Batch(encode_one(b"", "x" * 1024, "x" * 256, headers, 32_767)).check()


def test_check_refuses_key_hashes_that_are_not_of_the_keys() -> None:
    columns = [(layout.KEYS, msgspec.msgpack.encode(["a"])), (layout.KEY_HASHES, bytes(8))]
    batch = Batch(layout.assemble(1, columns))
    with pytest.raises(MalformedBatch, match="not those of the keys"):
        batch.check()


def test_check_does_not_decode_bodies() -> None:
    batch = with_column(layout.BODIES, b"\x91\xa1x")
    batch.check()
    with pytest.raises(MalformedBatch, match="cannot be decoded"):
        _ = batch.bodies


# -- bad bytes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (layout.BODIES, b"\x91\xa1x"),
        (layout.BODIES, b"\x91\xc4\x05abc"),
        (layout.BODIES, b"\x91\xc0\xc0"),
        (layout.BODIES, b"\x91"),
        (layout.BODIES, b"\x91" * 2000),
        (layout.IDS, b"\x91\xc4\x01x"),
        (layout.IDS, b"\x91\xa1\xff"),
        (layout.HEADERS, b"\x91\x81\xa1a\x01"),
        (layout.HEADERS, b"\x91\x81\x01\xa1a"),
        (layout.HEADERS, b"\x91\xdf\xff\xff\xff\xff"),
    ],
)
def test_a_column_of_other_values_is_malformed(kind: int, column: bytes) -> None:
    assert read_all(with_column(kind, column).data) is None


@pytest.mark.parametrize(
    "column",
    [
        b"\x91\x01",
        b"\x91\xa1\xff",
        b"\x91\xa5abc",
        b"\x92\xa1a\x01",
        b"\x92\xc4\x01a\xa1\xff",
        b"\x92\xc4\x01a\x91\xc0",
        b"\x93\xc4\x01a\xa1a\xdd\xff\xff\xff\xff",
        b"\x93\xc4\x01a\xa1a" + b"\x91" * 5000 + b"\xc0",
    ],
)
def test_keys_of_other_values_are_malformed(column: bytes) -> None:
    count = column[0] & 0x0F
    columns = [(layout.KEYS, column), (layout.KEY_HASHES, bytes(8 * count))]
    batch = Batch(layout.assemble(count, columns))
    with pytest.raises(MalformedBatch):
        _ = batch.keys


def test_every_flipped_bit_is_noticed() -> None:
    data = encode_columns(FULL)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(MalformedBatch):
                Batch(bytes(flipped))


def test_every_truncation_is_noticed() -> None:
    data = encode_columns(FULL)
    for end in range(len(data)):
        with pytest.raises(MalformedBatch):
            Batch(data[:end])
        with pytest.raises(MalformedBatch):
            Batch(data[:end], verify=False)


@given(st.binary(max_size=200))
@example(b"")
def test_random_bytes_are_refused(data: bytes) -> None:
    assert read_all(data) is None


@given(st.binary(max_size=120), st.integers(0, 12), st.integers(0, 5))
def test_random_content_under_a_right_header_gives_only_malformed(
    content: bytes, column_count: int, count: int
) -> None:
    head = struct.pack("<BBHII", 1, 0, column_count, count, 20 + len(content))
    data = head + content
    read_all(data + struct.pack("<Q", xxh3_64_intdigest(data)))


@given(st.data())
def test_changed_bytes_under_a_right_checksum_give_only_malformed(draw: st.DataObject) -> None:
    data = bytearray(encode_columns(FULL)[:-8])
    for _ in range(draw.draw(st.integers(1, 4))):
        position = draw.draw(st.integers(0, len(data) - 1))
        data[position] = draw.draw(st.integers(0, 255))
    read_all(bytes(data) + struct.pack("<Q", xxh3_64_intdigest(data)))


@given(
    st.sampled_from([layout.BODIES, layout.KEYS, layout.IDS, layout.HEADERS]),
    st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-5, 2**40)
            | st.text(max_size=3)
            | st.binary(max_size=3)
            | st.floats(allow_nan=False),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_columns_of_any_values_give_only_malformed(kind: int, values: list[Any]) -> None:
    columns = [(kind, msgspec.msgpack.encode(values))]
    if kind == layout.KEYS:
        columns.append((layout.KEY_HASHES, bytes(8 * len(values))))
    read_all(layout.assemble(len(values), columns))


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=5))
def test_bodies_alone_are_read_without_opening_the_batch(bodies: list[bytes]) -> None:
    assert plain_bodies(encode_many(bodies)) == bodies
    mixed = [Message(body=body, key="k") for body in bodies]
    assert plain_bodies(encode_many(mixed)) is None


def test_a_batch_without_bodies_has_no_plain_ones() -> None:
    assert plain_bodies(encode_one(None)) is None
    assert plain_bodies(encode_one(None, id="a")) is None
    assert plain_bodies(encode_one(b"")) == [b""]
