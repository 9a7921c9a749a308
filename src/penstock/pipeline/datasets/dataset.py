"""A dataset: the shape of its bodies, the table they become, and what is worth an event.

A module that holds one as `DATASET` is all it takes to add a kind of reading.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from penstock.pipeline.datasets import table
from penstock.pipeline.datasets.events import Finding, as_events
from penstock.pipeline.datasets.shape import Shape
from penstock.pipeline.datasets.validate import Validated, Validator
from penstock.pipeline.refusals import DatasetFailed


class NoLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a dataset that finds no events."""


def _finds_nothing(_good: pa.RecordBatch, _limits: Any) -> Iterable[Finding]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One kind of reading. The functions are pure: the same batch gives the same rows."""

    name: str
    """As in `POST /devices/dataset/{name}` and `analytics.{name}_monitoring`."""
    shape: Shape
    columns: tuple[pa.Field, ...]
    """The table's own columns; `sender`, times and `day` follow them."""
    device: str
    """Path of the device in a body; the first column of the table."""
    rows: Callable[[pa.RecordBatch], dict[str, pa.Array]]
    """The own columns of a validated batch."""
    pack: str | None = None
    """Path of the part of a device that sends readings of its own, if there is one."""
    pack_column: str | None = None
    limits: type[msgspec.Struct] = NoLimits
    find: Callable[[pa.RecordBatch, Any], Iterable[Finding]] = field(default=_finds_nothing)
    csv: Any = None
    """How its readings look as CSV, if they may: see `csv_rows`."""

    @property
    def topic(self) -> str:
        """Where the gateway publishes it."""
        return f"monitoring.{self.name}"

    @property
    def table(self) -> str:
        """The table and the subscription of its pipeline."""
        return f"analytics.{self.name}_monitoring"

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns of the table."""
        return pa.schema([*self.columns, *table.COMMON])

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns that say whose reading a row is; the time comes after them."""
        device = self.columns[0].name
        return (device,) if self.pack_column is None else (device, self.pack_column)

    @cached_property
    def _validator(self) -> Validator:
        return Validator(self.shape, self.csv)

    def validate(self, raw: pa.RecordBatch, *, ranges: bool = True) -> Validated:
        """Splits messages into typed rows and refused ones; see `Validated`."""
        return self._validator.validate(raw, ranges=ranges)

    def analyse(self, good: pa.RecordBatch, limits: Any = None) -> pa.RecordBatch:
        """The events of valid rows, each row looked at alone."""
        limits = self.limits() if limits is None else limits
        with self._running("find"):
            return as_events(good, self.device, self.pack, self.find(good, limits))

    def transform(self, good: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the table, one for each valid message, in the same order."""
        with self._running("rows"):
            return table.plain(self.schema, self.rows(good) | table.common(good))

    @contextmanager
    def _running(self, function: str) -> Iterator[None]:
        """Whatever goes wrong in a function of the dataset names both."""
        try:
            yield
        except Exception as error:
            raise DatasetFailed(
                f"`{function}` of dataset {self.name!r} failed with {error!r}"
            ) from error
