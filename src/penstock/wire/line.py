"""One line of the line protocol as a command: which words there are, and what stands behind them.

A line is split at single spaces into at most three parts, so that the last one may hold spaces:

    pub <topic> <event>      ack <topic> <id>      id <name>      topics
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.line_reply import printable


class Verb(StrEnum):
    """What a line may ask for; also the names in the settings."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    ACK = "ack"
    NACK = "nack"
    ID = "id"
    PEEK = "peek"
    TOPICS = "topics"
    STATS = "stats"
    EXPLAIN = "explain"
    HELP = "help"
    QUIT = "quit"


WORDS: Final[dict[Verb, tuple[str, ...]]] = {
    Verb.PUBLISH: ("pub", "PUBLISH"),
    Verb.SUBSCRIBE: ("sub", "SUBSCRIBE"),
    Verb.UNSUBSCRIBE: ("unsub", "UNSUBSCRIBE"),
    Verb.ACK: ("ack", "ACKNOWLEDGE"),
    **{
        verb: (verb.value,)
        for verb in (
            *(Verb.NACK, Verb.ID, Verb.PEEK, Verb.TOPICS, Verb.STATS, Verb.EXPLAIN),
            *(Verb.HELP, Verb.QUIT),
        )
    },
}
"""The words of each verb; the first one is used in help and hints."""

PARTS: Final[dict[Verb, tuple[tuple[str, ...], int]]] = {
    Verb.PUBLISH: (("topic", "json"), 2),
    Verb.SUBSCRIBE: (("topic",), 1),
    Verb.UNSUBSCRIBE: (("topic",), 1),
    Verb.ACK: (("topic", "id"), 2),
    Verb.NACK: (("topic", "id"), 2),
    Verb.ID: (("name",), 0),
    Verb.PEEK: (("topic", "count"), 1),
    Verb.TOPICS: (("beginning",), 0),
    Verb.STATS: ((), 0),
    Verb.EXPLAIN: (("topic", "id"), 1),
    Verb.HELP: (("command",), 0),
    Verb.QUIT: ((), 0),
}
"""What may stand behind each word, and how many of these must."""


class Command(NamedTuple):
    """A line that says what to do. What is left out is empty."""

    verb: Verb
    first: str = ""
    second: str = ""


class Language:
    """The words a listener understands."""

    def __init__(self, words: Mapping[str, Sequence[str]] | None = None) -> None:
        chosen: dict[Verb, tuple[str, ...]] = dict(WORDS)
        for name, given in (words or {}).items():
            chosen[_verb(name)] = _checked(name, given)
        self.words = chosen
        self._verbs: dict[str, Verb] = {}
        for verb, listed in chosen.items():
            for word in listed:
                if word in self._verbs:
                    raise InvalidArgument(
                        f"the word {word!r} stands for both {self._verbs[word].value!r} and "
                        f"{verb.value!r}; choose another for one of them"
                    )
                self._verbs[word] = verb
        self.publish_words = frozenset(word.encode() for word in chosen[Verb.PUBLISH])
        """Looked at first, since most lines begin with one."""

    def word(self, verb: Verb) -> str:
        """The word people are told."""
        return self.words[verb][0]

    def verb(self, word: str) -> Verb | None:
        """What a word stands for."""
        return self._verbs.get(word)

    def usage(self, verb: Verb) -> str:
        """How a command is written."""
        names, least = PARTS[verb]
        shown = [f"<{name}>" if at < least else f"[{name}]" for at, name in enumerate(names)]
        return " ".join([self.word(verb), *shown])

    def parse(self, line: bytes) -> Command:
        """The command of a line. Raises InvalidArgument with what to write instead."""
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(
                f"the line is not UTF-8 text: byte {error.start + 1} is wrong"
            ) from error
        word, *rest = text.split(" ", 2)
        verb = self._verbs.get(word)
        if verb is None:
            raise InvalidArgument(self.unknown(word))
        names, least = PARTS[verb]
        while rest and not rest[-1] and len(rest) > least:
            rest.pop()  # spaces at the end of a line
        if len(rest) < least or len(rest) > len(names) or "" in rest[:least]:
            raise InvalidArgument(
                f"usage: {self.usage(verb)}; parts are separated by single spaces; "
                f"see {self.word(Verb.HELP)} {self.word(verb)}"
            )
        return Command(verb, *rest)

    def unknown(self, word: str) -> str:
        """What to say about a word that stands for nothing."""
        near = [each for each in self._verbs if each.lower() == word.lower()]
        near = near or get_close_matches(word.lower()[:_WORD_MAX], self._verbs, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        return f"unknown command: {printable(word)}; {hint}type {self.word(Verb.HELP)} for a list"


def is_http(line: bytes) -> bool:
    """True for the first line of an HTTP request, or its most usual header."""
    return _HTTP.match(line) is not None


_HTTP: Final = re.compile(rb"[A-Z]{3,10} \S+ HTTP/\d|host:", re.IGNORECASE)
_WORD_MAX: Final = 32
"""Longer words are compared by their beginning; a word in the settings is no longer either."""


def _verb(name: str) -> Verb:
    try:
        return Verb(name)
    except ValueError as error:
        known = ", ".join(each.value for each in Verb)
        raise InvalidArgument(f"there is no command {name!r} to name; known: {known}") from error


def _checked(name: str, words: Sequence[str]) -> tuple[str, ...]:
    if isinstance(words, str) or not words:
        raise InvalidArgument(f"the words of {name!r} must be a list such as ['pub', 'PUBLISH']")
    for word in words:
        if not (word and word.isprintable() and " " not in word and len(word) <= _WORD_MAX):
            raise InvalidArgument(
                f"{word!r:.80} cannot stand for {name!r}: a word is printable text of 1 to "
                f"{_WORD_MAX} characters without spaces"
            )
    return tuple(words)
