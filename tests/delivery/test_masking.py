"""The messages of frames that a mask names."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.batch.frame import Frame
from penstock.delivery.masking import masked


@given(st.integers(0, (1 << 12) - 1), st.integers(0, 5))
def test_masked_frames_hold_the_messages_whose_bit_is_set(mask: int, start: int) -> None:
    batch = encode_many([b"%d" % n for n in range(10)])
    frame = Frame(batch, range(5, 13), range(2, 10), 0, bytes(16), 0, 0)
    listed = msgspec.structs.replace(frame, offsets=list(frame.offsets))
    for each in (frame, listed, msgspec.structs.replace(frame, indexes=list(frame.indexes))):
        found = masked([each], start, mask)
        expected = [(o, o - 3) for o in range(5, 13) if mask >> (o - start) & 1]
        assert [pair for f in found for pair in zip(f.offsets, f.indexes, strict=True)] == expected
