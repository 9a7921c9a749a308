import tomllib
from pathlib import Path

import pytest

from penstock.cli.demo.crash import ChildFailed
from penstock.cli.demo.plant import Part, Plant
from penstock.pipeline.settings import read_file


def test_the_pipeline_file_is_a_right_one(tmp_path: Path) -> None:
    plant = Plant(tmp_path, "spark")
    plant.port = 8001
    file = tmp_path / "pipeline.toml"
    file.write_text(plant.pipeline_file("asap"), encoding="utf-8")
    found = read_file(str(file))
    assert list(found.pipelines) == ["pms", "mppt", "inverter"]
    assert found.pipelines["pms"].url == "penstock://127.0.0.1:8001"
    assert found.spark == {"master": "local[2]"}
    assert "spark" not in tomllib.loads(Plant(tmp_path, "process").pipeline_file("asap"))


def test_a_server_keeps_its_port_over_a_kill(tmp_path: Path) -> None:
    with Plant(tmp_path, "process") as plant:
        assert plant.start_server()["ready"]
        port = plant.port
        plant.kill("server")
        with pytest.raises(ChildFailed, match="the server ended early"):
            plant.check()
        assert plant.start_server()["listening"]["frames"].endswith(f":{port}")
        plant.check()
        with pytest.raises(ChildFailed, match="a miracle: not after 0 s"):
            plant.wait_until(lambda: False, "a miracle", 0.01)


def test_a_part_that_does_not_start_says_why(tmp_path: Path) -> None:
    part = Part(tmp_path, "gateway", "gateway", "--port", "x")
    with pytest.raises(ChildFailed, match=r"the gateway did not start: .*not a port"):
        part.ready()
    part.stop()
    again = Part(tmp_path, "pipeline", "pipeline", "run", "nowhere.toml", "--json")
    with pytest.raises(ChildFailed, match=r"the pipeline failed: .*nowhere\.toml"):
        again.finish(120)
    again.stop()


def test_a_pipeline_on_spark_is_started_again_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with Plant(tmp_path, "spark") as plant:
        plant.start_pipeline("available-now")
        with pytest.raises(ChildFailed, match=r"the pipeline failed: .*java-missing"):
            plant.finish_pipeline(240)
        assert plant.restarts == 2


def test_a_batch_is_open_from_the_ledger_to_the_counts(tmp_path: Path) -> None:
    plant = Plant(tmp_path, "process")
    assert not plant.has_open_batch()
    folder = plant.checkpoint("mppt")
    folder.mkdir(parents=True)
    opened = 'x {"epoch":1,"batch":-1,"ranges":[]}\n'  # the Spark lane begins with this
    (folder / "ledger.jsonl").write_text(opened, encoding="utf-8")
    assert not plant.has_open_batch()
    (folder / "ledger.jsonl").write_text(opened + "x\ny", encoding="utf-8")
    assert plant.has_open_batch()
    line = '{"application": "mppt/1", "batch": 0, "read": 3, "stored": 2}\n'
    (folder / "counts.jsonl").write_text(line + '{"torn', encoding="utf-8")
    assert not plant.has_open_batch()
    assert plant.counted("mppt") == {"read": 3, "stored": 2}
