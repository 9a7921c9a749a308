import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import Penstock

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "pipeline" / "data"


def test_it_serves_until_it_is_asked_to_stop(here: Path, penstock: Penstock) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "penstock",
            "gateway",
            "--url",
            "file:./data",
            "--port",
            "0",
            "--json",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        told = json.loads(process.stdout.readline())
        asked = urllib.request.Request(
            f"http://127.0.0.1:{told['port']}/devices/dataset/mppt",
            (DATA / "post-mppt.json").read_bytes(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    rows = penstock("peek", "monitoring.mppt", "--url", "file:./data", "--json").rows()
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "this machine only"),
        (["--api-keys", "none.toml"], "none.toml cannot be read"),
        (["--port", "70000"], "is not a port"),
        (["--dataset", "boat"], "no dataset 'boat'"),
        (["--reader", "pms"], "is no dataset and reader, as pms=mine"),
        (["--reader", "pmx=mine"], "no dataset 'pmx' for a reader"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_starts(
    penstock: Penstock, words: list[str], said: str
) -> None:
    answer = penstock("gateway", "--url", "memory:", *words)
    assert answer.code == 2
    assert said in answer.err
