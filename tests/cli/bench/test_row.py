from penstock.cli.bench.row import nothing_lost


def test_one_lost_message_is_a_miss() -> None:
    assert nothing_lost("x", 0).verdict == "PASS"
    assert nothing_lost("x", 1).verdict == "MISS"
    assert nothing_lost("x", 1).unit == "count", "the command fails for it even when not strict"
