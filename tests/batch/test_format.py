"""The layout byte by byte: what is written, and every way a directory can be wrong."""

import struct

import pytest
from xxhash import xxh3_64_intdigest

from penstock.batch import format as layout
from penstock.vocabulary.errors import MalformedBatch
from penstock.vocabulary.limits import BATCH_COUNT_MAX

NILS = b"\x92\xc0\xc0"
"""Two values that are nil, as MessagePack."""


def made(
    columns: list[tuple[int, bytes]],
    *,
    version: int = 1,
    flags: int = 0,
    column_count: int | None = None,
    count: int = 2,
    length_off: int = 0,
    after: bytes = b"",
) -> bytes:
    """A batch with a right checksum, whatever else is wrong with it."""
    directory = b"".join(struct.pack("<II", kind, len(column)) for kind, column in columns)
    content = b"".join(column for _, column in columns) + after
    data = struct.pack(
        "<BBHII",
        version,
        flags,
        len(columns) if column_count is None else column_count,
        count,
        12 + len(directory) + len(content) + 8 + length_off,
    )
    data += directory + content
    return data + struct.pack("<Q", xxh3_64_intdigest(data))


def test_a_batch_is_laid_out_as_drawn() -> None:
    columns = [(layout.BODIES, NILS), (layout.PRIORITIES, b"\x01\x00\xff\xff")]
    assert layout.assemble(2, columns) == made(columns)


def test_the_directory_gives_count_and_spans() -> None:
    data = made([(layout.BODIES, NILS), (layout.PRIORITIES, b"\0\0\0\0")])
    count, spans = layout.read_directory(data, verify=True)
    assert count == 2
    assert spans == {layout.BODIES: (28, 31), layout.PRIORITIES: (31, 35)}


def test_a_batch_without_columns_is_messages_of_defaults() -> None:
    assert layout.read_directory(layout.assemble(3, []), verify=True) == (3, {})


def test_unknown_optional_columns_are_skipped() -> None:
    data = made([(layout.BODIES, NILS), (layout.OPTIONAL | 5, b"anything")])
    assert layout.read_directory(data, verify=True) == (2, {layout.BODIES: (28, 31)})


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "shorter than any batch"),
        (bytes(19), "shorter than any batch"),
        (made([], version=2), "version 2"),
        (made([], version=0), "version 0"),
        (made([], flags=1), "unknown flags"),
        (made([], length_off=1), "says it has 21"),
        (made([]) + b"\0", "says it has 20"),
        (made([], count=0), "batch of 0 messages"),
        (made([], count=BATCH_COUNT_MAX + 1), "messages; allowed are 1 to"),
        (made([], column_count=1), "cannot hold 1 columns"),
        (made([], column_count=65_535), "cannot hold 65535 columns"),
        (made([], after=b"x"), "1 bytes after its last column"),
        (made([(11, b"")]), "unknown kind 11"),
        (made([(layout.OPTIONAL - 1, b"")]), "unknown kind"),
        (made([(0, b"")]), "column 0 after column 0"),
        (made([(layout.IDS, NILS), (layout.BODIES, NILS)]), "column 1 after column 3"),
        (made([(layout.IDS, NILS), (layout.IDS, NILS)]), "column 3 after column 3"),
        (made([(layout.PRIORITIES, b"\0\0\0")]), "has 3 bytes; 2 values need 4"),
        (made([(layout.DELIVER_AT, bytes(8))]), "has 8 bytes; 2 values need 16"),
        (made([(layout.BODIES, b"\x91\xc0")]), "holds 1 values; the batch has 2"),
        (made([(layout.BODIES, b"")]), "not a MessagePack array"),
        (made([(layout.BODIES, b"\x82\xc0\xc0")]), "not a MessagePack array"),
        (made([(layout.BODIES, b"\xdd\0\0")]), "not a MessagePack array"),
        (made([(layout.BODIES, b"\xdd\xff\xff\xff\xff")]), "holds 4294967295 values"),
        (made([(layout.KEYS, NILS)]), "keys and key hashes"),
        (made([(layout.KEY_HASHES, bytes(16))]), "keys and key hashes"),
    ],
)
def test_a_wrong_directory_is_refused_with_its_reason(data: bytes, text: str) -> None:
    with pytest.raises(MalformedBatch, match=text):
        layout.read_directory(data, verify=True)


def test_a_column_may_not_reach_past_the_batch() -> None:
    data = bytearray(made([(layout.BODIES, NILS)]))
    struct.pack_into("<I", data, 16, 4)
    with pytest.raises(MalformedBatch, match="1 bytes after the columns"):
        layout.read_directory(bytes(data), verify=False)


@pytest.mark.parametrize("array", [b"\x92", b"\xdc\x00\x02", b"\xdd\x00\x00\x00\x02"])
def test_the_count_may_stand_in_any_array_form(array: bytes) -> None:
    data = made([(layout.BODIES, array + b"\xc0\xc0")])
    assert layout.read_directory(data, verify=True)[0] == 2


def test_the_checksum_is_compared_only_when_asked() -> None:
    data = bytearray(made([(layout.PRIORITIES, bytes(4))]))
    data[-1] ^= 1
    with pytest.raises(MalformedBatch, match="checksum"):
        layout.read_directory(bytes(data), verify=True)
    assert layout.read_directory(bytes(data), verify=False)[0] == 2
