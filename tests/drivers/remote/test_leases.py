"""What a driver knows of the leases of a consumer."""

from penstock.batch.frame import Frame, Slice
from penstock.drivers.remote.leases import (
    LEASES_OLD,
    Leases,
    as_ranges,
    count_of,
    offsets_of,
)
from penstock.vocabulary.claims import Claim, Held, Kept, Revoked


def part(lease_id: int, start: int, end: int) -> Slice:
    frame = Frame(b"", range(start, end), range(end - start), 0, bytes(16), 0, 0)
    return Slice(lease_id, 0, start, end, 1, [frame])


def claim(own: int, *ranges: tuple[int, int], mask: int = 0) -> Claim:
    return Claim(own, 0, 1, ranges, mask)


def test_numbers_are_translated_both_ways() -> None:
    leases = Leases()
    own = leases.add(part(900, 0, 5), 0.0)
    assert (leases.number_of(own), leases.own_number(900)) == (900, own)
    assert leases.translate(claim(own, (0, 1))).lease_id == 900
    assert leases.translate(claim(77, (0, 1))).lease_id == 0
    leases.drop(own)
    assert (leases.number_of(own), leases.own_number(900), len(leases)) == (0, 0, 0)
    assert leases.translate(claim(own, (0, 1))).lease_id == 900  # a late ack is judged by it


def test_what_is_confirmed_is_not_held_any_more() -> None:
    leases = Leases()
    own = leases.add(part(9, 10, 20), 0.0)
    leases.confirm(claim(own, (10, 13)))
    leases.confirm(claim(own, (14, 18), mask=0b101))
    assert leases.held(99) == [Held(9, 0, 1, ((13, 14), (15, 16), (17, 20)))]
    leases.confirm(claim(own, (13, 14), (15, 16), (17, 20)))
    assert leases.held(99) == []
    leases.confirm(claim(own, (13, 14)))  # late, and harmless
    assert len(leases) == 0


def test_what_is_revoked_is_not_held_any_more() -> None:
    leases = Leases()
    own = leases.add(part(9, 0, 5), 0.0)
    parts = leases.revoke(Revoked(None, ((9, ((1, 3),)), (77, ((0, 1),)))))
    assert parts == ((own, ((1, 3),)),)
    assert leases.held(99) == [Held(9, 0, 1, ((0, 1), (3, 5)))]
    leases.revoke(Revoked(None, ((9, ((0, 1), (3, 5))),)))
    assert len(leases) == 0


def test_a_return_renames_what_is_kept_and_tells_what_is_lost() -> None:
    leases = Leases()
    one, two, three = (leases.add(part(n, 10 * n, 10 * n + 5), 0.0) for n in (1, 2, 3))
    kept = [Kept(1, 101, ((10, 15),)), Kept(2, 102, ((20, 22),)), Kept(55, 103, ((0, 1),))]
    lost, partly = leases.keep(kept)
    assert lost == [three]
    assert partly == [(two, ((22, 25),))]
    assert [leases.number_of(own) for own in (one, two, three)] == [101, 102, 0]
    assert leases.held(99) == [Held(101, 0, 1, ((10, 15),)), Held(102, 0, 1, ((20, 22),))]
    assert leases.translate(claim(three, (30, 31))).lease_id == 3
    again, _ = leases.keep([Kept(101, 7, ((10, 15),))])
    assert again == [two]
    assert leases.number_of(one) == 7


def test_a_number_that_the_server_uses_again_is_another_lease() -> None:
    leases = Leases()
    old = leases.add(part(1, 0, 5), 0.0)
    leases.keep([Kept(1, 2, ((0, 5),))])
    new = leases.add(part(1, 5, 9), 0.0)
    assert old != new
    assert (leases.number_of(old), leases.number_of(new)) == (2, 1)
    leases.drop(old)
    assert leases.own_number(1) == new


def test_old_leases_that_nobody_renews_are_forgotten() -> None:
    leases = Leases()
    owns = [leases.add(part(n, n, n + 1), float(n)) for n in range(1, LEASES_OLD + 20)]
    leases.touch(owns[1], 1e9)
    leases.prune(10.0)
    assert leases.number_of(owns[0]) == 0
    assert leases.number_of(owns[1]) != 0
    assert len(leases) >= LEASES_OLD


def test_only_so_many_are_named() -> None:
    leases = Leases()
    for n in range(1, 10):
        leases.add(part(n, n, n + 1), 0.0)
    assert [row.lease_id for row in leases.held(3)] == [1, 2, 3]


def test_claims_in_numbers() -> None:
    assert count_of(claim(1, (0, 3), (5, 6))) == 4
    assert count_of(claim(1, (0, 9), mask=0b1011)) == 3
    assert list(offsets_of(claim(1, (4, 9), mask=0b1011))) == [4, 5, 7]
    assert as_ranges([5, 1, 2, 9]) == ((1, 3), (5, 6), (9, 10))
