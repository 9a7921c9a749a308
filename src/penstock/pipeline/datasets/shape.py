"""The shape of a body as data: one declaration, read by the strict judge and by the fast parser.

    SHAPE = Group(
        buoy_id=Text(),
        time_local=Time(),
        water=Group(temp=Number(low=-5, high=45), depths=Numbers(1, 8, above=0)),
    )

Every key is required and no other is allowed. Bounds are range rules, which the feature
`validation` switches; lengths, kinds and formats are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

NUMBER_MAX: Final = 1e100
"""No number is larger than this: the product of three of them is still a finite double."""
WHOLE_MAX: Final = 2**63 - 1
"""What a column of whole numbers holds."""
LIST_COUNT_MAX: Final = 1_024
"""Values in a list whose length the shape leaves open."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a number must keep to; None = no bound."""

    above: float | None = None
    low: float | None = None
    high: float | None = None
    size_max: float = NUMBER_MAX
    """No range rule: farther from zero, what is computed from the number fits no column."""

    def broken(self, value: float) -> str | None:
        """The id of the rule the value breaks."""
        if self.above is not None and not value > self.above:
            return "range.above"
        if self.low is not None and value < self.low:
            return "range.low"
        if self.high is not None and value > self.high:
            return "range.high"
        return None


@dataclass(frozen=True)
class Text:
    """Text, optionally of exactly so many hexadecimal digits."""

    hex_digits: int = 0


@dataclass(frozen=True)
class Time:
    """`YYYYMMDDTHHmmss[.f](Z|±HHMM)`, a real moment with its offset from UTC."""


@dataclass(frozen=True, kw_only=True)
class Number(Bounds):
    """A finite number."""


@dataclass(frozen=True, kw_only=True)
class Whole(Bounds):
    """A whole number."""


@dataclass(frozen=True)
class Numbers(Bounds):
    """A list of `least` to `most` numbers; exactly `least` when `most` is not given."""

    least: int
    most: int | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        """The fewest and the most values."""
        return self.least, self.least if self.most is None else self.most


@dataclass(frozen=True, kw_only=True)
class Wholes(Bounds):
    """A list of whole numbers, each at most once; it may be empty."""


class Group:
    """An object with exactly these keys."""

    def __init__(self, **fields: "Field") -> None:
        self.fields = fields


Field = Text | Time | Number | Whole | Numbers | Wholes | Group


class Leaf(NamedTuple):
    """One value of a body: where it is and what it must be."""

    path: str
    field: Text | Time | Number | Whole | Numbers | Wholes


class Shape:
    """A body: its fields, and which of its lists have equal lengths."""

    def __init__(self, body: Group, equal_lengths: tuple[tuple[str, ...], ...] = ()) -> None:
        self.body = body
        self.equal_lengths = equal_lengths
        self.leaves: tuple[Leaf, ...] = tuple(_leaves(body, ""))
        self.key_names: tuple[str, ...] = tuple(_key_names(body))
        self.key_count = len(self.key_names)
        self.comma_count = _comma_count(body)
        """Commas between the keys of its objects."""
        self.text_count = sum(isinstance(leaf.field, Text | Time) for leaf in self.leaves)
        known = {leaf.path for leaf in self.leaves}
        for group in equal_lengths:
            assert known.issuperset(group), f"no such lists: {group}"


def _leaves(group: Group, prefix: str) -> Iterator[Leaf]:
    for name, field in group.fields.items():
        assert "." not in name, f"a key of a shape has no dot: {name!r}"
        if isinstance(field, Group):
            yield from _leaves(field, f"{prefix}{name}.")
        else:
            yield Leaf(prefix + name, field)


def _key_names(group: Group) -> Iterator[str]:
    for name, field in group.fields.items():
        yield name
        if isinstance(field, Group):
            yield from _key_names(field)


def _comma_count(group: Group) -> int:
    inner = (each for each in group.fields.values() if isinstance(each, Group))
    return len(group.fields) - 1 + sum(map(_comma_count, inner))
