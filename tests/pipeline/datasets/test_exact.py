"""Rounding against `decimal`, which knows what a tenth is."""

import random
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext

import numpy as np

from penstock.pipeline.datasets import exact, inverter

UNIT = Decimal("0.0001")
WIDE = Context(prec=80, rounding=ROUND_HALF_UP)
HUGE = Context(prec=2_000, rounding=ROUND_HALF_UP)


def oracle(value: Decimal) -> float:
    return float(value.quantize(UNIT, context=WIDE)) + 0.0


def decimals(values: np.ndarray) -> list[Decimal]:
    return [Decimal(repr(each)) for each in values.tolist()]


def test_the_vector_of_the_contract() -> None:
    cells = np.array(
        [[3.661, 3.666, 3.654, 3.676, 3.658, 3.662, 3.66, 3.659, 3.658, 3.657, 3.656, 3.665, 3.669,
          3.661]]
    )  # fmt: skip
    assert exact.total(cells).tolist() == [51.262]
    assert exact.total_times(cells, np.array([-0.625])).tolist() == [-32.0388]
    assert exact.over_least(cells).tolist() == [[7, 12, 0, 22, 4, 8, 6, 5, 4, 3, 2, 11, 15, 7]]
    assert exact.product(np.array([48.0]), np.array([6.0])).tolist() == [288.0]


def test_a_hundred_thousand_drawn_rows_are_exact() -> None:
    draw = np.random.default_rng(11)
    count = 100_000
    cells = np.round(draw.uniform(2.5, 4.3, (count, 14)), 3)
    amps = np.round(draw.uniform(-200, 200, count), 3)
    watts = exact.total_times(cells, amps)
    volts = exact.total(cells)
    with localcontext(WIDE):
        for row in range(count):
            total = sum(decimals(cells[row]), Decimal(0))
            assert volts[row] == oracle(total)
            assert watts[row] == oracle(total * Decimal(repr(float(amps[row])))), cells[row]


def test_a_hundred_thousand_rows_of_cells_are_exactly_above_their_least() -> None:
    draw = np.random.default_rng(17)
    count = 100_000
    cells = np.zeros((count, 14))
    for digits, first in ((3, 0), (4, 40_000), (5, 90_000)):
        cells[first:] = np.round(draw.uniform(2.5, 4.3, (count - first, 14)), digits)
    cells[-1, :3] = [0.0005, 1e-40, 0.001]  # a half, but for a hair
    found = exact.over_least(cells).tolist()
    one = Decimal(1)
    with localcontext(WIDE):
        for row in range(count):
            values = decimals(cells[row])
            least = min(values)
            wanted = [int(((each - least) * 1000).quantize(one)) for each in values]
            assert found[row] == wanted, cells[row]
    assert found[-1][:3] == [0, 0, 1]


def test_three_phases_are_exact_for_a_hundred_thousand_rows() -> None:
    draw = np.random.default_rng(19)
    volts, amps, factors = (
        np.round(draw.uniform(low, high, 100_000), 2)
        for low, high in ((1, 500), (-50, 50), (-1, 1))
    )
    found = exact.nearest(volts * amps * factors * inverter.ROOT).tolist()
    with localcontext(WIDE):
        root = Decimal(3).sqrt()
        for at, each in enumerate(zip(*map(decimals, (volts, amps, factors)), strict=True)):
            assert found[at] == oracle(each[0] * each[1] * each[2] * root), each


def test_products_are_exact_whatever_the_decimals_and_the_size() -> None:
    draw = random.Random(3)
    left, right = [], []
    for _ in range(100_000):
        left.append(round(draw.uniform(-1, 1) * 10 ** draw.randint(0, 6), draw.randint(0, 9)))
        right.append(round(draw.uniform(-1, 1) * 10 ** draw.randint(0, 6), draw.randint(0, 9)))
    found = exact.product(np.array(left), np.array(right))
    with localcontext(WIDE):
        for a, b, value in zip(left, right, found.tolist(), strict=True):
            assert value == oracle(Decimal(repr(a)) * Decimal(repr(b))), (a, b)


def test_numbers_of_any_size_are_exact() -> None:
    draw = random.Random(5)

    def drawn() -> float:
        size = draw.choice([0, 3, 9, 12, 14, 15, 16, 20, 50, 100])
        value = float(f"{draw.uniform(-1, 1) * 10.0**size:.{draw.randint(0, 17)}g}")
        return draw.choice([value, 0.0, 1e-4, 5e-324, -1e100, 123456789012345.678, 2.0**53 + 2])

    cells = np.array([[drawn() for _ in range(14)] for _ in range(2_000)])
    amps = np.array([drawn() for _ in range(2_000)])
    totals, times = exact.total(cells), exact.total_times(cells, amps)
    products = exact.product(cells[:, 0], amps)
    with localcontext(HUGE):
        for row, factor in enumerate(decimals(amps)):
            total = sum(decimals(cells[row]), Decimal(0))
            assert totals[row] == float(total.quantize(UNIT))
            assert times[row] == float((total * factor).quantize(UNIT))
            assert products[row] == float((decimals(cells[row])[0] * factor).quantize(UNIT))


def test_ties_go_away_from_zero() -> None:
    found = exact.product(
        np.array([0.5, -0.5, 0.5, 1.5]), np.array([0.0001, 0.0001, 0.0003, 0.0001])
    )
    assert found.tolist() == [0.0001, -0.0001, 0.0002, 0.0002]


def test_no_result_is_a_negative_zero() -> None:
    found = exact.product(np.array([-0.001]), np.array([0.001]))
    assert np.copysign(1, found).tolist() == [1.0]


def test_millivolts_round_half_up_at_any_number_of_decimals() -> None:
    cells = np.array([[3.0, 3.0005, 3.00049], [3.0, 3.00051, 3.000499999]])
    assert exact.over_least(cells).tolist() == [[0, 1, 0], [0, 1, 0]]


def test_floats_without_exact_decimals_round_to_the_nearest() -> None:
    assert exact.nearest(np.array([52.99199999999999, -0.00005, 0.00004])).tolist() == [
        52.992, -0.0001, 0.0,
    ]  # fmt: skip
