import pytest

from penstock.cli import parser as parsing
from penstock.cli.parser import BadUsage, Parser


def make() -> Parser:
    root = Parser(prog="tool")
    commands = root.add_subparsers()
    one = commands.add_parser("publish")
    one.add_argument("--count", type=int)
    one.add_argument("--kind", choices=["shared", "multicast"])
    commands.add_parser("subscribe")
    return root


def test_a_wrong_command_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadUsage, match="no command 'publsh'; did you mean 'publish'") as caught:
        make().parse_args(["publsh"])
    assert "tool --help" in caught.value.usage


def test_a_command_like_no_other_is_answered_with_the_list() -> None:
    with pytest.raises(BadUsage, match="there are: publish, subscribe"):
        make().parse_args(["xyzzy"])


def test_a_wrong_choice_names_the_right_ones() -> None:
    with pytest.raises(BadUsage, match="'share' is not one of shared, multicast"):
        make().parse_args(["publish", "--kind", "share"])


def test_a_wrong_value_never_ends_the_process() -> None:
    with pytest.raises(BadUsage, match="invalid int value"):
        make().parse_args(["publish", "--count", "many"])


def test_options_are_not_guessed_from_their_beginning() -> None:
    _, extras = make().parse_known_args(["publish", "--cou", "3"])
    assert extras == ["--cou", "3"]


def test_an_unknown_option_is_answered_with_the_nearest() -> None:
    tool = Parser(prog="tool")
    tool.add_argument("--count")
    assert parsing.unknown_arguments(tool, ["--cuont=3"]).text == (
        "there is no option --cuont; did you mean --count?"
    )


def test_an_argument_too_many_is_named() -> None:
    assert parsing.unknown_arguments(Parser(), ["x y"]).text == "unexpected argument 'x y'"


def test_nothing_close_is_no_suggestion() -> None:
    assert parsing.nearest("zzz", ["orders", "billing"]) == []
