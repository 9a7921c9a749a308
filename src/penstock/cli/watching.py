"""A store's folder that tells how much of it was read, for the progress bar."""

from pathlib import Path

from penstock.cli.progress import Progress
from penstock.journal.disk import FolderDisk, RealFile


class WatchedDisk(FolderDisk):
    """A folder to look at: what is read from it counts as progress, in megabytes."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        super().__init__(folder, is_read_only=True)
        self._progress = progress

    def open(self, name: str) -> RealFile:
        file = super().open(name)
        plain = file.pread

        def pread(offset: int, length: int) -> bytes:
            data = plain(offset, length)
            self._progress.add(megabytes(len(data)))
            return data

        file.pread = pread  # type: ignore[method-assign]
        return file


def megabytes(count: int) -> float:
    """Bytes in the unit of the progress bar."""
    return count / 1_000_000


def folder_megabytes(folder: Path) -> float:
    """How much there is to read."""
    return megabytes(sum(entry.stat().st_size for entry in folder.iterdir() if entry.is_file()))
