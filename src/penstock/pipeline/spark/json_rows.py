"""JSON bodies as the columns of a schema the user gives.

Every body is judged alone, by a decoder made for the schema, and what fits becomes Arrow in one
go. A body fits when it is one JSON object whose values have the types of the schema: nothing is
converted, except a whole number into a fraction. A missing key is null, an unknown one is ignored.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, NamedTuple, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Meta

from penstock.client.reader import ReadBatch
from penstock.pipeline.spark import columns, options
from penstock.vocabulary.errors import BodyDoesNotFit, InvalidArgument

PERMISSIVE, DROP, FAIL = options.MODES
FLOAT_MAX: Final = 3.4028234663852886e38
TEXT_MAX: Final = 200
MISFIT: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
UNFIT: Final = (pa.ArrowException, ValueError, OverflowError)
"""What Arrow raises for a value that its type cannot hold: a moment too early, too many digits."""
_PLAIN: Final[tuple[tuple[Callable[[pa.DataType], bool], Any], ...]] = (
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_float64, float),
    (pa.types.is_float32, Annotated[float, Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_binary, bytes),
    (pa.types.is_date32, dt.date),
)

Rows = Sequence[bytes | None]


class Layout(NamedTuple):
    """The columns of a schema by where they come from."""

    schema: pa.Schema
    body: pa.StructType
    """What is read from the body."""
    beside: pa.Schema
    """What is known of the message, under the names of emit=bodies."""
    corrupt: str | None
    """The column for a body that does not fit."""


def layout(schema: pa.Schema, corrupt: str) -> Layout:
    """Sorts the columns of a schema. Raises InvalidArgument for what no body can give."""
    body: list[pa.Field] = []
    beside: list[pa.Field] = []
    for field in schema:
        known = field.name.removeprefix("_")
        if field.name == corrupt:
            _check(field, pa.string())
        elif field.name.startswith("_") and known in columns.BODIES.names:
            wanted = columns.BODIES.field(known)
            _check(field, wanted.type)
            beside.append(wanted)
        else:
            _check_nullable(field, field.name)
            type_of(field.type, field.name)
            body.append(field)
    has_corrupt = corrupt in schema.names
    return Layout(schema, pa.struct(body), pa.schema(beside), corrupt if has_corrupt else None)


def _check(field: pa.Field, wanted: pa.DataType) -> None:
    if not field.type.equals(wanted):
        raise InvalidArgument(
            f"schema of format penstock: column {field.name!r} is of the message and has the type "
            f"{wanted}, not {field.type}; give it that type, or another name"
        )


def _check_nullable(field: pa.Field, path: str) -> None:
    if not field.nullable:
        raise InvalidArgument(
            f"schema of format penstock: {path!r} is NOT NULL, and a body may lack it; leave NOT "
            "NULL out, and filter"
        )


def type_of(kind: pa.DataType, path: str) -> Any:
    """What a decoder takes for a column; nothing may be null there. Raises InvalidArgument."""
    for is_kind, found in _PLAIN:
        if is_kind(kind):
            return found
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return Annotated[int, Meta(ge=-most, le=most - 1)]
    if pa.types.is_timestamp(kind):
        return Annotated[dt.datetime, Meta(tz=kind.tz is not None)]
    if pa.types.is_list(kind):
        _check_nullable(kind.value_field, f"{path}[]")
        return list[type_of(kind.value_type, f"{path}[]") | None]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        for field in kind:
            _check_nullable(field, f"{path}.{field.name}")
        fields = {each.name: type_of(each.type, f"{path}.{each.name}") | None for each in kind}
        return TypedDict("Row", fields, total=False)  # type: ignore[operator]
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        _check_nullable(kind.item_field, f"{path}{{}}")
        return dict[str, type_of(kind.item_type, f"{path}{{}}") | None]  # type: ignore[misc]
    raise InvalidArgument(
        f"schema of format penstock: {path!r} is of type {kind}, which is not read from JSON; take "
        "string, boolean, a number, date, timestamp, timestamp_ntz, binary, array, struct or "
        "map<string, …>"
    )


def parsed(
    batches: Iterable[ReadBatch], wanted: Layout, mode: str = PERMISSIVE
) -> Iterator[pa.RecordBatch]:
    """The rows of messages. Raises BodyDoesNotFit in mode FAILFAST, which names the message."""
    decoder = msgspec.json.Decoder(type_of(wanted.body, "body"))
    extra = [columns.BODIES.field("offset"), columns.BODIES.field("body")]
    needed = pa.schema({each.name: each for each in [*wanted.beside, *extra]}.values())
    for batch in batches:
        for plain in columns.bodies([batch], needed):
            found = _rows(plain, wanted, decoder, mode, batch)
            if len(found):
                yield found


def _rows(
    plain: pa.RecordBatch, wanted: Layout, decoder: Any, mode: str, batch: ReadBatch
) -> pa.RecordBatch:
    bodies = plain.column("body").to_pylist()
    rows, wrong = decoded(bodies, wanted.body, decoder)
    if wrong and mode == FAIL:
        at, why = next(iter(wrong.items()))
        place = f"{batch.topic} {batch.partition}:{plain.column('offset')[at].as_py()}"
        raise BodyDoesNotFit(
            f"message {place} does not fit the schema: {why}; its body is "
            f"{_text(bodies[at])[:TEXT_MAX]!r}. Mend the schema, or use mode {PERMISSIVE} or {DROP}"
        )
    if wrong and mode == DROP:
        kept = pa.array([at for at in range(len(bodies)) if at not in wrong], pa.int64())
        rows, plain, wrong = rows.take(kept), plain.take(kept), {}
    parts = dict(zip(wanted.body.names, rows.flatten(), strict=True))
    parts |= {f"_{name}": plain.column(name) for name in wanted.beside.names}
    if wanted.corrupt is not None:
        texts = [_text(each) if at in wrong else None for at, each in enumerate(bodies)]
        parts[wanted.corrupt] = pa.array(texts[: len(rows)], pa.string())
    return pa.RecordBatch.from_arrays(
        [parts[name] for name in wanted.schema.names], schema=wanted.schema
    )


def decoded(
    bodies: Rows, kind: pa.StructType, decoder: Any
) -> tuple[pa.StructArray, dict[int, str]]:
    """A struct for each body, empty where it does not fit; and why it does not, by index."""
    rows: list[Any] = []
    wrong: dict[int, str] = {}
    decode = decoder.decode
    for at, body in enumerate(bodies):
        try:
            rows.append(decode(body or b""))
        except MISFIT as error:
            wrong[at] = str(error)
            rows.append({})
    try:
        return pa.array(rows, kind), wrong
    except UNFIT:
        for at, row in enumerate(rows):
            try:
                pa.array([row], kind)
            except UNFIT as error:
                wrong[at] = str(error)
                rows[at] = {}
        return pa.array(rows, kind), dict(sorted(wrong.items()))


def _text(body: bytes | None) -> str:
    return (body or b"").decode(errors="replace")
