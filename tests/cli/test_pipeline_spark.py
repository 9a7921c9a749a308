"""`penstock pipeline run` on Spark: what is refused before a session starts, and one whole run."""

from pathlib import Path

import pytest

from tests.cli.conftest import Penstock
from tests.pipeline.lane import Lane, readings
from tests.pipeline.spark import world


@pytest.fixture
def lane(here: Path) -> Lane:
    found = Lane(here)
    text = found.file.read_text(encoding="utf-8").replace('lane = "process"\n', "")
    found.file.write_text(f'{text}\n[spark]\nmaster = "local[1]"\n', encoding="utf-8")
    return found


def test_missing_java_is_told_before_anything_is_made(
    lane: Lane, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    answer = penstock("pipeline", "run", "pipeline.toml", "--json")
    assert (answer.code, answer.error()["code"]) == (1, "java-missing")
    assert not (lane.folder / "checkpoint").exists()


def test_two_lanes_do_not_run_together(lane: Lane, penstock: Penstock) -> None:
    lane.file.write_text(
        lane.file.read_text(encoding="utf-8")
        + f'[pipeline.edge]\nsource = "{lane.url}/monitoring.mppt"\ndataset = "mppt"\n'
        'lane = "process"\n',
        encoding="utf-8",
    )
    answer = penstock("pipeline", "run", "pipeline.toml", "--json")
    assert (answer.code, answer.error()["code"]) == (1, "unsupported")
    assert "--pipeline NAME" in answer.error()["text"]


@pytest.mark.prove  # needs a Spark session
def test_a_store_in_a_folder_is_read_by_the_workers_through_its_owner(
    lane: Lane, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.post([*readings(20), b"x", readings(1)[0]])
    monkeypatch.setenv("PYTHONPATH", world.ENVIRONMENT["PYTHONPATH"])
    try:
        answer = penstock("pipeline", "run", "pipeline.toml", "--json")
    finally:
        world.end_java()
    assert answer.code == 0, answer.err
    (told,) = answer.json()
    assert (told["read"], told["stored"], told["quarantined"], told["duplicate"]) == (22, 20, 1, 1)
    (status,) = penstock("pipeline", "status", "pipeline.toml", "--json").json()
    assert (status["batch"], status["is_finished"], status["lag"]) == (0, True, 0)
    assert len(lane.rows()) == 20
