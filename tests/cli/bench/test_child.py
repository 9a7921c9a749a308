import importlib

import pytest

from penstock.cli.bench import child
from penstock.cli.bench.plan import Plan


@pytest.mark.parametrize("name", child.FUNCTIONS)
def test_every_measurement_is_there(name: str) -> None:
    module, _, function = child.FUNCTIONS[name].partition(":")
    assert callable(getattr(importlib.import_module(f"penstock.cli.bench.{module}"), function))


def test_a_child_measures_and_answers() -> None:
    ticks = []
    found = child.run("consume", Plan(messages=1_000, batch=100), lambda: ticks.append(1))
    assert found["messages"] == 1_000
    assert ticks


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(child.Failed, match="'reopen' ended early: AssertionError"):
        child.run("reopen", Plan())
