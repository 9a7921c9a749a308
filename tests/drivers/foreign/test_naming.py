"""Names in fewer characters, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drivers.foreign.naming import SAFE, escape, unescape


@given(st.text(), st.sampled_from(["%", "="]))
def test_every_name_comes_back(name: str, mark: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    made = escape(name, mark=mark)
    assert set(made.encode()) <= SAFE | {ord(mark)}
    assert unescape(made, mark) == name


def test_what_escape_never_makes_is_refused() -> None:
    for text in ("%", "%zz", "%FF"):
        with pytest.raises(ValueError, match=r".*"):
            unescape(text)
