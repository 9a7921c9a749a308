from pathlib import Path

import pytest

from penstock.cli.bench.pipeline import cases
from penstock.pipeline.datasets import pms
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.port import WriteId
from penstock.pipeline.settings import read_file
from tests.pipeline.repositories.suite import drawn_rows


def stored(folder: Path, seed: int, count: int) -> Path:
    table = open_repository(f"delta:{folder}", "t", pms.DATASET)
    table.write(drawn_rows(seed, count), WriteId("x/1", 0))
    table.close()
    return folder / "t"


def test_every_case_is_compared_with_one_that_is_there() -> None:
    names = [case.name for case in cases.CASES]
    assert len(names) == len(set(names))
    assert {case.beside for case in cases.CASES} - {""} <= set(names)
    assert {case.name: case.target for case in cases.CASES if case.target} == {
        "run": 3, "run-batches": 3, "run-kafka": 2, "typed": 1.7, "source": 1.3,
    }  # fmt: skip


def test_the_pipeline_file_is_a_right_one(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    text = cases.FILE.format(
        source="penstock://127.0.0.1:8001/bench.pms", subscription="s", folder=tmp_path, rows=7
    )
    file.write_text(text, encoding="utf-8")
    (found,) = read_file(str(file)).pipelines.values()
    assert found.settings.max_rows_per_batch == 7


def test_tables_that_differ_are_no_comparison(tmp_path: Path) -> None:
    one, same = stored(tmp_path / "a", 1, 50), stored(tmp_path / "b", 1, 50)
    assert len(set(cases.agree({"one": one, "same": same}).values())) == 1
    with pytest.raises(AssertionError, match="the tables differ"):
        cases.agree({"one": one, "other": stored(tmp_path / "c", 1, 40)})
