"""Bodies become values; what does not fit is named by its path."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from penstock.client.decoding import check_kind, decode, name_of
from penstock.vocabulary.errors import BodyDoesNotFit, InvalidArgument


class Order(msgspec.Struct):
    number: int
    lines: list[str]


@dataclass
class Point:
    x: int
    y: int = 0


class Model:
    """Looks like a pydantic model, which need not be installed."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def model_validate_json(cls, data: bytes) -> "Model":
        if data == b"plain":
            raise ValueError("not good")
        if data == b"bad":
            raise _ModelError
        return cls(data)


class _ModelError(ValueError):
    def __init__(self) -> None:
        super().__init__("2 validation errors")

    def errors(self) -> list[dict[str, Any]]:
        return [{"msg": "Input should be an integer", "loc": ("lines", 0, "count")}]


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        (b"abc", bytes, b"abc"),
        ("grüße".encode(), str, "grüße"),
        (b'{"a":1}', dict, {"a": 1}),
        (b'{"a":1}', Any, {"a": 1}),
        (b'{"a":1}', dict[str, int], {"a": 1}),
        (b"[1,2]", list[int], [1, 2]),
        (b'{"number":1,"lines":[]}', Order, Order(1, [])),
        (b'{"x":3}', Point, Point(3)),
    ],
)
def test_a_body_becomes_a_value_of_the_asked_type(body: bytes, kind: Any, value: Any) -> None:
    assert decode(body, kind) == value


def test_a_pydantic_model_is_validated_by_itself() -> None:
    assert decode(b"{}", Model).data == b"{}"


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b'{"number":"x","lines":[]}', Order, r"does not fit Order.*\$\.number"),
        (b'{"number":1,"lines":["a",5]}', Order, r"\$\.lines\[1\]"),
        (b'{"x":null}', Point, r"\$\.x"),
        (b"{", Order, "is not JSON"),
        (b"\xff", str, "not UTF-8"),
        (b'"\xff"', Any, "is not JSON|does not fit"),
        (None, Order, "has no body"),
        (b"bad", Model, r"Model: Input should be an integer - at `\$\.lines\[0\]\.count`"),
        (b"plain", Model, "not good"),
    ],
)
def test_a_body_that_does_not_fit_names_the_field(body: Any, kind: Any, text: str) -> None:
    with pytest.raises(BodyDoesNotFit, match=text):
        decode(body, kind)


def test_a_type_that_cannot_be_read_is_refused() -> None:
    class Opaque:
        pass

    wrong: list[Any] = [Opaque, dict[str, int] | Order]
    for kind in wrong:
        with pytest.raises(InvalidArgument, match="cannot be read"):
            check_kind(kind)
    right: list[Any] = [Model, bytes, Order, Point, Any, dict[str, Any]]
    for kind in right:
        check_kind(kind)
    assert name_of(Order) == "Order"
