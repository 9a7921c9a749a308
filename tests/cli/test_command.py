from argparse import ArgumentParser

from penstock.cli.command import Command, nothing


def test_a_command_without_arguments_of_its_own_adds_none() -> None:
    parser = ArgumentParser(add_help=False)
    nothing(parser)
    assert parser.format_usage().split()[2:] == []


def test_a_command_has_no_details_unless_it_says_so() -> None:
    command = Command("name", "summary", "name", nothing, lambda _arguments, _output: 0)
    assert command.details == ""
