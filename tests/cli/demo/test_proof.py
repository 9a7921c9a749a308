import asyncio
from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.cli.demo import proof
from penstock.cli.demo.proof import Compared, Reading
from penstock.vocabulary.errors import StorageError
from tests.pipeline.lane import Lane, readings

KEY = ("a", "1", "20200210T150006.032+0700")
READING = ("pms", "a", "1", "2020-02-10T08:00:06.032000+00:00")


def test_the_file_that_comes_along_is_the_real_one() -> None:
    post = proof.csv_post(None)
    real = Path(__file__).parents[2] / "pipeline" / "data" / "pms-2019-08.csv"
    assert post.body == real.read_bytes()
    assert (post.readings, post.dataset, post.content_type) == (2851, "pms", "text/csv")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    header, row, *_ = proof.csv_post(None).body.decode("utf-8-sig").splitlines()
    file = tmp_path / "own.csv"
    file.write_text(f"{header}\n{row}\n{row}\n\n{header}\nno,reading", encoding="utf-8")
    keys = proof.csv_post(file).keys
    assert keys == {("25", "269", "20190820T115900.000+0700"): 1, ("", "", "no,reading"): 1}


def test_what_is_no_such_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nowhere\.csv cannot be read"):
        proof.csv_post(tmp_path / "nowhere.csv")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(StorageError, match="no CSV of battery packs"):
        proof.csv_post(tmp_path / "x.csv")


def test_a_reading_is_known_by_its_moment() -> None:
    assert proof.known_by("pms", KEY) == READING
    assert proof.known_by("pms", ("a", "", "noon")) == ("pms", "a", "", "noon")


@pytest.mark.parametrize(
    ("tables", "aside", "expected"),
    [
        (1, 1, Compared("pms", 2, 1, 1, 0, 0)),
        (1, 0, Compared("pms", 2, 1, 0, 1, 0)),
        (2, 1, Compared("pms", 2, 2, 1, 0, 1)),
    ],
)
def test_losses_and_repetitions_are_counted(tables: int, aside: int, expected: Compared) -> None:
    found = proof.compare(
        [(("pms", KEY), 2)], Counter({READING: tables}), Counter({READING: aside})
    )
    assert found[0] == expected
    assert expected.is_whole == (tables + aside == 2)


def test_quarantine_is_read_back(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    bad = readings(1)[0].replace(b'"0001"', b'"xyz"')
    lane.post([bad])
    lane.run()

    async def look() -> Counter[Reading]:
        async with penstock.connect(lane.url) as client:
            await client.publish(
                "monitoring.mppt.quarantine", b"a,b", headers={"content-type": "text/csv"}
            )
            return await proof.quarantined(client)

    assert asyncio.run(look()) == {
        ("pms", "PMS-0", "0241", "2020-02-09T17:00:00+00:00"): 1,
        ("mppt", "", "", "a,b"): 1,
    }
