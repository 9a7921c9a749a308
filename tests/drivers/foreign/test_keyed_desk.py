"""The order of a key after a nack, decided without a broker."""

from collections.abc import Iterable

from penstock.drivers.foreign.carrier import Traits
from penstock.drivers.foreign.desk import Work
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.foreign.keyed_desk import KeyedDesk
from penstock.vocabulary.claims import Claim
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import Retry, SubscriptionPolicy
from penstock.vocabulary.records import Cause

TRAITS = Traits(has_leases=False, is_keyed_here=True)


def desk(**policy: object) -> KeyedDesk:
    made = SubscriptionPolicy(kind=Kind.KEY_SHARED, **policy)  # type: ignore[arg-type]
    return KeyedDesk("orders", "billing", "worker", made, 100, 1 << 20, TRAITS)


def letters(*pairs: tuple[int, str | None], attempt: int = 1) -> list[Letter]:
    return [
        Letter(body=b"", id=str(n), key=key, offset=n, position=f"0:{n}", attempt=attempt)
        for n, key in pairs
    ]


def nack(made: KeyedDesk, at: int, now: float, delay_s: float = 1.0) -> Work:
    claim = Claim(1, 0, 1, ((at, at + 1),))
    return made.give_back(claim, Cause.NACKED, delay_s, "not now", now, 0)


def offsets(work: Work) -> list[int | None]:
    return [each.letter.offset for each in work.release]


def handed(work: Work) -> list[str]:
    return [id for part in work.slices for frame in part.frames for id in ids(frame.marks)]


def ids(marks: Iterable[tuple[int | None, str]] | None) -> list[str]:
    return [position for _, position in marks or ()]


def test_a_nack_takes_back_what_is_behind_it_of_its_key_only() -> None:
    made = desk()
    made.arrived(letters((0, "a"), (1, "b"), (2, "a"), (3, None), (4, "a")), 0.0, 0)
    work = nack(made, 0, 0.0)
    (news,) = work.revoked
    assert news.claim == Claim(1, 0, 1, ((0, 1),))
    assert news.parts == ((1, ((2, 3), (4, 5))),)
    assert work.release == []
    assert made.room()[0] == 100 - 2, "one of b and one without key are out"


def test_a_nack_of_a_message_without_key_stops_nobody() -> None:
    made = desk()
    made.arrived(letters((0, None), (1, "a")), 0.0, 0)
    work = nack(made, 0, 0.0)
    assert work.revoked[0].parts == ()
    assert offsets(work) == [0]


def test_the_line_comes_again_in_order_when_its_first_is_due() -> None:
    made = desk()
    made.arrived(letters((0, "a"), (1, "a"), (2, "b")), 0.0, 0)
    nack(made, 0, 0.0)
    late = made.arrived(letters((3, "a"), (4, "b")), 0.1, 0)
    assert handed(late) == ["0:4"], "the key stands still, another one does not"
    assert made.next_due() == 1.0
    assert offsets(made.tick(0.5, 0)) == []
    work = made.tick(1.0, 0)
    assert [(each.letter.offset, each.is_unstarted) for each in work.release] == [
        (0, False), (1, True), (3, True),
    ]  # fmt: skip
    between = made.arrived(letters((5, "a")), 1.0, 0)
    assert handed(between) == [], "what was on its way waits for what comes again"
    first = made.arrived(letters((0, "a"), attempt=2), 1.1, 0)
    rest = made.arrived(letters((1, "a"), (3, "a")), 1.1, 0)
    assert [*handed(first), *handed(rest)] == ["0:0", "0:1", "0:3", "0:5"]
    assert handed(made.arrived(letters((6, "a")), 1.2, 0)) == ["0:6"]


def test_an_ack_of_what_was_taken_back_is_accepted_until_it_comes_again() -> None:
    made = desk()
    made.arrived(letters((0, "a"), (1, "a"), (2, "a")), 0.0, 0)
    nack(made, 0, 0.0)
    done = made.ack([Claim(1, 0, 1, ((1, 2),))])
    assert [each.offset for each in done.settle] == [1]
    assert offsets(made.tick(1.0, 0)) == [0, 2]
    late = made.ack([Claim(1, 0, 1, ((2, 3),))])
    assert [each.why for each in late.refusals] == ["it was handed out again"]
    assert late.settle == []


def test_an_earlier_message_that_fails_later_leads_the_line() -> None:
    made = desk()
    made.arrived(letters((0, "a"), (1, "a")), 0.0, 0)
    nack(made, 1, 0.0, delay_s=5.0)
    assert nack(made, 0, 0.0, delay_s=0.0).revoked[0].parts == ()
    assert offsets(made.tick(0.0, 0)) == [0, 1]


def test_a_lease_that_ends_stops_its_key_too() -> None:
    made = desk(lease_s=2.0)
    made.arrived(letters((0, "a")), 0.0, 0)
    made.arrived(letters((1, "a"), (2, "b")), 1.0, 0)
    work = made.tick(2.5, 0)
    assert [news.parts for news in work.revoked] == [((2, ((1, 2),)),)]
    assert offsets(work) == [0, 1]


def test_a_message_that_fails_too_often_does_not_hold_its_key() -> None:
    made = desk(retry=Retry(max_attempts=1))
    made.arrived(letters((0, "a"), (1, "a")), 0.0, 0)
    work = nack(made, 0, 0.0)
    assert [each.offset for each in work.bury] == [0]
    assert work.revoked[0].parts == ()


def test_leaving_gives_the_lines_back() -> None:
    made = desk()
    made.arrived(letters((0, "a"), (1, "a")), 0.0, 0)
    nack(made, 0, 0.0, delay_s=3.0)
    work = made.detach({}, 1.0)
    assert [(e.letter.offset, e.delay_s, e.is_unstarted) for e in work.release] == [
        (0, 2.0, False), (1, 0.0, True),
    ]  # fmt: skip


def test_partitions_that_move_take_their_lines_along() -> None:
    made = desk()
    made.arrived(letters((0, "a"), (1, "a")), 0.0, 0)
    nack(made, 0, 0.0)
    work = made.let_go({0})
    assert [(part.lease_id, part.frames) for part in work.slices] == [(1, [])]
    assert made.next_due() is None
    assert made.room()[0] == 100


def test_lines_do_not_grow_without_end() -> None:
    made = desk()
    made.arrived(letters((0, "a")), 0.0, 0)
    nack(made, 0, 0.0, delay_s=60.0)
    made.arrived(letters(*((n, "a") for n in range(1, 1_000))), 0.0, 0)
    assert made.room() == (0, 0)
