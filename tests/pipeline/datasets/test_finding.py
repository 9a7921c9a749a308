from pathlib import Path

import pytest

from penstock.pipeline.datasets import finding
from penstock.vocabulary.errors import InvalidArgument


def test_a_dataset_is_found_by_its_name_and_by_its_module() -> None:
    assert finding.find("pms") is finding.find("penstock.pipeline.datasets.pms")
    assert finding.known()[:3] == ["pms", "mppt", "inverter"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pmss", "did you mean 'pms'"),
        ("nothing_like_it", "known: pms"),
        ("no.such.module", "no module 'no'"),
        ("penstock.pipeline.datasets.exact", "needs a Dataset named DATASET"),
        ("./missing.py", "no such file"),
    ],
)
def test_a_dataset_that_is_not_there_is_named(name: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        finding.find(name)


def test_a_file_that_fails_says_why(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    with pytest.raises(InvalidArgument, match="ZeroDivisionError"):
        finding.find(str(path))


def test_a_dataset_that_cannot_be_used_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from penstock.pipeline.datasets.pms import DATASET as PMS\n"
        "DATASET = replace(PMS, device='pmsid')\n"
    )
    with pytest.raises(InvalidArgument, match=r"'pms' of .*wrong.py cannot be used: `device` is"):
        finding.find(str(path))


def test_a_name_has_plain_letters(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from penstock.pipeline.datasets.pms import DATASET as PMS\n"
        "DATASET = replace(PMS, name='A/B')\n"
    )
    with pytest.raises(InvalidArgument, match="lower case letters"):
        finding.find(str(path))
