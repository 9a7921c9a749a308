from urllib.parse import quote as reference_quote
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.rest import Refused
from penstock.wire.rest_path import parse_query, quote, split_target, unquote


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_names_come_back_from_a_quoted_path(names: list[str]) -> None:
    target = "/" + "/".join(reference_quote(name, safe="") for name in names)
    assert split_target(target.encode())[0] == names


@given(st.binary())
def test_unquoting_agrees_with_the_standard_library_or_refuses(data: bytes) -> None:
    try:
        found = unquote(data)
    except Refused:
        return
    assert found == unquote_to_bytes(data)


@given(st.binary())
def test_quoting_is_undone_by_unquoting(data: bytes) -> None:
    safe = frozenset(range(0x21, 0x7F)) - {0x25}
    assert unquote(quote(data, safe).encode()) == data


def test_an_absolute_address_is_its_path() -> None:
    assert split_target(b"http://host:80/v1/topics?a=1") == (["v1", "topics"], "a=1")


@pytest.mark.parametrize("target", [b"*", b"v1", b"/%", b"/%2", b"/%zz", b"/\xff", b"/%ff"])
def test_addresses_that_mean_nothing_are_refused(target: bytes) -> None:
    with pytest.raises(Refused):
        split_target(target)


def test_a_query_is_its_fields() -> None:
    assert parse_query("a=1&b=x%20y+z&&c") == {"a": "1", "b": "x y z", "c": ""}
    assert parse_query("") == {}


@pytest.mark.parametrize("query", ["a=1&a=2", "%", "&".join(f"f{n}=1" for n in range(40)), "a=%ff"])
def test_queries_that_are_unclear_are_refused(query: str) -> None:
    with pytest.raises(Refused):
        parse_query(query)
