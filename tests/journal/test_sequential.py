"""Records read together are the records read one by one, in far fewer reads."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.batch.frame import frame_of
from penstock.journal import sequential
from penstock.journal.index import Place
from penstock.journal.sequential import fetch_run
from penstock.vocabulary.errors import RecordDamaged
from penstock.vocabulary.records import Published
from tests.broker.rig import SETTINGS, Rig

WIDE = type(SETTINGS)(
    segment_bytes_min=1 << 16, segment_bytes_max=1 << 16, reserve_bytes=0, is_zeroing=False
)


class Counted:
    """A file that counts how often it is read."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.reads = 0

    def pread(self, offset: int, length: int) -> bytes:
        self.reads += 1
        data: bytes = self._file.pread(offset, length)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def rig() -> Rig:
    """Twenty records of two topics in turn, none of them in memory any more."""
    rig = Rig(settings=WIDE)
    for number in range(10):
        rig.publish("orders", b"a%d" % number, b"b%d" % number)
        rig.publish("others", bytes(100))
    rig.journal._cache.clear()
    return rig


def key_of(rig: Rig) -> int:
    return rig.broker.state.names["orders"].partitions[0].key


def places_of(rig: Rig) -> list[Place]:
    return rig.journal.index.run(key_of(rig), 0, 20)[0]


def counted(rig: Rig) -> Counted:
    segment = places_of(rig)[0].segment
    segment.file = Counted(segment.file)
    return segment.file


def bases(found: list[sequential.Found]) -> list[int]:
    return [record.base for record in found if isinstance(record, Published)]


def test_many_records_come_with_one_read(rig: Rig) -> None:
    one_by_one = [rig.journal.fetch(place, key_of(rig)) for place in places_of(rig)]
    file = counted(rig)
    found = fetch_run(rig.journal, places_of(rig), key_of(rig))
    assert found == one_by_one
    assert bases(found) == list(range(0, 20, 2))
    assert file.reads == 1


def test_what_is_in_memory_is_not_read(rig: Rig) -> None:
    rig.publish("orders", b"fresh", b"fresher")
    places = rig.journal.index.run(key_of(rig), 0, 22)[0]
    file = counted(rig)
    assert bases(fetch_run(rig.journal, places, key_of(rig)))[-1] == 20
    assert file.reads == 1
    assert fetch_run(rig.journal, places[-1:], key_of(rig))
    assert file.reads == 1


@pytest.mark.parametrize(("name", "reads"), [("READ_BYTES_MAX", 10), ("GAP_BYTES_MAX", 10)])
def test_reads_are_bounded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str, reads: int
) -> None:
    monkeypatch.setattr(sequential, name, 10)
    file = counted(rig)
    assert len(bases(fetch_run(rig.journal, places_of(rig), key_of(rig)))) == 10
    assert file.reads == reads


def test_one_damaged_record_costs_only_itself(rig: Rig) -> None:
    places = places_of(rig)
    place = places[3]
    place.segment.file.pwrite(place.byte + 40, b"\xff\xff")
    found = fetch_run(rig.journal, places, key_of(rig))
    assert isinstance(found[3], RecordDamaged)
    assert len(bases(found)) == 9


def _fail(*_: Any) -> bytes:
    raise OSError("broken")


def _closed(*_: Any) -> bytes:
    raise ValueError("closed")


@pytest.mark.parametrize("pread", [_fail, _closed])
def test_a_file_that_cannot_be_read_is_damage(rig: Rig, pread: Callable[..., bytes]) -> None:
    places = places_of(rig)
    counted(rig).pread = pread  # type: ignore[method-assign]
    found = fetch_run(rig.journal, places, key_of(rig))
    assert all(isinstance(each, RecordDamaged) for each in found)


def test_what_was_released_with_its_segment_is_none(rig: Rig) -> None:
    places = places_of(rig)
    places[0].segment.file.pwrite(0, bytes(places[0].segment.size))
    del rig.journal.index.segments[places[0].sequence]
    assert fetch_run(rig.journal, places, key_of(rig)) == [None] * 10


def test_no_places_no_records(rig: Rig) -> None:
    assert fetch_run(rig.journal, [], key_of(rig)) == []


def test_frames_of_a_run_are_whole(rig: Rig) -> None:
    found = fetch_run(rig.journal, places_of(rig), key_of(rig))
    frames = [frame_of(each, 0, 20) for each in found if isinstance(each, Published)]
    assert [offset for frame in frames for offset in frame.offsets] == list(range(20))
