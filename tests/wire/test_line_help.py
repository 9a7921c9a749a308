import re

import pytest

from penstock.wire.line import Language, Verb
from penstock.wire.line_event import parse_event
from penstock.wire.line_help import details, greeting, overview

USUAL = Language()
OWN = Language({"publish": ["SEND"], "subscribe": ["FOLLOW"], "help": ["?"], "ack": ["DONE"]})


def test_the_greeting_says_how_to_begin() -> None:
    assert greeting(USUAL) == (
        "welcome to penstock: type help and press Enter to begin, quit to leave"
    )
    assert "type ? and" in greeting(OWN)


def test_help_shows_every_command_and_a_first_conversation() -> None:
    text = "\n".join(overview(USUAL))
    for verb in Verb:
        assert USUAL.usage(verb) in text
    assert "sub tweets" in text


@pytest.mark.parametrize("language", [USUAL, OWN])
@pytest.mark.parametrize("verb", list(Verb))
def test_help_about_one_command_uses_the_words_that_are_understood(
    language: Language, verb: Verb
) -> None:
    lines = details(language, verb)
    assert lines[0].startswith(language.usage(verb))
    for line in lines:
        assert not re.search(r"\{[a-z]+\}", line), line
        if line.startswith("example: "):
            assert language.parse(line.removeprefix("example: ").encode()).verb is verb


@pytest.mark.parametrize("language", [USUAL, OWN])
def test_the_examples_are_commands(language: Language) -> None:
    lines = overview(language)
    examples = lines[lines.index("try it:") + 1 : -1]
    assert len(examples) == 4
    for example in examples:
        command = language.parse(example.encode())
        if command.verb is Verb.PUBLISH:
            assert parse_event(command.second.encode()).priority > 0


def test_other_words_of_a_command_are_named() -> None:
    assert "also written PUBLISH" in details(USUAL, Verb.PUBLISH)
