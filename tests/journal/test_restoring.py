"""A restore believes nothing: only a whole backup becomes a store, and only in an empty folder."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.journal.disk import FolderDisk
from penstock.journal.restoring import backup_bytes, check_backup, is_backup, restore
from penstock.journal.verify import Verdict, verify
from penstock.vocabulary.errors import BackupDamaged, InvalidArgument

BODIES = [b"%d" % number * 40 for number in range(200)]


def nobody(_count: int) -> None:
    """Progress is of no interest here."""


@pytest.fixture(params=["store.tar", "store"])
def backup(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with penstock.connect_blocking(f"file:{tmp_path / 'data'}") as client:
        client.publish_many("orders", BODIES)
        client.backup(tmp_path / request.param)
    return tmp_path / str(request.param)


def test_a_backup_becomes_the_same_store(backup: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "restored"
    counted: list[int] = []
    manifest = restore(backup, target, counted.append)
    assert sum(counted) == sum(row.used for row in manifest.files)
    disk = FolderDisk(target, is_read_only=True)
    try:
        assert verify(disk).verdict is Verdict.OK
    finally:
        disk.close()
    with penstock.connect_blocking(f"file:{target}") as client:
        assert [message.body for message in client.peek("orders", 1000)] == BODIES
    assert sorted(path.name for path in target.parent.iterdir()) == ["restored"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in target.iterdir())


def test_a_backup_is_told_from_a_store(backup: Path, tmp_path: Path) -> None:
    assert is_backup(backup)
    assert not is_backup(tmp_path / "data")
    assert backup_bytes(backup) > 0


def test_an_empty_folder_may_be_the_target(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    restore(backup, tmp_path / "empty", nobody)
    assert (tmp_path / "empty" / "superblock").is_file()


def test_nothing_is_replaced(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "photo").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("full", "file", "link"):
        with pytest.raises(InvalidArgument):
            restore(backup, tmp_path / name, nobody)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["photo"]


def tars(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as archive:
        return [(info, (archive.extractfile(info) or io.BytesIO()).read()) for info in archive]


def written(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


def refused(path: Path, tmp_path: Path, text: str) -> None:
    before = sorted(entry.name for entry in tmp_path.iterdir())
    with pytest.raises(BackupDamaged, match=text):
        check_backup(path, nobody)
    with pytest.raises(BackupDamaged, match=text):
        restore(path, tmp_path / "restored", nobody)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == before


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    with penstock.connect_blocking(f"file:{tmp_path / 'data'}") as client:
        client.publish_many("orders", BODIES)
        client.backup(tmp_path / "store.tar")
    return tmp_path / "store.tar"


@pytest.mark.parametrize(
    "name", ["../escaped", "/tmp/escaped", "a/../../escaped", "segment-00000001/x", "notes.txt"]
)
def test_a_name_that_leads_elsewhere_is_refused(tar: Path, tmp_path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = 1
    bad = written(tmp_path / "bad.tar", [(info, b"x"), *tars(tar)])
    refused(bad, tmp_path, "no store has")
    assert not (tmp_path.parent / "escaped").exists()


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE,
        tarfile.DIRTYPE,
    ],
)  # fmt: skip
def test_links_and_devices_are_refused(tar: Path, tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("segment-00000099")
    info.type, info.linkname = kind, "/etc/passwd"
    refused(written(tmp_path / "bad.tar", [(info, b""), *tars(tar)]), tmp_path, "not a plain file")


def change_first(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, data = members[0]
    members[0] = (info, bytes([data[0] ^ 1]) + data[1:])


def drop_first(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    del members[0]


def drop_manifest(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    del members[-1]


def repeat_first(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.insert(1, members[0])


def add_more(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info = tarfile.TarInfo("segment-00000099")
    members.insert(0, (info, b""))


def after_manifest(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.append(members[0])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (change_first, "digest differs"),
        (drop_first, "is missing"),
        (drop_manifest, "has no manifest"),
        (repeat_first, "twice"),
        (add_more, "does not name"),
        (after_manifest, "after its manifest"),
    ],
)
def test_a_changed_archive_is_refused(
    tar: Path,
    tmp_path: Path,
    change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None],
    text: str,
) -> None:
    members = tars(tar)
    change(members)
    refused(written(tmp_path / "bad.tar", members), tmp_path, text)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_an_archive_cut_short_is_refused(tar: Path, tmp_path: Path, share: float) -> None:
    data = tar.read_bytes().rstrip(b"\0")
    bad = tmp_path / "bad.tar"
    bad.write_bytes(data[: int(len(data) * share)])
    refused(bad, tmp_path, "never finished|cut short|no manifest|not JSON")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    bad.write_bytes(b"hello" * 1000)
    refused(bad, tmp_path, "not a whole tar archive")
    refused(tmp_path / "missing.tar", tmp_path, "there is no backup")


def test_a_link_in_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "superblock").symlink_to("/etc/passwd")
    refused(folder, tmp_path, "not a plain file")
