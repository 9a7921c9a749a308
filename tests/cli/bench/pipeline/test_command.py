from typing import Any

import pytest

from penstock.cli.bench.pipeline import cases, command
from penstock.cli.parser import BadUsage
from tests.cli.conftest import Penstock


def test_a_row_brings_the_one_it_is_compared_with() -> None:
    assert command.chosen_rows("run,process") == ["plain", "run", "process"]
    assert len(command.chosen_rows(None)) == len(cases.CASES) + 3
    with pytest.raises(BadUsage, match="no row 'runs'; did you mean"):
        command.chosen_rows("runs")


def test_rates_become_figures_with_their_ratio() -> None:
    wanted = [case for case in cases.CASES if case.name in {"plain", "run", "run-kafka"}]
    rates: dict[str, Any] = {
        "plain": {"rows_per_s": [50.0, 60.0]},
        "run": {"rows_per_s": [220.0, 220.0]},
    }
    rates["run"] |= {"driver_bytes_max": 1 << 30, "worker_bytes_max": 1 << 20}
    rate, ours, ratio, memory = command.judged(wanted, rates)
    assert (memory.value, memory.unit) == (1 << 20, "bytes")
    assert "1,024 MiB" in memory.note
    assert (rate.value, ours.value, ratio.value) == (55.0, 220.0, 4.0)
    assert (rate.verdict, ratio.verdict, ratio.target) == ("–", "PASS", 3)


def test_the_lane_is_measured_by_a_command(penstock: Penstock) -> None:
    answer = penstock("bench", "pipeline", "--rows", "process", "--messages", "2000", "--json")
    assert answer.code == 0, answer.err
    found = answer.json()
    assert found["messages"] == 2000
    assert found["details"]["process"]["rows"] == 2000
    assert [each["unit"] for each in found["figures"]] == ["/s", "bytes"]
    assert found["skipped"] == {}


def test_the_figures_for_people(penstock: Penstock) -> None:
    answer = penstock("bench", "pipeline", "--rows", "process", "--messages", "2000")
    assert answer.code == 0, answer.err
    assert "in-process lane to Parquet, one core" in answer.out
    assert "rows/s by the clock" in answer.out
