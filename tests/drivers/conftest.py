"""What holds for tests of the drivers: their log lines can be seen."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _logs(monkeypatch: pytest.MonkeyPatch) -> None:
    # The import linter, run as a test in the same process, switches all known loggers off.
    monkeypatch.setattr(logging.getLogger("penstock.drivers"), "disabled", False)
