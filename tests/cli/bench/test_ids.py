from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import ids
from penstock.cli.bench.plan import Plan


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_every_id_is_stored_once(is_on_disk: bool, tmp_path: Path) -> None:
    folder = str(tmp_path / "store") if is_on_disk else ""
    found = ids.publish(Plan(folder=folder, messages=5_000, batch=500))
    assert found["messages"] == 5_000
    assert (found["lost"], found["repeated"]) == (0, 0)


def test_a_repeated_id_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    numbered = ids.numbered
    monkeypatch.setattr(ids, "numbered", lambda _first, bodies: numbered(0, bodies))
    found = ids.publish(Plan(messages=1_500, batch=500))
    assert found["lost"] > 0, "of three batches with the same ids two were not stored"


def test_an_id_that_is_stored_again_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_ids(_first: int, bodies: list[bytes]) -> list[Any]:
        return list(bodies)

    monkeypatch.setattr(ids, "numbered", without_ids)
    found = ids.publish(Plan(messages=1_500, batch=500))
    assert found["repeated"] > 0, "the broker does not know these"


def test_the_memory_of_the_window_is_measured(tmp_path: Path) -> None:
    found = ids.memory(Plan(folder=str(tmp_path / "store"), messages=20_000))
    assert found["ids"] == 20_000
    assert 20 * 20_000 < found["id_bytes"] < 200 * 20_000
    assert found["peak_bytes"] >= found["id_bytes"]
