"""What was confirmed, held against what the tables and the quarantine hold: reading by reading."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.cli.demo.fleet import Key, Post
from penstock.cli.demo.plant import DATASETS
from penstock.vocabulary.errors import StorageError, UnknownTopic

CARRIED: Final = Path(__file__).with_name("pms-2019-08.csv.gz")
"""Real readings of one battery pack, two days of August 2019, as its devices stored them."""
LOOK: Final = 1_000
CSV: Final = "text/csv"

Reading = tuple[str, str, str, str]
"""Dataset, device, pack and moment in UTC: what a reading is known by in its table."""


class Compared(NamedTuple):
    """Readings of one dataset: confirmed, and where each of them is."""

    dataset: str
    confirmed: int
    stored: int
    quarantined: int
    missing: int
    """Confirmed, and neither in the table nor in quarantine."""
    repeated: int
    """There more often than confirmed."""

    @property
    def is_whole(self) -> bool:
        """True when every confirmed reading is in one place, once."""
        return not (self.missing or self.repeated)


def csv_post(path: Path | None) -> Post:
    """The CSV file as one request: the given one, or the one that comes with the package."""
    try:
        data = path.read_bytes() if path is not None else gzip.decompress(CARRIED.read_bytes())
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    from penstock.pipeline.datasets.csv_rows import PMS_CSV, UnknownHeader

    try:
        rows = PMS_CSV.read(data)
    except UnknownHeader as error:
        raise StorageError(f"{path} is no CSV of battery packs: {error}") from error
    keys: Counter[Key] = Counter()
    for row in {row.raw: row for row in rows}.values():
        keys[key_of("pms", row.body) if row.body is not None else _as_it_stands(row.raw)] += 1
    return Post("pms", data, keys, Counter(), CSV)


def key_of(dataset: str, body: dict[str, Any]) -> Key:
    """Whose reading a body is."""
    return body[f"{dataset}_id"], body.get("pack", {}).get("id", ""), body["time_local"]


def _as_it_stands(row: bytes) -> Key:
    """A row that became no reading is known by its text."""
    return "", "", row.decode("utf-8", "replace")


def known_by(dataset: str, key: Key) -> Reading:
    """How the table knows a reading."""
    device, pack, local = key
    form = "%Y%m%dT%H%M%S.%f%z" if "." in local else "%Y%m%dT%H%M%S%z"
    try:
        moment = datetime.strptime(local, form).astimezone(UTC).isoformat()
    except ValueError:
        moment = local  # no time at all: it is in quarantine, as it was sent
    return dataset, device, pack, moment


def stored(warehouse: Path) -> Counter[Reading]:
    """What the tables hold, read by `deltalake` alone."""
    from deltalake import DeltaTable

    found: Counter[Reading] = Counter()
    for name in DATASETS:
        columns = [f"{name}_id", "time_event", *(["pack_id"] if name == "pms" else [])]
        rows = DeltaTable(str(warehouse / "analytics" / f"{name}_monitoring")).to_pyarrow_table(
            columns=columns
        )
        for row in rows.to_pylist():
            moment = row["time_event"].astimezone(UTC).isoformat()
            found[name, row[f"{name}_id"], row.get("pack_id", ""), moment] += 1
    return found


async def quarantined(client: Any) -> Counter[Reading]:
    """What the quarantine topics hold."""
    found: Counter[Reading] = Counter()
    for name in DATASETS:
        after = 0
        while True:
            try:
                held = await client.peek(
                    f"monitoring.{name}.quarantine", LOOK, partition=0, after=after
                )
            except UnknownTopic:
                break
            for message in held:
                if message.headers.get("content-type", "").startswith(CSV):
                    key = _as_it_stands(message.body)
                else:
                    key = key_of(name, json.loads(message.body))
                found[known_by(name, key)] += 1
                after = message.offset + 1
            if len(held) < LOOK:
                break
    return found


def compare(
    confirmed: Iterable[tuple[tuple[str, Key], int]], tables: Counter[Reading],
    aside: Counter[Reading],
) -> list[Compared]:  # fmt: skip
    """One line for each dataset."""
    wanted: Counter[Reading] = Counter()
    for (dataset, key), count in confirmed:
        wanted[known_by(dataset, key)] += count
    held = tables + aside
    missing, repeated = wanted - held, held - wanted
    return [
        Compared(
            name, _of(wanted, name), _of(tables, name), _of(aside, name), _of(missing, name),
            _of(repeated, name),
        )
        for name in DATASETS
    ]  # fmt: skip


def _of(counter: Counter[Reading], dataset: str) -> int:
    return sum(count for (name, *_), count in counter.items() if name == dataset)
