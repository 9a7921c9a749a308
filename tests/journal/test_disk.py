"""A real folder: durable in every part, private, and open once."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.journal import disk as disk_module
from penstock.journal.disk import Disk, FolderDisk
from penstock.vocabulary.errors import StoreInUse


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FolderDisk]:
    opened = FolderDisk(tmp_path / "store")
    yield opened
    opened.close()


def test_it_is_a_disk(disk: FolderDisk) -> None:
    port: Disk = disk
    assert port.names() == []


def test_a_new_file_reads_as_zeros_of_its_size(disk: FolderDisk) -> None:
    file = disk.create("a", 10)
    assert (file.name, file.size, file.pread(0, 100)) == ("a", 10, bytes(10))
    file.close()


def test_written_bytes_come_back_through_another_opening(disk: FolderDisk) -> None:
    file = disk.create("a", 4)
    file.pwrite(2, b"xyz")
    file.sync()
    file.close()
    again = disk.open("a")
    assert (again.size, again.pread(0, 100)) == (5, b"\0\0xyz")
    assert again.pread(3, 1) == b"y"
    assert again.pread(9, 1) == b""
    again.close()


def test_names_are_sorted_and_hide_the_lock(disk: FolderDisk) -> None:
    disk.lock()
    for name in ("b", "a"):
        disk.create(name, 0).close()
    assert disk.names() == ["a", "b"]


def test_a_name_is_created_once(disk: FolderDisk) -> None:
    disk.create("a", 0).close()
    with pytest.raises(FileExistsError):
        disk.create("a", 0)


def test_an_absent_file_is_not_found(disk: FolderDisk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("a")


def test_a_rename_replaces_and_an_unlink_removes(disk: FolderDisk) -> None:
    for name, data in (("a", b"1"), ("b", b"2")):
        file = disk.create(name, 0)
        file.pwrite(0, data)
        file.close()
    disk.rename("b", "a")
    disk.sync_names()
    file = disk.open("a")
    assert (disk.names(), file.pread(0, 9)) == (["a"], b"2")
    file.close()
    disk.unlink("a")
    assert disk.names() == []


def test_closing_twice_is_harmless(disk: FolderDisk) -> None:
    file = disk.create("a", 0)
    file.close()
    file.close()
    disk.close()
    disk.close()


def test_free_space_is_that_of_the_file_system(disk: FolderDisk, tmp_path: Path) -> None:
    usage = os.statvfs(tmp_path)
    assert 0 < disk.free_bytes() <= usage.f_blocks * usage.f_frsize


# -- the operating system at its worst ---------------------------------------------------------


def test_short_writes_are_continued(disk: FolderDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.pwrite, []

    def short(descriptor: int, data: bytes, offset: int) -> int:
        sizes.append(len(data))
        return real(descriptor, bytes(data)[:3], offset)

    monkeypatch.setattr(os, "pwrite", short)
    file = disk.create("a", 0)
    file.pwrite(1, b"0123456789")
    assert sizes == [10, 7, 4, 1]
    assert file.pread(0, 99) == b"\x000123456789"
    file.close()


def test_short_synced_writes_are_continued_and_every_part_is_synced(
    disk: FolderDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, flags_seen = os.pwritev, []

    def short(descriptor: int, parts: tuple[bytes], offset: int, flags: int) -> int:
        flags_seen.append(flags)
        return real(descriptor, [bytes(parts[0])[:4]], offset, flags)

    monkeypatch.setattr(os, "pwritev", short)
    file = disk.create("a", 0)
    file.pwrite_synced(1, b"0123456789")
    assert flags_seen == [os.RWF_DSYNC] * 3
    assert (file.size, file.pread(0, 99)) == (11, b"\x000123456789")
    file.close()


def test_short_reads_are_continued(disk: FolderDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.create("a", 0)
    file.pwrite(0, b"0123456789")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: real(fd, min(length, 4), at))
    assert file.pread(1, 20) == b"123456789"
    file.close()


def test_a_failed_write_is_raised_not_repeated(
    disk: FolderDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail(*arguments: object) -> int:
        calls.append(arguments)
        raise OSError(28, "no space")

    file = disk.create("a", 0)
    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="no space"):
        file.pwrite(0, b"x")
    assert len(calls) == 1
    file.close()


def test_a_file_that_cannot_have_its_size_is_not_left_behind(
    disk: FolderDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(OSError, match="no space"):
        disk.create("a", 4096)
    assert disk.names() == []


def test_a_sync_reaches_the_file_and_a_sync_of_names_the_folder(
    disk: FolderDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(os, "fsync", sync)
    file = disk.create("a", 0)
    file.sync()
    disk.sync_names()
    assert synced == [str(disk.folder / "a"), str(disk.folder)]
    file.close()


# -- making the folder -------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_folder_and_its_files_are_private_whatever_the_mask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        disk = FolderDisk(tmp_path / "private")
        disk.create("a", 0).close()
        disk.lock()
        disk.close()
    finally:
        os.umask(before)
    modes = {
        path.name: oct(path.stat().st_mode & 0o777)
        for path in (tmp_path / "private", *(tmp_path / "private").iterdir())
    }
    assert modes == {"private": "0o700", "a": "0o600", "lock": "0o600"}


def test_every_new_folder_on_the_way_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk_module, "_sync_folder", synced.append)
    FolderDisk(tmp_path / "a" / "b" / "c").close()
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_an_existing_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"x")
    disk = FolderDisk(tmp_path)
    assert disk.names() == ["mine"]
    disk.close()


def test_looking_at_a_store_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FolderDisk(tmp_path / "absent", is_read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_store_opened_for_looking_cannot_be_written(disk: FolderDisk) -> None:
    disk.create("a", 4).close()
    reader = FolderDisk(disk.folder, is_read_only=True)
    file = reader.open("a")
    assert file.pread(0, 9) == bytes(4)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(0, b"x")
    file.close()
    reader.close()


# -- one writer --------------------------------------------------------------------------------


def test_a_second_opener_is_told_who_has_the_store(disk: FolderDisk) -> None:
    disk.lock()
    second = FolderDisk(disk.folder)
    with pytest.raises(StoreInUse, match=f"process {os.getpid()}"):
        second.lock()
    second.close()


def test_the_store_is_free_after_closing(disk: FolderDisk) -> None:
    disk.lock()
    disk.close()
    second = FolderDisk(disk.folder)
    second.lock()
    second.close()


def test_the_owner_is_known_without_claiming_anything(disk: FolderDisk) -> None:
    looker = FolderDisk(disk.folder, is_read_only=True)
    assert looker.owner() is None
    disk.lock()
    assert looker.owner() == f"process {os.getpid()}"
    disk.close()
    assert looker.owner() is None
    looker.close()


def test_the_lock_of_a_process_that_died_does_not_hold(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from penstock.journal.disk import FolderDisk\n"
        "FolderDisk(Path(sys.argv[1])).lock(); os._exit(9)"
    )
    folder = tmp_path / "store"
    command = [sys.executable, "-c", script, str(folder)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 9
    disk = FolderDisk(folder)
    disk.lock()
    disk.close()


def test_groups_from_a_buffer_go_past_the_page_cache_and_are_read_again(disk: FolderDisk) -> None:
    file = disk.create("a", 4096)
    data = disk.buffer(1024)
    data[:] = b"x" * 512 + b"y" * 512
    file.pwrite_synced(512, data)
    assert file.pread(0, 4096) == bytes(512) + bytes(data) + bytes(4096 - 1536)
    file.pwrite(0, b"through the cache")
    data[:] = b"z" * 1024
    file.pwrite_synced(1024, data)
    assert file.pread(0, 17) == b"through the cache"
    assert file.pread(1024, 1024) == b"z" * 1024
    file.finish()
    file.pwrite_synced(0, data)
    assert file.pread(0, 1024) == b"z" * 1024
    file.close()


def test_a_filesystem_that_refuses_direct_writes_is_written_through_the_cache(
    disk: FolderDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tried = os.open, []

    def refuse(path: str, flags: int, *arguments: int, **options: int) -> int:
        if flags & os.O_DIRECT:
            tried.append(path)
            raise OSError(errno.EINVAL, "no direct writes here")
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    file = disk.create("a", 4096)
    data = disk.buffer(512)
    data[:] = b"x" * 512
    file.pwrite_synced(0, data)
    file.pwrite_synced(512, data)
    assert file.pread(0, 1024) == b"x" * 1024
    assert tried == ["a"]
    file.close()


def test_a_device_with_larger_sectors_is_written_through_the_cache(
    disk: FolderDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.pwritev, []

    def refuse_first(descriptor: int, parts: tuple[bytes], offset: int, flags: int) -> int:
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(errno.EINVAL, "not on a sector")
        return real(descriptor, parts, offset, flags)

    monkeypatch.setattr(os, "pwritev", refuse_first)
    file = disk.create("a", 4096)
    data = disk.buffer(512)
    data[:] = b"x" * 512
    file.pwrite_synced(0, data)
    file.pwrite_synced(512, data)
    assert file.pread(0, 1024) == b"x" * 1024
    assert len(calls) == 3
    file.close()


def test_a_direct_write_that_fails_is_raised(
    disk: FolderDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is gone")

    file = disk.create("a", 4096)
    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        file.pwrite_synced(0, disk.buffer(512))
    file.close()


def test_a_short_direct_write_is_continued_through_the_cache(
    disk: FolderDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwritev

    def short(descriptor: int, parts: tuple[memoryview], offset: int, flags: int) -> int:
        return real(descriptor, (parts[0][:512],), offset, flags)

    monkeypatch.setattr(os, "pwritev", short)
    file = disk.create("a", 4096)
    data = disk.buffer(2048)
    data[:] = bytes(range(256)) * 8
    file.pwrite_synced(0, data)
    assert file.pread(0, 2048) == bytes(data)
    file.close()


def test_a_file_that_is_expected_reads_as_ever(disk: FolderDisk) -> None:
    file = disk.create("a", 4096)
    file.pwrite(10, b"x")
    file.expect()
    assert file.pread(10, 1) == b"x"
    file.close()
