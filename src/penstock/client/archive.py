"""Where a backup is written: a tar archive or a folder, under another name until it is whole.

A process that dies in the middle leaves a file or folder named `….partial-…`, never one that looks
like a backup. The manifest comes last, and the name only after everything is durable.
"""

import os
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from penstock.vocabulary.backups import (
    FORMAT,
    MANIFEST,
    BackupFile,
    BackupPlan,
    Manifest,
    ManifestRow,
    encode_manifest,
)
from penstock.vocabulary.errors import InvalidArgument

_BLOCK: Final = tarfile.BLOCKSIZE
_END_BLOCKS: Final = 2


class Archive:
    """A backup being written. A context manager: leaving it by an error removes what there is."""

    def __init__(self, out: Path, started_at: float, *, is_tar: bool) -> None:
        self.out = out
        self._is_tar = is_tar
        self._time = int(started_at)
        self._partial = out.with_name(f"{out.name}.partial-{os.urandom(4).hex()}")
        self._file: IO[bytes] | None = None
        self._digest: Any = None
        self._rows: list[ManifestRow] = []
        self._is_done = False

    def __enter__(self) -> Self:
        check_out(self.out, is_tar=self._is_tar)
        if self._is_tar:
            self._file = _create(self._partial)
        else:
            self._partial.mkdir(mode=0o700)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._is_done:
            return
        if self._is_tar:
            self._partial.unlink(missing_ok=True)
        else:
            shutil.rmtree(self._partial, ignore_errors=True)

    def begin(self, name: str, length: int) -> None:
        """The next file, of so many bytes."""
        self._digest = sha256()
        if self._is_tar:
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = length, 0o600, self._time
            assert self._file is not None
            self._file.write(info.tobuf(tarfile.GNU_FORMAT))
        else:
            self._file = _create(self._partial / name)

    def write(self, data: bytes) -> None:
        """More of the file."""
        assert self._file is not None
        self._digest.update(data)
        self._file.write(data)

    def end(self, file: BackupFile) -> None:
        """The file is whole."""
        self._rows.append(
            ManifestRow(file.name, file.size, file.used, str(self._digest.hexdigest()))
        )
        self._end(file.used)

    def _end(self, length: int) -> None:
        assert self._file is not None
        if self._is_tar:
            self._file.write(bytes(-length % _BLOCK))
            return
        _sync(self._file)
        self._file.close()
        self._file = None

    def finish(self, plan: BackupPlan) -> Manifest:
        """Writes the manifest, makes everything durable, and gives the backup its name."""
        manifest = Manifest(FORMAT, plan.store_id, plan.position, plan.started_at, self._rows)
        data = encode_manifest(manifest)
        self.begin(MANIFEST, len(data))
        self.write(data)
        self._end(len(data))
        if self._file is not None:
            self._file.write(bytes(_END_BLOCKS * _BLOCK))
            _sync(self._file)
        else:
            sync_folder(self._partial)
        check_out(self.out, is_tar=self._is_tar)
        self._partial.rename(self.out)
        self._is_done = True
        sync_folder(self.out.parent)
        return manifest


def check_out(out: Path, *, is_tar: bool) -> None:
    """Raises InvalidArgument when something is there that a backup would replace."""
    if not out.parent.is_dir():
        raise InvalidArgument(f"there is no folder {out.parent} for the backup: make it first")
    if is_tar:
        if out.exists() or out.is_symlink():
            raise InvalidArgument(
                f"{out} exists: a backup replaces nothing; name another file, or remove it"
            )
    elif out.is_symlink() or (out.exists() and not out.is_dir()) or _has_files(out):
        raise InvalidArgument(
            f"{out} is not an empty folder: name another, or a file that ends in .tar"
        )


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _create(path: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
