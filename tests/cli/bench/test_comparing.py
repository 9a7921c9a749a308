import re
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.bench import compare, comparing
from tests.cli.conftest import Penstock

QUICK = ("--quick", "--messages", "500", "--batch", "100")


def test_one_url_beside_the_raw_limits(penstock: Penstock, here: Path) -> None:
    words = ("bench", "--mode", "latency", "--rate", "500", "--messages", "50", "--quick")
    answer = penstock(*words, "--url", "memory:")
    assert answer.code == 0
    assert "raw disk: " in answer.out
    assert "raw loopback: " in answer.out
    assert "memory:: penstock " in answer.out
    assert "none: in memory" in answer.out
    assert re.search(r"^delivered +p50 .*p99 .*worst ", answer.out, re.MULTILINE)
    assert list(here.iterdir()) == []


def test_several_urls_beside_the_first(penstock: Penstock, here: Path) -> None:
    answer = penstock("bench", "--mode", "end-to-end", *QUICK, "--compare", "memory:", "--json")
    found = answer.json()
    assert [row["name"] for row in found["standings"]] == ["file:.", "memory:"]
    assert [(turn["name"], turn["round"]) for turn in found["turns"]] == [
        ("file:.", 0),
        ("memory:", 0),
        ("memory:", 1),
        ("file:.", 1),
    ]
    assert found["raw"]["loopback"]["p50"] > 0
    assert found["raw"]["fdatasync"]["p50"] > 0
    assert found["plan"]["batch"] == 100
    assert list(here.iterdir()) == []


def test_our_server_over_tcp(penstock: Penstock) -> None:
    found = penstock("bench", "--mode", "end-to-end", *QUICK, "--serve", "--json").json()
    (row,) = found["standings"]
    assert (row["name"], row["lost"]) == ("serve:", 0)
    assert row["about"]["durability"] == "synced"
    assert found["turns"][0]["found"]["server_resident_bytes"] > 0


def test_the_table_for_people(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_mode: str, urls: Any, *_rest: Any) -> Any:
        for number, url in enumerate(urls):
            about = {"server": f"server {number}", "client": "client", "durability": "synced"}
            found = {"messages_per_s": 100.0 / (number + 1), "lost": number, "about": about}
            yield compare.Turn(url, 0, found)

    monkeypatch.setattr(compare, "run", run)
    answer = penstock("bench", "--quick", "--url", "memory:", "--compare", "redis://h")
    assert answer.code == 1, "one of them lost a message"
    lines = [line.rstrip() for line in answer.out.splitlines()]
    assert "memory:          100/s         1       100/s" in lines
    assert "redis://h        50/s          2.0×    50/s" in lines
    assert "    server 1, client, synced; LOST 1" in lines


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--compare", "rabbit://h"], "bench measures file, memory"),
        (["--url", "penstock://h", "--mode", "topics"], "measures file:DIR only"),
        (["--rate", "10"], "--rate is for --mode latency"),
        (["--suite", "--serve"], "the suite starts what it needs"),
        (["--suite", "--url", "penstock://h"], "the suite starts what it needs"),
    ],
)
def test_wrong_usage(words: list[str], problem: str, penstock: Penstock) -> None:
    answer = penstock("bench", *words)
    assert answer.code == 2
    assert problem in answer.err


def test_the_raw_limits(tmp_path: Path) -> None:
    found = comparing.raw_limits(tmp_path, 0.05)
    assert found["syncs_per_s"] > 0
    assert found["round_trips_per_s"] > 0


def test_the_columns_stand_below_each_other_whatever_the_urls(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_mode: str, urls: Any, *_rest: Any) -> Any:
        for url in urls:
            yield compare.Turn(url, 0, {"messages_per_s": 100.0, "about": {}})

    monkeypatch.setattr(compare, "run", run)
    far = "redis://a-rather-long-name.example:6379"
    lines = penstock("bench", "--quick", "--url", "memory:", "--compare", far).out.splitlines()
    (title,) = [line for line in lines if line.startswith("URL ")]
    rows = [line for line in lines if line.startswith(("memory: ", "redis:"))]
    assert [line.index("100/s") for line in rows] == [title.index("RESULT")] * 2
