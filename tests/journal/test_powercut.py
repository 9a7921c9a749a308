"""One small handmade workload for each policy, and the images it must give."""

import pytest

from penstock.journal.memory import MemoryDisk
from penstock.journal.powercut import ALL_POLICIES, RANDOM_COUNT, Image, Policy

OLD = b"o" * 512
NEW = b"n" * 512
ZERO = bytes(512)
FOUR = [letter * 512 for letter in (b"1", b"2", b"3", b"4")]
"""Four sectors that differ."""


def images(disk: MemoryDisk, *policies: Policy) -> dict[str, Image]:
    return dict(disk.crash_images(policies))


def over_old(sectors: int = 1, **others: bytes) -> MemoryDisk:
    """A recording disk with a durable file `a` of old sectors, and others."""
    return MemoryDisk.from_image({"a": OLD * sectors, **others}, record=True)


def two_files_pending() -> MemoryDisk:
    """Operation 0 writes to `a`, 1 to `b`, 2 creates `c`, 3 to `a` again."""
    disk = MemoryDisk.from_image({"a": b"a.", "b": b"b"}, record=True)
    disk.open("a").pwrite(0, b"A")
    disk.open("b").pwrite(0, b"B")
    disk.create("c", 1)
    disk.open("a").pwrite(1, b"!")
    return disk


# -- what is durable ------------------------------------------------------------------------------


def test_nothing_pending_leaves_one_image() -> None:
    assert list(over_old().crash_images()) == [("drop-all", {"a": OLD})]


def test_synced_writes_survive_every_policy() -> None:
    disk = over_old()
    file = disk.open("a")
    file.pwrite(0, NEW)
    file.sync()
    assert list(disk.crash_images()) == [("drop-all", {"a": NEW})]


def test_a_sync_covers_its_own_file_only() -> None:
    disk = two_files_pending()
    disk.open("b").sync()
    assert images(disk, Policy.DROP_ALL) == {"drop-all": {"a": b"a.", "b": b"B"}}


def test_a_synced_file_is_gone_when_its_name_was_not_synced() -> None:
    disk = MemoryDisk(record=True)
    file = disk.create("a", 1)
    file.pwrite(0, b"x")
    file.sync()
    assert images(disk, Policy.DROP_ALL) == {"drop-all": {}}
    disk.sync_names()
    assert list(disk.crash_images()) == [("drop-all", {"a": b"x"})]


def test_a_synced_name_of_an_unsynced_file_holds_zeros() -> None:
    disk = MemoryDisk(record=True)
    disk.create("a", 3).pwrite(0, b"xyz")
    disk.sync_names()
    assert images(disk, Policy.DROP_ALL) == {"drop-all": {"a": bytes(3)}}


def test_the_images_are_of_the_moment_they_were_asked_for() -> None:
    disk = over_old()
    file = disk.open("a")
    file.pwrite(0, NEW)
    later = disk.crash_images([Policy.DROP_ALL, Policy.KEEP_ALL])
    file.sync()
    disk.unlink("a")
    disk.sync_names()
    assert dict(later) == {"drop-all": {"a": OLD}, "keep-all": {"a": NEW}}


def test_images_are_distinct() -> None:
    disk = two_files_pending()
    found = [frozenset(image.items()) for _, image in disk.crash_images()]
    assert len(found) == len(set(found))


def test_files_that_do_not_differ_are_not_copied() -> None:
    durable = {"a": OLD, "b": OLD + NEW}
    disk = MemoryDisk.from_image(durable, record=True)
    disk.open("a").pwrite(0, NEW)
    for _, image in disk.crash_images():
        assert image["b"] is durable["b"]


# -- whole operations -----------------------------------------------------------------------------


def test_drop_all_and_keep_all_are_the_two_ends() -> None:
    disk = two_files_pending()
    assert images(disk, Policy.DROP_ALL, Policy.KEEP_ALL) == {
        "drop-all": {"a": b"a.", "b": b"b"},
        "keep-all": {"a": b"A!", "b": b"B", "c": b"\0"},
    }
    assert disk.image() == images(disk, Policy.KEEP_ALL)["keep-all"]


def test_prefixes_follow_the_order_of_all_operations() -> None:
    assert images(two_files_pending(), Policy.PREFIX) == {
        "prefix:0": {"a": b"a.", "b": b"b"},
        "prefix:1": {"a": b"A.", "b": b"b"},
        "prefix:2": {"a": b"A.", "b": b"B"},
        "prefix:3": {"a": b"A.", "b": b"B", "c": b"\0"},
        "prefix:4": {"a": b"A!", "b": b"B", "c": b"\0"},
    }


def test_each_operation_may_be_the_one_missing() -> None:
    assert images(two_files_pending(), Policy.ONE_MISSING) == {
        "one-missing:0": {"a": b"a!", "b": b"B", "c": b"\0"},
        "one-missing:1": {"a": b"A!", "b": b"b", "c": b"\0"},
        "one-missing:2": {"a": b"A!", "b": b"B"},
        "one-missing:3": {"a": b"A.", "b": b"B", "c": b"\0"},
    }


def test_one_file_may_be_written_before_or_after_the_others() -> None:
    assert images(two_files_pending(), Policy.ONE_FILE) == {
        "one-file:a:only": {"a": b"A!", "b": b"b", "c": b"\0"},
        "one-file:a:only:unnamed": {"a": b"A!", "b": b"b"},
        "one-file:a:others": {"a": b"a.", "b": b"B", "c": b"\0"},
        "one-file:a:others:unnamed": {"a": b"a.", "b": b"B"},
    }


def test_random_images_depend_on_the_seed_alone() -> None:
    disk = over_old(4)
    for sector in range(4):
        disk.open("a").pwrite(512 * sector, NEW)
    first = list(disk.crash_images([Policy.RANDOM], seed=1))
    assert first == list(disk.crash_images([Policy.RANDOM], seed=1))
    assert first != list(disk.crash_images([Policy.RANDOM], seed=2))
    assert 1 < len(first) <= RANDOM_COUNT


def test_random_images_hold_only_old_and_new_sectors() -> None:
    disk = over_old(4)
    disk.open("a").pwrite(0, b"".join(FOUR))
    for seed in range(20):
        for _, image in disk.crash_images([Policy.RANDOM], seed=seed):
            for number, new in enumerate(FOUR):
                assert image["a"][512 * number : 512 * (number + 1)] in (OLD, new)


# -- broken writes --------------------------------------------------------------------------------


def test_a_torn_write_keeps_what_lies_before_an_edge() -> None:
    disk = over_old(3)
    disk.open("a").pwrite(0, b"".join(FOUR[:3]))
    assert images(disk, Policy.TORN_PREFIX) == {
        "torn-prefix:0:512": {"a": FOUR[0] + OLD + OLD},
        "torn-prefix:0:1024": {"a": FOUR[0] + FOUR[1] + OLD},
    }


def test_a_torn_write_may_keep_what_lies_after_an_edge() -> None:
    disk = over_old(3)
    disk.open("a").pwrite(0, b"".join(FOUR[:3]))
    assert images(disk, Policy.TORN_SUFFIX) == {
        "torn-suffix:0:512": {"a": OLD + FOUR[1] + FOUR[2]},
        "torn-suffix:0:1024": {"a": OLD + OLD + FOUR[2]},
    }


def test_edges_are_those_of_the_file_not_of_the_write() -> None:
    disk = over_old(2)
    disk.open("a").pwrite(500, b"n" * 20)
    assert images(disk, Policy.TORN_PREFIX) == {
        "torn-prefix:0:12": {"a": b"o" * 500 + b"n" * 12 + b"o" * 512}
    }


def test_a_write_within_one_sector_is_not_torn() -> None:
    disk = over_old()
    disk.open("a").pwrite(100, b"n" * 300)
    assert images(disk, Policy.TORN_PREFIX, Policy.TORN_SUFFIX, Policy.SECTOR_LOST) == {}


def test_a_torn_write_at_the_end_does_not_grow_the_file_as_far() -> None:
    disk = over_old()
    disk.open("a").pwrite(512, NEW + NEW)
    assert images(disk, Policy.TORN_PREFIX) == {"torn-prefix:0:512": {"a": OLD + NEW}}


def test_any_single_sector_may_be_lost() -> None:
    disk = over_old(3)
    disk.open("a").pwrite(0, NEW * 3)
    assert images(disk, Policy.SECTOR_LOST) == {
        "sector-lost:0:0": {"a": OLD + NEW + NEW},
        "sector-lost:0:512": {"a": NEW + OLD + NEW},
        "sector-lost:0:1024": {"a": NEW + NEW + OLD},
    }


def test_a_grown_file_may_end_in_zeros() -> None:
    disk = over_old()
    disk.open("a").pwrite(512, NEW + NEW)
    assert images(disk, Policy.ZERO_TAIL) == {
        "zero-tail:0:0": {"a": OLD + ZERO + ZERO},
        "zero-tail:0:512": {"a": OLD + NEW + ZERO},
    }


def test_a_grown_file_may_end_in_garbage() -> None:
    disk = over_old()
    disk.open("a").pwrite(512, NEW + NEW)
    found = images(disk, Policy.GARBAGE_TAIL)
    assert list(found) == ["garbage-tail:0:0", "garbage-tail:0:512"]
    assert all(len(image["a"]) == 3 * 512 for image in found.values())
    assert found["garbage-tail:0:0"]["a"][:512] == OLD
    assert found["garbage-tail:0:512"]["a"][:1024] == OLD + NEW
    assert found["garbage-tail:0:512"]["a"][1024:] not in (OLD, NEW, ZERO)
    assert found == images(disk, Policy.GARBAGE_TAIL)


def test_every_pending_write_may_be_the_broken_one() -> None:
    disk = over_old(2, b=OLD * 2)
    disk.open("a").pwrite(0, NEW * 2)
    disk.open("b").pwrite(0, NEW * 2)
    assert images(disk, Policy.TORN_PREFIX) == {
        "torn-prefix:0:512": {"a": NEW + OLD, "b": NEW + NEW},
        "torn-prefix:1:512": {"a": NEW + NEW, "b": NEW + OLD},
    }


# -- names ----------------------------------------------------------------------------------------


def replaced() -> MemoryDisk:
    """Writes `a` anew beside it and renames it into place, without any sync."""
    disk = MemoryDisk.from_image({"a": b"old"}, record=True)
    disk.create("a.new", 3).pwrite(0, b"new")
    disk.rename("a.new", "a")
    return disk


def test_names_may_be_lost_while_contents_survive() -> None:
    disk = replaced()
    disk.open("a").sync()
    assert images(disk, Policy.NAMES_LOST) == {
        "names-lost:0": {"a": b"old"},
        "names-lost:1": {"a": b"old", "a.new": b"new"},
    }


def test_contents_may_be_lost_while_names_survive() -> None:
    assert images(replaced(), Policy.CONTENT_LOST) == {"content-lost": {"a": bytes(3)}}


def test_even_the_size_of_an_unsynced_file_may_be_lost() -> None:
    disk = replaced()
    assert images(disk, Policy.SIZE_LOST) == {"size-lost": {"a": b""}}
    disk.open("a").sync()
    assert images(disk, Policy.SIZE_LOST) == {"size-lost": {"a": b"new"}}


def test_a_rename_survives_even_when_the_creation_before_it_did_not() -> None:
    assert images(replaced(), Policy.ONE_MISSING)["one-missing:0"] == {"a": b"new"}


def test_an_unlinked_file_comes_back_with_its_pending_writes_or_without() -> None:
    disk = over_old()
    disk.open("a").pwrite(0, NEW)
    disk.unlink("a")
    left = images(disk, Policy.DROP_ALL, Policy.KEEP_ALL, Policy.NAMES_LOST)
    assert left == {"drop-all": {"a": OLD}, "keep-all": {}, "names-lost:0": {"a": NEW}}
    disk.sync_names()
    assert list(disk.crash_images()) == [("drop-all", {})]


def test_a_name_used_again_may_stand_for_either_file() -> None:
    disk = over_old()
    disk.unlink("a")
    disk.create("a", 1)
    assert images(disk, Policy.PREFIX) == {
        "prefix:0": {"a": OLD},
        "prefix:1": {},
        "prefix:2": {"a": b"\0"},
    }


# -- the negative control -------------------------------------------------------------------------


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_forgotten_sync_is_found(is_synced: bool) -> None:
    disk = MemoryDisk(record=True)
    file = disk.create("a.new", 3)
    file.pwrite(0, b"new")
    if is_synced:
        file.sync()
    disk.rename("a.new", "a")
    disk.sync_names()
    left = [image["a"] for _, image in disk.crash_images(ALL_POLICIES)]
    assert (left == [b"new"]) is is_synced
