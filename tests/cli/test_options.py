from argparse import Namespace
from pathlib import Path

import pytest

from penstock.cli import options
from penstock.cli.parser import BadUsage, Parser


def test_a_flag_beats_environment_file_and_default(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert options.url_of(Namespace()) == "file:./penstock-data"
    (here / "penstock.toml").write_text('url = "file:./from-file"\n')
    assert options.url_of(Namespace()) == "file:./from-file"
    monkeypatch.setenv("PENSTOCK_URL", "file:./from-environment")
    assert options.url_of(Namespace()) == "file:./from-environment"
    assert options.url_of(Namespace(url="file:./from-flag")) == "file:./from-flag"


def test_a_file_may_say_nothing_about_the_url(here: Path) -> None:
    (here / "penstock.toml").write_text("[other]\nkey = 1\n")
    assert options.url_of(Namespace()) == "file:./penstock-data"


@pytest.mark.parametrize(
    ("text", "problem"), [("url = 3", "must be text"), ("url =", "not valid TOML")]
)
def test_a_wrong_file_is_named(here: Path, text: str, problem: str) -> None:
    (here / "penstock.toml").write_text(text)
    with pytest.raises(BadUsage, match=f"penstock.toml.*{problem}"):
        options.url_of(Namespace())


def test_an_unreadable_file_is_named(here: Path) -> None:
    (here / "penstock.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadUsage, match="cannot be read"):
        options.url_of(Namespace())


def test_common_options_leave_no_trace_when_not_given() -> None:
    parser = Parser()
    options.add_common(parser)
    assert vars(parser.parse_args([])) == {}


def test_verbosity_counts() -> None:
    parser = Parser()
    options.add_common(parser)
    assert [options.verbosity(parser.parse_args(words)) for words in ([], ["-v"], ["-vv"])] == [
        0,
        1,
        2,
    ]


def test_the_file_that_the_environment_names_has_the_url(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "penstock.toml").write_text('url = "file:./from-file"\n')
    other = here / "other.toml"
    other.write_text('url = "file:./from-other"\n')
    monkeypatch.setenv("PENSTOCK_CONFIG", str(other))
    assert options.chosen(Namespace()) == ("file:./from-other", f"`url` in {other}", None)
    other.unlink()
    with pytest.raises(BadUsage, match=r"\$PENSTOCK_CONFIG names .*other.toml, which is not there"):
        options.url_of(Namespace())


def test_the_help_names_every_place_a_url_comes_from() -> None:
    parser = Parser()
    options.add_common(parser)
    text = " ".join(parser.format_help().split())
    assert "$PENSTOCK_URL, then the context $PENSTOCK_CONTEXT names, then `url` in" in text
