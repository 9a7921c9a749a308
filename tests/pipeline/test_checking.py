from pathlib import Path

import pyarrow as pa

from penstock.pipeline.checking import check_table
from penstock.pipeline.datasets import pms
from penstock.pipeline.repositories.delta import DeltaStorage
from penstock.pipeline.repositories.port import WriteId
from tests.pipeline.datasets import bodies
from tests.pipeline.repositories.test_known import rows_of

ARRIVED = "time_processing"


def test_gaps_and_clashes_of_each_pack_are_found(tmp_path: Path) -> None:
    storage = DeltaStorage(str(tmp_path), pms.DATASET)
    times = [0, 1, 2, 3, 13, 14, 15]
    given = [bodies.pms(time_local=f"20200210T0000{at:02}Z") for at in times]
    given += [bodies.pms(time_local="20200210T000003Z", pack__amps=5), bodies.pms(pack__id="x")]
    storage.write(rows_of(*given), WriteId("pms/1", 0))
    found = check_table(storage)
    assert (found.rows, found.duplicates) == (9, 0)
    first, second = found.series
    assert (first.keys, first.rows) == (("PMS-01-001", "0241"), 8)
    assert (first.usual_step_s, first.gaps, first.longest_gap_s, first.clashes) == (1.0, 1, 10.0, 1)
    assert (first.first, first.last) == (
        "2020-02-10T00:00:00.000000Z",
        "2020-02-10T00:00:15.000000Z",
    )
    (gap,) = first.gap_steps
    assert (gap.before, gap.after) == ("2020-02-10T00:00:03.000000Z", "2020-02-10T00:00:13.000000Z")
    assert (second.keys, second.gaps, second.usual_step_s) == (("PMS-01-001", "x"), 0, 0.0)
    storage.close()


def test_steps_backwards_are_found_in_the_order_of_arrival(tmp_path: Path) -> None:
    storage = DeltaStorage(str(tmp_path), pms.DATASET)
    times = [10, 11, 12, 2, 3, 4, 13, 7]  # the clock goes back, and one comes late
    for batch, at in enumerate(times):
        rows = rows_of(bodies.pms(time_local=f"20200210T0000{at:02}Z"))
        arrived = pa.array([batch * 1_000_000], pa.int64()).cast(rows.schema.field(ARRIVED).type)
        rows = rows.set_column(rows.schema.get_field_index(ARRIVED), ARRIVED, arrived)
        storage.write(rows, WriteId("pms/1", batch))
    (found,) = check_table(storage).series
    assert found.backwards == 2
    assert [each.seconds for each in found.backward_steps] == [-10.0, -6.0]
    assert found.backward_steps[0].before == "2020-02-10T00:00:12.000000Z"
    assert found.backward_steps[0].after == "2020-02-10T00:00:02.000000Z"
    storage.close()


def test_what_arrived_together_is_in_order(tmp_path: Path) -> None:
    storage = DeltaStorage(str(tmp_path), pms.DATASET)
    given = [bodies.pms(time_local=f"20200210T0000{at:02}Z") for at in (3, 1, 2)]
    storage.write(rows_of(*given), WriteId("pms/1", 0))
    (found,) = check_table(storage).series
    assert (found.backwards, found.backward_steps) == (0, [])
    storage.close()


def test_rows_that_are_there_twice_are_counted(tmp_path: Path) -> None:
    storage = DeltaStorage(str(tmp_path), pms.DATASET)
    rows = rows_of(bodies.pms())
    storage.write(pa.concat_tables([rows, rows]), WriteId("pms/1", 0))
    assert check_table(storage).duplicates == 1
    storage.close()


def test_an_empty_table_has_nothing_to_show(tmp_path: Path) -> None:
    storage = DeltaStorage(str(tmp_path), pms.DATASET)
    assert check_table(storage).rows == 0
    storage.close()
