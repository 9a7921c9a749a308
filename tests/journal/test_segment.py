"""The header of a segment: which store, which place, which life."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.memory import MemoryDisk
from penstock.journal.segment import (
    FIRST_GROUP,
    FORMAT_MAJOR,
    Header,
    Segment,
    check_version,
    decode_header,
    encode_header,
)
from penstock.vocabulary.errors import StoreTooNew
from tests.journal.versions import with_version

u64 = st.integers(0, 2**64 - 1)
headers = st.builds(Header, st.binary(min_size=16, max_size=16), u64, u64, u64)
HEADER = Header(b"s" * 16, 3, 5, 4096)


@given(headers)
def test_a_header_comes_back_as_it_was(header: Header) -> None:
    data = encode_header(header)
    assert len(data) == FIRST_GROUP
    assert decode_header(data) == header


@given(headers, st.integers(0, 72 * 8 - 1))
def test_one_flipped_bit_is_noticed(header: Header, bit: int) -> None:
    data = bytearray(encode_header(header))
    data[bit // 8] ^= 1 << bit % 8
    assert decode_header(bytes(data)) is None


@pytest.mark.parametrize("data", [b"", bytes(20), bytes(512), b"PENSTOCK" * 64])
def test_what_is_no_header_is_none(data: bytes) -> None:
    assert decode_header(data) is None


def test_a_newer_format_is_refused_by_name() -> None:
    data = with_version(encode_header(HEADER), major=FORMAT_MAJOR + 1, sum_at=64)
    with pytest.raises(StoreTooNew, match="install a newer"):
        decode_header(data)


def test_an_unknown_required_feature_is_refused() -> None:
    with pytest.raises(StoreTooNew, match="0x8"):
        decode_header(with_version(encode_header(HEADER), features=8, sum_at=64))


def test_an_unknown_minor_version_is_read() -> None:
    assert decode_header(with_version(encode_header(HEADER), minor=9, sum_at=64)) == HEADER


def test_this_version_reads_itself() -> None:
    check_version(FORMAT_MAJOR, 0)


def test_a_segment_is_free_only_when_a_snapshot_knows_that_nothing_here_is_needed() -> None:
    segment = Segment(MemoryDisk().create("a", 4096), 3, 5, 4096)
    segment.footer, segment.end, segment.empty_at = 1024, 2048, 5 << 32
    after = 6 << 32
    assert segment.is_free(after)
    assert segment.is_free(5 << 32)
    assert not segment.is_free((5 << 32) - 1)
    for name, value in (("live", 1), ("is_damaged", True), ("footer", 0), ("empty_at", None)):
        before = getattr(segment, name)
        setattr(segment, name, value)
        assert not segment.is_free(after), name
        setattr(segment, name, before)
    segment.empty_at = 0
    assert not segment.is_free(segment.base | 2047)


def test_a_segment_is_sealed_once_it_has_a_footer_or_lost_it() -> None:
    segment = Segment(MemoryDisk().create("a", 4096), 3, 5, 4096)
    assert (segment.end, segment.base) == (FIRST_GROUP, 3 << 32)
    found = []
    for segment.footer in (0, -1, 1024):
        found.append(segment.is_sealed)
    assert found == [False, True, True]
