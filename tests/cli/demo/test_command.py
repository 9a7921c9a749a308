from pathlib import Path

import pytest

from penstock.cli.demo import crash, parcels
from tests.cli.conftest import Penstock
from tests.standstill import noticed


@pytest.fixture
def places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders go."""
    place = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def test_the_story_is_told_and_every_promise_kept(penstock: Penstock, places: Path) -> None:
    answer = penstock("demo", "--part", "messaging")
    assert answer.code == 0, answer
    assert "SIGKILL" in answer.out
    assert answer.out.count("kept  ") == 7
    assert "BROKEN" not in answer.out
    assert "What to try next" in answer.out
    assert list(places.iterdir()) == []


def test_the_story_for_machines(penstock: Penstock, places: Path) -> None:
    with noticed() as standstill:
        found = penstock("demo", "--json", "--keep", "--part", "messaging").json()
    assert (found["lost"], found["acked_and_returned"], found["is_whole"]) == (0, 0, True)
    assert found["confirmed"] >= crash.CONFIRMED_MIN
    assert found["verify"] == "ok"
    assert (found["shipped_twice"], found["not_shipped"]) == (0, 0)
    assert found["parcels"] == found["stored"]
    assert 0 < found["seconds"] < 10 + standstill.seconds
    assert (Path(found["folder"]) / "superblock").exists()


def test_a_broken_promise_is_a_failure(
    penstock: Penstock, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = crash.work_and_kill

    def boast(folder: Path, tell: object) -> crash.Promises:
        promises = honest(folder, lambda *_: None)
        promises.confirmed.add("order-0")
        return promises

    monkeypatch.setattr(crash, "CONFIRMED_MIN", 80)
    monkeypatch.setattr(crash, "ACKED_MIN", 20)
    monkeypatch.setattr(crash, "SHIPPED_MIN", 10)
    monkeypatch.setattr(crash, "work_and_kill", boast)
    monkeypatch.setattr(crash, "PATIENCE_S", 2.0)
    monkeypatch.setattr(parcels, "PATIENCE_S", 0.0)
    answer = penstock("demo", "--part", "messaging")
    assert answer.code == 1
    assert "BROKEN" in answer.out
