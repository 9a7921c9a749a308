import importlib
import socket

import pytest

from penstock.cli.bench import child
from penstock.cli.bench.plan import Plan
from penstock.vocabulary.errors import Unavailable


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


def test_an_error_of_ours_comes_from_a_child_as_what_it_is() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        plan = Plan(server=f"penstock://127.0.0.1:{port}?connect_timeout_s=0.1", messages=10)
        with pytest.raises(Unavailable, match=f"no Penstock server at 127.0.0.1:{port}"):
            child.run("load-publish", plan)
