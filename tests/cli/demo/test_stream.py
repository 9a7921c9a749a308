"""The whole plant in small form, in this machine's own lane: a kill, and nothing lost."""

import sys
from pathlib import Path

import pytest

from penstock.cli.demo import asking, proof, stream
from penstock.cli.demo.narrator import Narrator
from penstock.cli.output import Output
from penstock.pipeline.spark.refusals import JavaMissing


def test_a_kill_in_the_middle_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "PAUSE_S", {"process": 0.002})
    narrator = Narrator(Output())
    told = stream.tell(narrator, tmp_path / "plant", lane="process", rounds=60)
    assert told["is_whole"]
    assert told["posted"] == 2851 + 60 * 24
    pms, mppt, inverter = told["datasets"]
    assert pms["confirmed"] == 2851 + 60 * 12
    assert pms["stored"] + pms["quarantined"] == pms["confirmed"]
    assert pms["quarantined"] >= 11
    assert (mppt["confirmed"], inverter["confirmed"]) == (60 * 8, 60 * 4)
    assert 0 < told["stored_before_the_kill"]["pms"] <= pms["stored"]
    assert told["recovery"]["is_clean"] is False
    said = capsys.readouterr().out
    assert said.count("kept  ") == 3
    assert "SIGKILL" in said
    assert "FROM mppt_monitoring" in said
    found = asking.ask(tmp_path / "plant" / "warehouse", asking.PACKS)
    assert found.rows[0][:3] == ("25", "269", 2840)
    assert proof.stored(tmp_path / "plant" / "warehouse").total() == sum(
        each["stored"] for each in told["datasets"]
    )


def test_without_java_it_says_how_and_runs_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    lane, why = stream.lane_of(None)
    assert lane == "process"
    assert "/nowhere" in why
    assert "scripts/java" in why
    assert "\n" not in why
    assert stream.lane_of("process") == ("process", "")
    with pytest.raises(JavaMissing):
        stream.lane_of("spark")


def test_a_light_installation_is_told_what_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    told = stream.tell(Narrator(Output(is_json=True)), tmp_path / "plant")
    assert told["is_whole"]
    assert "penstock[spark]" in told["skipped"]
    assert not (tmp_path / "plant").exists()
