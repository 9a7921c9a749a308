"""The log of a Delta table as it lies on disk: what it keeps for us, and what a power cut leaves.

Delta's application transactions outlive every clean-up of the log, as its checkpoints carry them
on. A pipeline keeps three kinds there, whose names are told apart by spaces, which no name has:

    pms/1                    the last batch of the epoch
    pms/1 ends               the batch whose ends follow
    pms/1 monitoring.pms 0   where partition 0 of the topic ended
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.repositories.port import WriteId
from penstock.pipeline.repositories.syncing import sync_file
from penstock.vocabulary.errors import StorageError

log = logging.getLogger("penstock.pipeline")

HINT: Final = "_last_checkpoint"
ENDS: Final = "ends"
DAMAGED: Final = ".damaged"
POWER_CUT: Final = (
    "if the machine lost power during that commit, remove the commit and run again, which does its "
    "batch again"
)
"""What to do about a newest commit that is not whole."""


def noted(write_id: WriteId, source: Mapping[str, Any]) -> dict[str, int]:
    """The transactions of a commit: the batch, and where its source ended."""
    application, batch = write_id
    found = {application: batch}
    if "ends" in source:
        found[f"{application} {ENDS}"] = batch
        topic = source.get("topic", "")
        found |= {f"{application} {topic} {at}": end for at, end in source["ends"].items()}
    return found


def epochs(transactions: Mapping[str, int], pipeline: str) -> dict[int, int]:
    """The last batch of each epoch of a pipeline."""
    found: dict[int, int] = {}
    for application, batch in transactions.items():
        name, _, epoch = application.rpartition("/")
        if name == pipeline and epoch.isdecimal():
            found[int(epoch)] = batch
    return found


def source_of(transactions: Mapping[str, int], write_id: WriteId) -> dict[str, Any] | None:
    """What a commit noted about its source; None when a writer stored it that notes nothing."""
    application, batch = write_id
    if transactions.get(f"{application} {ENDS}") != batch:
        return None
    source: dict[str, Any] = {"ends": {}}
    for name, end in transactions.items():
        match name.split(" "):
            case [whose, topic, partition] if whose == application:
                source["ends"][partition] = end
                if topic:
                    source["topic"] = topic
    return source


def transactions(folder: Path, version: int) -> dict[str, int]:
    """All application transactions of a version: of its newest checkpoint and the log after it.

    Raises StorageError when the log has a gap.
    """
    found: dict[str, int] = {}
    first = 0
    for number, parts in sorted(_checkpoints(folder).items(), reverse=True):
        if number <= version and not any(map(_is_damaged, parts)):
            first = number + 1
            for part in parts:
                _take(found, _actions_of(part))
            break
    for number in range(first, version + 1):
        try:
            _take(found, _actions(entry(folder, number)))
        except (OSError, ValueError) as error:
            raise StorageError(
                f"the log {folder} cannot be read at version {number}: {error}"
            ) from error
    return found


def entry(folder: Path, version: int) -> Path:
    """Where the commit of a version lies."""
    return folder / f"{version:020}.json"


def added(commit: Path) -> dict[str, int]:
    """The files that a commit added, relative to the table, with their sizes.

    Raises StorageError.
    """
    try:
        found = [action["add"] for action in _actions(commit) if action.get("add") is not None]
    except (OSError, ValueError) as error:
        raise StorageError(f"the log cannot be read at {commit}: {error}") from error
    return {unquote(each["path"]): each["size"] for each in found}


def newest_checkpoint(folder: Path) -> list[Path]:
    """The files of the newest checkpoint."""
    found = _checkpoints(folder)
    return found[max(found)] if found else []


def mend(folder: Path) -> None:
    """Sets damaged checkpoints aside when the log has everything without them.

    A checkpoint says nothing that the log before it does not say. Raises StorageError with the
    file that is to blame.
    """
    known = _checkpoints(folder)
    damaged = [path for parts in known.values() for path in parts if _is_damaged(path)]
    whole = [
        number for number, parts in known.items() if not any(path in damaged for path in parts)
    ]
    names = sorted(int(path.stem) for path in folder.glob("[0-9]*.json") if path.stem.isdecimal())
    _check_newest(folder, names)
    if not damaged and not (folder / HINT).exists():
        raise StorageError(f"the log {folder} cannot be read, and none of its files is damaged")
    first = max(whole, default=-1) + 1
    lacking = sorted(set(range(first, max(names, default=first) + 1)) - set(names))
    if lacking:
        raise StorageError(
            f"{', '.join(map(str, damaged)) or folder} is damaged, and the log lacks version "
            f"{lacking[0]}, which would say the same. Put it back from a copy of the table"
        )
    for path in (*damaged, folder / HINT):
        if path.exists():
            path.rename(path.with_name(path.name + DAMAGED))
            log.warning("%s is damaged; it is set aside, the log says the same", path)
    sync_file(folder)


def _check_newest(folder: Path, names: Iterable[int]) -> None:
    """Raises StorageError for a commit that was being written when the power went."""
    newest = max(names, default=-1)
    path = entry(folder, newest)
    try:
        list(_actions(path))
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} is damaged: {error}. It is the newest commit of the table: {POWER_CUT}"
        ) from error


def _checkpoints(folder: Path) -> dict[int, list[Path]]:
    """The files of each checkpoint, by its version."""
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.glob("[0-9]*.checkpoint.*")):
        number = path.name.partition(".")[0]
        if number.isdecimal() and path.suffix in {".parquet", ".json"}:
            found.setdefault(int(number), []).append(path)
    return found


def _is_damaged(path: Path) -> bool:
    try:
        if path.suffix == ".json":
            return not list(_actions(path))
        with pq.ParquetFile(path) as file:
            return int(file.metadata.num_rows) == 0
    except (OSError, ValueError, pa.ArrowException):
        return True


def _actions_of(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".json":
        yield from _actions(path)
        return
    with pq.ParquetFile(path) as file:
        if "txn" in file.schema_arrow.names:
            yield from file.read(["txn"]).to_pylist()


def _actions(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        found = json.loads(line)
        if isinstance(found, dict):
            yield found


def _take(found: dict[str, int], actions: Iterable[dict[str, Any]]) -> None:
    for action in actions:
        if (stored := action.get("txn")) is not None:
            found[stored["appId"]] = stored["version"]
