"""What a person who came by `telnet` is told: the greeting, and help for each command."""

from typing import Final

from penstock.wire.line import Language, Verb
from penstock.wire.line_event import EXAMPLE

_ABOUT: Final[dict[Verb, tuple[str, tuple[str, ...]]]] = {
    Verb.PUBLISH: (
        "publish an event; the topic is made when it is missing",
        (
            "id        text or a whole number; takes the place of a waiting event with this id",
            "priority  a whole number, higher goes first; 0 when left out",
            "msg       any JSON",
            "answer: ok <id>, as soon as the event is safe on disk",
            "example: {pub} tweets " + EXAMPLE,
        ),
    ),
    Verb.SUBSCRIBE: (
        "get the events of a topic from now on, the highest priority first",
        (
            "an event comes as one line of JSON; the next one comes when you ack it",
            "say `{id} <name>` first to keep your queue when you leave",
            "example: {sub} tweets",
        ),
    ),
    Verb.UNSUBSCRIBE: (
        "end it; what waits for you is dropped",
        ("example: {unsub} tweets",),
    ),
    Verb.ACK: (
        "you are done with an event; the next one comes",
        ("<id> is all the rest of the line: it may have spaces", "example: {ack} tweets 1"),
    ),
    Verb.NACK: (
        "you could not do it: the event comes again later",
        (
            "later and later; after 10 times it becomes a dead letter",
            "example: {nack} tweets 1",
        ),
    ),
    Verb.ID: (
        "who you are: with the same name you find your queues again",
        (
            "say it before `{sub}`; without a name it tells who you are",
            "whoever says it last has the name: an older connection with it is closed",
            "example: {id} alice",
        ),
    ),
    Verb.PEEK: (
        "look at what a topic holds, oldest first; nothing is taken",
        ("[count] is 10 when left out", "example: {peek} tweets 5"),
    ),
    Verb.TOPICS: (
        "which topics there are",
        ("only those with a name that begins so: {topics} twe",),
    ),
    Verb.STATS: ("the broker and this connection in numbers", ()),
    Verb.EXPLAIN: (
        "why an event does not come",
        ("without an id: what your queue waits for", "example: {explain} tweets 1"),
    ),
    Verb.HELP: ("this list, or more about one command", ("example: {help} {pub}",)),
    Verb.QUIT: ("end the connection", ()),
}


def greeting(language: Language) -> str:
    """The first line of every connection."""
    return (
        f"welcome to penstock: type {language.word(Verb.HELP)} and press Enter to begin, "
        f"{language.word(Verb.QUIT)} to leave"
    )


def overview(language: Language) -> list[str]:
    """The answer to `help`."""
    usages = {verb: language.usage(verb) for verb in Verb}
    width = max(map(len, usages.values()))
    pub, sub, ack = map(language.word, (Verb.PUBLISH, Verb.SUBSCRIBE, Verb.ACK))
    return [
        *(f"{usages[verb]:<{width}}  {_ABOUT[verb][0]}" for verb in Verb),
        "try it:",
        f"{pub} tweets {EXAMPLE}",
        f"{sub} tweets",
        f'{pub} tweets {{"id":"2","priority":5,"msg":"news"}}',
        f"{ack} tweets 2",
        f"more about one of them: {language.word(Verb.HELP)} {pub}",
    ]


def details(language: Language, verb: Verb) -> list[str]:
    """The answer to `help <command>`."""
    about, lines = _ABOUT[verb]
    others = language.words[verb][1:]
    shown = [f"{language.usage(verb)}  {about}"]
    if others:
        shown.append(f"also written {', '.join(others)}")
    for line in lines:
        filled = line
        for each, name in _PLACES.items():
            filled = filled.replace("{" + name + "}", language.word(each))
        shown.append(filled)
    return shown


_SHORT: Final = {Verb.PUBLISH: "pub", Verb.SUBSCRIBE: "sub", Verb.UNSUBSCRIBE: "unsub"}
_PLACES: Final = {verb: _SHORT.get(verb, verb.value) for verb in Verb}
"""How each word is written in the texts above."""
