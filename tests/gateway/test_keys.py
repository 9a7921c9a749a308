from pathlib import Path

import pytest

from penstock.gateway.keys import Keys, read_keys
from penstock.vocabulary.errors import InvalidArgument


def written(folder: Path, text: str) -> str:
    path = folder / "keys.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_key_has_the_name_of_its_sender(tmp_path: Path) -> None:
    keys = read_keys(written(tmp_path, 'site-7 = "0123456789abcdef"\nlab = "fedcba9876543210"\n'))
    assert keys.name_of("0123456789abcdef") == "site-7"
    assert keys.name_of("fedcba9876543210") == "lab"
    assert keys.name_of("0123456789abcdeF") is None
    assert keys.name_of(None) is None
    assert keys.name_of("\udcff") is None


def test_keys_are_not_kept() -> None:
    assert "0123456789abcdef" not in repr(vars(Keys({"a": "0123456789abcdef"})))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no API keys"),
        ("a = 1", "key a: an API key is text"),
        ('a = "short"', "at least 16"),
        ("a = ", "is not TOML"),
        ('a = "0123456789abcdef"\nb = "0123456789abcdef"', "two senders"),
        ('"" = "0123456789abcdef"', "no name for a sender"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidArgument, match=said) as caught:
        read_keys(path)
    assert path in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_keys(str(tmp_path / "none"))
