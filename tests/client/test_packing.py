"""Lists become batches: checked as a whole, cut by size, split by partition."""

from typing import Any

import msgspec
import pytest

from penstock.batch import Batch
from penstock.client import packing
from penstock.client.packing import BYTES_CUT, COUNT_CUT, pack, partition_of
from penstock.drivers.port import Capabilities
from penstock.vocabulary.errors import InvalidArgument, TooLarge, Unsupported
from penstock.vocabulary.limits import BODY_BYTES_MAX, KEY_BYTES_MAX
from penstock.vocabulary.message import Durability, Message

BARE = Capabilities(scheme="bare", durability=Durability.MEMORY)


def unpack(messages: list[Any], partitions: int = 1, turn: int = 0) -> list[tuple[int, int, Any]]:
    """(partition, index, body) of every packed message."""
    is_plain = not packing.has_fields(messages)
    found = []
    for parcel in pack(messages, partitions, turn, is_plain=is_plain):
        bodies = Batch(parcel.batch).bodies
        assert len(bodies) == len(parcel.indexes)
        found += [(parcel.partition, i, b) for i, b in zip(parcel.indexes, bodies, strict=True)]
    return found


def test_a_short_list_is_one_batch() -> None:
    assert unpack([b"a", "b", None or b""]) == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"")]


def test_a_long_list_is_cut_by_count() -> None:
    messages = [b"x"] * (2 * COUNT_CUT + 1)
    parcels = pack(messages, 1, 0, is_plain=True)
    assert [len(parcel.indexes) for parcel in parcels] == [COUNT_CUT, COUNT_CUT, 1]
    assert [index for _, index, _ in unpack(messages)] == list(range(len(messages)))


@pytest.mark.parametrize("made", [bytes, lambda n: Message(body=bytes(n))])
def test_a_heavy_list_is_cut_by_size(made: Any) -> None:
    messages = [made(300_000) for _ in range(20)]
    parcels = pack(messages, 1, 0, is_plain=not packing.has_fields(messages))
    assert len(parcels) >= 5
    assert all(len(parcel.batch) <= 2 * BYTES_CUT for parcel in parcels)
    assert [i for parcel in parcels for i in parcel.indexes] == list(range(20))


@pytest.mark.parametrize(
    ("messages", "size"),
    [
        ([b"ab", "c"], 3),
        ([Message(body=b"ab"), Message(body="c")], 3),
        ([Message(body=b"ab"), Message()], 2),
        ([b"ab", Message(body="c"), Message()], 3),
        ([Message(body=b"ab"), 7], 2),
    ],
)
def test_bodies_are_weighed_whatever_the_list_is_made_of(messages: list[Any], size: int) -> None:
    assert packing._total(messages) == size


def test_headers_that_weigh_more_than_bodies_are_cut_too() -> None:
    messages = [Message(headers={"a": "x" * 16_000}) for _ in range(1000)]
    parcels = pack(messages, 1, 0, is_plain=False)
    assert all(len(parcel.batch) <= 2 * BYTES_CUT for parcel in parcels)
    assert [i for parcel in parcels for i in parcel.indexes] == list(range(1000))


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (bytes(BODY_BYTES_MAX + 1), TooLarge, "message 11001: body"),
        (Message(key="k" * (KEY_BYTES_MAX + 1)), TooLarge, "message 11001: key"),
        (Message(headers={"a": 5}), InvalidArgument, "message 11001: header 'a'"),  # type: ignore[dict-item]
        (5, InvalidArgument, "message 11001: body must be"),
    ],
)
def test_the_message_that_is_wrong_is_named_by_its_place_in_the_list(
    wrong: Any, error: type[Exception], text: str
) -> None:
    messages = [*[b"x"] * 11_001, wrong, b"y"]
    with pytest.raises(error, match=text):
        pack(messages, 1, 0, is_plain=not packing.has_fields(messages))


def test_messages_are_split_by_key_then_id_then_turn() -> None:
    messages = [
        Message(body=b"0", key="a"), Message(body=b"1", id="a"), Message(body=b"2"), b"3",
        Message(body=b"4", key=b"a"), Message(body=b"5", key="a", id="z"),
    ]  # fmt: skip
    places = {index: partition for partition, index, _ in unpack(messages, 64, turn=5)}
    assert places[0] == places[1] == places[4] == places[5] == partition_of("a", None, 64, 0)
    assert places[2] == places[3] == 5


def test_bodies_only_go_to_one_partition_in_turn() -> None:
    assert {partition for partition, _, _ in unpack([b"x", "y"], 3, turn=7)} == {1}


@pytest.mark.parametrize("key", [5, ["a"]])
def test_a_key_that_is_neither_text_nor_bytes_is_refused(key: Any) -> None:
    with pytest.raises(InvalidArgument, match="key must be"):
        partition_of(key, None, 2, 0)


@pytest.mark.parametrize("one", ["text", b"bytes", Message(body=b"x"), {"a": 1}, 5])
def test_one_message_is_not_a_list(one: Any) -> None:
    with pytest.raises(InvalidArgument, match="list of messages"):
        packing.check_list(one)


def test_any_iterable_is_a_list() -> None:
    assert packing.check_list(iter([b"x"])) == [b"x"]
    assert packing.check_list((b"x",)) == (b"x",)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message(priority=1), "priority"),
        (Message(deliver_at=5.0), "deliver_at"),
        (Message(expires_at=5.0), "expires_at"),
    ],
)
def test_what_the_url_cannot_do_is_refused(message: Message, field: str) -> None:
    with pytest.raises(Unsupported, match=f"message 1: {field}.*not available"):
        packing.check_fields([b"x", message], BARE)


def test_an_id_is_refused_where_nobody_remembers_ids() -> None:
    with pytest.raises(Unsupported, match=r"message 1: id is not available on bare: URLs"):
        packing.check_fields([b"x", Message(id="a")], BARE)
    packing.check_fields([Message(id="a")], msgspec.structs.replace(BARE, has_dedup=True))


def test_a_value_that_is_no_body_gets_a_hint() -> None:
    error = InvalidArgument("no body")
    assert packing.with_hint(b"x", error) is error
    assert packing.with_hint({"a": 1}, error).text == "no body; for a JSON value use json="
