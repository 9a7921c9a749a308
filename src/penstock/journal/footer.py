"""The footer of a sealed segment: which records of which partition lie where. Pure.

    0   u32 partitions   4 u32 zero
    8   per partition, keys rising: u64 key, u64 first entry << 32 | entry count
    …   entries, 3 × u64: first offset, last offset, byte in the segment << 32 | length

The key of copied (compacted) records has bit 63 set, because their offsets have gaps. A Footer
reads this where it lies: a segment may speak of 100,000 partitions and be asked about one.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Final, Union

COPY_BIT: Final = 1 << 63
ENTRY_BYTES: Final = 24
PARTITION_BYTES: Final = 16
EMPTY_BYTES: Final = 8
_COUNT: Final = Struct("<II")
_ROW: Final = Struct("<QQ")

Rows = Union["array[int]", memoryview]
"""Entries of one partition, flat: three numbers each."""


class Footer:
    """The entries of one segment, read in place."""

    __slots__ = ("_data_at", "_keys", "_payload", "_table")

    def __init__(self, payload: bytes) -> None:
        count, _ = _COUNT.unpack_from(payload)
        self._payload = memoryview(payload)
        self._data_at = EMPTY_BYTES + PARTITION_BYTES * count
        self._table = self._payload[EMPTY_BYTES : self._data_at].cast("Q")
        self._keys = self._table[::2]

    def get(self, key: int) -> Rows | None:
        """The entries of a partition, or None."""
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            return None
        packed = self._table[2 * at + 1]
        start = self._data_at + ENTRY_BYTES * (packed >> 32)
        return self._payload[start : start + ENTRY_BYTES * (packed & 0xFFFFFFFF)].cast("Q")

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)


def encode_footer(entries: Mapping[int, Rows]) -> bytes:
    """The payload of a footer group."""
    keys = sorted(entries)
    parts = [_COUNT.pack(len(keys), 0)]
    start = 0
    for key in keys:
        count = len(entries[key]) // 3
        parts.append(_ROW.pack(key, start << 32 | count))
        start += count
    parts.extend(entries[key].tobytes() for key in keys)
    return b"".join(parts)


def decode_footer(payload: bytes) -> dict[int, Rows]:
    """Every partition and its entries."""
    footer = Footer(payload)
    return {key: footer.get(key) or array("Q") for key in footer}
