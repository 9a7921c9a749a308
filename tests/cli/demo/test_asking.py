from pathlib import Path

import pytest

from penstock.cli.demo import asking
from penstock.pipeline.datasets import finding
from penstock.pipeline.datasets.raw import raw_batch
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.port import WriteId
from penstock.pipeline.work import make
from tests.pipeline.datasets import bodies


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    for name, body in (("pms", bodies.pms), ("mppt", bodies.mppt), ("inverter", bodies.inverter)):
        dataset = finding.find(name)
        table = open_repository(f"delta:{tmp_path}", dataset.table, dataset)
        good = dataset.validate(raw_batch([bodies.encoded(body())])).good
        rows = make(dataset, [good]).rows.select(dataset.schema.names)
        assert table.write(rows, WriteId("test/1", 0))
        table.close()
    return tmp_path


def test_the_questions_have_answers(warehouse: Path) -> None:
    hours = asking.ask(warehouse, asking.HOURS)
    assert hours.columns == ["hour", "readings", "kwh"]
    assert hours.rows == [(15, 1, 576 / 12000)]
    packs = asking.ask(warehouse, asking.PACKS)
    assert packs.rows == [("PMS-01-001", "0241", 1, 3.654, 3.676, -32.0)]
    assert asking.ask(warehouse, "SELECT grid[1].pf FROM inverter_monitoring").rows == [(0.92,)]
