import os
from pathlib import Path

import pytest

from penstock.pipeline.repositories import syncing


def test_a_file_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "entry.json"
    syncing.write_whole(path, b"one")
    assert path.read_bytes() == b"one"

    def fail(descriptor: int) -> None:
        raise OSError("the disk said no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(
        syncing.WriteFailed, match=r"entry\.json cannot be written: the disk said no"
    ):
        syncing.write_whole(path, b"two")
    assert path.read_bytes() == b"one"


def test_folders_are_made_with_their_parents_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(syncing, "sync_file", lambda path: synced.append(str(path)))
    syncing.make_folder(tmp_path / "a" / "b")
    assert synced == [str(tmp_path), str(tmp_path / "a")]
