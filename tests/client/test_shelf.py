"""Lines by key: order, standing still, one at a time, and what is dropped."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import encode_many
from penstock.batch.frame import Frame, Slice
from penstock.client.shelf import Key, KeyedHold, Shelf
from penstock.vocabulary.message import Message


def hold_of(keys: str, start: int = 0, lease_id: int = 1, step: int = 1) -> KeyedHold:
    """A slice of messages with these keys (`.` = none), at every `step`th offset."""
    messages = [Message(body=key, key=None if key == "." else key) for key in keys]
    offsets: Any = range(start, start + len(keys) * step, step)
    if step > 1:
        offsets = list(offsets)
    frame = Frame(encode_many(messages), offsets, range(len(keys)), 1000, bytes(16), 0, 0)
    nobody: Any = None
    return KeyedHold(nobody, Slice(lease_id, 0, start, offsets[-1] + 1, 1, [frame]))


def key_of(name: str) -> Key:
    (hashed,) = hold_of(name).hashes()
    return (0, 0, hashed)


def offsets(shelf: Shelf) -> list[int]:
    found = []
    while (message := shelf.take()) is not None:
        found.append(message.at)
    return found


def test_messages_leave_in_the_order_of_their_arrival() -> None:
    shelf = Shelf(is_single=False)
    shelf.add(hold_of("ab.a"))
    shelf.add(hold_of("b..", 4, 2))
    assert shelf.has_some()
    assert offsets(shelf) == [0, 1, 2, 3, 4, 5, 6]
    assert not shelf.has_some()


def test_a_stopped_key_waits_and_others_go_on() -> None:
    shelf = Shelf(is_single=False)
    shelf.add(hold_of("aba.b"))
    shelf.stop([key_of("a")])
    assert offsets(shelf) == [1, 3, 4]
    shelf.add(hold_of("a", 5, 2))
    assert not shelf.has_some()
    shelf.go_on([key_of("a")])
    assert offsets(shelf) == [0, 2, 5]


def test_a_key_stopped_twice_goes_on_after_both() -> None:
    shelf = Shelf(is_single=False)
    shelf.add(hold_of("ab"))
    shelf.stop([key_of("a")])
    shelf.stop([key_of("a"), key_of("b")])
    shelf.go_on([key_of("a")])
    assert not shelf.has_some()
    shelf.go_on([key_of("a"), key_of("b")])
    assert offsets(shelf) == [0, 1]


def test_dropped_messages_are_never_handed_out() -> None:
    shelf = Shelf(is_single=False)
    hold = hold_of("abaab")
    shelf.add(hold)
    assert shelf.take() is not None
    assert shelf.drop(hold, ((0, 1), (2, 4))) == 2, "what was handed out stays"
    assert shelf.drop(hold, ((2, 4),)) == 0, "a second time there is nothing left"
    shelf.add(hold_of("aa", 0, 2))
    assert offsets(shelf) == [1, 4, 0, 1]


def test_one_message_of_a_key_at_a_time() -> None:
    shelf = Shelf(is_single=True)
    hold = hold_of("aab..a")
    shelf.add(hold)
    assert offsets(shelf) == [0, 2, 3, 4], "those without a key run freely"
    shelf.finish(hold, 2)
    assert not shelf.has_some()
    shelf.finish(hold, 0)
    assert offsets(shelf) == [1]
    shelf.finish(hold, 0)
    assert offsets(shelf) == [], "only whoever runs can finish"
    shelf.finish(hold, 1)
    assert offsets(shelf) == [5]


def test_a_key_that_is_stopped_and_busy_needs_both() -> None:
    for is_finished_first in (True, False):
        shelf = Shelf(is_single=True)
        hold = hold_of("aa")
        shelf.add(hold)
        assert shelf.take() is not None
        shelf.stop([key_of("a")])
        if is_finished_first:
            shelf.finish(hold, 0)
        else:
            shelf.go_on([key_of("a")])
        assert not shelf.has_some()
        if is_finished_first:
            shelf.go_on([key_of("a")])
        else:
            shelf.finish(hold, 0)
        assert offsets(shelf) == [1]


def test_a_cleared_shelf_is_empty() -> None:
    shelf = Shelf(is_single=True)
    hold = hold_of("aab")
    shelf.add(hold)
    assert shelf.take() is not None
    shelf.clear()
    shelf.finish(hold, 0)
    assert shelf.take() is None


@pytest.mark.parametrize("step", [1, 3])
def test_a_hold_knows_what_was_handed_out_and_settled(step: int) -> None:
    shelf = Shelf(is_single=False)
    hold = hold_of("abab", 10, step=step)
    shelf.add(hold)
    every = [10 + n * step for n in range(4)]
    assert (hold.first_unhanded, hold.first_unsettled, hold.handed) == (10, 10, 0)
    assert hold.begun() == ()
    shelf.stop([key_of("a")])
    assert offsets(shelf) == [every[1], every[3]]
    assert list(hold.handed_offsets()) == [every[1], every[3]]
    assert hold.begun() == tuple((o, o + 1) for o in (every[1], every[3]))
    assert (hold.first_unhanded, hold.first_unsettled, hold.handed) == (10, 10, 2)
    assert shelf.drop(hold, ((10, hold.end),)) == 2
    assert hold.first_unhanded == hold.end, "nothing waits any more"
    assert hold.first_unsettled == every[1]
    hold.done |= hold.bit(every[1])
    assert hold.begun() == ((every[3], every[3] + 1),)
    hold.done |= hold.bit(every[3])
    assert (hold.first_unsettled, hold.begun()) == (hold.end, ())


@given(st.text("abc.", min_size=1, max_size=30), st.data())
def test_each_key_leaves_in_order_whatever_stops(keys: str, data: st.DataObject) -> None:
    is_single = data.draw(st.booleans())
    shelf = Shelf(is_single=is_single)
    hold = hold_of(keys)
    shelf.add(hold)
    names = [name for name in "abc" if name in keys]
    stopped: list[str] = []
    running: list[int] = []
    got: list[int] = []
    for _ in range(4 * len(keys)):
        match data.draw(st.sampled_from(["take", "take", "stop", "go on", "finish"])):
            case "take":
                message = shelf.take()
                if message is not None:
                    name = keys[message.at]
                    assert name not in stopped
                    assert not is_single or name not in [keys[o] for o in running if name != "."]
                    got.append(message.at)
                    running.append(message.at)
            case "stop" if names:
                stopped.append(data.draw(st.sampled_from(names)))
                shelf.stop([key_of(stopped[-1])])
            case "go on" if stopped:
                shelf.go_on([key_of(stopped.pop())])
            case "finish" if running:
                shelf.finish(hold, running.pop(0))
    for name in stopped:
        shelf.go_on([key_of(name)])
    while shelf.has_some() or running:
        for offset in running:
            shelf.finish(hold, offset)
        running = offsets(shelf)
        got += running
    assert sorted(got) == list(range(len(keys))), "nothing is lost, nothing comes twice"
    for name in names:
        line = [o for o in got if keys[o] == name]
        assert line == sorted(line)


def some(shelf: Shelf, count: int) -> list[int]:
    """Takes up to so many messages as a batch does."""
    found: list[int] = []
    while len(found) < count:
        taken = shelf.take_whole(count - len(found))
        if taken is not None:
            _, pieces = taken
            found += [o for sheet, low, high in pieces for o in sheet.frame.offsets[low:high]]
        elif (message := shelf.take()) is not None:
            found.append(message.at)
        else:
            break
    return found


def test_a_slice_is_taken_whole_while_no_key_stands_still() -> None:
    shelf = Shelf(is_single=False)
    first, second = hold_of("abcab"), hold_of("ca", 5, 2)
    shelf.add(first)
    shelf.add(second)
    taken = shelf.take_whole(3)
    assert taken is not None
    assert (taken[0], first.handed, list(first.handed_offsets())) == (first, 3, [0, 1, 2])
    assert (first.first_unhanded, first.begun()) == (3, ((0, 3),))
    assert shelf.take_whole(10) is not None, "the rest of the first"
    assert (first.handed, second.handed) == (5, 0)
    assert some(shelf, 10) == [5, 6]
    assert shelf.take_whole(10) is None
    assert not shelf.has_some()


def test_what_stands_in_lines_goes_first() -> None:
    shelf = Shelf(is_single=False)
    shelf.add(hold_of("aba"))
    shelf.stop([key_of("a")])
    assert shelf.take_whole(10) is None, "a key stands still"
    shelf.go_on([key_of("a")])
    shelf.add(hold_of("b", 3, 2))
    assert shelf.take_whole(10) is None, "older ones stand in lines"
    assert some(shelf, 10) == [0, 1, 2, 3]


def test_nothing_is_taken_whole_when_one_of_a_key_runs_at_a_time() -> None:
    shelf = Shelf(is_single=True)
    shelf.add(hold_of("ab"))
    assert shelf.take_whole(10) is None
    assert offsets(shelf) == [0, 1]


def test_a_slice_taken_back_is_not_there() -> None:
    shelf = Shelf(is_single=False)
    hold = hold_of("abc")
    shelf.add(hold)
    assert some(shelf, 1) == [0]
    assert shelf.drop(hold, ((0, 3),)) == 2
    assert not shelf.has_some()
    shelf.add(hold_of("a", 3, 2))
    assert shelf.has_some()
    assert some(shelf, 10) == [3]


@given(st.data())
def test_a_shelf_of_whole_slices_gives_what_one_of_lines_gives(data: st.DataObject) -> None:
    lines, whole = Shelf(is_single=False), Shelf(is_single=False)
    pairs: list[tuple[KeyedHold, KeyedHold]] = []
    stopped: list[str] = []
    at = 0
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["add", "take", "stop", "go on", "drop"])):
            case "add":
                keys = data.draw(st.text("abc.", min_size=1, max_size=8))
                step = data.draw(st.integers(1, 3))
                pairs.append((hold_of(keys, at, step=step), hold_of(keys, at, step=step)))
                at += len(keys) * step
                lines.add(pairs[-1][0])
                lines._line_up()
                whole.add(pairs[-1][1])
            case "take":
                count = data.draw(st.integers(1, 9))
                found = [m.offset for _ in range(count) if (m := lines.take()) is not None]
                assert some(whole, count) == found
            case "stop":
                stopped.append(data.draw(st.sampled_from("abc")))
                lines.stop([key_of(stopped[-1])])
                whole.stop([key_of(stopped[-1])])
            case "go on" if stopped:
                name = stopped.pop()
                lines.go_on([key_of(name)])
                whole.go_on([key_of(name)])
            case "drop" if pairs:
                one, other = data.draw(st.sampled_from(pairs))
                low = data.draw(st.integers(one.start, one.end - 1))
                ranges = ((low, data.draw(st.integers(low + 1, one.end))),)
                assert lines.drop(one, ranges) == whole.drop(other, ranges)
        assert lines.has_some() == whole.has_some()
    assert [(a.given, a.done) for a, _ in pairs] == [(b.given, b.done) for _, b in pairs]
