"""`time_local` into a moment: many at a time, and one with the reason why it is none.

20200210T150006.032+0700  →  2020-02-10 08:00:06.032 UTC, +07:00
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[Any]]

FORM: Final = re.compile(
    r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(?:\.(\d{1,6}))?(?:(Z)|([+-])(\d\d)(\d\d))?", re.ASCII
)
STAMP: Final = pa.timestamp("us", "UTC")
OFFSET_MIN: Final = -12 * 60
OFFSET_MAX: Final = 14 * 60
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US: Final = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
END_US: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC) - EPOCH) // timedelta(
    microseconds=1
)
DAYS: Final = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
HEAD: Final = 15
"""Characters of a date, a T and a time of day."""
_ZERO: Final = ord("0")


class Moment(NamedTuple):
    """Microseconds since 1970 in UTC, and the offset of the clock in minutes."""

    us: int
    offset: int


def parse(text: str) -> Moment | str:
    """The moment, or the id of the rule the text breaks."""
    found = FORM.fullmatch(text)
    if found is None:
        return "time.format"
    if found[8] is None and found[9] is None:
        return "time.zone"
    offset = 0
    if found[9]:
        hours, minutes = int(found[10]), int(found[11])
        offset = (hours * 60 + minutes) * (-1 if found[9] == "-" else 1)
        if minutes > 59 or not OFFSET_MIN <= offset <= OFFSET_MAX:  # noqa: PLR2004 - of an hour
            return "time.offset"
    micro = int((found[7] or "").ljust(6, "0"))
    try:
        year, month, day, hour, minute, second = (int(found[at]) for at in range(1, 7))
        local = datetime(year, month, day, hour, minute, second, micro, UTC)
    except ValueError:
        return "time.date"
    us = (local - EPOCH) // timedelta(microseconds=1) - offset * 60_000_000
    return Moment(us, offset) if FIRST_US <= us <= END_US else "time.date"


def parse_all(texts: pa.StringArray, quotes: int = 0) -> tuple[Numbers, Numbers, Numbers]:
    """Microseconds, offsets in minutes, and which texts are moments; `quotes` around each text."""
    count = len(texts)
    us, offsets = np.zeros(count, np.int64), np.zeros(count, np.int16)
    is_good = np.zeros(count, np.bool_)
    if not count:
        return us, offsets, is_good
    ends, data = _parts(texts)
    lengths = np.diff(ends) - 2 * quotes
    for length in np.unique(lengths).tolist():
        if not HEAD < length <= HEAD + 12:
            continue
        rows = np.flatnonzero(lengths == length)
        chars = _columns(data, ends, rows, length, quotes)
        for is_utc in (True, False):
            chosen = (chars[-1] == ord("Z")) == is_utc
            if chosen.any():
                found = _same_form(chars if chosen.all() else chars[:, chosen], is_utc=is_utc)
                at = rows if chosen.all() else rows[chosen]
                us[at], offsets[at], is_good[at] = found
    return us, offsets, is_good


def _columns(data: Numbers, ends: Numbers, rows: Numbers, length: int, quotes: int) -> Numbers:
    """The characters of texts of one length: the first ones of all, the second ones, and so on."""
    if len(rows) == len(ends) - 1:  # then all of them follow each other
        texts = data[int(ends[0]) : int(ends[-1])].reshape(len(rows), length + 2 * quotes)
        texts = texts[:, quotes : quotes + length]
    else:
        texts = data[(ends[rows] + quotes)[:, None] + np.arange(length)]
    return np.ascontiguousarray(texts.T)


def zones(offsets: Numbers) -> pa.StringArray:
    """Each offset as `+07:00`."""
    known, which = np.unique(offsets, return_inverse=True)
    names = pa.array([_zone(each) for each in known.tolist()], pa.string())
    return names.take(pa.array(which))


def _zone(offset: int) -> str:
    hours, minutes = divmod(abs(offset), 60)
    return f"{'-' if offset < 0 else '+'}{hours:02}:{minutes:02}"


def _parts(texts: pa.StringArray) -> tuple[Numbers, Numbers]:
    buffers = texts.buffers()
    ends = np.frombuffer(buffers[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(buffers[2] or b"\0", np.uint8)
    return ends.astype(np.int64), data


def _same_form(chars: Numbers, *, is_utc: bool) -> tuple[Numbers, Numbers, Numbers]:
    """Texts of one length that all end in Z, or none of them does, character by character."""
    length, count = chars.shape
    tail = 1 if is_utc else 5
    digits = length - HEAD - tail - 1
    is_good = chars[8] == ord("T")
    if digits == -1:
        digits = 0
    elif digits < 1 or digits > 6:  # noqa: PLR2004 - microseconds
        return np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    else:
        is_good &= chars[HEAD] == ord(".")
    numbers = chars - np.uint8(_ZERO)  # what comes before the zero is far beyond the nine
    used = [*range(8), *range(9, HEAD), *range(HEAD + 1, HEAD + 1 + digits)]
    offsets: Numbers = np.zeros(count, np.int32)
    if not is_utc:
        sign = chars[-5]
        is_good &= (sign == ord("+")) | (sign == ord("-"))
        used += range(length - 4, length)
        minutes = _number(numbers, length - 2, 2)
        offsets = _number(numbers, length - 4, 2) * 60 + minutes
        offsets = np.where(sign == ord("-"), -offsets, offsets)
        is_good &= (minutes < 60) & (offsets >= OFFSET_MIN) & (offsets <= OFFSET_MAX)  # noqa: PLR2004
    for at in used:
        is_good &= numbers[at] <= 9  # noqa: PLR2004 - digits
    us, is_date = _moments(numbers, digits)
    us -= offsets.astype(np.int64) * 60_000_000
    return us, offsets, is_good & is_date & (us >= FIRST_US) & (us <= END_US)


def _moments(numbers: Numbers, digits: int) -> tuple[Numbers, Numbers]:
    year, month, day = (_number(numbers, at, size) for at, size in ((0, 4), (4, 2), (6, 2)))
    hour, minute, second = (_number(numbers, at, 2) for at in (9, 11, 13))
    is_leap = ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)
    is_month = (month >= 1) & (month <= 12)  # noqa: PLR2004 - of a year
    most = DAYS[np.where(is_month, month, 1) - 1] - ((month == 2) & ~is_leap)  # noqa: PLR2004
    is_good = is_month & (year >= 1) & (day >= 1) & (day <= most)
    is_good &= (hour <= 23) & (minute <= 59) & (second <= 59)  # noqa: PLR2004 - of a clock
    months = np.where(is_good, (year - 1970) * 12 + month - 1, 0)
    days = months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    us = days * 86_400_000_000
    us += ((hour * 60 + minute) * 60 + second) * np.int64(1_000_000)
    if digits:
        us += _number(numbers, HEAD + 1, digits) * np.int32(10 ** (6 - digits))
    return us, is_good


def _number(numbers: Numbers, at: int, size: int) -> Numbers:
    value: Numbers = numbers[at].astype(np.int32)
    for column in range(at + 1, at + size):
        value *= 10
        value += numbers[column]
    return value
