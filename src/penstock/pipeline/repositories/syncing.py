"""Files that survive a power cut: written, synced, and their names synced too."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.vocabulary.errors import StorageError

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Of errors that libraries write for terminals."""


class WriteFailed(StorageError):
    """A file could not be written; what was there before is there still."""

    code = "write-failed"


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Has a write that fails say where: a full disk does not. Raises WriteFailed."""
    try:
        yield
    except OSError as error:
        said = _COLOURS.sub("", error.strerror or str(error)).strip()
        raise WriteFailed(
            f"{path} cannot be written: {said}. What is stored is whole; run the pipeline again "
            "when the cause is gone"
        ) from error


def sync_file(path: Path | str) -> None:
    """Syncs a file that somebody else wrote."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(paths: Iterable[Path | str]) -> None:
    """Syncs the names in these folders."""
    for path in sorted({str(each) for each in paths}):
        sync_file(path)


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, and syncs their names."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    sync_folders(each.parent for each in missing)


def write_whole(path: Path, data: bytes) -> None:
    """Puts a file in its place whole or not at all, synced. Raises WriteFailed."""
    draft = path.with_name(f".{path.name}.new")
    with writing(path), draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_file(path.parent)
