"""The messages of frames that a mask names."""

from array import array
from collections.abc import Iterable, Sequence

import msgspec

from penstock.batch.frame import Frame
from penstock.delivery.offers import places_in
from penstock.delivery.traits import Offsets


def masked(frames: Iterable[Frame], start: int, mask: int) -> list[Frame]:
    """The messages of some frames whose bit, counted from offset `start`, is set."""
    found: list[Frame] = []
    for frame in frames:
        offsets, indexes = frame.offsets, frame.indexes
        if not isinstance(offsets, range):
            chosen = [at for at, offset in enumerate(offsets) if mask >> (offset - start) & 1]
            if len(chosen) == len(offsets):
                found.append(frame)
            elif chosen:
                picked = [offsets[at] for at in chosen], [indexes[at] for at in chosen]
                found.append(msgspec.structs.replace(frame, offsets=picked[0], indexes=picked[1]))
            continue
        base, count = offsets.start, len(offsets)
        bits = mask >> (base - start) & ((1 << count) - 1)
        if bits.bit_count() == count:
            found.append(frame)
        elif bits:
            places = places_in(bits)
            if isinstance(indexes, range) and indexes.step == 1:
                numbers: Sequence[int] = _numbers(places + indexes.start)
            else:
                numbers = [indexes[at] for at in places.tolist()]
            found.append(
                msgspec.structs.replace(frame, offsets=_numbers(places + base), indexes=numbers)
            )
    return found


def _numbers(offsets: Offsets) -> "array[int]":
    # Packed: most of them are never looked at one by one.
    return array("q", offsets.tobytes())
