from pathlib import Path

import pytest

from penstock.cli import contexts
from penstock.cli.contexts import Contexts, check_name, file_path, read, write
from penstock.vocabulary.errors import InvalidArgument, InvalidConfiguration


def test_what_is_written_is_read(here: Path) -> None:
    assert read() == Contexts()
    write(Contexts("a", {"a": "file:x"}))
    assert read() == Contexts("a", {"a": "file:x"})
    assert file_path().stat().st_mode & 0o777 == 0o600
    assert file_path().parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file_path().parent.iterdir()] == ["contexts.json"]


def test_a_file_others_could_read_is_made_private(here: Path) -> None:
    write(Contexts())
    file_path().chmod(0o644)
    write(Contexts("a", {"a": "file:x"}))
    assert file_path().stat().st_mode & 0o777 == 0o600


def test_without_xdg_it_is_in_the_usual_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(here))
    assert file_path() == here / ".config" / "penstock" / "contexts.json"


@pytest.mark.parametrize("text", ["", "[]", '{"urls": 3}', '{"extra": 1}', "\0"])
def test_a_broken_file_is_named(here: Path, text: str) -> None:
    file_path().parent.mkdir(parents=True)
    file_path().write_text(text)
    with pytest.raises(InvalidConfiguration, match="not a list of contexts"):
        read()


def test_a_file_that_cannot_be_read_or_is_huge_is_named(here: Path) -> None:
    file_path().mkdir(parents=True)
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        read()
    file_path().rmdir()
    file_path().write_bytes(b"x" * (contexts._FILE_BYTES_MAX + 1))
    with pytest.raises(InvalidConfiguration, match="too large"):
        read()


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "ä", "a" * 65, "a\n"])
def test_names_are_plain(name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot name a context"):
        check_name(name)
