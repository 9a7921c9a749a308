"""Frames: which messages of a stored batch are meant, and how they move to a new home."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Batch, encode_columns, encode_many
from penstock.batch.encode import Columns
from penstock.batch.frame import Frame, Slice, frame_of, gather
from penstock.vocabulary.message import Message, render_id
from penstock.vocabulary.records import Copied, Published

PUBLISHER = b"\x01" * 16


def published(count: int, base: int = 10, kept: tuple[int, ...] | None = None) -> Published:
    batch = encode_many([b"%d" % number for number in range(count)])
    stored = count if kept is None else len(kept)
    return Published(1, 0, base, stored, PUBLISHER, 3, 100, 5_000, batch, kept)


def messages(frame: Frame) -> list[tuple[int, bytes | None]]:
    bodies = Batch(frame.batch).bodies
    return [(o, bodies[i]) for o, i in zip(frame.offsets, frame.indexes, strict=True)]


# -- from a record -----------------------------------------------------------------------------


def test_a_whole_record_is_one_frame() -> None:
    frame = frame_of(published(3), 0, 100)
    assert messages(frame) == [(10, b"0"), (11, b"1"), (12, b"2")]
    assert (frame.publisher, frame.epoch, frame.sequence) == (PUBLISHER, 3, 100)
    assert frame.published_at == 5_000


@given(st.integers(1, 8), st.integers(0, 25), st.integers(0, 25))
def test_only_the_asked_part_is_meant(count: int, start: int, end: int) -> None:
    frame = frame_of(published(count), start, end)
    expected = [o for o in range(10, 10 + count) if start <= o < end]
    assert messages(frame) == [(offset, b"%d" % (offset - 10)) for offset in expected]


def test_a_record_that_kept_some_messages_means_those() -> None:
    record = published(5, kept=(2, 3, 4))
    assert messages(frame_of(record, 10, 13)) == [(10, b"2"), (11, b"3"), (12, b"4")]
    assert messages(frame_of(record, 11, 12)) == [(11, b"3")]


def test_a_copied_record_means_its_own_offsets() -> None:
    batch = encode_many([b"a", b"b", b"c"])
    record = Copied(1, 0, (4, 7, 9), batch)
    assert messages(frame_of(record, 0, 100)) == [(4, b"a"), (7, b"b"), (9, b"c")]
    assert messages(frame_of(record, 5, 9)) == [(7, b"b")]
    assert messages(frame_of(record, 5, 6)) == []


# -- ids and times -----------------------------------------------------------------------------


def test_a_given_id_is_kept_and_an_absent_one_is_rendered() -> None:
    batch = encode_many([Message(body=b"a", id="given"), Message(body=b"b")])
    frame = frame_of(Published(1, 0, 0, 2, PUBLISHER, 3, 100, 5_000, batch), 0, 2)
    view = Batch(batch)
    assert [frame.id_of(view, index) for index in (0, 1)] == [
        "given",
        render_id(PUBLISHER, 3, 101),
    ]


def test_an_id_counts_from_the_first_sequence_of_the_batch_kept_or_not() -> None:
    frame = frame_of(published(5, kept=(3, 4)), 10, 12)
    view = Batch(frame.batch)
    ids = [frame.id_of(view, index) for index in frame.indexes]
    assert ids == [render_id(PUBLISHER, 3, 103), render_id(PUBLISHER, 3, 104)]


def test_a_time_in_the_batch_beats_the_time_of_the_record() -> None:
    batch = encode_columns(Columns(bodies=[b"a", b"b"], published_at=[7, 8]))
    frame = frame_of(Published(1, 0, 0, 2, PUBLISHER, 0, 0, 5_000, batch), 0, 2)
    assert [frame.published_at_of(Batch(batch), index) for index in (0, 1)] == [7, 8]
    plain = frame_of(published(1), 10, 11)
    assert plain.published_at_of(Batch(plain.batch), 0) == 5_000


# -- to a new home -----------------------------------------------------------------------------


def test_gathered_messages_carry_ids_and_times_of_their_own() -> None:
    offsets, columns = gather([frame_of(published(3), 11, 13), frame_of(published(2, 50), 50, 51)])
    assert offsets == [11, 12, 50]
    assert columns.bodies == [b"1", b"2", b"0"]
    assert columns.ids == [
        render_id(PUBLISHER, 3, 101),
        render_id(PUBLISHER, 3, 102),
        render_id(PUBLISHER, 3, 100),
    ]
    assert columns.published_at == [5_000, 5_000, 5_000]


def test_gathered_messages_keep_every_column() -> None:
    full = Message(
        body=b"x", key=b"k", id="i", headers={"a": "b"}, priority=-3, deliver_at=5.0, expires_at=9.0
    )
    batch = encode_many([full, Message(key="text")])
    _, columns = gather([frame_of(Published(1, 0, 0, 2, PUBLISHER, 0, 0, 1, batch), 0, 2)])
    again = Batch(encode_columns(columns))
    assert again.bodies == [b"x", None]
    assert again.keys == [b"k", "text"]
    assert again.headers == [{"a": "b"}, None]
    assert list(again.priorities or ()) == [-3, 0]
    assert list(again.deliver_at or ()) == [5_000, 0]
    assert list(again.expires_at or ()) == [9_000, 0]


def test_gathered_messages_keep_the_attempts_they_had() -> None:
    batch = encode_columns(Columns(bodies=[b"a", b"b"], attempts=[4, 0]))
    _, columns = gather([frame_of(Copied(1, 0, (3, 5), batch), 0, 9)])
    assert columns.attempts == [4, 0]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_gathering_twice_changes_nothing(sizes: list[int]) -> None:
    base = 0
    frames = []
    for size in sizes:
        frames.append(frame_of(published(size, base), base, base + size))
        base += size
    offsets, once = gather(frames)
    batch = encode_columns(once)
    again_offsets, twice = gather([frame_of(Copied(1, 0, tuple(offsets), batch), 0, base)])
    assert again_offsets == offsets
    assert encode_columns(twice) == batch


def test_a_slice_is_what_one_lease_hands_over() -> None:
    part = Slice(7, 0, 10, 12, 2, [frame_of(published(3), 10, 12)])
    assert (part.lease_id, part.partition, part.start, part.end, part.attempt) == (7, 0, 10, 12, 2)
    assert [offset for frame in part.frames for offset in frame.offsets] == [10, 11]
