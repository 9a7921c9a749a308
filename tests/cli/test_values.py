import argparse
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import values


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("10_000", 10_000), ("10,000", 10_000), ("2k", 2_000), ("3M", 3_000_000)],
)
def test_counts(text: str, value: int) -> None:
    assert values.positive(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("200ms", 0.2),
        ("2m", 120.0),
        ("1h", 3_600.0),
        ("7d", 604_800.0),
    ],
)
def test_lengths_of_time(text: str, value: float) -> None:
    assert values.seconds(text) == pytest.approx(value)


def test_forever_is_no_end() -> None:
    assert values.seconds_or_never("forever") is None
    assert values.seconds_or_never("1h") == 3_600.0


def test_unlimited_attempts() -> None:
    assert values.attempts("unlimited") is None
    assert values.attempts("3") == 3


def test_a_header_may_contain_the_mark_again() -> None:
    assert values.header("query=a=b") == ("query", "a=b")
    assert values.header("empty=") == ("empty", "")


@pytest.mark.parametrize("text", ["earliest", "latest", "0:17"])
def test_starts_the_broker_understands_stay_text(text: str) -> None:
    assert values.start(text) == text


def test_a_start_may_be_a_time() -> None:
    assert values.start("1700000000.5") == 1_700_000_000.5
    assert values.start("2025-01-31T12:00:00+00:00") == 1_738_324_800.0
    assert values.start("2025-01-31") == datetime(2025, 1, 31).astimezone().timestamp()


def test_a_folder_may_be_its_url() -> None:
    assert values.folder("file:./data") == values.folder("./data") == Path("data")


def test_a_rate_is_above_zero() -> None:
    assert values.rate("0.5") == 0.5


@pytest.mark.parametrize(
    ("reads", "text"),
    [
        (values.positive, "0"),
        (values.positive, "-1"),
        (values.positive, "many"),
        (values.seconds, "-1"),
        (values.seconds, "5 s"),
        (values.seconds, "soon"),
        (values.header, "plain"),
        (values.header, "=value"),
        (values.start, "yesterday"),
        (values.folder, "file:"),
        (values.rate, "0"),
        (values.rate, "nan"),
        (values.rate, "fast"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(reads: Any, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"\w+ \w+"):
        reads(text)
