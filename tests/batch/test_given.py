"""Given ids are found without opening the rest of a batch, and only where there are some."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_columns, encode_many, encode_one
from penstock.batch.encode import Columns
from penstock.batch.format import IDS, assemble
from penstock.batch.given import given_ids, ids_column, is_copied, messages_in
from penstock.vocabulary.errors import MalformedBatch
from penstock.vocabulary.message import Message

messages = st.builds(
    Message,
    body=st.none() | st.binary(max_size=5),
    id=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
    key=st.none() | st.binary(min_size=1, max_size=5),
    headers=st.none() | st.just({"a": "b"}),
    priority=st.integers(0, 3),
)


@given(st.lists(messages, min_size=1, max_size=20))
def test_ids_are_those_that_were_given(batch: list[Message]) -> None:
    ids = [each.id for each in batch]
    data = encode_many(batch)
    assert given_ids(data) == (ids if any(ids) else None)
    assert messages_in(data) == len(batch)


def test_a_message_may_be_an_id_and_nothing_else() -> None:
    assert given_ids(encode_one(None, id="x")) == ["x"]
    assert given_ids(encode_many([b"a", b"b"])) is None


def test_copies_say_when_they_were_published_and_keep_their_ids() -> None:
    columns = Columns(bodies=[b"a"], ids=["x"], priorities=[1], published_at=[5])
    assert is_copied(encode_columns(columns))
    assert given_ids(encode_columns(columns)) == ["x"]
    columns.published_at = None
    assert not is_copied(encode_columns(columns))
    assert not any(is_copied(encode_columns(columns)[:length]) for length in range(30))


@pytest.mark.parametrize("batch", [b"", b"\1\0", encode_one(None), encode_one(None, key="k")])
def test_nothing_given_is_nothing_found(batch: bytes) -> None:
    assert given_ids(batch) is None


@pytest.mark.parametrize(
    "batch",
    [
        assemble(1, [(IDS, b"\x91\x01")]),
        assemble(1, [(IDS, b"\x93\xa1a")]),
        encode_one(b"a", key="k", id="x")[:14],
    ],
)
def test_ids_that_cannot_be_read_are_refused(batch: bytes) -> None:
    with pytest.raises(MalformedBatch, match="ids of the batch cannot be decoded"):
        given_ids(batch)


def test_the_column_is_the_ids_as_they_lie_in_the_batch() -> None:
    column = ids_column(encode_many([Message(id="a", key="k"), Message(id="bc", body=b"d")]))
    assert bytes(column or b"") == b"\x92\xa1a\xa2bc"
    assert ids_column(encode_one(b"a", key="k")) is None
