from pathlib import Path

import pytest

from penstock.cli.bench import deliver
from penstock.cli.bench.plan import Plan


def _plan(folder: Path | None) -> Plan:
    return Plan(folder="" if folder is None else str(folder), messages=5_000, batch=100)


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_everything_published_is_acked(is_on_disk: bool, tmp_path: Path) -> None:
    found = deliver.end_to_end(_plan(tmp_path / "store" if is_on_disk else None))
    assert found["published"] == found["messages"] == 5_001
    assert found["lost"] == 0


def test_what_was_published_before_is_taken(tmp_path: Path) -> None:
    found = deliver.consume(_plan(tmp_path / "store"))
    assert found["messages"] == 5_000
    assert found["messages_per_s"] > 0
