"""Status codes: four hexadecimal digits into named bits. Bit 0 is the lowest."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[Any]]

CODE_DIGITS: Final = 4


def bits_of(codes: pa.Array) -> Numbers:
    """Each code as a number."""
    coded = codes.dictionary_encode()
    known = np.array([int(text, 16) for text in coded.dictionary.to_pylist()], np.int64)
    bits: Numbers = known[np.asarray(coded.indices)]
    return bits


def flag(bits: Numbers, at: int) -> pa.Array:
    """One bit as a truth value."""
    return pa.array((bits >> at & 1).astype(np.bool_))


def choice(bits: Numbers, at: int, names: Sequence[str]) -> pa.Array:
    """One bit, or with four names a pair of bits read lower bit first, as its name."""
    number = bits >> at & 1
    if len(names) == 4:  # noqa: PLR2004 - two bits
        number = number * 2 + (bits >> (at + 1) & 1)
    return pa.array(names, pa.string()).take(pa.array(number))
