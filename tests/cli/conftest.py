"""Commands run as a person would, in an empty folder, with what they printed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.cli.main import main


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    def rows(self) -> list[Any]:
        """Standard output as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    def error(self) -> dict[str, str]:
        """Standard error as the JSON form of an error."""
        found: dict[str, str] = json.loads(self.err.splitlines()[0])["error"]
        return found


Penstock = Callable[..., Answer]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    return tmp_path


@pytest.fixture
def penstock(here: Path, capsys: pytest.CaptureFixture[str]) -> Penstock:
    """Runs `penstock …` in this process."""

    def run(*words: str) -> Answer:
        capsys.readouterr()
        code = main(words)
        return Answer(code, *capsys.readouterr())

    return run
