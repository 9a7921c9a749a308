"""One writer for each folder: a lock that ends with its process, however that ends."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from penstock.pipeline.refusals import PipelineRefused
from penstock.pipeline.repositories.syncing import make_folder, writing


class FolderLock:
    """Held from construction until `close`. Raises the given refusal when another has it."""

    def __init__(self, folder: Path, name: str, refusal: type[PipelineRefused], text: str) -> None:
        with writing(folder / name):
            make_folder(folder)
            self._descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 64, 0).decode(errors="replace").strip()
            self.close()
            who = f" (process {holder})" if holder else ""
            raise refusal(f"{text}{who}") from None
        os.ftruncate(self._descriptor, 0)
        with suppress(OSError):  # a full disk: nobody is told who has it, and that is all
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Lets go. Doing so twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
