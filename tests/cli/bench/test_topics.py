from pathlib import Path

from penstock.cli.bench import topics
from penstock.cli.bench.plan import Plan


def test_many_topics_are_built_and_opened_again(tmp_path: Path) -> None:
    plan = Plan(folder=str(tmp_path / "store"), messages=50, seconds=0.2, callers=10)
    found = topics.measure_all(plan)
    assert found["topics"] == 50
    assert found["share"] > 0
    assert found["reopen_s"] > 0
