"""Computed values with four decimals, rounded once, half away from zero, exactly.

A reading such as 3.661 is a decimal number. Its double times 10⁴, rounded, is the same number as
an int64; sums and products of these are exact, and so is rounding them. Rows whose readings have
more decimals than int64 can carry go through `decimal`: slower, the same result.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

Numbers = np.ndarray[Any, np.dtype[Any]]

DECIMALS: Final = 4
SCALE: Final = 10**DECIMALS
FINE: Final = 10**6
"""The second scale: readings with five or six decimals."""
WHOLE_MAX: Final = float(2**53)
"""Above this a double may stand for more than one whole number."""
PRODUCT_MAX: Final = float(2**62)
_CONTEXT: Final = Context(prec=700, rounding=ROUND_HALF_UP)
"""Digits enough for sums and products of doubles up to 1e100: nothing is rounded twice."""
_UNIT: Final = Decimal(1).scaleb(-DECIMALS)


class Decimals:
    """Readings, a row for each message: what several results need of them is worked out once."""

    def __init__(self, values: Numbers) -> None:
        self.values = values if values.ndim > 1 else values.reshape(-1, 1)
        self._scaled: dict[int, tuple[Numbers, Numbers]] = {}

    @cached_property
    def ends(self) -> tuple[Numbers, Numbers]:
        """The least and the greatest of each row."""
        return ends(self.values)

    @cached_property
    def size(self) -> float:
        """The sum of no row is larger than this, in either direction."""
        low, high = self.values.min(initial=0.0), self.values.max(initial=0.0)
        return float(max(-low, high)) * self.values.shape[1]

    def scaled(self, scale: int = SCALE) -> tuple[Numbers, Numbers]:
        """Each value times `scale` as int64, and which of them are exactly that."""
        if scale not in self._scaled:
            self._scaled[scale] = _scaled(self.values, scale)
        return self._scaled[scale]


def _decimals(values: "Numbers | Decimals") -> Decimals:
    return values if isinstance(values, Decimals) else Decimals(values)


# numpy is slow along rows as short as these; the three below are several times as fast.


def ends(cells: Numbers) -> tuple[Numbers, Numbers]:
    """The least and the greatest of each row."""
    columns = np.ascontiguousarray(cells.T)
    return columns.min(axis=0), columns.max(axis=0)


def _sums(cells: Numbers) -> Numbers:
    found: Numbers = np.einsum("ij->i", cells)
    return found


def _all(is_so: Numbers) -> Numbers:
    return np.ones(len(is_so), np.bool_) if is_so.all() else np.all(is_so, axis=1)


def _scaled(values: Numbers, scale: int) -> tuple[Numbers, Numbers]:
    whole = np.rint(values * scale)
    # A quotient of two exact doubles is rounded correctly: it is the double nearest the decimal.
    is_exact = whole / scale == values
    if whole.max(initial=0.0) <= WHOLE_MAX and whole.min(initial=0.0) >= -WHOLE_MAX:
        return whole.astype(np.int64), is_exact
    is_exact &= np.abs(whole) <= WHOLE_MAX
    return np.where(is_exact, whole, 0.0).astype(np.int64), is_exact


def rounded(whole: Numbers, scale: int) -> Numbers:
    """Exact int64 numbers of this scale as doubles with four decimals."""
    step = scale // SCALE
    if step > 1:
        whole = divided(whole, step)
    return whole / SCALE


def divided(whole: Numbers, step: int) -> Numbers:
    """int64 divided by `step`, rounded half away from zero."""
    size = (np.abs(whole) + step // 2) // step
    return np.where(whole < 0, -size, size)


def product(left: Numbers | Decimals, right: Numbers | Decimals) -> Numbers:
    """The products of columns of equal length."""
    return _exact(
        [_decimals(left), _decimals(right)],
        lambda parts, scale: rounded(parts[0][:, 0] * parts[1][:, 0], scale * scale),
        lambda parts: parts[0][0] * parts[1][0],
        lambda parts: np.abs(parts[0][:, 0] * parts[1][:, 0]),
    )


def total(cells: Numbers | Decimals) -> Numbers:
    """The sum of each row."""
    return _exact(
        [_decimals(cells)],
        lambda parts, scale: rounded(_sums(parts[0]), scale),
        lambda parts: sum(parts[0], Decimal(0)),
        lambda parts: _sums(np.abs(parts[0])),
    )


def total_times(cells: Numbers | Decimals, factor: Numbers | Decimals) -> Numbers:
    """The sum of each row times a factor: rounded once, not after the sum."""
    return _exact(
        [_decimals(cells), _decimals(factor)],
        lambda parts, scale: rounded(_sums(parts[0]) * parts[1][:, 0], scale * scale),
        lambda parts: sum(parts[0], Decimal(0)) * parts[1][0],
        lambda parts: _sums(np.abs(parts[0])) * np.abs(parts[1][:, 0]),
    )


def over_least(cells: Numbers | Decimals) -> Numbers:
    """How far each cell is above the least of its row, in whole thousandths, as int32."""
    cells = _decimals(cells)
    whole, is_exact = cells.scaled()
    low, _ = Decimals(cells.ends[0]).scaled()
    step = SCALE // 1000
    found = whole - low
    found += step // 2
    found //= step
    with localcontext(_CONTEXT):
        for row in np.flatnonzero(~_all(is_exact)).tolist():
            values = [Decimal(repr(each)) for each in cells.values[row].tolist()]
            least = min(values)
            found[row] = [int(((each - least) * 1000).quantize(Decimal(1))) for each in values]
    return found.astype(np.int32)


def nearest(values: Numbers) -> Numbers:
    """Doubles with four decimals, half away from zero, for what has no exact decimals."""
    return np.copysign(np.floor(np.abs(values) * SCALE + 0.5), values) / SCALE + 0.0


def _exact(
    parts: list[Decimals],
    whole: Callable[[list[Numbers], int], Numbers],
    decimal: Callable[[list[list[Decimal]]], Decimal],
    size: Callable[[list[Numbers]], Numbers],
) -> Numbers:
    """The first way that is exact for each row: int64 of either scale, else decimal."""
    count = len(parts[0].values)
    found = np.zeros(count)
    left = np.arange(count)
    most = prod(each.size for each in parts)
    for scale in (SCALE, FINE):
        is_first = len(left) == count
        pairs = [
            each.scaled(scale) if is_first else _scaled(each.values[left], scale) for each in parts
        ]
        is_exact = np.logical_and.reduce([_all(each) for _, each in pairs])
        if not most * float(scale) ** len(parts) < PRODUCT_MAX:
            sizes = size([each.values[left] for each in parts])
            is_exact &= sizes * float(scale) ** len(parts) < PRODUCT_MAX
        values = whole([each for each, _ in pairs], scale)
        if is_exact.all():
            found[left] = values
            return found + 0.0
        found[left[is_exact]] = values[is_exact]
        left = left[~is_exact]
    with localcontext(_CONTEXT):
        for row in left.tolist():
            numbers = [
                [Decimal(repr(value)) for value in each.values[row].tolist()] for each in parts
            ]
            found[row] = float(decimal(numbers).quantize(_UNIT))
    return found + 0.0
