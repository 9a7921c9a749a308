"""A dataset that somebody else wrote, tried before anything moves.

What would stop a pipeline at its first batch, or on another lane, is said when it is loaded.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from penstock.pipeline.datasets import table
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.moments import STAMP
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.datasets.shape import Field, Text, Time

PLAIN: Final = frozenset(
    {
        pa.string(), pa.binary(), pa.bool_(), pa.date32(), STAMP, pa.float32(), pa.float64(),
        pa.int8(), pa.int16(), pa.int32(), pa.int64(),
    }
)  # fmt: skip
"""What values of a column may be; besides, decimal numbers, objects and lists."""


def wrong_with(dataset: Dataset) -> str | None:
    """The first thing that is wrong with a dataset; None when it can be used."""
    return next(_mistakes(dataset), None)


def _mistakes(dataset: Dataset) -> Iterator[str]:
    fields: dict[str, Any] = dict(dataset.shape.leaves)
    for path, field in fields.items():
        if not isinstance(field, Field):
            yield f"{path} of the shape is {field!r}, which is no field"
    if [path for path, field in fields.items() if isinstance(field, Time)] != ["time_local"]:
        yield "a body has one Time, its key `time_local`"
    for name, place in (("device", dataset.device), ("pack", dataset.pack)):
        if place is not None and not isinstance(fields.get(place), Text):
            yield f"`{name}` is {place!r}, which is no Text of the shape"
    if "." in dataset.device:
        yield f"`device` is {dataset.device!r}: devices post it as a key of its own, not inside one"
    yield from _wrong_columns(dataset)
    yield from _failing(dataset)


def _wrong_columns(dataset: Dataset) -> Iterator[str]:
    names = [each.name for each in dataset.columns]
    kinds = {each.name: each.type for each in dataset.columns}
    if not names or kinds[names[0]] != pa.string():
        yield "the first of its columns is the device, a string"
    if (dataset.pack is None) != (dataset.pack_column is None):
        yield "`pack` and `pack_column` come together"
    if dataset.pack_column is not None and kinds.get(dataset.pack_column) != pa.string():
        yield f"`pack_column` is {dataset.pack_column!r}, which is no string among its columns"
    for at, name in enumerate(names):
        if name in names[:at] or name in {each.name for each in table.COMMON}:
            yield f"column {name!r} is there already"
        if (odd := _odd(kinds[name])) is not None:
            yield f"column {name!r} holds {odd}, which a table here cannot hold"


def _odd(kind: pa.DataType) -> pa.DataType | None:
    """What of a type a table cannot hold, or rows cannot be compared by."""
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        inner = (_odd(kind.field(at).type) for at in range(kind.num_fields))
        return next((each for each in inner if each is not None), None)
    return None if kind in PLAIN or pa.types.is_decimal128(kind) else kind


def _failing(dataset: Dataset) -> Iterator[str]:
    """What it does with no readings: a batch may hold none that is right."""
    good = dataset.validate(raw_batch([])).good
    try:
        limits = dataset.limits()
    except TypeError:
        limits = None  # some have no default: a pipeline file must give them
    try:
        dataset.transform(good)
        if limits is not None:
            dataset.analyse(good, limits)
    except Exception as error:  # noqa: BLE001 - of code that is not ours
        yield f"with a batch of no readings, {error}"
