from penstock.cli.demo.chart import chart


def test_bars_are_as_high_as_their_values() -> None:
    assert chart([0, 5, 10, 20], ["a", "", "c", ""], height=2) == [
        "20 ┤      ██",
        " 0 ┤  ▄▄████",
        "    a   c",
    ]


def test_a_label_without_room_is_left_out() -> None:
    assert chart([1, 1, 1], ["long", "x", "y"], height=2)[-1].split() == ["long"]


def test_nothing_and_less_than_nothing_have_no_bars() -> None:
    assert chart([], [], height=2) == ["0.00 ┤", "   0 ┤", ""]
    assert chart([-1, 0], ["", ""], height=2)[:2] == ["0.00 ┤", "   0 ┤"]


def test_small_values_keep_their_digits() -> None:
    assert chart([0.5], [""], height=2)[0].startswith("0.50 ┤")
