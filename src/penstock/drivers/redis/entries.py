"""Letters as entries of a Redis stream, and places in one. Pure."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.drivers.foreign.carrier import Placed, Sender
from penstock.drivers.foreign.envelope import ID, Letter, seal, unseal
from penstock.drivers.redis import scripts
from penstock.vocabulary.errors import InvalidArgument, InvalidName
from penstock.vocabulary.limits import DEDUP_S, PUBLISHER_IDLE_S_MAX

OWN: Final = "$penstock"
"""Keys that begin so are ours; no topic may have such a name."""
SEQUENCE_MAX: Final = (1 << 64) - 1
_DEDUP_S: Final = int(DEDUP_S)
_IDLE_S: Final = int(PUBLISHER_IDLE_S_MAX)
_ID: Final = ID.encode()
_PLAIN: Final = 4
"""Fields and values of an entry that holds a body and an id."""
_encode: Final = msgspec.msgpack.Encoder().encode


# -- records -------------------------------------------------------------------------------------


def packed(topic: str, letter: Letter) -> dict[str, Any]:
    """A letter for the scripts that store."""
    seen = f"{OWN}:id:{topic}\0{letter.dedup}" if letter.is_given else ""
    return {"seen": seen, "sequence": letter.sequence, "fields": flat(letter)}


def sending(topic: str, letters: Sequence[Letter], sender: Sender | None) -> tuple[str, list[Any]]:
    """The script that stores letters, and its arguments."""
    name = "" if sender is None else f"{OWN}:publisher:{topic}\0{sender.publisher.hex()}"
    epoch = 0 if sender is None else sender.epoch
    if len(letters) == 1:
        letter = letters[0]
        seen = f"{OWN}:id:{topic}\0{letter.dedup}" if letter.is_given else ""
        return scripts.SEND_ONE, [
            topic, name, seen, epoch, letter.sequence, _DEDUP_S, _IDLE_S, "body",
            letter.body or b"", *flat(letter),
        ]  # fmt: skip
    said = {
        "stream": topic, "sender": name, "epoch": epoch, "seconds": _DEDUP_S, "idle": _IDLE_S,
        "letters": [packed(topic, each) for each in letters],
    }  # fmt: skip
    return scripts.SEND, [_encode(said), *bodies_of(letters)]


def placed(answers: list[Any]) -> list[Placed]:
    """What a script that stores answers."""
    return [Placed(None, text(id), bool(state == 1)) for id, state in answers]


def flat(letter: Letter) -> list[str]:
    """The fields of the entry that carries a letter, besides its body."""
    return [text for pair in seal(letter).items() for text in pair]


def bodies_of(letters: Sequence[Letter]) -> list[bytes]:
    """The bodies of letters, as scripts take them."""
    return [letter.body or b"" for letter in letters]


def opened(id: str, fields: dict[bytes, bytes] | list[bytes], attempt: int) -> Letter:
    """The letter in an entry, whoever wrote it."""
    at = int(id.partition("-")[0])
    if isinstance(fields, list):
        if len(fields) == _PLAIN and fields[0] == b"body" and fields[2] == _ID:
            try:  # what most entries are: a body and a made id
                name = fields[3].decode()
            except UnicodeDecodeError:
                name = fields[3].decode("latin-1")
            return Letter(
                body=fields[1], id=name, published_at=at, token=id, position=id, attempt=attempt
            )
        fields = paired(fields)
    body = fields.pop(b"body", None)
    if body is None:
        letter = _foreign(id, fields, at)
    else:
        headers = {_readable(name): _readable(value) for name, value in fields.items()}
        letter = unseal(headers, body, id=id, at=at)
    letter.token = letter.position = id
    letter.attempt = attempt
    return letter


def _foreign(id: str, fields: dict[bytes, bytes], at: int) -> Letter:
    """An entry of another program: all its fields, as a JSON object."""
    found = {_readable(name): _readable(value) for name, value in fields.items()}
    headers = {"content-type": "application/json", "penstock-foreign": "redis-fields"}
    return Letter(body=msgspec.json.encode(found), id=id, headers=headers, published_at=at)


def _readable(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def paired(fields: Any) -> dict[bytes, bytes]:
    """Fields and values in turn, as a dict."""
    if isinstance(fields, dict):
        return dict(fields)
    return dict(zip(fields[::2], fields[1::2], strict=True))


def letters_read(answer: Any) -> list[Letter]:
    """The letters in the answer to a read, each for the first time."""
    return [
        opened(id.decode(), fields, 1)
        for _, entries in answer or ()
        for id, fields in entries
        if fields is not None
    ]


# -- names and places ----------------------------------------------------------------------------


def check_name(topic: str) -> None:
    """Raises InvalidName for a topic whose key is ours."""
    if topic.startswith(OWN):
        raise InvalidName(f"topic {topic!r} begins with {OWN!r}, which redis: URLs keep for "
                          "themselves; choose another name")  # fmt: skip


def subscriptions_key(topic: str) -> str:
    """Where the policies of a topic's subscriptions are."""
    return f"{OWN}:subscriptions:{topic}"


def text(data: bytes | str) -> str:
    """What Redis sent, as text."""
    return data.decode() if isinstance(data, bytes) else data


def key_pattern(prefix: str) -> str:
    """The pattern of all keys that begin so."""
    escaped = "".join(f"\\{mark}" if mark in "*?[]\\" else mark for mark in prefix)
    return escaped + "*"


def pair_of(id: str) -> tuple[int, int]:
    """An entry id as two numbers."""
    milliseconds, _, number = id.partition("-")
    return int(milliseconds), int(number)


def place_before(place: tuple[int, int]) -> str:
    """The id just below this one."""
    milliseconds, number = place
    if number:
        return f"{milliseconds}-{number - 1}"
    return f"{milliseconds - 1}-{SEQUENCE_MAX}" if milliseconds else "0-0"


def start_of(start: Any) -> tuple[str, str]:
    """The id after which a group begins, and the position that must be held for it, or nothing.

    Raises InvalidArgument.
    """
    if start == "earliest":
        return "0", ""
    if start == "latest":
        return "$", ""
    if isinstance(start, int | float) and not isinstance(start, bool):
        return f"{max(0, int(start * 1000) - 1)}-{SEQUENCE_MAX}", ""
    milliseconds, mark, number = str(start).partition("-")
    if not (mark and milliseconds.isdecimal() and number.isdecimal()):
        raise InvalidArgument(
            f"start {start!r} is neither 'earliest', 'latest', Unix seconds nor a position "
            "such as '1700000000000-0'"
        )
    return place_before((int(milliseconds), int(number))), str(start)


def why_of(said: str) -> str:
    """Why a decision was refused, for people."""
    return "it was handed out again and finished" if said == "gone" else said
