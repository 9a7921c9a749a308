"""The work of one range, without Spark: the same rows, counts and events as in process."""

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.pipeline.datasets import finding
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.files import read_file
from penstock.pipeline.repositories.port import WriteId
from penstock.pipeline.spark import joining, workers
from penstock.pipeline.spark.connecting import close_all
from penstock.vocabulary.reading import PlannedRange
from tests.pipeline.lane import Lane, readings

PMS = finding.find("pms")


@pytest.fixture
def lane(tmp_path: Path) -> Any:
    yield Lane(tmp_path)
    close_all()


def _plan(lane: Lane, **changes: Any) -> workers.Plan:
    root = str(lane.folder / "table")
    plan = workers.Plan("pms", True, {}, [workers.Target(root, "", [])], False)
    return msgspec.structs.replace(plan, **changes)


def _place(lane: Lane) -> workers.ReaderPlace:
    return workers.ReaderPlace(lane.url, lane.topic, "reader", "owner")


def test_a_range_becomes_files_counts_and_what_is_to_be_published(lane: Lane) -> None:
    given = readings(50)
    lane.post([*given, b"nonsense", given[7], None])
    found = workers.work_range(_plan(lane), _place(lane), 0, 0, 53)
    (stored,) = found.stored
    assert (found.read, stored.stored, stored.duplicate, len(found.quarantined)) == (53, 50, 1, 2)
    assert sum(file.rows for file in stored.files) == 50
    assert len(stored.moments) == 50
    rows = read_file(stored.root, PMS, stored.files[0])
    assert rows.schema.equals(PMS.schema)


def test_the_same_range_gives_the_same_rows_under_other_names(lane: Lane) -> None:
    lane.post(readings(20))
    one, two = (workers.work_range(_plan(lane), _place(lane), 0, 5, 15) for _ in range(2))
    files = [each.stored[0].files[0] for each in (one, two)]
    assert files[0].path != files[1].path
    root = one.stored[0].root
    assert read_file(root, PMS, files[0]).equals(read_file(root, PMS, files[1]))
    assert one.stored[0].moment == two.stored[0].moment


def test_what_the_pinned_files_hold_is_a_duplicate(lane: Lane) -> None:
    lane.post(readings(30))
    root = str(lane.folder / "table")
    storage = DeltaStorage(root, PMS)
    first = workers.work_range(_plan(lane), _place(lane), 0, 0, 20)
    storage.commit(first.stored[0].files, WriteId("pms/1", 0), {})
    target = workers.Target(root, "", storage.files())
    found = workers.work_range(_plan(lane, targets=[target]), _place(lane), 0, 10, 30)
    storage.close()
    assert (found.stored[0].stored, found.stored[0].duplicate) == (10, 10)


def test_rows_of_an_earlier_range_of_the_batch_are_duplicates_and_conflicts(lane: Lane) -> None:
    given = readings(10)
    other = given[3].replace(b'"amps":0.375', b'"amps":0.5')
    assert other != given[3]
    lane.post([*given, *given[:4], other, b"nonsense"])
    plan = _plan(lane)
    both = [
        workers.work_range(plan, _place(lane), 0, 0, 10),
        workers.work_range(plan, _place(lane), 0, 10, 16),
    ]
    assert both[1].stored[0].stored == 5, "alone it sees nothing wrong"

    def again(one: workers.Outcome, priors: Any) -> workers.Outcome:
        return workers.work_range(plan, _place(lane), 0, one.start, one.end, priors)

    found = joining.joined(both, plan, again)
    assert found[1].stored[0].stored == 1
    assert found[1].stored[0].duplicate == 4
    rules = joining.events_of(found).column("rule").to_pylist()
    assert rules.count("time.conflict") == 1
    counts = joining.counts_of(found, 0)
    counts.check("batch")
    assert (counts.read, counts.stored, counts.quarantined, counts.duplicate) == (16, 11, 1, 4)


def test_rows_come_back_when_they_are_published_onward(lane: Lane) -> None:
    lane.post(readings(5))
    found = workers.work_range(_plan(lane, keeps_rows=True), _place(lane), 0, 0, 5)
    rows = workers.to_table(found.rows)
    assert rows.column("_offset").to_pylist() == [0, 1, 2, 3, 4]
    assert workers.work_range(_plan(lane), _place(lane), 0, 0, 5).rows == b""


def test_what_spark_calls_can_be_sent_to_a_worker(lane: Lane) -> None:
    lane.post(readings(5))
    sent = pickle.loads(pickle.dumps(partial(workers.work_planned, _plan(lane), _place(lane))))
    found = workers.decode(sent(PlannedRange(0, 0, 5)))
    assert (found.partition, found.start, found.end, found.read) == (0, 0, 5, 5)


def test_a_range_done_in_pieces_gives_the_same_as_at_once(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Duplicates and contradictions are found across the pieces, too."""
    given = readings(40)
    other = given[3].replace(b'"amps":0.375', b'"amps":0.5')
    for part in (given[:15], [*given[15:], b"nonsense"], [*given[:9], other, None], given[30:]):
        lane.post(part)
    plan = _plan(lane, keeps_rows=True)
    whole = workers.work_range(plan, _place(lane), 0, 0, 62)
    monkeypatch.setattr(workers, "PIECE_ROWS", 10)
    cut = workers.work_range(plan, _place(lane), 0, 0, 62)
    for found, files in ((whole, 1), (cut, 3)):
        (stored,) = found.stored
        assert (found.read, stored.stored, stored.duplicate) == (62, 41, 19)
        assert len(found.quarantined) == 2
        assert len(stored.files) == files
        rules = workers.to_table(found.events).column("rule").to_pylist()
        assert rules.count("time.conflict") == 1
    assert cut.quarantined == whole.quarantined
    assert workers.to_table(cut.events).equals(workers.to_table(whole.events))
    assert workers.to_table(cut.rows).equals(workers.to_table(whole.rows))
    assert cut.stored[0].moment == whole.stored[0].moment


def test_an_empty_range_gives_nothing(lane: Lane) -> None:
    lane.post(readings(1))
    found = workers.work_range(_plan(lane, keeps_rows=True), _place(lane), 0, 1, 1)
    assert (found.read, found.rows, found.stored[0].files) == (0, b"", [])
    assert workers.to_table(found.events).num_rows == 0
