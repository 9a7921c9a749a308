"""A message inside a foreign broker's record: a body and text headers, the same for all brokers.

The body is the message's body. The headers of the message are headers of the record under their
own names. What a foreign broker has no place for travels in headers of its own:

    penstock-id        the id, given or made from publisher and sequence
    penstock-key       the key when it is text; penstock-key-b64 when it is bytes, in base64
    penstock-body      'absent' for a message by reference; its record has an empty body
    penstock-expires   Unix milliseconds of `expires_at`
    penstock-due       Unix milliseconds of `deliver_at`
    penstock-at        Unix milliseconds of the first publish, of a message that was re-homed
    penstock-attempts  deliveries before it was re-homed
    penstock-target    the only subscription it is for: a redriven dead letter
    penstock-more      JSON object: headers, key, id, target that a foreign header cannot hold
    penstock-dead-…    the story of a dead letter, as on our own broker

A record without `penstock-id` was written by another program: its body and headers are taken as
they are. A record whose penstock headers make no sense is never swallowed: it is delivered with
its raw body and headers, and `penstock-undecoded` says why. Pure.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec

from penstock.batch.encode import Columns
from penstock.batch.view import Batch, plain_bodies
from penstock.vocabulary.message import render_id

MARK: Final = "penstock-"
DEAD_MARK: Final = "penstock-dead-"
ID: Final = MARK + "id"
KEY: Final = MARK + "key"
KEY_B64: Final = MARK + "key-b64"
BODY: Final = MARK + "body"
EXPIRES: Final = MARK + "expires"
DUE: Final = MARK + "due"
AT: Final = MARK + "at"
ATTEMPTS: Final = MARK + "attempts"
TARGET: Final = MARK + "target"
MORE: Final = MARK + "more"
UNDECODED: Final = MARK + "undecoded"
ABSENT: Final = "absent"
EMPTY: Final = "="
"""Base64 of nothing, since a header may not be empty."""
RESERVED: Final = (MARK, "nats-", "body")
"""Names that begin so are ours or a broker's: a user's header of such a name travels in MORE."""
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class Letter(msgspec.Struct, kw_only=True):
    """A message on its way to or from a foreign broker."""

    body: bytes | None
    id: str
    key: bytes | str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    expires_at: int = 0
    deliver_at: int = 0
    published_at: int = 0
    """Unix milliseconds; on the way out 0 = now."""
    attempts: int = 0
    """Deliveries before it was re-homed."""
    target: str = ""
    # -- on the way out
    is_given: bool = False
    """Its publisher gave the id."""
    dedup: str = ""
    """A broker that has seen this text stores the letter no more; empty = it always does."""
    sequence: int = 0
    is_plain: bool = False
    """It has a body and a made id, and nothing else."""
    # -- on the way in
    token: Any = None
    partition: int = 0
    offset: int | None = None
    position: str = ""
    attempt: int = 0
    """Which delivery this is, from 1 on; 0 = the broker does not count."""

    @property
    def size(self) -> int:
        """About how many bytes it takes of a consumer's credit."""
        return len(self.body or b"")


def is_plain(text: str) -> bool:
    """True when any broker carries this text in a header unchanged."""
    return (
        text != "" and text.isascii() and text.isprintable() and text[0] != " " and text[-1] != " "
    )


def is_plain_name(name: str) -> bool:
    """True when any broker takes this as the name of a header."""
    if _TOKEN.fullmatch(name) is None:
        return False
    return not name.lower().startswith(RESERVED) or name.startswith(DEAD_MARK)


def seal(letter: Letter) -> dict[str, str]:
    """The headers of the record that carries a letter; its body is `letter.body or b""`."""
    return {ID: letter.id} if letter.is_plain else _sealed(letter)


def _sealed(letter: Letter) -> dict[str, str]:
    found: dict[str, str] = {}
    more: dict[str, Any] = {}
    if is_plain(letter.id):
        found[ID] = letter.id
    else:
        found[ID], more["id"] = "-", letter.id
    if letter.headers:
        _seal_headers(letter.headers, found, more)
    key = letter.key
    if isinstance(key, str):
        if is_plain(key):
            found[KEY] = key
        else:
            more["key"] = key
    elif key is not None:
        found[KEY_B64] = b64encode(key).decode() or EMPTY
    if letter.body is None:
        found[BODY] = ABSENT
    for name, number in (
        (EXPIRES, letter.expires_at), (DUE, letter.deliver_at), (AT, letter.published_at),
        (ATTEMPTS, letter.attempts),
    ):  # fmt: skip
        if number:
            found[name] = str(number)
    if letter.target and is_plain(letter.target):
        found[TARGET] = letter.target
    elif letter.target:
        more["target"] = letter.target
    if more:
        found[MORE] = json.dumps(more)  # ASCII only
    return found


def _seal_headers(headers: dict[str, str], found: dict[str, str], more: dict[str, Any]) -> None:
    awkward: dict[str, str] = {}
    for name, value in headers.items():
        fits = is_plain_name(name) and is_plain(value)
        (found if fits else awkward)[name] = value
    if awkward:
        more["headers"] = awkward


def unseal(headers: Mapping[str, str] | None, body: bytes, *, id: str, at: int) -> Letter:
    """The letter in a record; `id` and `at` are used when it does not say. Never raises."""
    if not headers:
        return Letter(body=body, id=id, published_at=at)
    if ID not in headers:
        return Letter(body=body, id=id, headers=dict(headers), published_at=at)
    try:
        return _unseal(headers, body, at)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raw = {**headers, UNDECODED: f"{type(error).__name__}: {error}"[:200]}
        return Letter(body=body, id=id, headers=raw, published_at=at)


def _unseal(headers: Mapping[str, str], body: bytes, at: int) -> Letter:
    letter = Letter(body=body, id=headers[ID], published_at=at)
    own: dict[str, str] = {}
    for name, value in headers.items():
        if not name.startswith(MARK) or name.startswith(DEAD_MARK):
            own[name] = value
        elif name == KEY:
            letter.key = value
        elif name == KEY_B64:
            letter.key = b"" if value == EMPTY else b64decode(value, validate=True)
        elif name == BODY:
            letter.body = None if value == ABSENT else body
        elif name == EXPIRES:
            letter.expires_at = _milliseconds(value)
        elif name == DUE:
            letter.deliver_at = _milliseconds(value)
        elif name == AT:
            letter.published_at = _milliseconds(value)
        elif name == ATTEMPTS:
            letter.attempts = _count(value)
        elif name == TARGET:
            letter.target = value
        elif name == MORE:
            _add_more(letter, own, value)
    letter.headers = own
    return letter


def _add_more(letter: Letter, own: dict[str, str], text: str) -> None:
    more = json.loads(text)
    own.update(msgspec.convert(more.get("headers", {}), dict[str, str]))
    letter.id = msgspec.convert(more.get("id", letter.id), str)
    letter.target = msgspec.convert(more.get("target", letter.target), str)
    if "key" in more:
        letter.key = msgspec.convert(more["key"], str)


def _milliseconds(text: str) -> int:
    number = int(text)
    if not 0 < number < 1 << 62:
        raise ValueError(f"{text} is no time")
    return number


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 15:
        raise ValueError(f"{text} is no count")
    return number


# -- our batches ---------------------------------------------------------------------------------


def letters_of(batch: bytes, publisher: bytes, epoch: int, sequence: int) -> list[Letter]:
    """The messages of a batch that is being published.

    Copies, which say when they were first published, are told apart by their numbers, not by
    their ids: what a topic holds twice is copied twice.
    """
    plain = plain_bodies(batch)
    if plain is not None:
        return [
            Letter(body=body, id=id, dedup=id, sequence=number, is_plain=body is not None)
            for number, body in enumerate(plain, sequence)
            for id in (render_id(publisher, epoch, number),)
        ]
    view = Batch(batch, verify=False)
    bodies = view.bodies
    ids, keys, headers = view.ids, view.keys, view.headers
    expires, due, times = view.expires_at, view.deliver_at, view.published_at
    found: list[Letter] = []
    for at, body in enumerate(bodies):
        given = ids[at] if ids is not None else None
        id = given or render_id(publisher, epoch, sequence + at)
        letter = Letter(
            body=body, id=id, is_given=given is not None, dedup=id, sequence=sequence + at
        )
        if keys is not None:
            letter.key = keys[at]
        if headers is not None:
            letter.headers = headers[at] or {}
        if expires is not None:
            letter.expires_at = expires[at]
        if due is not None:
            letter.deliver_at = due[at]
        if times is not None:
            letter.published_at = times[at]
            letter.dedup = render_id(publisher, epoch, sequence + at)
        found.append(letter)
    return found


def columns_of(letters: list[Letter]) -> Columns:
    """Letters that arrived, as columns for a batch of ours."""
    return Columns(
        bodies=[each.body for each in letters],
        keys=[each.key for each in letters],
        ids=[each.id for each in letters],
        headers=[each.headers or None for each in letters],
        expires_at=[each.expires_at for each in letters],
        deliver_at=[each.deliver_at for each in letters],
        published_at=[each.published_at for each in letters],
        attempts=[each.attempts for each in letters],
    )


def bytes_of(letters: list[Letter]) -> int:
    """What letters take of a consumer's credit."""
    return sum([len(each.body) for each in letters if each.body])


def alike(letters: list[Letter]) -> Iterator[tuple[int, int, list[Letter]]]:
    """Neighbours of one partition that were tried equally often: partition, attempt, letters."""
    if not letters:
        return
    partition, attempt = letters[0].partition, letters[0].attempt
    are_all = [each.partition == partition and each.attempt == attempt for each in letters]
    if all(are_all):
        yield partition, attempt, letters
        return
    for (where, tried), group in groupby(letters, lambda each: (each.partition, each.attempt)):
        yield where, tried, list(group)
