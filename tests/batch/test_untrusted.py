"""Batches from outside: the sound ones pass, and no other one does."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from penstock.batch import Columns, encode_columns, encode_many
from penstock.batch import format as layout
from penstock.batch.untrusted import check_untrusted
from penstock.batch.view import Batch
from penstock.vocabulary.errors import MalformedBatch, TooLarge
from penstock.vocabulary.message import Message


def made(count: int, *columns: tuple[int, bytes]) -> bytes:
    return layout.assemble(count, columns)


def bodies(values: Any) -> tuple[int, bytes]:
    return layout.BODIES, msgpack.encode(values)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 300])
@pytest.mark.parametrize("size", [0, 1, 100, 255, 256, 257, 5_000])
def test_bodies_of_one_length_pass(count: int, size: int) -> None:
    check_untrusted(encode_many([bytes(size)] * count), count)


def test_everything_a_client_can_publish_passes() -> None:
    rows: list[list[Any]] = [
        [b"a", b"bb", b""],
        [Message(body=None)],
        [Message(body="ü", key="k", id="i", headers={"a": "b"}, priority=-5, deliver_at=1e9)],
        [Message(body=b"x", key=b"\xff"), Message(key="k"), b"y"],
        [bytes(70_000)] * 3,
        [b"x" * n for n in range(200)],
        [Message(body=None, id="only")] * 20,
    ]
    for row in rows:
        check_untrusted(encode_many(row), len(row))


@pytest.mark.parametrize(
    "values",
    [
        ["text", "text"], [1, 2], [b"x", "x"], [b"x", 1.5], [[], []], [{}, {}], [b"xx", [b"y"]],
        [True, None],
    ],
)  # fmt: skip
def test_a_column_that_is_no_list_of_bodies_is_refused(values: list[Any]) -> None:
    with pytest.raises(MalformedBatch):
        check_untrusted(made(2, bodies(values)), 2)


def test_a_body_that_reaches_over_the_next_is_refused() -> None:
    # Heads that lie evenly, but of which the second one is inside of a longer first body.
    column = bytearray(msgpack.encode([b"abcd", b"abcd"]))
    column[2] = 5
    with pytest.raises(MalformedBatch):
        check_untrusted(made(2, (layout.BODIES, bytes(column))), 2)


def test_a_count_that_is_not_the_batch_is_refused() -> None:
    data = encode_many([b"a", b"b"])
    for count in (0, 1, 3, -1, 1 << 40):
        with pytest.raises(MalformedBatch):
            check_untrusted(data, count)


def test_a_column_that_the_broker_writes_is_refused() -> None:
    columns = Columns(bodies=[b"a"], published_at=[5], attempts=[5])
    with pytest.raises(MalformedBatch, match="broker alone"):
        check_untrusted(encode_columns(columns), 1)


def test_copies_say_when_they_were_first_published() -> None:
    check_untrusted(encode_columns(Columns(bodies=[b"a"], ids=["x"], published_at=[5])), 1)
    with pytest.raises(MalformedBatch, match="published_at"):
        check_untrusted(encode_columns(Columns(bodies=[b"a", b"b"], published_at=[5, -5])), 2)


def test_limits_hold() -> None:
    with pytest.raises(TooLarge):
        check_untrusted(bytes(9 * 1024 * 1024), 1)
    huge = made(2, bodies([b"x", bytes(1024 * 1024 + 1)]))
    with pytest.raises(MalformedBatch):
        check_untrusted(huge, 2)
    with pytest.raises(MalformedBatch):
        check_untrusted(made(1, bodies([b"x"]), (layout.IDS, msgpack.encode(["i" * 300]))), 1)


def test_text_that_is_no_text_is_refused() -> None:
    wrong = b"\x91\xa2\xff\xfe"
    for kind in (layout.IDS, layout.HEADERS):
        with pytest.raises(MalformedBatch):
            check_untrusted(made(1, bodies([b"x"]), (kind, wrong)), 1)


def test_every_changed_bit_is_noticed() -> None:
    data = encode_many([b"abc", b"def"])
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedBatch):
            check_untrusted(bytes(changed), 2)


@given(st.integers(0, 2**32), st.integers(0, 6))
def test_what_passes_can_be_read(seed: int, changes: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([0, 3, 3, 3, 200, 300]) for _ in range(chance.randint(1, 20))]
    column = bytearray(msgpack.encode([chance.randbytes(size) for size in sizes]))
    for _ in range(changes):
        column[chance.randrange(len(column))] = chance.choice([0xC4, 0xC5, 0x90, 0xC0, 0, 2, 255])
    data = made(len(sizes), (layout.BODIES, bytes(column)))
    try:
        check_untrusted(data, len(sizes))
    except MalformedBatch:
        return
    found = Batch(data).bodies
    assert len(found) == len(sizes)
    assert all(body is None or isinstance(body, bytes) for body in found)


@given(st.binary(max_size=200), st.integers(0, 5))
def test_invented_bytes_are_refused(data: bytes, count: int) -> None:
    with pytest.raises(MalformedBatch):
        check_untrusted(data, count)
