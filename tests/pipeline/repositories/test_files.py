from pathlib import Path

import pyarrow as pa

from penstock.pipeline.datasets import mppt, pms
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.repositories.files import by_day, read_file, stats_of, write_files
from tests.pipeline.datasets import bodies
from tests.pipeline.repositories.suite import drawn_rows, in_order


def test_rows_come_back_from_their_files(tmp_path: Path) -> None:
    rows = drawn_rows(1)
    files = write_files(str(tmp_path), "", pms.DATASET, rows)
    assert len(files) == len(set(rows["day"].to_pylist())) > 1
    read = pa.concat_tables([read_file(str(tmp_path), pms.DATASET, each) for each in files])
    assert in_order(read) == in_order(rows)


def test_lists_of_any_length_come_back_too(tmp_path: Path) -> None:
    given = [
        bodies.encoded(bodies.mppt(pv__volts=[1.5] * n, pv__amps=[2.5] * n)) for n in (1, 4, 2)
    ]
    rows = pa.Table.from_batches(
        [mppt.DATASET.transform(mppt.DATASET.validate(raw_batch(given)).good)]
    )
    (file,) = write_files(str(tmp_path), "", mppt.DATASET, rows)
    assert in_order(read_file(str(tmp_path), mppt.DATASET, file)) == in_order(rows)


def test_no_rows_are_no_files(tmp_path: Path) -> None:
    assert write_files(str(tmp_path), "", pms.DATASET, pms.DATASET.schema.empty_table()) == []
    assert by_day(pms.DATASET.schema.empty_table()) == []


def test_names_are_new_at_every_attempt(tmp_path: Path) -> None:
    rows = drawn_rows(2)
    first = write_files(str(tmp_path), "", pms.DATASET, rows)
    second = write_files(str(tmp_path), "", pms.DATASET, rows)
    assert not {each.path for each in first} & {each.path for each in second}


def test_statistics_name_the_keys_and_the_time(tmp_path: Path) -> None:
    file = write_files(str(tmp_path), "", pms.DATASET, drawn_rows(3))[0]
    stats = stats_of(file, pms.DATASET)
    assert set(stats["minValues"]) == {"pms_id", "pack_id", "time_event"}
    assert stats["numRecords"] == file.rows
    assert stats["minValues"]["time_event"].endswith("Z")
