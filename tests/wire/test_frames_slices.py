"""Slices on the wire: batches as they are, offsets and indexes as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.batch.frame import Frame, Slice
from penstock.vocabulary.errors import ProtocolError
from penstock.wire import frames
from penstock.wire.frames import MORE, Malformed, Reader, Type
from penstock.wire.frames_slices import list_frames, read_frames, read_slice, slice_frames

PUBLISHER = bytes(range(16))
BATCH = encode_many([b"%d" % n for n in range(10)])


def framed(offsets: object, indexes: object, batch: bytes = BATCH) -> Frame:
    return Frame(batch, offsets, indexes, 17, PUBLISHER, 3, 1 << 50)  # type: ignore[arg-type]


def sent(part: Slice) -> list[tuple[int, Slice]]:
    reader = Reader(frames.FROM_SERVER)
    reader.feed(b"".join(slice_frames(Type.SLICE, 5, part)))
    got = []
    while (found := reader.next()) is not None:
        assert not isinstance(found, Malformed)
        kind, flags, number, payload = found
        assert (kind, number) == (Type.SLICE, 5)
        got.append((flags, read_slice(payload)))
    return got


@pytest.mark.parametrize(
    ("offsets", "indexes"),
    [
        (range(100, 110), range(10)),
        (range(100, 103), [0, 4, 9]),
        ([7, 9, 1 << 40], range(3)),
        ([7, 9], [1, 3]),
        (range(5, 6), range(3, 4)),
    ],
)
def test_a_slice_arrives_as_it_was(offsets: object, indexes: object) -> None:
    part = Slice(9, 2, 5, 1 << 41, 3, [framed(offsets, indexes), framed(range(2), range(2))])
    ((flags, got),) = sent(part)
    assert flags == 0
    assert got == part


def test_a_void_slice_has_no_frames() -> None:
    part = Slice(9, 0, 5, 6, 1, [])
    assert sent(part) == [(0, part)]


def test_a_large_slice_goes_in_parts() -> None:
    batch = encode_many([bytes(700_000)])
    part = Slice(1, 0, 0, 3, 1, [framed(range(n, n + 1), range(1), batch) for n in range(3)])
    got = sent(part)
    assert [flags for flags, _ in got] == [MORE, MORE, 0]
    assert [frame for _, piece in got for frame in piece.frames] == part.frames


def test_lists_of_batches_have_a_head_of_their_own() -> None:
    reader = Reader(frames.FROM_SERVER)
    reader.feed(b"".join(list_frames(Type.ANSWER, 4, b"head", [framed(range(3), [1, 2, 5])])))
    found = reader.next()
    assert found is not None
    assert not isinstance(found, Malformed)
    payload = found[3]
    assert bytes(payload[:4]) == b"head"
    assert read_frames(payload, 4) == [framed(range(3), [1, 2, 5])]


def test_what_is_cut_is_refused() -> None:
    whole = b"".join(slice_frames(Type.SLICE, 5, Slice(1, 0, 0, 3, 1, [framed([0, 2], [1, 2])])))
    payload = whole[frames.HEADER_BYTES :]
    for count in range(len(payload)):
        if count == 32:
            continue  # a slice without frames
        with pytest.raises(ProtocolError):
            read_slice(memoryview(payload[:count]))


@given(st.binary(max_size=400))
def test_invented_payloads_are_refused_or_read_and_nothing_else(data: bytes) -> None:
    try:
        read_slice(memoryview(data))
    except ProtocolError:
        return
