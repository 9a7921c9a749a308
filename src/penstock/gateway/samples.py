"""Requests into messages: one for each sample, its bytes as they were sent.

Only the structure of a request is judged here. Whether a value is right is for the pipeline to
say, so that a wrong reading is kept with its reason, and not bounced.
"""

from typing import Any, Final, NamedTuple

import msgspec
from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from penstock.pipeline.datasets.csv_rows import CsvRow, UnknownHeader
from penstock.pipeline.datasets.dataset import Dataset
from penstock.pipeline.datasets.raw import CSV, RECEIVED, SENDER
from penstock.vocabulary.limits import ID_BYTES_MAX, KEY_BYTES_MAX
from penstock.vocabulary.message import Message

WRONG_MAX: Final = 100
"""Wrong paths told about one request."""
_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_any: Final = msgspec.json.Decoder()
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
        self.wrong = wrong[:WRONG_MAX]


def from_json(dataset: Dataset, body: bytes, headers: dict[str, str]) -> list[Message]:
    """The messages of a JSON request. Raises Refused with every wrong path."""
    try:
        _any.decode(body)
        tree = _raw.decode(body)
    except msgspec.ValidationError:
        raise Refused(Wrong("", "must be an object with `datasets`")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(Wrong("", f"is not JSON: {error}")) from None
    devices = _elements(tree.get("datasets"))
    if devices is None:
        raise Refused(Wrong("datasets", "must be a list"))
    wrong: list[Wrong] = []
    messages: list[Message] = []
    for number, device in enumerate(devices):
        _device(dataset, f"datasets[{number}]", device, headers, messages, wrong)
    if not devices:
        wrong.append(Wrong("datasets", "must not be empty"))
    if wrong:
        raise Refused(*wrong)
    return messages


def from_csv(dataset: Dataset, body: bytes, headers: dict[str, str]) -> list[Message]:
    """The messages of a CSV request; a row that is no reading is sent as it stands."""
    try:
        rows: list[CsvRow] = dataset.csv.read(body)
    except UnknownHeader as error:
        raise Refused(Wrong("header", str(error))) from None
    if not rows:
        raise Refused(Wrong("rows", "there are none below the header"))
    return [_row(dataset, row, headers) for row in rows]


def _device(
    dataset: Dataset, path: str, raw: msgspec.Raw, headers: dict[str, str],
    messages: list[Message], wrong: list[Wrong],
) -> None:  # fmt: skip
    fields = _object(raw)
    if fields is None:
        wrong.append(Wrong(path, "must be an object"))
        return
    name = dataset.device
    device = _any.decode(fields[name]) if name in fields else None
    if not isinstance(device, str):
        wrong.append(Wrong(f"{path}.{name}", "must be text" if name in fields else "is missing"))
    elif len(device.encode()) > KEY_BYTES_MAX:
        wrong.append(Wrong(f"{path}.{name}", f"is longer than {KEY_BYTES_MAX} bytes"))
    samples = _elements(fields.get("data"))
    if not samples:
        wrong.append(Wrong(f"{path}.data", "must be a list that is not empty"))
        return
    ahead = b",".join(
        msgspec.json.encode(key) + b":" + msgspec.json.format(bytes(value), indent=-1)
        for key, value in fields.items()
        if key != "data"
    )
    for number, sample in enumerate(samples):
        if _object(sample) is None:
            wrong.append(Wrong(f"{path}.data[{number}]", "must be an object"))
        elif not wrong:
            rest = msgspec.json.format(bytes(sample), indent=-1)[1:]
            body = b"{" + ahead + (b"" if rest == b"}" else b",") + rest
            messages.append(_message(dataset, str(device), body, headers))


def _row(dataset: Dataset, row: CsvRow, headers: dict[str, str]) -> Message:
    if row.body is None:
        id = f"{dataset.name}#csv#{xxh3_128_hexdigest(row.raw)}"
        return Message(body=row.raw, id=id, headers={**headers, "content-type": CSV})
    body = msgspec.json.encode(row.body)
    return _message(dataset, row.body[dataset.device], body, headers)


def _message(dataset: Dataset, device: str, body: bytes, headers: dict[str, str]) -> Message:
    id = reading_id(dataset, device, _any.decode(body), xxh3_64_hexdigest(body))
    return Message(body=body, key=device, id=id, headers=headers)


def without_ids(messages: list[Message]) -> list[Message]:
    """For a broker that does not remember ids: a reading's id is a header like others."""
    return [
        msgspec.structs.replace(
            each, id=None, headers={**(each.headers or {}), READING_ID: each.id or ""}
        )
        for each in messages
    ]


def reading_id(dataset: Dataset, device: str, body: Any, digest: str) -> str:
    """`<x>#<device>[#<pack>]#<time_local>#<xxh3 of the body>`, hashed when it is too long."""
    parts = [dataset.name, device]
    if dataset.pack is not None:
        parts.append(_text(body, dataset.pack))
    id = "#".join([*parts, _text(body, "time_local"), digest])
    if len(id.encode("utf-8", "replace")) > ID_BYTES_MAX:
        return f"{dataset.name}#{xxh3_128_hexdigest(id.encode())}"
    return id


def message_headers(sender: str | None, received: str) -> dict[str, str]:
    """The headers of every message of a request."""
    headers = {RECEIVED: received}
    if sender is not None:
        headers[SENDER] = sender
    return headers


def _text(body: Any, path: str) -> str:
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body if isinstance(body, str) else ""


def _object(raw: msgspec.Raw) -> dict[str, msgspec.Raw] | None:
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
