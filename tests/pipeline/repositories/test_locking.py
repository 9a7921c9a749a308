import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.refusals import TableLocked
from penstock.pipeline.repositories.locking import FolderLock


def test_a_lock_is_held_once_and_names_its_holder(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "table", "lock", TableLocked, "taken")
    with pytest.raises(TableLocked, match=r"taken \(process \d+\)"):
        FolderLock(tmp_path / "table", "lock", TableLocked, "taken")
    lock.close()
    lock.close()
    FolderLock(tmp_path / "table", "lock", TableLocked, "taken").close()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, signal, pathlib\n"
        "from penstock.pipeline.repositories.locking import FolderLock\n"
        "from penstock.pipeline.refusals import TableLocked\n"
        f"FolderLock(pathlib.Path({str(tmp_path)!r}), 'lock', TableLocked, 'taken')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = str(Path(__file__).parents[3] / "src")
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=False)
    assert done.returncode == -9
    FolderLock(tmp_path, "lock", TableLocked, "taken").close()
