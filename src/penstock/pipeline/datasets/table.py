"""Building blocks of rows: nested columns, the day, the order of rows, and their hashes.

Types are those a Spark table has: 64-bit numbers, plain lists, timestamps in microseconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128_digest

from penstock.pipeline.datasets.moments import STAMP

Numbers = np.ndarray[Any, np.dtype[Any]]

DAY: Final = "day"
NOT_CONTENT: Final = frozenset({"sender", "time_processing", DAY})
"""Columns that say how a reading came here, not what it says; the day follows from the time."""
HASH_BYTES: Final = 16
COMMON: Final = (
    pa.field("sender", pa.string()),
    pa.field("time_event", STAMP),
    pa.field("time_zone", pa.string()),
    pa.field("time_processing", STAMP),
    pa.field(DAY, pa.date32()),
)
"""The last columns of every table."""


def struct(fields: Mapping[str, pa.Array]) -> pa.StructArray:
    """An object column."""
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))


def lists(offsets: pa.Array | Numbers, values: pa.Array) -> pa.ListArray:
    """A list column of these values, cut at these offsets."""
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def even(count: int, size: int) -> Numbers:
    """The offsets of `count` lists of `size` values each."""
    return np.arange(0, (count + 1) * size, size, dtype=np.int32)


def matrix(array: pa.Array, size: int) -> Numbers:
    """Lists of equal length as rows of a matrix."""
    values: Numbers = array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), size)
    return values


def is_in(array: pa.Array, size: int) -> Numbers:
    """For each list of whole numbers, which of 1…size it holds."""
    found = np.zeros((len(array), size), np.bool_)
    values = array.flatten().to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(array)), np.asarray(pc.list_value_length(array)))
    is_known = (values >= 1) & (values <= size)
    found[rows[is_known], values[is_known] - 1] = True
    return found


def days(stamps: pa.Array) -> pa.Array:
    """The UTC day of each moment."""
    us = stamps.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return pa.array((us // 86_400_000_000).astype(np.int32)).cast(pa.date32())


def common(good: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns every table ends with, from a validated batch."""
    stamps = good.column("time_event")
    return {
        "sender": good.column("_sender"),
        "time_event": stamps,
        "time_zone": good.column("time_zone"),
        "time_processing": good.column("_time_processing"),
        DAY: days(stamps),
    }


def plain(schema: pa.Schema, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The columns as rows of a table. A column of another type is a mistake of the dataset."""
    missing = [name for name in schema.names if name not in columns]
    assert not missing, f"there is no column {', '.join(missing)}"
    arrays = [columns[name] for name in schema.names]
    for name, array in zip(schema.names, arrays, strict=True):
        wanted = schema.field(name).type
        assert array.type == wanted, f"column {name} is {array.type}, the table has {wanted}"
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_order(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.Array:
    """The indexes that sort rows by key columns and time; rows of equal keys keep their order."""
    names = [*keys, "time_event"]
    return pc.sort_indices(
        pa.table({name: rows.column(name) for name in names}),
        sort_keys=[(name, "ascending") for name in names],
    )


def taken(rows: pa.Table, order: Numbers) -> pa.Table:
    """The rows in another order; lists of one length are moved as rows of a matrix."""
    columns = [_taken(_whole(rows.column(name)), order) for name in rows.schema.names]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _taken(array: pa.Array, order: Numbers, size: int = 1) -> pa.Array:
    """The values in another order, `size` of them at a time."""
    kind = array.type
    if not array.null_count:
        if pa.types.is_struct(kind):
            parts = [_taken(each, order, size) for each in array.flatten()]
            return pa.StructArray.from_arrays(parts, fields=list(kind))
        if pa.types.is_list(kind) and size == 1:
            lengths = np.asarray(pc.list_value_length(array))
            if len(lengths) and 0 < lengths.min() == lengths.max():
                inner = int(lengths[0])
                values = _taken(array.flatten(), order, inner)
                return pa.ListArray.from_arrays(
                    pa.array(even(len(order), inner)), values, type=kind
                )
        is_number = pa.types.is_floating(kind) or pa.types.is_integer(kind)
        if is_number or (pa.types.is_boolean(kind) and size > 1):
            values = array.to_numpy(zero_copy_only=False).reshape(-1, size)
            return pa.array(values.take(order, axis=0).reshape(-1))
    indexes = order if size == 1 else (order[:, None] * size + np.arange(size)).reshape(-1)
    return array.take(pa.array(indexes))


def hashes(rows: pa.RecordBatch | pa.Table) -> Numbers:
    """128 bits for each row over everything it says, as n × 2 u64; equal for equal readings.

    A row is hashed as bytes of one width: numbers as they are, a text as its own hash, a list as
    its length and its values. Rows whose lists have other lengths are hashed apart, so that a
    hash never depends on the rows beside it.
    """
    columns = [
        leaf
        for name in rows.schema.names
        if name not in NOT_CONTENT
        for leaf in _leaves(_whole(rows.column(name)))
    ]
    lengths = [
        np.asarray(pc.fill_null(pc.list_value_length(each), -1))
        for each in columns
        if pa.types.is_list(each.type)
    ]
    count = len(rows)
    if not lengths or all(len(each) == 0 or (each == each[0]).all() for each in lengths):
        return _hash_even(columns, count)
    found = np.zeros((count, 2), np.uint64)
    signatures, which = np.unique(np.column_stack(lengths), axis=0, return_inverse=True)
    for number in range(len(signatures)):
        chosen = np.flatnonzero(which.reshape(-1) == number)
        indexes = pa.array(chosen)
        found[chosen] = _hash_even([each.take(indexes) for each in columns], len(chosen))
    return found


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        for inner in array.flatten():
            yield from _leaves(inner)
    else:
        yield array


def _hash_even(columns: list[pa.Array], count: int) -> Numbers:
    """Rows whose lists have the same lengths."""
    if not count:
        return np.zeros((0, 2), np.uint64)
    parts: list[Numbers] = []
    for array in columns:
        if not pa.types.is_list(array.type):
            parts.append(_bytes(array))
            continue
        flat = array.flatten()
        size = len(flat) // count
        parts.append(np.full((count, 4), size, "<u4").view(np.uint8)[:, :4])
        inner = [_bytes(leaf) for leaf in _leaves(flat)] if size else []
        parts.extend(each.reshape(count, size * each.shape[1]) for each in inner)
    data = np.hstack(parts)
    width = data.shape[1]
    view: Any = memoryview(np.ascontiguousarray(data).reshape(-1).data)
    digests = map(xxh3_128_digest, (view[at : at + width] for at in range(0, len(view), width)))
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


def _bytes(array: pa.Array) -> Numbers:
    """Values as rows of bytes of one width; a missing value is like no other."""
    kind = array.type
    if pa.types.is_decimal(kind):
        array, kind = array.cast(pa.string()), pa.string()
    if pa.types.is_date(kind):
        array = array.cast(pa.int32())
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if is_text or pa.types.is_list(kind):
        texts = array.dictionary_encode() if is_text else _spelled(array)
        known = [xxh3_128_digest(repr(text).encode()) for text in texts.dictionary.to_pylist()]
        codes = pc.fill_null(texts.indices, len(known)).to_numpy()
        table = np.frombuffer(b"".join((*known, b"\xff" * HASH_BYTES)), np.uint8)
        hashed: Numbers = table.reshape(-1, HASH_BYTES)[codes]
        return hashed
    if pa.types.is_boolean(kind):
        return np.asarray(pc.fill_null(array.cast(pa.uint8()), 2)).reshape(-1, 1)
    if not pa.types.is_floating(kind):
        array = pc.fill_null(array.cast(pa.int64()), -(2**63))
    values = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    return values.view(np.uint8).reshape(len(values), values.itemsize)


def _spelled(array: pa.Array) -> pa.DictionaryArray:
    """Lists inside lists, which are rare, as text."""
    return pa.array(
        [None if each is None else repr(each) for each in array.to_pylist()], pa.string()
    ).dictionary_encode()
