"""The disk in memory: as a disk, as a record of operations, and as a place to fail and crash."""

import errno
import threading
from collections.abc import Callable

import pytest

from penstock.journal.disk import Disk, File
from penstock.journal.memory import Crashed, Image, MemoryDisk, Op, Verb
from penstock.vocabulary.errors import StoreInUse


@pytest.fixture(params=[False, True], ids=["plain", "recording"])
def disk(request: pytest.FixtureRequest) -> MemoryDisk:
    return MemoryDisk(record=request.param)


# -- a disk -------------------------------------------------------------------------------------


def test_it_is_a_disk_of_files(disk: MemoryDisk) -> None:
    port: Disk = disk
    file: File = port.create("a", 4)
    assert (file.name, file.size) == ("a", 4)


def test_a_new_file_reads_as_zeros(disk: MemoryDisk) -> None:
    assert disk.create("a", 4).pread(0, 10) == bytes(4)


def test_written_bytes_are_read_back_through_any_opening(disk: MemoryDisk) -> None:
    disk.create("a", 8).pwrite(2, b"xyz")
    assert disk.open("a").pread(0, 8) == b"\0\0xyz\0\0\0"
    assert disk.open("a").pread(3, 1) == b"y"
    assert disk.open("a").pread(9, 1) == b""


def test_a_write_past_the_end_grows_the_file(disk: MemoryDisk) -> None:
    file = disk.create("a", 0)
    file.pwrite(3, b"x")
    assert file.size == 4
    assert file.pread(0, 9) == b"\0\0\0x"


def test_an_empty_write_changes_nothing(disk: MemoryDisk) -> None:
    file = disk.create("a", 1)
    file.pwrite(5, b"")
    assert file.size == 1
    assert disk.open("a").size == 1


def test_names_are_sorted(disk: MemoryDisk) -> None:
    disk.create("b", 0)
    disk.create("a", 0)
    assert disk.names() == ["a", "b"]


def test_a_name_is_created_once(disk: MemoryDisk) -> None:
    disk.create("a", 0)
    with pytest.raises(FileExistsError):
        disk.create("a", 0)


def test_an_absent_file_is_not_found(disk: MemoryDisk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("a")
    with pytest.raises(FileNotFoundError):
        disk.rename("a", "b")
    with pytest.raises(FileNotFoundError):
        disk.unlink("a")


def test_a_rename_replaces_what_had_the_name(disk: MemoryDisk) -> None:
    disk.create("old", 1).pwrite(0, b"o")
    disk.create("new", 1).pwrite(0, b"n")
    disk.rename("new", "old")
    assert disk.names() == ["old"]
    assert disk.open("old").pread(0, 1) == b"n"


def test_an_unlinked_file_serves_those_who_have_it_open(disk: MemoryDisk) -> None:
    file = disk.create("a", 1)
    disk.unlink("a")
    file.pwrite(0, b"x")
    assert file.pread(0, 1) == b"x"
    assert disk.names() == []


def test_a_closed_file_is_of_no_use(disk: MemoryDisk) -> None:
    file = disk.create("a", 1)
    file.close()
    uses: list[Callable[[], object]] = [
        lambda: file.pread(0, 1),
        lambda: file.pwrite(0, b""),
        file.sync,
    ]
    for use in uses:
        with pytest.raises(OSError, match="Bad file descriptor") as failure:
            use()
        assert failure.value.errno == errno.EBADF


def test_one_user_at_a_time(disk: MemoryDisk) -> None:
    disk.lock()
    with pytest.raises(StoreInUse):
        disk.lock()
    disk.create("a", 1).pwrite(0, b"x")
    disk.close()
    disk.lock()
    assert disk.open("a").pread(0, 1) == b"x"


def test_free_space_is_what_a_test_says(disk: MemoryDisk) -> None:
    assert disk.free_bytes() > 0
    disk.free = 7
    assert disk.free_bytes() == 7


def test_readers_see_whole_writes_while_a_file_grows() -> None:
    disk = MemoryDisk()
    file = disk.create("a", 512)
    seen: list[bytes] = []

    def read() -> None:
        reader = disk.open("a")
        seen.extend(reader.pread(0, 512) for _ in range(2_000))

    thread = threading.Thread(target=read)
    thread.start()
    for round_number in range(500):
        file.pwrite(0, bytes([round_number % 256]) * 512)
        file.pwrite(512 * (round_number + 1), b"end")
    thread.join()
    assert len(seen) == 2_000
    assert all(data == data[:1] * 512 for data in seen)


# -- images -------------------------------------------------------------------------------------


def test_an_image_holds_what_readers_see(disk: MemoryDisk) -> None:
    disk.create("a", 2).pwrite(1, b"x")
    assert disk.image() == {"a": b"\0x"}


@pytest.mark.parametrize("record", [False, True])
def test_a_disk_made_from_an_image_does_not_change_it(record: bool) -> None:
    image: Image = {"a": b"one", "b": b"two"}
    disk = MemoryDisk.from_image(image, record=record)
    disk.open("a").pwrite(0, b"O")
    disk.open("b").pwrite(3, b"!")
    disk.open("b").sync()
    assert disk.image() == {"a": b"One", "b": b"two!"}
    assert image == {"a": b"one", "b": b"two"}


def test_a_disk_made_from_an_image_is_durable() -> None:
    disk = MemoryDisk.from_image({"a": b"one"}, record=True)
    assert list(disk.crash_images()) == [("drop-all", {"a": b"one"})]


# -- the record -------------------------------------------------------------------------------


def test_a_plain_disk_records_nothing() -> None:
    disk = MemoryDisk()
    disk.create("a", 1).sync()
    assert disk.trace == []


def test_every_operation_that_changes_something_is_in_the_trace() -> None:
    disk = MemoryDisk(record=True)
    file = disk.create("a", 8)
    file.pwrite(2, b"xyz")
    file.pread(0, 8)
    file.sync()
    disk.rename("a", "b")
    disk.sync_names()
    disk.unlink("b")
    assert disk.trace == [
        Op(0, Verb.CREATE, "a", length=8),
        Op(1, Verb.WRITE, "a", 2, 3),
        Op(2, Verb.SYNC, "a"),
        Op(3, Verb.RENAME, "a"),
        Op(4, Verb.SYNC_NAMES),
        Op(5, Verb.UNLINK, "b"),
    ]


def test_the_hook_sees_the_disk_before_the_operation() -> None:
    disk = MemoryDisk(record=True)
    seen: list[tuple[Op, Image]] = []
    disk.on_operation = lambda op: seen.append((op, disk.image()))
    disk.create("a", 1).pwrite(0, b"x")
    assert seen == [
        (Op(0, Verb.CREATE, "a", length=1), {}),
        (Op(1, Verb.WRITE, "a", 0, 1), {"a": b"\0"}),
    ]


# -- failures -----------------------------------------------------------------------------------


class Failing:
    """A disk with a durable file `a`, on which every operation of one kind fails."""

    def __init__(self, verb: Verb) -> None:
        self.disk = MemoryDisk.from_image({"a": b"old"}, record=True)
        self.file = self.disk.open("a")
        self.verb = verb
        self.disk.on_operation = self.fail

    def fail(self, op: Op) -> None:
        if op.verb is self.verb:
            raise OSError(errno.EIO, "injected")


def test_a_failed_operation_has_no_effect() -> None:
    failing = Failing(Verb.WRITE)
    with pytest.raises(OSError, match="injected"):
        failing.file.pwrite(0, b"new")
    assert failing.disk.image() == {"a": b"old"}
    assert list(failing.disk.crash_images()) == [("drop-all", {"a": b"old"})]


@pytest.mark.parametrize("verb", [Verb.CREATE, Verb.RENAME, Verb.UNLINK])
def test_a_failed_change_of_names_has_no_effect(verb: Verb) -> None:
    failing = Failing(verb)
    changes: dict[Verb, Callable[[], object]] = {
        Verb.CREATE: lambda: failing.disk.create("b", 1),
        Verb.RENAME: lambda: failing.disk.rename("a", "b"),
        Verb.UNLINK: lambda: failing.disk.unlink("a"),
    }
    with pytest.raises(OSError, match="injected"):
        changes[verb]()
    assert failing.disk.names() == ["a"]


def test_after_a_failed_sync_the_writes_may_or_may_not_survive() -> None:
    failing = Failing(Verb.SYNC)
    failing.file.pwrite(0, b"new")
    with pytest.raises(OSError, match="injected"):
        failing.file.sync()
    left = [image["a"] for _, image in failing.disk.crash_images()]
    assert b"old" in left
    assert b"new" in left
    assert failing.disk.image() == {"a": b"new"}


def test_a_failed_sync_may_drop_the_writes_for_good() -> None:
    failing = Failing(Verb.SYNC)
    failing.disk.drop_on_failed_sync = True
    failing.file.pwrite(0, b"new")
    with pytest.raises(OSError, match="injected"):
        failing.file.sync()
    assert failing.disk.image() == {"a": b"old"}
    failing.disk.on_operation = None
    failing.file.sync()
    assert list(failing.disk.crash_images()) == [("drop-all", {"a": b"old"})]


# -- crashes ------------------------------------------------------------------------------------


def test_a_crash_comes_before_the_numbered_operation() -> None:
    disk = MemoryDisk(record=True)
    disk.crash_at = 1
    file = disk.create("a", 1)
    with pytest.raises(Crashed, match="operation 1"):
        file.pwrite(0, b"x")
    assert disk.image() == {"a": b"\0"}


def test_a_crash_comes_at_the_named_point(disk: MemoryDisk) -> None:
    disk.crash_at = "sealed"
    disk.point("rolled")
    with pytest.raises(Crashed, match="sealed"):
        disk.point("sealed")


def test_points_are_passed_when_no_crash_is_wanted(disk: MemoryDisk) -> None:
    disk.point("sealed")
    assert disk.names() == []


def test_nothing_happens_after_a_crash(disk: MemoryDisk) -> None:
    disk.crash_at = "sealed"
    file = disk.create("a", 1)
    with pytest.raises(Crashed):
        disk.point("sealed")
    uses: list[Callable[[], object]] = [
        lambda: file.pwrite(0, b"x"),
        file.sync,
        lambda: disk.unlink("a"),
    ]
    for use in uses:
        with pytest.raises(Crashed, match="after the crash"):
            use()
    assert disk.image() == {"a": b"\0"}


def test_a_crash_is_not_an_exception_that_a_program_might_catch() -> None:
    assert not issubclass(Crashed, Exception)
