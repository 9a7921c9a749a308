"""`penstock pipeline run` on Spark: what is refused before a session starts, and one whole run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.pipeline.operations import counted
from tests.cli.conftest import Penstock
from tests.pipeline.lane import Lane, readings
from tests.pipeline.spark import world
from tests.servers.fixtures import is_required

PATIENCE_S = 300


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


@pytest.mark.parametrize(
    "wish", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.prove)]
)
def test_a_run_reads_a_store_in_a_folder_and_stops_in_good_order(
    lane: Lane, penstock: Penstock, wish: signal.Signals
) -> None:
    """In a process of its own, as every run: the Java of a run ends with it."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ and not is_required():
        pytest.skip("Spark needs Java, and there is none")
    text = lane.file.read_text(encoding="utf-8")
    lane.file.write_text(
        text.replace('dataset = "pms"\n', 'dataset = "pms"\ntrigger = "asap"\n'), encoding="utf-8"
    )
    lane.post([*readings(20), b"x", readings(1)[0]])
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", "pipeline", "run", "pipeline.toml", "--json"],
        env=os.environ | world.ENVIRONMENT, cwd=lane.folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            end = time.monotonic() + PATIENCE_S
            while counted(lane.pipeline).read < 22 and process.poll() is None:
                assert time.monotonic() < end, "nothing was stored"
                time.sleep(0.1)
            process.send_signal(wish)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    (told,) = json.loads(out)
    assert (told["read"], told["stored"], told["quarantined"], told["duplicate"]) == (22, 20, 1, 1)
    (status,) = penstock("pipeline", "status", "pipeline.toml", "--json").json()
    assert (status["batch"], status["is_finished"], status["lag"]) == (0, True, 0)
    assert len(lane.rows()) == 20
