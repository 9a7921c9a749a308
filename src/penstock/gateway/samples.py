"""Requests into messages: one for each sample, its bytes as they were sent.

Only the structure of a request is judged here. Whether a value is right is for the pipeline to
say, so that a wrong reading is kept with its reason, and not bounced.
"""

import json
from collections import Counter
from typing import Any, Final, NamedTuple

import msgspec
from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from penstock.pipeline.datasets.csv_rows import CsvRow, UnknownHeader
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.raw import RECEIVED, SENDER, csv_type
from penstock.vocabulary.limits import ID_BYTES_MAX, KEY_BYTES_MAX
from penstock.vocabulary.message import Message

WRONG_MAX: Final = 100
"""Wrong paths told about one request."""
PATH_MAX: Final = 100
"""Characters of a key that are told."""
DEEP: Final = "the body is nested too deeply"
TWICE: Final = "is given more than once"
NOTHING: Final = msgspec.Raw(b"null")
Fields = dict[str, msgspec.Raw]
"""An object: its values as they were sent."""
_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_string: Final = msgspec.json.Decoder(str)
READING_ID: Final = "reading-id"
"""Header with the id of a reading, on brokers that do not remember ids."""


class Wrong(NamedTuple):
    """What is wrong with the structure of a request, and where."""

    path: str
    text: str


class Refused(Exception):
    """The request has a structure nobody can use."""

    def __init__(self, *wrong: Wrong) -> None:
        super().__init__("; ".join(f"{path}: {text}" for path, text in wrong))
        more = len(wrong) - WRONG_MAX
        self.wrong = wrong[:WRONG_MAX] + ((Wrong("", f"and {more} more"),) if more > 0 else ())


def from_json(dataset: Dataset, body: bytes, headers: dict[str, str]) -> list[Message]:
    """The messages of a JSON request. Raises Refused with every wrong path."""
    packed = _packed(body)
    tree = _object(packed)
    if tree is None:
        raise Refused(Wrong("", "the body must be an object with `datasets`"))
    wrong = [Wrong(name, TWICE) for name in _repeated(packed, tree)]
    devices = _elements(tree.get("datasets"))
    if devices is None:
        raise Refused(*wrong, Wrong("datasets", "must be a list"))
    messages: list[Message] = []
    for number, device in enumerate(devices):
        _device(dataset, f"datasets[{number}]", device, headers, messages, wrong)
    if not devices:
        wrong.append(Wrong("datasets", "must not be empty"))
    if wrong:
        raise Refused(*wrong)
    return messages


def _packed(body: bytes) -> bytes:
    """The same JSON without blanks between its words, as long as its grammar is right.

    Numbers and names are not looked at: one that no computer can hold is for the pipeline to say.
    """
    try:
        body.isascii() or body.decode()
        return msgspec.json.format(body, indent=-1)
    except UnicodeDecodeError as error:
        raise Refused(Wrong("", f"the body is not UTF-8 text: byte {error.start}")) from None
    except RecursionError:
        raise Refused(Wrong("", DEEP)) from None
    except msgspec.DecodeError as error:
        raise Refused(Wrong("", f"the body is not JSON: {error}")) from None


def from_csv(dataset: Dataset, body: bytes, headers: dict[str, str]) -> list[Message]:
    """The messages of a CSV request; a row that is no reading is sent as it stands."""
    try:
        rows: list[CsvRow] = dataset.csv.read(body)
    except UnknownHeader as error:
        raise Refused(*(Wrong(path, text) for path, text in error.wrong)) from None
    if not rows:
        raise Refused(Wrong("rows", "there are none below the header"))
    return [_row(dataset, row, headers) for row in rows]


def _device(
    dataset: Dataset, path: str, raw: msgspec.Raw, headers: dict[str, str],
    messages: list[Message], wrong: list[Wrong],
) -> None:  # fmt: skip
    packed = bytes(raw)
    fields = _object(packed)
    if fields is None:
        wrong.append(Wrong(path, "must be an object"))
        return
    wrong += [Wrong(f"{path}.{name}", TWICE) for name in _repeated(packed, fields)]
    name = dataset.device
    device = _as_text(fields.get(name))
    if device is None:
        wrong.append(Wrong(f"{path}.{name}", "must be text" if name in fields else "is missing"))
    elif len(device.encode()) > KEY_BYTES_MAX:
        wrong.append(Wrong(f"{path}.{name}", f"is longer than {KEY_BYTES_MAX} bytes"))
    samples = _elements(fields.get("data"))
    if not samples:
        wrong.append(Wrong(f"{path}.data", "must be a list that is not empty"))
        return
    ahead = b",".join(
        msgspec.json.encode(key) + b":" + bytes(value)
        for key, value in fields.items()
        if key != "data"
    )
    for number, sample in enumerate(samples):
        read = _object(sample)
        if read is None:
            wrong.append(Wrong(f"{path}.data[{number}]", "must be an object"))
        elif not wrong:
            rest = bytes(sample)[1:]
            body = b"{" + ahead + (b"" if rest == b"}" else b",") + rest
            messages.append(_message(dataset, str(device), body, fields | read, headers))


def _row(dataset: Dataset, row: CsvRow, headers: dict[str, str]) -> Message:
    device = "" if row.body is None else row.body[dataset.device]
    if row.body is None or len(device.encode()) > KEY_BYTES_MAX:
        id = f"{dataset.name}#csv#{xxh3_128_hexdigest(row.raw)}"
        kind = csv_type(row.columns, dataset.csv.columns)
        return Message(body=row.raw, id=id, headers={**headers, "content-type": kind})
    body = msgspec.json.encode(row.body)
    return _message(dataset, device, body, _raw.decode(body), headers)


def _message(
    dataset: Dataset, device: str, body: bytes, fields: Fields, headers: dict[str, str]
) -> Message:
    id = reading_id(dataset, device, fields, xxh3_64_hexdigest(body))
    return Message(body=body, key=device, id=id, headers=headers)


def without_ids(messages: list[Message]) -> list[Message]:
    """For a broker that does not remember ids: a reading's id is a header like others."""
    return [
        msgspec.structs.replace(
            each, id=None, headers={**(each.headers or {}), READING_ID: each.id or ""}
        )
        for each in messages
    ]


def reading_id(dataset: Dataset, device: str, fields: Fields, digest: str) -> str:
    """`<x>#<device>[#<pack>]#<time_local>#<xxh3 of the body>`, hashed when it is too long."""
    parts = [dataset.name, device]
    if dataset.pack is not None:
        parts.append(_text(fields, dataset.pack))
    id = "#".join([*parts, _text(fields, "time_local"), digest])
    if len(id.encode("utf-8", "replace")) > ID_BYTES_MAX:
        return f"{dataset.name}#{xxh3_128_hexdigest(id.encode())}"
    return id


def message_headers(sender: str | None, received: str) -> dict[str, str]:
    """The headers of every message of a request."""
    headers = {RECEIVED: received}
    if sender is not None:
        headers[SENDER] = sender
    return headers


def _text(fields: Fields, path: str) -> str:
    """The text at a path; empty when there is none."""
    *ahead, last = path.split(".")
    for name in ahead:
        fields = _object(fields.get(name, NOTHING)) or {}
    return _as_text(fields.get(last)) or ""


def _as_text(raw: msgspec.Raw | None) -> str | None:
    try:
        return None if raw is None else _string.decode(raw)
    except msgspec.ValidationError:
        return None


def _repeated(packed: bytes, fields: Fields) -> list[str]:
    """The keys that an object has more than once.

    `fields` has each key once: as long as they make up all of the object, there is no other. A key
    may be written longer than need be, so that only a longer object is looked at one by one.
    """
    size = 1 + sum(len(msgspec.json.encode(key)) + 2 + len(raw) for key, raw in fields.items())
    if len(packed) <= max(2, size):
        return []
    try:
        pairs: list[tuple[str, Any]] = json.loads(
            packed, object_pairs_hook=lambda each: each, parse_int=str, parse_float=str
        )
    except RecursionError:
        raise Refused(Wrong("", DEEP)) from None
    counts = Counter(key for key, _ in pairs)
    return [key[:PATH_MAX] for key, count in counts.items() if count > 1]


def _object(raw: msgspec.Raw | bytes) -> Fields | None:
    try:
        return _raw.decode(raw)
    except msgspec.ValidationError:
        return None


def _elements(raw: msgspec.Raw | None) -> list[msgspec.Raw] | None:
    if raw is None:
        return None
    try:
        return _list.decode(raw)
    except msgspec.ValidationError:
        return None
