from pathlib import Path

import pytest

from penstock.cli.config import shown
from tests.cli.conftest import Penstock


def test_a_right_file_is_ok(penstock: Penstock, here: Path) -> None:
    (here / "penstock.toml").write_text("[serve]\nport = 9001\n")
    answer = penstock("config", "check")
    assert answer.code == 0
    assert answer.out.startswith("ok: penstock.toml, 1 setting given")
    assert penstock("config", "check", "--json").json()["given"] == ["serve.port"]


def test_nothing_at_all_is_ok(penstock: Penstock) -> None:
    assert "no file, 0 settings given" in penstock("config", "check").out


def test_every_problem_is_one_line(penstock: Penstock, here: Path) -> None:
    (here / "x.toml").write_text("[serve]\nprot = 1\nport = true\n")
    answer = penstock("config", "check", "x.toml")
    assert answer.code == 2
    assert len(answer.err.splitlines()) == 2
    assert "did you mean port? [invalid-configuration]" in answer.err
    found = penstock("config", "check", "x.toml", "--json")
    assert (found.code, found.json()["ok"], len(found.json()["problems"])) == (2, False, 2)


def test_each_value_is_shown_with_its_source(
    penstock: Penstock, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "penstock.toml").write_text("[serve]\nport = 9001\n")
    monkeypatch.setenv("PENSTOCK_SERVE_HTTP_PORT", "off")
    settings = penstock("config", "show", "--json").json()["settings"]
    assert settings["serve.port"] == {"value": 9001, "source": "penstock.toml"}
    assert settings["serve.http_port"] == {"value": "off", "source": "$PENSTOCK_SERVE_HTTP_PORT"}
    assert settings["serve.line_port"] == {"value": 8000, "source": "default"}
    assert "serve.port" in penstock("config", "show").out


def test_a_wrong_file_is_not_shown(penstock: Penstock, here: Path) -> None:
    (here / "penstock.toml").write_text("[serve]\nprot = 1\n")
    answer = penstock("config", "show", "--json")
    assert (answer.code, answer.error()["code"]) == (2, "invalid-configuration")


def test_values_look_as_in_a_file() -> None:
    assert [shown(each) for each in (True, {}, {"a": "b"}, 3, (), ("a", "b"))] == [
        *("true", "–", "a=b", "3", "–", "a, b"),
    ]
