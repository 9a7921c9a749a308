import pytest

from penstock.pipeline.datasets.pms import SHAPE
from penstock.pipeline.datasets.shape import Bounds, Group, Number, Numbers, Shape, Text


def test_a_shape_knows_its_leaves_keys_commas_and_texts() -> None:
    assert [leaf.path for leaf in SHAPE.leaves][:4] == [
        "pms_id", "status.code", "status.temp", "time_local",
    ]  # fmt: skip
    assert (SHAPE.key_count, SHAPE.comma_count, SHAPE.text_count) == (16, 11, 4)


def test_bounds_name_the_rule_that_is_broken() -> None:
    assert Bounds(above=0).broken(0) == "range.above"
    assert Bounds(low=1, high=3).broken(0) == "range.low"
    assert Bounds(low=1, high=3).broken(4) == "range.high"
    assert Bounds(low=1, high=3).broken(3) is None


def test_a_list_of_one_length_has_equal_ends() -> None:
    assert Numbers(3).lengths == (3, 3)
    assert Numbers(1, 4).lengths == (1, 4)


def test_lists_of_equal_length_must_exist() -> None:
    with pytest.raises(AssertionError, match="no such lists"):
        Shape(Group(a=Text(), b=Number()), (("a", "c"),))
