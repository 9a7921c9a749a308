"""The contract over KubeMQ, in an environment of its own, against a server on the SDK's stubs."""

import re
from pathlib import Path

import pytest

from tests.drivers.kubemq.environment import double, run_inside

SHORT = (
    "start_where or share_the or dead_letter_with or multicast or deliver_at or token or readme "
    "or cell"
)
"""Those of the contract that `make test` has the time for."""


def passed(line: str) -> int:
    found = re.search(r"(\d+) passed", line)
    return int(found[1]) if found else 0


def test_the_shortest_form_of_the_contract(tmp_path: Path) -> None:
    with double(tmp_path / "kubemq") as server:
        assert passed(run_inside(server, "-k", SHORT)) >= 6


@pytest.mark.prove
def test_the_whole_contract(tmp_path: Path) -> None:
    with double(tmp_path / "kubemq") as server:
        assert passed(run_inside(server)) > 50
