"""A repository by its URL: `delta:./warehouse`, `parquet:./warehouse`."""

from difflib import get_close_matches
from pathlib import Path
from typing import Final

from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.parquet import ParquetStorage
from penstock.pipeline.repositories.port import TableStorage
from penstock.vocabulary.errors import InvalidArgument

SCHEMES: Final = ("delta", "parquet")


def check_repository(url: str) -> tuple[str, str]:
    """The scheme and the place. Raises InvalidArgument."""
    scheme, colon, place = url.partition(":")
    if not colon or scheme not in SCHEMES:
        close = get_close_matches(scheme, SCHEMES, n=1)
        hint = f"did you mean {close[0]}:?" if close else "known: delta:DIR, parquet:DIR"
        raise InvalidArgument(f"{url!r} names no repository; {hint}")
    if not place:
        raise InvalidArgument(f"{url!r} names no folder: give one, as {scheme}:./warehouse")
    place = place.removeprefix("//") if place.startswith("///") else place
    if place.startswith("//") or "://" in place:
        raise InvalidArgument(
            f"{url!r} names no folder of this machine: give one, as {scheme}:./warehouse or "
            f"{scheme}:/srv/warehouse"
        )
    return scheme, place


def check_table(table: str) -> None:
    """Raises InvalidArgument for a name that would leave the folder of its repository."""
    if not all(part.replace("_", "").replace("-", "").isalnum() for part in table.split(".")):
        raise InvalidArgument(f"table {table!r}: a name has letters, digits, _ and - between dots")


def table_folder(url: str, table: str) -> str:
    """Where a table is stored: `analytics.pms_monitoring` in ./warehouse/analytics/pms_monitoring.

    Raises InvalidArgument.
    """
    _, place = check_repository(url)
    check_table(table)
    return str(Path(place).joinpath(*table.split(".")))


def has_table(url: str, table: str) -> bool:
    """True when the table was created; nothing is changed. Raises InvalidArgument."""
    scheme, _ = check_repository(url)
    kind = DeltaStorage if scheme == "delta" else ParquetStorage
    return kind.is_at(Path(table_folder(url, table)))


def open_repository(url: str, table: str, dataset: Dataset) -> TableStorage:
    """The table, locked for this writer. Raises InvalidArgument, TableLocked and others."""
    scheme, _ = check_repository(url)
    folder = table_folder(url, table)
    if scheme == "delta":
        return DeltaStorage(folder, dataset)
    return ParquetStorage(folder, dataset)
