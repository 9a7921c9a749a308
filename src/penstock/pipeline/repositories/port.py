"""The Storage port: rows go in once, whatever is repeated."""

from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.repositories.files import DataFile


class WriteId(NamedTuple):
    """Which write this is: batch `batch` of application `<pipeline>/<epoch>`."""

    application: str
    batch: int


class Committed(msgspec.Struct, frozen=True):
    """What a table says about the last batch of an application."""

    batch: int
    source: dict[str, Any]
    """What the writer said about its source: the ends of the ranges it had read."""


class Storage(Protocol):
    """A repository. Calls block; they come from one thread at a time."""

    def write(self, rows: pa.Table, write_id: WriteId) -> bool:
        """Stores rows; False when this write is stored already and nothing was changed.

        Everything is synced when it returns. Raises StorageError.
        """
        ...

    def close(self) -> None:
        """Lets go of locks. Doing so twice is harmless."""
        ...


class TableStorage(Storage, Protocol):
    """A repository of files with versions: workers write files, one writer commits them."""

    dataset: Dataset
    root: str

    @property
    def version(self) -> int:
        """The newest version; -1 before the first."""
        ...

    def staging(self) -> str:
        """Where workers put their files, relative to the root; empty = where they stay."""
        ...

    def files(self, version: int | None = None) -> list[DataFile]:
        """The files of a version, the newest when None."""
        ...

    def last(self, pipeline: str) -> dict[int, Committed]:
        """The last committed batch of each epoch of a pipeline."""
        ...

    def is_committed(self, write_id: WriteId) -> bool:
        """True when this write, or a later one of the application, is stored."""
        ...

    def commit(self, added: list[DataFile], write_id: WriteId, source: dict[str, Any]) -> bool:
        """Adds files that workers wrote; False when this write is committed already.

        Files, log entry and folders are synced when it returns.
        """
        ...

    def replace(self, removed: list[DataFile], added: list[DataFile]) -> None:
        """Puts files, written as workers write theirs, in place of others with the same rows."""
        ...
