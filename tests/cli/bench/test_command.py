import importlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.cli.bench import child, command, suite, targets
from penstock.cli.bench.plan import Plan
from tests.cli.conftest import Penstock


def test_one_mode_is_measured_and_leaves_nothing(penstock: Penstock, here: Path) -> None:
    answer = penstock("bench", "--mode", "callers", "--messages", "200", "--seconds", "0.1")
    assert answer.code == 2, "either messages or seconds"
    answer = penstock("bench", "--mode", "callers", "--messages", "200", "--quick")
    assert answer.code == 0
    assert "messages  " in answer.out
    assert "durability synced" in answer.out
    assert list(here.iterdir()) == []


def test_the_figures_for_machines(penstock: Penstock, here: Path) -> None:
    answer = penstock(
        "bench",
        "--mode",
        "publish",
        "--messages",
        "2k",
        "--batch",
        "100",
        "--quick",
        "--json",
        "--url",
        "file:./new",
    )
    found = answer.json()
    assert (found["mode"], found["plan"]["batch"]) == ("publish", 100)
    assert found["messages"] >= 2_000
    assert found["machine"]["python"]
    assert list(here.iterdir()) == []


def test_memory_can_be_measured(penstock: Penstock) -> None:
    answer = penstock(
        "bench", "--mode", "end-to-end", "--messages", "2k", "--url", "memory:", "--json"
    )
    assert answer.json()["lost"] == 0


def test_a_row_of_the_suite(penstock: Penstock, here: Path) -> None:
    words = ("bench", "--rows", "unacked", "--messages", "2k", "--seconds", "0.2")
    assert penstock(*words).code == 2
    answer = penstock("bench", "--rows", "unacked", "--quick", "--messages", "5k")
    assert answer.code == 0
    assert "raw disk: " in answer.out
    assert "state of 5,000 unacked" in answer.out
    assert "1 of 1 figures reach their target" in answer.out
    assert list(here.iterdir()) == []


def test_the_suite_for_machines(penstock: Penstock) -> None:
    found = penstock("bench", "--rows", "latency", "--seconds", "0.5", "--json").json()
    assert {"machine", "raw", "figures", "missed", "details", "durability"} <= set(found)
    assert [figure["verdict"] in {"PASS", "MISS"} for figure in found["figures"]] == [True, True]


def test_a_figure_without_target_is_not_counted_as_reached(penstock: Penstock) -> None:
    answer = penstock("bench", "--rows", "shared", "--quick", "--messages", "5k")
    assert answer.code == 0
    assert "shared, batches of 1,000" in answer.out
    assert "1 of 1 figures reach their target" in answer.out


def _measured_here(name: str, plan: Plan, _tick: object = None) -> dict[str, Any]:
    """Instead of in a child, whose start takes longer than a small measurement."""
    module, _, function = child.FUNCTIONS[name].partition(":")
    measure = getattr(importlib.import_module(f"penstock.cli.bench.{module}"), function)
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(measure(plan)))
    return found


def test_every_row_about_delivery_runs(
    penstock: Penstock, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "run", _measured_here)
    names = [row.name for row in targets.ROWS]
    words = ("bench", "--rows", ",".join(names), "--quick", "--messages", "2k", "--json")
    found = penstock(*words).json()
    counts = [figure for figure in found["figures"] if figure["unit"] == "count"]
    assert [(figure["value"], figure["verdict"]) for figure in counts] == [(0, "PASS")] * len(names)
    counted = {name: found["details"][name]["messages"] for name in names}
    assert counted.pop("multicast") == 4 * 2_000
    assert set(counted.values()) == {2_000}
    assert list(here.iterdir()) == []


def test_help_names_every_row(penstock: Penstock) -> None:
    text = re.sub(r"-\n\s+", "-", penstock("bench", "--help").out)  # a line may end at a hyphen
    words = text.replace(",", " ").split()
    assert {row.name for row in suite.ROWS} <= set(words)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--rows", "latensy"], "did you mean 'latency'"),
        (["--mode", "fast"], "is not one of publish"),
        (["--mode", "recovery", "--url", "memory:"], "needs a disk"),
        (["--suite", "--url", "memory:"], "needs a disk"),
        (["--url", "rabbit://h"], "bench measures file, memory, penstock, nats, redis"),
    ],
)
def test_wrong_usage(words: list[str], problem: str, penstock: Penstock) -> None:
    answer = penstock("bench", *words)
    assert answer.code == 2
    assert problem in answer.err


def test_a_store_is_never_filled(penstock: Penstock) -> None:
    penstock("pub", "orders", "hello")
    answer = penstock("bench", "--url", "file:./penstock-data", "--messages", "10")
    assert answer.code == 2
    assert "holds a store" in answer.err


def test_figures_are_readable() -> None:
    found = {
        "messages": 1_000,
        "messages_per_s": 2_000.4,
        "bytes_per_s": 3e6,
        "group_bytes": 512.0,
        "open_s": 0.25,
        "raw_share": 0.5,
        "latency": {"count": 3, "p50": 0.001},
    }
    assert dict(command.readable(found)) == {
        "messages": "1,000",
        "messages per second": "2,000/s",
        "bytes per second": "3.0 MB/s",
        "group bytes": "512 B",
        "open": "250 ms",
        "raw share": "50%",
        "latency": "p50 1 ms",
    }


def test_a_percentile_has_a_unit_and_says_of_what_it_is() -> None:
    ((name, value),) = command.readable({"delivered_p99": 0.000237})
    assert (name, value) == ("delivered p99 of the median second", "237 µs")
