"""Groups: what one write makes durable, and what is still proved when parts of it are gone."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.journal import group
from penstock.journal.group import EDGE, HEADER_BYTES, Encoded, align, parse, rescue
from penstock.journal.record import encode
from penstock.vocabulary.records import Published, TopicDeleted

SALT = 0x1122334455667789
SEQUENCE = 3


def record_of(body: bytes) -> bytes:
    return encode(Published(1, 0, 0, 1, bytes(16), 0, 0, 0, body))


records = st.lists(st.binary(max_size=120).map(record_of), min_size=1, max_size=6)


def build(
    encoded: Sequence[Encoded], position: int, durable: int, salt: int, first: int
) -> tuple[bytes, list[int]]:
    """A group made in a buffer that was used before."""
    buffer = memoryview(bytearray(b"\xaa" * 65536))
    data, places = group.build(buffer, encoded, position, durable, salt, first)
    return bytes(data), places


def build_footer(payload: bytes, position: int, durable: int, salt: int, first: int) -> bytes:
    """The same for the index of a segment."""
    buffer = memoryview(bytearray(b"\xaa" * 65536))
    return bytes(group.build_footer(buffer, payload, position, durable, salt, first))


def placed(encoded: list[bytes], at: int = EDGE, size: int = 8192) -> bytes:
    """A segment with one group at `at`."""
    data, _ = build(encoded, SEQUENCE << 32 | at, 7, SALT, 40)
    return (bytes(at) + data).ljust(size, b"\0")


@given(records, st.lists(st.booleans(), min_size=6, max_size=6), st.integers(0, 200))
def test_a_record_in_two_parts_is_the_same_record(
    encoded: list[bytes], are_split: list[bool], cut: int
) -> None:
    mixed: list[Encoded] = [
        (record[:cut], record[cut:]) if is_split else record
        for record, is_split in zip(encoded, are_split, strict=False)
    ]
    start = SEQUENCE << 32 | EDGE
    assert build(mixed, start, 7, SALT, 40) == build(encoded, start, 7, SALT, 40)


def test_align_goes_to_the_next_edge() -> None:
    assert [align(n) for n in (0, 1, 511, 512, 513)] == [0, 512, 512, 512, 1024]


@given(records, st.integers(1, 6))
def test_a_group_comes_back_where_it_was_written(encoded: list[bytes], edge: int) -> None:
    at = edge * EDGE
    data = placed(encoded, at)
    found = parse(data, at, SEQUENCE, SALT)
    assert found is not None
    assert (found.count, found.durable_upto, found.first_record) == (len(encoded), 7, 40)
    assert [record for _, record in group.records(data, found)] == encoded


@given(records)
def test_each_record_lies_at_the_position_that_was_promised(encoded: list[bytes]) -> None:
    start = SEQUENCE << 32 | EDGE
    data, places = build(encoded, start, 0, SALT, 0)
    whole = bytes(EDGE) + data
    found = parse(whole, EDGE, SEQUENCE, SALT)
    assert found is not None
    assert [position for position, _ in group.records(whole, found)] == places
    for place, record in zip(places, encoded, strict=True):
        assert group.read_record(whole, place & 0xFFFFFFFF, place, SALT) == record


@given(records)
def test_a_group_fills_whole_edges_and_says_where_the_next_may_start(encoded: list[bytes]) -> None:
    data, _ = build(encoded, SEQUENCE << 32 | EDGE, 0, SALT, 0)
    found = parse(bytes(EDGE) + data, EDGE, SEQUENCE, SALT)
    assert found is not None
    assert len(data) % EDGE == 0
    assert found.end == EDGE + len(data)
    room = sum(group.record_bytes(len(record)) for record in encoded)
    assert found.length == HEADER_BYTES + room


@given(records, st.data())
def test_one_flipped_bit_anywhere_in_a_group_is_noticed(
    encoded: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(placed(encoded))
    found = parse(bytes(whole), EDGE, SEQUENCE, SALT)
    assert found is not None
    bit = data.draw(st.integers(0, found.length * 8 - 1))
    whole[EDGE + bit // 8] ^= 1 << bit % 8
    assert parse(bytes(whole), EDGE, SEQUENCE, SALT) is None


@pytest.mark.parametrize(
    ("at", "sequence", "salt"),
    [
        (2 * EDGE, SEQUENCE, SALT),
        (EDGE, SEQUENCE + 1, SALT),
        (EDGE, SEQUENCE, SALT + 2),
    ],
    ids=["another place", "another segment", "another life"],
)
def test_a_group_copied_elsewhere_is_no_group(at: int, sequence: int, salt: int) -> None:
    data, _ = build([record_of(b"x")], SEQUENCE << 32 | EDGE, 0, SALT, 0)
    assert parse(bytes(at) + data, at, sequence, salt) is None


def test_a_group_that_runs_past_the_end_of_its_file_is_no_group() -> None:
    data = placed([record_of(bytes(600))], size=4096)
    assert parse(data[: EDGE + 600], EDGE, SEQUENCE, SALT) is None
    assert parse(data[: EDGE + 20], EDGE, SEQUENCE, SALT) is None


def test_a_group_with_no_room_for_its_header_is_no_group() -> None:
    data, _ = build([record_of(b"")], 0, 0, SALT, 0)
    for length in range(HEADER_BYTES):
        assert parse(data[:length], 0, 0, SALT) is None


# -- footers -----------------------------------------------------------------------------------


def test_a_footer_is_a_group_without_records() -> None:
    data = bytes(EDGE) + build_footer(b"index!!!", SEQUENCE << 32 | EDGE, 9, SALT, 12)
    found = parse(data, EDGE, SEQUENCE, SALT)
    assert found is not None
    assert (found.flags & group.FOOTER, found.count, found.first_record) == (group.FOOTER, 0, 12)


def test_the_payload_of_a_footer_comes_back() -> None:
    position = SEQUENCE << 32 | 1024
    data = build_footer(b"index!!!", position, 9, SALT, 12)
    assert group.footer_payload(data, position, SALT) == b"index!!!"


def test_a_damaged_footer_or_a_group_of_records_has_no_payload() -> None:
    position = SEQUENCE << 32 | 1024
    data = bytearray(build_footer(b"index!!!", position, 9, SALT, 12))
    data[HEADER_BYTES] ^= 1
    assert group.footer_payload(bytes(data), position, SALT) is None
    plain, _ = build([record_of(b"x")], position, 0, SALT, 0)
    assert group.footer_payload(plain, position, SALT) is None


# -- finding what is left ----------------------------------------------------------------------


def three_groups() -> tuple[bytearray, list[int]]:
    data = bytearray(EDGE)
    starts: list[int] = []
    for number in range(3):
        starts.append(len(data))
        part, _ = build([record_of(b"%d" % number)] * 2, SEQUENCE << 32 | len(data), 0, SALT, 0)
        data += part
    return data, starts


def test_the_next_group_is_found_after_a_damaged_one() -> None:
    data, starts = three_groups()
    data[starts[1] + 60] ^= 0xFF
    found = group.find_next(bytes(data), starts[1], SEQUENCE, SALT)
    assert found is not None
    assert found.position & 0xFFFFFFFF == starts[2]


def test_the_next_group_may_be_right_here() -> None:
    data, starts = three_groups()
    found = group.find_next(bytes(data), starts[1], SEQUENCE, SALT)
    assert found is not None
    assert found.position & 0xFFFFFFFF == starts[1]


def test_no_group_follows_the_last() -> None:
    data, _ = three_groups()
    assert group.find_next(bytes(data), len(data), SEQUENCE, SALT) is None
    assert group.find_next(bytes(data), EDGE, SEQUENCE, SALT + 2) is None


def test_a_salt_inside_a_message_is_not_taken_for_a_group() -> None:
    body = bytes(24) + SALT.to_bytes(8, "little") * 100
    data = placed([record_of(body)])
    found = parse(data, EDGE, SEQUENCE, SALT)
    assert found is not None
    assert group.find_next(data, found.end, SEQUENCE, SALT) is None
    after = EDGE + 8
    assert group.find_next(data, after, SEQUENCE, SALT) is None


def test_something_of_this_life_is_told_from_something_of_another() -> None:
    data, starts = three_groups()
    assert group.holds_salt(bytes(data), starts[2], SALT)
    assert not group.holds_salt(bytes(data), len(data), SALT)
    assert not group.holds_salt(bytes(data), EDGE, SALT + 2)


def test_a_group_tells_which_segment_it_belongs_to() -> None:
    data, starts = three_groups()
    assert group.peek_identity(bytes(data), starts[1]) == (SEQUENCE, SALT)
    data[starts[1] + 60] ^= 1
    assert group.peek_identity(bytes(data), starts[1]) is None
    assert group.claimed_identity(bytes(data), starts[1]) == (SEQUENCE, SALT)
    assert group.claimed_identity(bytes(data), starts[1] + 8) is None
    assert group.claimed_identity(bytes(data), len(data) - 8) is None


# -- rescue ------------------------------------------------------------------------------------


@given(records, st.data())
def test_damage_costs_only_the_records_it_touches(
    encoded: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(placed(encoded))
    found = parse(bytes(whole), EDGE, SEQUENCE, SALT)
    assert found is not None
    rows = group.records(bytes(whole), found)
    at = EDGE + data.draw(st.integers(0, found.length - 1))
    size = data.draw(st.integers(1, 40))
    for byte in range(at, min(at + size, EDGE + found.length)):
        whole[byte] ^= 0x5A
    untouched = [
        (position, record)
        for position, record in rows
        if not _overlaps(position & 0xFFFFFFFF, len(record), at, at + size)
    ]
    kept = rescue(bytes(whole), EDGE, len(whole), SEQUENCE, SALT)
    assert [row for row in kept if row in untouched] == untouched
    assert all(row in rows for row in kept)


def _overlaps(start: int, length: int, low: int, high: int) -> bool:
    """Whether damage touches a record's checksum or bytes; padding does not matter."""
    return start < high and low < start + 8 + length


def test_rescue_finds_records_after_a_long_stretch_of_zeros() -> None:
    whole = bytearray(placed([record_of(bytes([n]) * 700) for n in range(1, 4)]))
    found = parse(bytes(whole), EDGE, SEQUENCE, SALT)
    assert found is not None
    rows = group.records(bytes(whole), found)
    whole[EDGE : EDGE + 900] = bytes(900)
    assert rescue(bytes(whole), EDGE, len(whole), SEQUENCE, SALT) == rows[2:]


def test_rescue_stops_at_the_end_it_is_given() -> None:
    whole = placed([record_of(b"a"), record_of(b"b")])
    found = parse(whole, EDGE, SEQUENCE, SALT)
    assert found is not None
    rows = group.records(whole, found)
    end = (rows[1][0] & 0xFFFFFFFF) + 20
    assert rescue(whole, EDGE, end, SEQUENCE, SALT) == rows[:1]


def test_rescue_proves_nothing_from_another_life() -> None:
    whole = placed([record_of(b"a")])
    assert rescue(whole, EDGE, len(whole), SEQUENCE, SALT + 2) == []
    assert rescue(whole, EDGE, len(whole), SEQUENCE + 1, SALT) == []


def test_a_record_with_an_impossible_length_is_not_read() -> None:
    position = SEQUENCE << 32 | EDGE
    data, places = build([encode(TopicDeleted(1))], position, 0, SALT, 0)
    whole = bytearray(bytes(EDGE) + data)
    at = places[0] & 0xFFFFFFFF
    for length in (0, 11, 1 << 31):
        whole[at + 8 : at + 12] = length.to_bytes(4, "little")
        assert group.read_record(bytes(whole), at, places[0], SALT) is None
    assert group.read_record(bytes(whole), len(whole) - 4, places[0], SALT) is None
