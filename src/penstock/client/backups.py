"""Backups: a copy of a whole store, made while it is in use, over any connection to it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.drivers.port import Driver
from penstock.vocabulary import requests as q
from penstock.vocabulary.backups import PIECE_BYTES, BackupFile, BackupPlan, Manifest
from penstock.vocabulary.errors import InvalidArgument, PenstockError, StorageError

if TYPE_CHECKING:
    from penstock.client.archive import Archive

Told = Callable[[int, int], None]
"""Called with the bytes copied and the bytes there are."""


class Backups:
    """The part of a Client that copies a store."""

    def _opened(self) -> Driver:
        raise NotImplementedError

    async def backup(
        self, out: str | Path, *, is_tar: bool | None = None, progress: Told | None = None
    ) -> Manifest:
        """Copies the store, while it is in use, to a new tar archive or folder `out`.

        It holds everything confirmed before the call; `penstock restore` makes a store of it.
        `is_tar` is True for names that end in .tar when not given. Raises InvalidArgument when
        something is there already, Unavailable, StorageError.
        """
        # Tar and digests wait until somebody makes a backup: connecting stays quick.
        from penstock.client.archive import Archive, check_out  # noqa: PLC0415

        path = _path(out)
        is_tar = path.suffix == ".tar" if is_tar is None else is_tar
        check_out(path, is_tar=is_tar)
        driver = self._opened()
        plan: BackupPlan = await driver.ask(q.BeginBackup())
        try:
            with Archive(path, plan.started_at, is_tar=is_tar) as archive:
                return await _copied(driver, plan, archive, progress or _nobody)
        except OSError as error:
            raise StorageError(
                f"the backup {path} cannot be written: {error.strerror or error}"
            ) from error
        finally:
            await _ended(driver, plan)


def _path(out: str | Path) -> Path:
    path = Path(out).absolute()
    if not path.name:
        raise InvalidArgument("name a file or folder for the backup")
    return path


async def _copied(driver: Driver, plan: BackupPlan, archive: "Archive", progress: Told) -> Manifest:
    done = 0
    for file in plan.files:
        await asyncio.to_thread(archive.begin, file.name, file.used)
        start = 0
        while start < file.used:
            data = await _piece(driver, plan, file, start)
            await asyncio.to_thread(archive.write, data)
            start += len(data)
            done += len(data)
            progress(done, plan.total)
        await asyncio.to_thread(archive.end, file)
    return await asyncio.to_thread(archive.finish, plan)


async def _piece(driver: Driver, plan: BackupPlan, file: BackupFile, start: int) -> bytes:
    wanted = min(PIECE_BYTES, file.used - start)
    data: bytes = await driver.ask(q.ReadBackup(plan.backup, file.name, start, wanted))
    if len(data) != wanted:
        raise StorageError(
            f"the broker gave {len(data)} of {wanted} bytes of {file.name}; begin the backup again"
        )
    return data


async def _ended(driver: Driver, plan: BackupPlan) -> None:
    try:
        await driver.ask(q.EndBackup(plan.backup))
    except PenstockError:
        return  # The broker forgets it by itself.


def _nobody(_done: int, _total: int) -> None:
    """Nobody wants to know."""
