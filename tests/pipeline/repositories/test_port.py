from penstock.pipeline.repositories.port import Committed, WriteId


def test_a_write_is_known_by_application_and_batch() -> None:
    assert WriteId("pms/1", 3) == ("pms/1", 3)
    assert Committed(3, {"ends": {"0": 5}}).source["ends"] == {"0": 5}
