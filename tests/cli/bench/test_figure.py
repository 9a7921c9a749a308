import pytest

from penstock.cli.bench.figure import Figure


def test_more_is_better_unless_said() -> None:
    assert Figure(row="rate", value=10, unit="/s", target=9).verdict == "PASS"
    assert Figure(row="rate", value=8, unit="/s", target=9).verdict == "MISS"
    assert Figure(row="time", value=8, unit="s", target=9, is_at_most=True).verdict == "PASS"
    assert Figure(row="time", value=10, unit="s", target=9, is_at_most=True).verdict == "MISS"


def test_without_a_target_there_is_no_verdict() -> None:
    figure = Figure(row="rate", value=10, unit="/s")
    assert (figure.verdict, figure.target_text) == ("–", "")


@pytest.mark.parametrize(
    ("unit", "text"),
    [("/s", "2,000/s"), ("s", "33.3 min"), ("bytes", "2.0 kB"), ("count", "2,000")],
)
def test_values_have_units(unit: str, text: str) -> None:
    assert Figure(row="x", value=2_000, unit=unit).value_text == text


def test_a_share_is_shown_in_percent() -> None:
    figure = Figure(row="x", value=0.425, unit="share", target=0.4)
    assert (figure.value_text, figure.target_text) == ("42 %", "≥ 40 %")


def test_machines_get_the_verdict_too() -> None:
    found = Figure(row="x", value=1, unit="s", target=2, is_at_most=True).to_json()
    assert (found["verdict"], found["target"]) == ("PASS", 2)
