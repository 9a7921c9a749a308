import random
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from penstock.pipeline.datasets import moments

RIGHT = {
    "20200210T150006.032+0700": ("2020-02-10T08:00:06.032000+00:00", "+07:00"),
    "20200210T150006Z": ("2020-02-10T15:00:06+00:00", "+00:00"),
    "20200229T235959.999999-1200": ("2020-03-01T11:59:59.999999+00:00", "-12:00"),
    "20200101T000000.5+1400": ("2019-12-31T10:00:00.500000+00:00", "+14:00"),
    "00010101T000000Z": ("0001-01-01T00:00:00+00:00", "+00:00"),
}
WRONG = {
    "20200210T150006": "time.zone",
    "20200210T150006.1": "time.zone",
    "20200230T150006Z": "time.date",
    "19000229T150006Z": "time.date",
    "20201310T150006Z": "time.date",
    "20200010T150006Z": "time.date",
    "20200200T150006Z": "time.date",
    "00000210T150006Z": "time.date",
    "20200210T240000Z": "time.date",
    "20200210T236000Z": "time.date",
    "20200210T235960Z": "time.date",
    "00010101T000000+0100": "time.date",
    "99991231T235959-0100": "time.date",
    "20200210T150006+1401": "time.offset",
    "20200210T150006-1201": "time.offset",
    "20200210T150006+0760": "time.offset",
    "20200210T150006.1234567Z": "time.format",
    "20200210T150006.Z": "time.format",
    "20200210 150006Z": "time.format",
    "2020-02-10T15:00:06Z": "time.format",
    "20200210T150006z": "time.format",
    "20200210T15000aZ": "time.format",
    "20200210T150006 0700": "time.format",
    "\uff12020020\uff110T150006Z": "time.format",
    "": "time.format",
}


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_time_is_a_moment(text: str) -> None:
    found = moments.parse(text)
    assert not isinstance(found, str)
    us = (datetime.fromisoformat(RIGHT[text][0]) - moments.EPOCH) // timedelta(microseconds=1)
    assert found.us == us
    assert moments.zones(np.array([found.offset])).to_pylist() == [RIGHT[text][1]]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_time_names_its_rule(text: str) -> None:
    assert moments.parse(text) == WRONG[text]


def test_many_at_once_agree_with_one_at_a_time() -> None:
    draw = random.Random(7)
    texts = [*RIGHT, *WRONG]
    for _ in range(3_000):
        text = draw.choice(list(RIGHT))
        at = draw.randrange(len(text))
        texts.append(text[:at] + draw.choice("0123456789TZ+-. x") + text[at + 1 :])
    us, offsets, is_good = moments.parse_all(pa.array(texts))
    for row, text in enumerate(texts):
        found = moments.parse(text)
        assert is_good[row] == (not isinstance(found, str)), text
        if not isinstance(found, str):
            assert (us[row], offsets[row]) == found, text


def test_quotes_around_texts_are_passed_over() -> None:
    us, _, is_good = moments.parse_all(pa.array(['"20200210T150006Z"', '""', ""]), quotes=1)
    assert is_good.tolist() == [True, False, False]
    assert us[0] == 1_581_346_806_000_000


def test_a_part_of_an_array_is_parsed_as_that_part() -> None:
    texts = pa.array(["x", "20200210T150006Z", "20200210T150007Z"]).slice(1)
    assert moments.parse_all(texts)[2].tolist() == [True, True]
