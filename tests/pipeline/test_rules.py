"""A batch that is done again says the same, or it is told apart from what it said."""

import sys
from functools import partial
from pathlib import Path

import pytest

from penstock.pipeline import rules
from penstock.pipeline.datasets import finding
from penstock.vocabulary.message import Message
from tests.pipeline.datasets import bodies
from tests.pipeline.lane import Lane

DATASET = """
import pyarrow as pa
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.shape import Group, Shape, Text, Time, Whole

def rows(good):
    return {"pms_id": good["pms_id"], "dock": good["dock"]}

DATASET = Dataset(
    name="docks",
    shape=Shape(Group(pms_id=Text(), time_local=Time(), dock=Whole(low=1))),
    columns=(pa.field("pms_id", pa.string()), pa.field("dock", pa.int64())),
    device="pms_id",
    rows=rows,
)
"""


class Docks(Lane):
    """A lane with a dataset of its own, whose rules can be edited."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "docks")
        self.module = folder / "docks.py"
        self.write("low=1")
        text = self.file.read_text(encoding="utf-8")
        self.file.write_text(
            text.replace('dataset = "docks"', f'dataset = "{self.module}"'), encoding="utf-8"
        )

    def write(self, bound: str) -> None:
        """Another rule; the next run has it, as a process that starts has."""
        self.module.write_text(DATASET.replace("low=1", bound), encoding="utf-8")
        finding.find.cache_clear()
        for name in [each for each in sys.modules if each.startswith("penstock_dataset_")]:
            del sys.modules[name]

    def post_docks(self, *docks: int) -> None:
        self.post(
            [
                bodies.encoded(
                    {"pms_id": f"p{dock}", "time_local": f"20200210T0000{at:02}Z", "dock": dock}
                )
                for at, dock in enumerate(docks)
            ]
        )

    def stored(self) -> list[int]:
        return sorted(row["dock"] for row in self.rows())

    def refused(self) -> list[int]:
        found = [body for body, _ in self.messages(self.pipeline.quarantine)]
        return [int(body.rpartition(b":")[2].rstrip(b"}")) for body in found]


@pytest.fixture
def lane(tmp_path: Path) -> Docks:
    return Docks(tmp_path)


def test_a_retry_under_other_rules_loses_nothing(lane: Docks) -> None:
    lane.post_docks(5, 40, 0, 41)
    lane.run_and_die("published")
    assert lane.refused() == [0]
    lane.write("low=10")
    assert lane.run().quarantined == 2
    assert lane.stored() == [40, 41]
    assert lane.refused() == [0, 5, 0]


def test_a_retry_under_the_same_rules_says_nothing_twice(lane: Docks) -> None:
    lane.post_docks(5, 40, 0, 41)
    lane.run_and_die("published")
    lane.write("low=1")
    assert lane.run().quarantined == 1
    assert (lane.stored(), lane.refused()) == ([5, 40, 41], [0])


def test_a_retry_under_other_rules_that_is_itself_repeated_says_nothing_twice(lane: Docks) -> None:
    lane.post_docks(5, 40, 0, 41)
    lane.run_and_die("published")
    lane.write("low=10")
    lane.run_and_die("published")
    lane.write("low=10")
    lane.run()
    assert (lane.stored(), lane.refused()) == ([40, 41], [0, 5, 0])


def test_rules_that_come_back_go_on_behind_what_they_said(lane: Docks) -> None:
    lane.post_docks(0, 5)
    lane.run_and_die("published")
    lane.write("low=10")
    lane.run()
    lane.write("low=1")
    lane.post_docks(0)
    lane.run()
    assert lane.refused() == [0, 0, 5, 0]


def test_a_fingerprint_follows_dataset_source_and_limits(lane: Docks, tmp_path: Path) -> None:
    first = rules.fingerprint(lane.pipeline)
    assert len(first) == 12
    assert int(first, 16) >= 0
    assert rules.fingerprint(lane.pipeline) == first
    lane.write("low=10")
    assert rules.fingerprint(lane.pipeline) != first
    lane.write("low=1")
    assert rules.fingerprint(lane.pipeline) == first
    (tmp_path / "pms").mkdir()
    plain = Lane(tmp_path / "pms").pipeline
    limits = type(plain.limits)(temp_max=11.0)
    assert len({first, *map(rules.fingerprint, (plain, plain._replace(limits=limits)))}) == 3
    dataset = lane.pipeline.dataset
    object.__setattr__(dataset, "rows", partial(partial(dataset.rows)))
    assert rules.fingerprint(lane.pipeline._replace(dataset=dataset)) == first


def test_a_version_of_this_package_is_a_rule(lane: Docks, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rules.fingerprint(lane.pipeline)
    monkeypatch.setattr(rules, "_version", lambda: "99")
    assert rules.fingerprint(lane.pipeline) != first


def test_a_module_without_a_file_has_no_text(tmp_path: Path) -> None:
    module = type(sys)("made_up")
    assert rules._text(module) == ""
    other = type(sys)("in_a_zip")
    other.__file__ = str(tmp_path / "a.zip" / "other.py")
    assert rules._text(other) == ""


def test_a_publisher_apart_is_known_by_what_it_says() -> None:
    one, two = Message(body=b"1"), Message(body=b"2")
    names = {rules.publisher_apart("pms/events/0", "abc", said) for said in ([one], [two], [one])}
    assert len(names) == 2
    assert all(each.startswith("pms/events/0/abc/") for each in names)
