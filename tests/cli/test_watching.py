import io
import sys
from pathlib import Path

import pytest

from penstock.cli.output import Output
from penstock.cli.progress import Progress
from penstock.cli.watching import WatchedDisk, folder_megabytes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_reading_is_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    (tmp_path / "file").write_bytes(bytes(2_000_000))
    progress = Progress(Output(), "reading", folder_megabytes(tmp_path))
    disk = WatchedDisk(tmp_path, progress)
    file = disk.open("file")
    assert file.pread(0, 1_000_000) == bytes(1_000_000)
    assert " 50%" in progress.text()
    file.close()
    disk.close()
