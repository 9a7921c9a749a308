from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vocabulary.claims import Claim
from penstock.vocabulary.errors import InvalidArgument
from penstock.wire.rest_tokens import (
    Token,
    claims_of,
    key_of,
    ranges_of,
    read_token,
    write_token,
)

KEY = key_of(b"a store")
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TOKENS = st.builds(Token, U32, U64, U64, U64, st.integers(0, 2**16 - 1), U64, U32)
ONE = Token(3, 1, 2, 9, 0, 17, 1)


@given(TOKENS)
def test_a_token_comes_back(token: Token) -> None:
    assert read_token(write_token(token, KEY), KEY) == token


@given(st.integers(0, 70), st.sampled_from("AQZaz09-_"))
def test_a_token_with_any_mark_changed_is_refused(place: int, mark: str) -> None:
    text = write_token(ONE, KEY)
    place %= len(text)
    changed = text[:place] + mark + text[place + 1 :]
    if changed != text:
        with pytest.raises(InvalidArgument):
            read_token(changed, KEY)


@given(st.text(max_size=100))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        read_token(text, KEY)


def test_a_token_of_another_store_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not made by this store"):
        read_token(write_token(ONE, key_of(b"another")), KEY)


def test_a_token_tells_nothing_a_url_cannot_hold() -> None:
    assert write_token(ONE, KEY).replace("-", "a").replace("_", "a").isalnum()


def test_tokens_of_one_lease_are_one_claim() -> None:
    tokens = [ONE._replace(offset=offset) for offset in (5, 3, 4, 9)]
    other = ONE._replace(consumer_id=7, attempt=2)
    assert claims_of([*tokens, other]) == {
        2: [Claim(9, 0, 1, ((3, 6), (9, 10)))],
        7: [Claim(9, 0, 2, ((17, 18),))],
    }


@given(st.lists(st.integers(0, 50)))
def test_ranges_hold_exactly_the_offsets(offsets: list[int]) -> None:
    ranges = ranges_of(offsets)
    assert [o for low, high in ranges for o in range(low, high)] == sorted(set(offsets))
    assert all(a[1] < b[0] for a, b in pairwise(ranges))
