"""What goes in comes out: one message, many messages, columns; and the limits of a batch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from penstock.batch import Batch, Columns, encode_columns, encode_many, encode_one, encode_short
from penstock.batch.encode import _columns
from penstock.vocabulary.errors import InvalidArgument, TooLarge
from penstock.vocabulary.limits import BATCH_BYTES_MAX, BATCH_COUNT_MAX, BODY_BYTES_MAX
from penstock.vocabulary.message import Message

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
BODY = st.none() | st.binary(max_size=300)
KEY = st.none() | TEXT | st.binary(max_size=20)
ID = st.none() | TEXT.filter(bool)
HEADERS = st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=3)
PRIORITY = st.integers(-32_768, 32_767)
MS = st.integers(0, 2**63 - 1)
SECONDS = st.none() | st.integers(1, 2**40).map(lambda ms: ms / 1000)
MESSAGE = st.builds(
    Message,
    body=BODY | TEXT,
    key=KEY,
    id=ID,
    headers=HEADERS,
    priority=PRIORITY,
    deliver_at=SECONDS,
    expires_at=SECONDS,
)


@given(BODY, KEY, ID, HEADERS, PRIORITY, MS, MS)
def test_one_message_comes_back_as_it_went(
    body: Any, key: Any, id: Any, headers: Any, priority: int, deliver_at: int, expires_at: int
) -> None:
    batch = Batch(encode_one(body, key, id, headers, priority, deliver_at, expires_at))
    batch.check()
    assert batch.count == 1
    assert batch.bodies == [body]
    assert batch.keys == (None if key is None else [key])
    assert batch.ids == (None if id is None else [id])
    assert batch.headers == ([headers] if headers else None)
    assert numbers(batch.priorities) == ([priority] if priority else None)
    assert numbers(batch.deliver_at) == ([deliver_at] if deliver_at else None)
    assert numbers(batch.expires_at) == ([expires_at] if expires_at else None)


@given(MESSAGE)
def test_one_message_has_the_same_bytes_by_either_way(message: Message) -> None:
    body = message.body.encode() if isinstance(message.body, str) else message.body
    assert encode_many([message]) == encode_one(
        body,
        message.key,
        message.id,
        message.headers,
        message.priority,
        round((message.deliver_at or 0) * 1000),
        round((message.expires_at or 0) * 1000),
    )


@given(st.lists(MESSAGE | TEXT | st.binary(max_size=50), min_size=1, max_size=40))
def test_many_messages_come_back_as_they_went(messages: list[Any]) -> None:
    batch = Batch(encode_many(messages))
    batch.check()
    full = [each if isinstance(each, Message) else Message(body=each) for each in messages]
    assert batch.count == len(full)
    assert batch.bodies == [
        each.body.encode() if isinstance(each.body, str) else each.body for each in full
    ]
    assert (batch.keys or [None] * len(full)) == [each.key for each in full]
    assert (batch.ids or [None] * len(full)) == [each.id for each in full]
    assert (batch.headers or [None] * len(full)) == [each.headers for each in full]
    zeros = [0] * len(full)
    assert (numbers(batch.priorities) or zeros) == [each.priority for each in full]
    assert (numbers(batch.deliver_at) or zeros) == [ms(each.deliver_at) for each in full]
    assert (numbers(batch.expires_at) or zeros) == [ms(each.expires_at) for each in full]


@given(st.lists(BODY, min_size=1, max_size=400))
def test_bodies_come_back_as_they_went(bodies: list[bytes | None]) -> None:
    assert Batch(encode_columns(Columns(bodies=bodies))).bodies == bodies


@given(st.lists(st.tuples(BODY, KEY, MS, st.integers(0, 2**32 - 1)), min_size=1, max_size=20))
def test_columns_of_re_homed_messages_come_back_as_they_went(rows: list[Any]) -> None:
    bodies, keys, published_at, attempts = (list(column) for column in zip(*rows, strict=True))
    batch = Batch(
        encode_columns(
            Columns(bodies=bodies, keys=keys, published_at=published_at, attempts=attempts)
        )
    )
    batch.check()
    assert batch.bodies == bodies
    assert (batch.keys or [None] * len(keys)) == keys
    assert numbers(batch.published_at) == (published_at if any(published_at) else None)
    assert numbers(batch.attempts) == (attempts if any(attempts) else None)


@given(st.lists(MESSAGE, min_size=1, max_size=10))
def test_decoded_columns_encode_to_the_same_bytes(messages: list[Message]) -> None:
    data = encode_many(messages)
    assert encode_columns(Batch(data).columns()) == data


SHORT = st.builds(Message, body=st.binary(max_size=300), key=st.none() | TEXT, id=ID)


@given(st.lists(SHORT | SHORT | MESSAGE, min_size=1, max_size=40))
def test_the_short_way_makes_the_same_bytes_as_the_long_one(messages: list[Any]) -> None:
    assert encode_short(messages, BODY_BYTES_MAX) in {None, encode_columns(_columns(messages))}


@pytest.mark.parametrize("count", [1, 16, 0xDA, 0xDB, 1_000, 65_536])
def test_messages_with_a_key_and_an_id_go_the_short_way(count: int) -> None:
    messages = [Message(body=b"x", key=f"k{n % 3}", id="i" * 255) for n in range(count)]
    data = encode_short(messages, count)
    assert data is not None
    assert data == encode_columns(_columns(list(messages)))
    assert encode_short(messages, count - 1) is None  # the bodies are too long together


class Word(str):
    __slots__ = ()


class Named(Message, frozen=True):
    pass


@pytest.mark.parametrize(
    "other",
    [
        b"x",
        Named(body=b"x"),
        Message(),
        Message(body="x"),
        Message(body=bytearray(b"x")),  # type: ignore[arg-type]
        Message(body=b"x", id="i" * 256),
        Message(body=b"x", id=""),
        Message(body=b"x", id="\ud800"),
        Message(body=b"x", id=Word("i")),
        Message(body=b"x", key="k" * 256),
        Message(body=b"x", key=b"k"),
        Message(body=b"x", key=None),
        Message(body=b"x", headers={}),
        Message(body=b"x", priority=1),
        Message(body=b"x", priority=False),
        Message(body=b"x", priority=0.0),  # type: ignore[arg-type]
        Message(body=b"x", deliver_at=1.0),
        Message(body=b"x", expires_at=0),
    ],
)
def test_what_has_more_to_be_looked_at_goes_the_long_way(other: Any) -> None:
    assert encode_short([Message(body=b"x", key="k", id="i"), other], 1_000) is None


def test_columns_of_defaults_are_left_out() -> None:
    defaults = Columns(bodies=[None], keys=[None], ids=[None], headers=[None], priorities=[0])
    assert encode_columns(defaults) == encode_one(None)
    assert len(encode_one(None)) == 20


def test_an_absent_body_is_not_an_empty_one() -> None:
    assert Batch(encode_one(None)).bodies == [None]
    assert Batch(encode_one(b"")).bodies == [b""]
    assert Batch(encode_many([Message(), Message(body=b"")])).bodies == [None, b""]


def test_key_hashes_are_of_the_bytes_of_the_key() -> None:
    batch = Batch(
        encode_many([Message(key="é"), Message(key="é".encode()), Message(), Message(key="")])
    )
    text_hash = xxh3_64_intdigest("é".encode())
    assert numbers(batch.key_hashes) == [text_hash, text_hash, 0, xxh3_64_intdigest(b"")]
    assert batch.keys == ["é", "é".encode(), None, ""]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_plain_bodies_may_be_any_bytes(kind: Any) -> None:
    assert encode_many([kind(b"abc"), b"d"]) == encode_many([b"abc", b"d"])


def test_subclasses_of_bytes_are_bytes() -> None:
    class Photo(bytes):
        __slots__ = ()

    assert Batch(encode_many([Photo(b"abc")])).bodies == [b"abc"]
    assert Batch(encode_one(Photo(b"abc"))).bodies == [b"abc"]


def test_any_sequence_of_messages_will_do() -> None:
    class Two:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, position: int) -> bytes:
            return (b"a", b"b")[position]

    anything: Any = Two()
    assert Batch(encode_many(anything)).bodies == [b"a", b"b"]


def test_large_batches_are_encoded_like_small_ones() -> None:
    bodies = [bytes([number]) * 30_000 for number in range(100)]
    batch = Batch(encode_many(bodies))
    batch.check()
    assert batch.bodies == bodies


# -- limits -------------------------------------------------------------------------------------


def test_one_message_names_what_is_too_large() -> None:
    with pytest.raises(TooLarge, match=r"^body of 1048577 bytes is over the limit of 1048576; "):
        encode_one(b"x" * (BODY_BYTES_MAX + 1))
    with pytest.raises(TooLarge, match=r"^key of 1025 bytes is over the limit of 1024; "):
        encode_one(b"", key="x" * 1025)
    with pytest.raises(TooLarge, match=r"^id of 257 bytes is over the limit of 256; "):
        encode_one(b"", id="x" * 257)
    with pytest.raises(TooLarge, match=r"^65 headers are over the limit of 64; "):
        encode_one(b"", headers={str(number): "" for number in range(65)})


def test_one_message_names_what_is_invalid() -> None:
    wrong: Any = {"body": 1}
    with pytest.raises(InvalidArgument, match=r"^body must be bytes, text or None, not dict$"):
        encode_one(wrong)
    with pytest.raises(InvalidArgument, match=r"^priority 32768 is outside"):
        encode_one(b"", priority=32_768)
    with pytest.raises(InvalidArgument, match=r"^deliver_at of -1 ms is outside"):
        encode_one(b"", deliver_at_ms=-1)
    with pytest.raises(InvalidArgument, match=r"^expires_at of 9223372036854775808 ms"):
        encode_one(b"", expires_at_ms=2**63)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (b"x" * (BODY_BYTES_MAX + 1), "message 17: body of 1048577 bytes is over the limit of 10"),
        ("é" * BODY_BYTES_MAX, "message 17: body of 2097152 bytes is over the limit of 1048576"),
        (Message(key="x" * 1025), "message 17: key of 1025 bytes is over the limit of 1024"),
        (Message(id="x" * 257), "message 17: id of 257 bytes is over the limit of 256"),
        (Message(headers={"a": "x" * 16_384}), "message 17: headers of 16385 bytes"),
    ],
)
def test_many_messages_name_the_first_that_is_too_large(wrong: Any, text: str) -> None:
    with pytest.raises(TooLarge, match=text):
        encode_many([b"right"] * 17 + [wrong])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (5, "message 17: body must be bytes, text or None, not int"),
        ("\ud800", "message 17: body is not valid Unicode text"),
        (Message(key="\ud800"), "message 17: key is not valid Unicode text"),
        (Message(id="\ud800"), "message 17: id is not valid Unicode text"),
        (Message(headers={"a": "\ud800"}), "message 17: header 'a' is not valid Unicode text"),
        (Message(priority=-32_769), "message 17: priority -32769 is outside"),
        (Message(deliver_at=-1.0), "message 17: deliver_at of -1000 ms is outside"),
        (Message(expires_at=float("nan")), "message 17: expires_at must be Unix seconds"),
    ],
)
def test_many_messages_name_the_first_that_is_invalid(wrong: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        encode_many([b"right"] * 17 + [wrong])


def test_a_batch_holds_at_least_one_message() -> None:
    with pytest.raises(InvalidArgument, match="at least one message"):
        encode_many([])


def test_a_batch_holds_a_limited_count_of_messages() -> None:
    assert Batch(encode_many([b""] * BATCH_COUNT_MAX)).count == BATCH_COUNT_MAX
    with pytest.raises(TooLarge, match="batch of 65537 messages is over the limit of 65536"):
        encode_many([b""] * (BATCH_COUNT_MAX + 1))


def test_a_batch_has_a_limited_size() -> None:
    spare = len(encode_many([b"x" * BODY_BYTES_MAX] * 7 + [b"x" * 70_000])) - 70_000
    fitting = [b"x" * BODY_BYTES_MAX] * 7 + [b"x" * (BATCH_BYTES_MAX - spare)]
    assert len(encode_many(fitting)) == BATCH_BYTES_MAX
    with pytest.raises(TooLarge, match="batch of 8388609 bytes is over the limit of 8388608"):
        encode_many([*fitting[:-1], fitting[-1] + b"x"])


def numbers(packed: memoryview | None) -> list[int] | None:
    return None if packed is None else packed.tolist()


def ms(seconds: float | None) -> int:
    return round((seconds or 0) * 1000)
