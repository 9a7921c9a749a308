"""Files that survive a power cut: written, synced, and their names synced too."""

import os
from collections.abc import Iterable
from pathlib import Path


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
    """Puts a file in its place whole or not at all, synced."""
    draft = path.with_name(f".{path.name}.new")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_file(path.parent)
