"""An archive has its name only when it is whole."""

import tarfile
from pathlib import Path

import pytest

from penstock.client.archive import Archive
from penstock.vocabulary.backups import BackupFile, BackupPlan, decode_manifest
from penstock.vocabulary.errors import InvalidArgument

FILES = [BackupFile("superblock", 8192, 700), BackupFile("segment-00000001", 4096, 1024)]
PLAN = BackupPlan("b", "00", 7, 1_700_000_000.5, FILES)


def fill(archive: Archive) -> None:
    for file in FILES:
        archive.begin(file.name, file.used)
        archive.write(b"x" * (file.used - 1))
        archive.write(b"y")
        archive.end(file)


def test_a_tar_has_the_files_and_last_the_manifest(tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    with Archive(out, PLAN.started_at, is_tar=True) as archive:
        fill(archive)
        assert not out.exists()
        manifest = archive.finish(PLAN)
    with tarfile.open(out) as read:
        members = read.getmembers()
        assert [(each.name, each.size) for each in members[:2]] == [
            ("superblock", 700),
            ("segment-00000001", 1024),
        ]
        last = read.extractfile(members[2])
        assert last is not None
        assert decode_manifest(last.read()) == manifest
    assert out.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["out.tar"]


def test_a_folder_has_them_as_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Archive(out, PLAN.started_at, is_tar=False) as archive:
        fill(archive)
        assert not out.exists()
        manifest = archive.finish(PLAN)
    assert decode_manifest((out / "manifest.json").read_bytes()) == manifest
    assert (out / "superblock").read_bytes() == b"x" * 699 + b"y"
    assert out.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("is_tar", [True, False])
def test_an_error_leaves_nothing(tmp_path: Path, is_tar: bool) -> None:
    def broken() -> None:
        with Archive(tmp_path / "out", 0.0, is_tar=is_tar) as archive:
            fill(archive)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_tar", [True, False])
def test_nothing_is_replaced(tmp_path: Path, is_tar: bool) -> None:
    (tmp_path / "out").write_bytes(b"mine")
    with pytest.raises(InvalidArgument), Archive(tmp_path / "out", 0.0, is_tar=is_tar):
        pass
    with pytest.raises(InvalidArgument), Archive(tmp_path / "no" / "out", 0.0, is_tar=is_tar):
        pass
    assert (tmp_path / "out").read_bytes() == b"mine"


def test_what_appears_meanwhile_is_not_replaced_either(tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    with Archive(out, 0.0, is_tar=True) as archive:
        fill(archive)
        out.write_bytes(b"mine")
        with pytest.raises(InvalidArgument, match="exists"):
            archive.finish(PLAN)
    assert [path.name for path in tmp_path.iterdir()] == ["out.tar"]
    assert out.read_bytes() == b"mine"
