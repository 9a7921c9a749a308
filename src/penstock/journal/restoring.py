"""A store from a backup, and whether a backup is whole.

Everything is read and checked against the manifest before the new folder gets its name. What an
archive says is not believed: only plain files with the names of a store's files are taken, each
once; links, devices, folders, absolute names and `..` end the restore.
"""

import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Final, NamedTuple

from penstock.vocabulary.backups import (
    FILE_BYTES_MAX,
    MANIFEST,
    MANIFEST_BYTES_MAX,
    Manifest,
    ManifestRow,
    check_name,
    decode_manifest,
)
from penstock.vocabulary.errors import BackupDamaged, InvalidArgument
from penstock.vocabulary.limits import MIB

_PIECE: Final = 1 * MIB
_UNFINISHED: Final = "it was never finished, or was cut short; use another backup"

Told = Callable[[int], None]
"""Called with the number of bytes just read."""


class _Member(NamedTuple):
    """One file of a backup, found by reading it."""

    name: str
    length: int
    digest: str


def is_backup(path: Path) -> bool:
    """True when this looks like a backup and not like a store."""
    return path.is_file() or (path / MANIFEST).is_file()


def backup_bytes(path: Path) -> int:
    """How much there is to read."""
    if path.is_dir():
        return sum(entry.stat().st_size for entry in path.iterdir() if entry.is_file())
    return path.stat().st_size


def check_backup(path: Path, told: Told) -> Manifest:
    """Reads a whole backup. Raises BackupDamaged unless every byte is what was written."""
    return _read(path, told, _keep_nothing)


def restore(path: Path, target: Path, told: Told) -> Manifest:
    """Makes the store `target`, a new or empty folder, from a backup.

    Raises InvalidArgument when the target is not empty, BackupDamaged, OSError. A restore that
    fails leaves nothing; one that is killed leaves a folder `….restoring-…` that is no store.
    """
    target = target.absolute()
    check_target(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.restoring-{os.urandom(4).hex()}")
    partial.mkdir(mode=0o700)
    try:
        manifest = _read(path, told, lambda name: _create(partial / name))
        for row in manifest.files:
            _finish(partial / row.name, row)
        _sync_folder(partial)
        check_target(target)
        os.rename(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _sync_folder(target.parent)
    return manifest


def check_target(target: Path) -> None:
    """Raises InvalidArgument unless a store may be made there."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InvalidArgument(f"{target} is not a folder: name a new one to restore to")
    if target.is_dir() and any(target.iterdir()):
        raise InvalidArgument(
            f"{target} is not empty: a restore replaces nothing; name a new folder"
        )


Opener = Callable[[str], "IO[bytes] | None"]
"""Where the bytes of a file go; None to keep nothing."""


def _keep_nothing(_name: str) -> IO[bytes] | None:
    return None


def _read(path: Path, told: Told, opener: Opener) -> Manifest:
    if path.is_dir():
        members, text = _read_folder(path, told, opener)
    elif path.is_file():
        members, text = _read_tar(path, told, opener)
    else:
        raise BackupDamaged(f"there is no backup {path}")
    if text is None:
        raise BackupDamaged(f"{path} has no {MANIFEST}: {_UNFINISHED}")
    manifest = decode_manifest(text)
    found = {member.name: member for member in members}
    for row in manifest.files:
        member = found.pop(row.name, None)
        if member is None:
            raise BackupDamaged(f"{row.name} is missing in {path}: {_UNFINISHED}")
        if member.length != row.used or member.digest != row.sha256:
            raise BackupDamaged(
                f"{row.name} in {path} is not what was backed up: its digest differs; use another "
                "backup"
            )
    if found:
        raise BackupDamaged(f"{path} holds {min(found)}, which its manifest does not name")
    return manifest


def _read_folder(folder: Path, told: Told, opener: Opener) -> tuple[list[_Member], bytes | None]:
    members: list[_Member] = []
    text: bytes | None = None
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        check_name(entry.name)
        if not entry.is_file(follow_symlinks=False):
            raise BackupDamaged(f"{entry.name} in {folder} is not a plain file")
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as source:
            length = os.fstat(descriptor).st_size
            if entry.name == MANIFEST:
                text = _small(source, length)
            else:
                members.append(_take(entry.name, source, length, told, opener))
    return members, text


def _read_tar(path: Path, told: Told, opener: Opener) -> tuple[list[_Member], bytes | None]:
    members: list[_Member] = []
    text: bytes | None = None
    try:
        with tarfile.open(path, "r|") as archive:
            for info in archive:
                _check_member(info, {member.name for member in members}, is_over=text is not None)
                source = archive.extractfile(info)
                assert source is not None
                if info.name == MANIFEST:
                    text = _small(source, info.size)
                else:
                    members.append(_take(info.name, source, info.size, told, opener))
    except (tarfile.TarError, EOFError) as error:
        raise BackupDamaged(
            f"{path} is not a whole tar archive ({error}): {_UNFINISHED}"
        ) from error
    return members, text


def _check_member(info: tarfile.TarInfo, seen: set[str], *, is_over: bool) -> None:
    check_name(info.name)
    if info.type not in {tarfile.REGTYPE, tarfile.AREGTYPE}:
        raise BackupDamaged(
            f"{info.name} in the archive is a link, folder or device, not a plain file; nothing "
            "was restored"
        )
    if info.name in seen or is_over:
        raise BackupDamaged(f"the archive holds {info.name} twice, or after its manifest")
    if info.size > FILE_BYTES_MAX:
        raise BackupDamaged(f"{info.name} in the archive claims {info.size} bytes")


def _small(source: IO[bytes], length: int) -> bytes:
    if length > MANIFEST_BYTES_MAX:
        raise BackupDamaged(f"{MANIFEST} claims {length} bytes")
    return source.read(length)


def _take(name: str, source: IO[bytes], length: int, told: Told, opener: Opener) -> _Member:
    digest = sha256()
    with _opened(opener(name)) as target:
        left = length
        while left:
            data = source.read(min(left, _PIECE))
            if not data:
                raise BackupDamaged(f"{name} is cut short by {left} bytes: {_UNFINISHED}")
            digest.update(data)
            if target is not None:
                target.write(data)
            left -= len(data)
            told(len(data))
    return _Member(name, length, digest.hexdigest())


@contextmanager
def _opened(file: IO[bytes] | None) -> Iterator[IO[bytes] | None]:
    try:
        yield file
    finally:
        if file is not None:
            file.close()


def _create(path: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "wb")


def _finish(path: Path, row: ManifestRow) -> None:
    """Gives a file the size it has in a store, and makes it durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if row.size > row.used:
            os.posix_fallocate(descriptor, 0, row.size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
