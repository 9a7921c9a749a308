from pathlib import Path

import pytest

from penstock.cli.bench.pipeline.kafka_server import kafka, properties
from penstock.cli.bench.servers import Missing


def test_a_node_listens_on_loopback_and_keeps_its_data_in_its_folder(tmp_path: Path) -> None:
    lines = properties(tmp_path, 19092, 19093).splitlines()
    assert "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093" in lines
    assert f"log.dirs={tmp_path / 'data'}" in lines


def test_what_is_missing_is_told_with_the_command_that_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    with pytest.raises(Missing, match="make servers ARGS=kafka"):
        kafka(tmp_path)
