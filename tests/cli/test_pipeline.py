import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from penstock.pipeline.spark import kafka_operations
from tests.cli.conftest import Penstock
from tests.pipeline.datasets import bodies
from tests.pipeline.lane import Lane, readings


@pytest.fixture
def lane(here: Path) -> Lane:
    return Lane(here)


def test_a_file_is_run_and_the_counts_are_told(lane: Lane, penstock: Penstock) -> None:
    lane.post([*readings(20), b"x", readings(1)[0]])
    answer = penstock("pipeline", "run", "pipeline.toml", "--json")
    assert answer.code == 0, answer.err
    (told,) = answer.json()
    assert told == {
        "pipeline": "pms", "batches": 1, "read": 22, "stored": 20, "quarantined": 1,
        "duplicate": 1, "events": 20,
    }  # fmt: skip
    shown = penstock("pipeline", "run", "pipeline.toml")
    assert shown.out.split()[-7:] == ["pms", "0", "0", "0", "0", "0", "0"]
    (status,) = penstock("pipeline", "status", "pipeline.toml", "--json").json()
    assert (status["batch"], status["is_finished"], status["lag"]) == (0, True, 0)
    assert "pms" in penstock("pipeline", "status", "pipeline.toml").out


def test_tables_are_checked_and_compacted(lane: Lane, penstock: Penstock) -> None:
    folder = Path(lane.pipeline.folders()[0])
    folder.mkdir(parents=True)  # a folder is no table yet, and looking makes none
    before = penstock("pipeline", "check", "pipeline.toml")
    assert (before.code, "does not exist yet" in before.out) == (0, True)
    assert not list(folder.iterdir())
    lane.post(readings(9))
    penstock("pipeline", "run", "pipeline.toml")
    (checked,) = penstock("pipeline", "check", "pipeline.toml", "--json").json()
    assert (checked["rows"], checked["duplicates"], len(checked["series"])) == (9, 0, 3)
    assert [each["backwards"] for each in checked["series"]] == [0, 0, 0]
    shown = penstock("pipeline", "check", "pipeline.toml").out
    assert ("PMS-0/0241" in shown, "backwards" in shown) == (True, True)
    odd = bodies.encoded(bodies.pms(pms_id="a\n\x1b[31m" + "x" * 900))
    lane.post([*readings(9, 9), odd])
    penstock("pipeline", "run", "pipeline.toml")
    shown = penstock("pipeline", "check", "pipeline.toml").out
    assert ("a\\n\\x1b[31mxxx" in shown, max(map(len, shown.splitlines())) < 250) == (True, True)
    (done,) = penstock("pipeline", "compact", "pipeline.toml", "--json").json().values()
    assert (done["files_before"], done["files_after"]) == (2, 1)
    answer = penstock("pipeline", "compact", "pipeline.toml", "--vacuum", "168")
    assert (answer.code, "deleted" in answer.out) == (0, True)


def test_a_device_cannot_write_to_the_terminal(lane: Lane, penstock: Penstock) -> None:
    lane.post([readings(1)[0].replace(b"PMS-0", b"PMS\\u001b[2J\\n")])
    penstock("pipeline", "run", "pipeline.toml")
    shown = penstock("pipeline", "check", "pipeline.toml").out
    assert ("PMS\\x1b[2J\\n/0241" in shown, "\x1b[2J" in shown) == (True, False)


def test_rows_are_told_once_for_several_tables(lane: Lane, penstock: Penstock) -> None:
    text = lane.file.read_text()
    (line,) = [each for each in text.splitlines() if each.startswith("repository")]
    url = line.partition(" = ")[2]
    lane.file.write_text(text.replace(line, f'repository = [{url}, "parquet:./plain"]'))
    lane.post(readings(5))
    penstock("pipeline", "run", "pipeline.toml")
    shown = penstock("pipeline", "status", "pipeline.toml").out
    assert shown.split()[-8:] == ["pms", "1", "0", "yes", "5", "0", "5", "0"]


def test_a_lost_checkpoint_is_refused_by_name_and_resumed(lane: Lane, penstock: Penstock) -> None:
    lane.post(readings(5))
    penstock("pipeline", "run", "pipeline.toml")
    shutil.rmtree(lane.folder / "checkpoint")
    refused = penstock("pipeline", "run", "pipeline.toml", "--json")
    assert (refused.code, refused.error()["code"]) == (1, "checkpoint-missing")
    resumed = penstock("pipeline", "resume", "pipeline.toml", "--from-table", "--json")
    assert resumed.json() == {"pms": {"starts": {"0": 5}, "missing": [], "is_skipped": False}}
    assert penstock("pipeline", "run", "pipeline.toml").code == 0
    assert penstock("pipeline", "resume", "pipeline.toml").code == 2


def test_a_trimmed_topic_goes_on_behind_what_is_missing(lane: Lane, penstock: Penstock) -> None:
    lane.post(readings(20))
    penstock("pipeline", "run", "pipeline.toml")
    lane.post(readings(20, 20))
    lane.trim()
    lane.post(readings(5, 40))
    refused = penstock("pipeline", "run", "pipeline.toml", "--json").error()
    assert refused["code"] == "source-differs"
    assert "0:20 to 0:40" in refused["text"]
    words = ("pipeline", "resume", "pipeline.toml", "--from-table")
    resumed = penstock(*words)
    assert "goes on from 0:20" in resumed.err
    assert "no longer holds 0:20 to 0:40" in resumed.err
    assert "--skip-missing` goes on behind" in resumed.err
    again = penstock("pipeline", "run", "pipeline.toml", "--json").error()
    assert again["code"] == "source-differs"
    assert "no longer holds 0:20 to 0:40" in again["text"]
    skipped = penstock(*words, "--skip-missing", "--json")
    lost = {"partition": 0, "start": 20, "end": 40}
    assert skipped.json() == {"pms": {"starts": {"0": 40}, "missing": [lost], "is_skipped": True}}
    assert "pms leaves out 0:20 to 0:40" in skipped.err
    told = penstock(*words, "--skip-missing")
    assert told.out.split()[-5:] == ["pms", "0", "20", "40", "20"]
    (done,) = penstock("pipeline", "run", "pipeline.toml", "--json").json()
    assert done["stored"] == 5
    assert len(lane.rows()) == 25
    assert penstock(*words, "--json").json()["pms"]["starts"] == {"0": 45}


def test_resuming_needs_no_broker_unless_it_has_to_be_asked(lane: Lane, penstock: Penstock) -> None:
    lane.post(readings(5))
    penstock("pipeline", "run", "pipeline.toml")
    shutil.rmtree(lane.folder / "data")
    words = ("pipeline", "resume", "pipeline.toml", "--from-table", "--json")
    assert penstock(*words).json()["pms"]["starts"] == {"0": 5}
    assert penstock(*words, "--skip-missing").error()["code"] == "not-a-store"


def test_kafka_is_asked_for_its_lowest_offsets(
    lane: Lane, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.post(readings(5))
    penstock("pipeline", "run", "pipeline.toml")
    text = lane.file.read_text(encoding="utf-8").replace('lane = "process"\n', "")
    text = text.replace(f'"{lane.url}/', '"kafka://127.0.0.1:9/')
    lane.file.write_text(text, encoding="utf-8")
    link = Mock(return_value=Mock(ends=Mock(return_value={0: (7, 9)})))
    monkeypatch.setattr(kafka_operations, "KafkaLink", link)
    words = ("pipeline", "resume", "pipeline.toml", "--from-table", "--skip-missing", "--json")
    assert penstock(*words).json()["pms"]["starts"] == {"0": 7}
    link.return_value.close.assert_called_once()


def test_quarantine_is_replayed(lane: Lane, penstock: Penstock) -> None:
    lane.post([b"x", b"y"])
    penstock("pipeline", "run", "pipeline.toml")
    words = ("pipeline", "replay", "pipeline.toml", "--quarantine")
    answer = penstock(*words, "--json")
    assert answer.json() == {"pms": {"sent": 2, "left": 0}}
    assert penstock(*words).out.split()[-3:] == ["pms", "0", "0"]
    assert penstock(*words, "--fix", "no.such:thing").code == 2
    assert penstock(*words, "--fix", "math:pi").code == 2


def test_a_function_in_the_current_folder_mends(
    lane: Lane, penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])  # as when installed
    right = readings(1)[0]
    (lane.folder / "mending_42.py").write_text(
        f"def mend(body, reasons):\n    return {right!r}\n\ndef fail(body, reasons):\n    1 / 0\n"
    )
    (lane.folder / "broken_42.py").write_text("1 / 0\n")
    lane.post([b"x"])
    penstock("pipeline", "run", "pipeline.toml")
    words = ("pipeline", "replay", "pipeline.toml", "--quarantine", "--fix")
    failed = penstock(*words, "mending_42:fail", "--json")
    assert (failed.code, failed.error()["code"]) == (1, "fix-failed")
    for given, said in (
        ("mending_42", "must be MODULE:FUNCTION"), ("broken_42:mend", "cannot be loaded: Zero"),
        ("mending_42:no", "no attribute 'no'"), ("none_42:mend", "no module 'none_42'"),
    ):  # fmt: skip
        answer = penstock(*words, given)
        assert (answer.code, said in answer.err) == (2, True), answer.err
    assert penstock(*words, "mending_42:mend", "--json").json() == {"pms": {"sent": 1, "left": 0}}
    (told,) = penstock("pipeline", "run", "pipeline.toml", "--json").json()
    assert (told["read"], told["stored"]) == (1, 1)


def test_a_bad_file_is_a_usage_error_with_file_table_and_key(
    lane: Lane, penstock: Penstock
) -> None:
    lane.file.write_text(lane.file.read_text().replace('dataset = "pms"', 'dataset = "pmz"'))
    answer = penstock("pipeline", "run", "pipeline.toml")
    assert answer.code == 2
    assert "pipeline.toml, [pipeline.pms], key dataset" in answer.err
    assert penstock("pipeline", "run", "none.toml").code == 2


def test_a_table_with_another_schema_is_refused_before_anything_is_read(
    lane: Lane, penstock: Penstock
) -> None:
    lane.post(readings(5))
    penstock("pipeline", "run", "pipeline.toml")
    text = lane.file.read_text().replace('dataset = "pms"', 'dataset = "mppt"')
    table = 'table = "analytics.pms_monitoring"\nsubscription = "other"\n'
    lane.file.write_text(text.replace("/checkpoint", "/other") + table)
    refused = penstock("pipeline", "run", "pipeline.toml", "--json")
    assert (refused.code, refused.error()["code"]) == (1, "table-schema-differs")
    assert "pms_monitoring" in refused.err
    assert len(lane.messages(f"{lane.topic}.quarantine")) == 0


def test_a_pipeline_is_chosen_by_name(lane: Lane, penstock: Penstock) -> None:
    answer = penstock("pipeline", "check", "pipeline.toml", "--pipeline", "pmss")
    assert (answer.code, "did you mean 'pms'" in answer.err) == (2, True)
    assert penstock("pipeline", "check", "pipeline.toml", "--pipeline", "pms").code == 0
    for option in ("--url", "--context"):
        refused = penstock("pipeline", "run", "pipeline.toml", option, "memory:")
        assert (refused.code, "its `source` in pipeline.toml" in refused.err) == (2, True)
