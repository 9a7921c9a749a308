from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.line_splitter import LineSplitter, TooLong

MOST = 20
CTRL_C = b"\xff\xf4\xff\xfd\x06"


def _whole(data: bytes) -> list[bytes | TooLong]:
    return LineSplitter(MOST).feed(data)


def _in_pieces(data: bytes, sizes: list[int]) -> list[bytes | TooLong]:
    splitter = LineSplitter(MOST)
    found: list[bytes | TooLong] = []
    at = 0
    while at < len(data):
        size = sizes.pop() if sizes else 1
        found += splitter.feed(data[at : at + size])
        assert splitter.pending_bytes <= MOST + 1
        at += size
    return found


def test_lines_end_with_lf_or_crlf() -> None:
    assert _whole(b"one\r\ntwo\nthree\r\n\nrest") == [b"one", b"two", b"three", b""]


def test_a_line_that_is_too_long_is_skipped_whole_and_the_next_one_is_read() -> None:
    exact, over = b"x" * MOST, b"x" * (MOST + 1)
    data = exact + b"\r\n" + over + b"\r\n" + over * 50 + b"\nnext\n"
    expected = [exact, TooLong.LINE, TooLong.LINE, b"next"]
    assert _whole(data) == expected
    assert _in_pieces(data, []) == expected


def test_nothing_is_kept_of_a_line_that_never_ends() -> None:
    splitter = LineSplitter(MOST)
    for _ in range(1000):
        assert splitter.feed(b"x" * 1000) == []
        assert splitter.pending_bytes <= MOST + 1


def test_many_single_bytes_are_one_line() -> None:
    splitter = LineSplitter(10_000)
    for _ in range(5_000):
        assert splitter.feed(b"y") == []
    assert splitter.feed(b"\n") == [b"y" * 5_000]


@given(
    st.lists(
        st.binary(max_size=25) | st.sampled_from([b"\n", b"\r\n", b"\xff", CTRL_C, b"\xff\xfb"]),
        max_size=12,
    ).map(b"".join),
    st.lists(st.integers(1, 9), max_size=30),
)
def test_pieces_make_the_same_lines_as_the_whole(data: bytes, sizes: list[int]) -> None:
    assert _in_pieces(data, sizes) == _whole(data)


def test_ctrl_c_in_telnet_gives_the_line_up_and_is_answered() -> None:
    splitter = LineSplitter(MOST)
    assert splitter.feed(b"first\nhalf a li") == [b"first"]
    assert splitter.answers() == b""
    assert splitter.feed(CTRL_C + b"sub t\n") == [b"sub t"]
    assert splitter.answers() == b"\xff\xfc\x06"
    assert splitter.answers() == b""


def test_ctrl_c_ends_the_skipping_of_a_long_line() -> None:
    splitter = LineSplitter(MOST)
    splitter.feed(b"x" * 100)
    assert splitter.feed(CTRL_C + b"sub t\r\n") == [b"sub t"]


def test_what_telnet_says_about_itself_is_taken_out() -> None:
    assert _whole(b"\xff\xfb\x1fpub\xff\xf1 t\r\n") == [b"pub t"]


def test_other_bytes_that_are_not_text_stay_and_never_swallow_a_line_end() -> None:
    assert _whole(b"a\xff\xfe\nb\xff\xffc\n\xff\xfb\r\n") == [
        b"a\xff\xfe",
        b"b\xff\xffc",
        b"\xff\xfb",
    ]
