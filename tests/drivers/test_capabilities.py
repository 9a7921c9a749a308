"""The matrix as data."""

import msgspec
import pytest

from penstock.drivers import capabilities
from penstock.drivers.capabilities import LEVELS, MATRIX, ROWS, SCHEMES, Support
from penstock.drivers.embedded import FILE
from penstock.drivers.port import Capabilities
from penstock.vocabulary.errors import Unsupported
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import OnDuplicate, TopicPolicy


def test_the_matrix_has_every_cell() -> None:
    assert tuple(MATRIX) == SCHEMES
    assert LEVELS.keys() == MATRIX.keys()
    for scheme, cells in MATRIX.items():
        assert cells.keys() == ROWS.keys(), scheme


@pytest.mark.parametrize(
    ("scheme", "can"),
    [
        ("kafka", capabilities.KAFKA),
        ("mqtt", capabilities.MQTT),
        ("nats", capabilities.NATS),
        ("redis", capabilities.REDIS),
        ("pubsub", capabilities.PUBSUB),
        ("kubemq", capabilities.KUBEMQ),
        ("penstock", FILE),
    ],
)
def test_the_flags_of_a_driver_agree_with_its_column(scheme: str, can: Capabilities) -> None:
    def has(row: str) -> bool:
        return MATRIX[scheme][row].support is not Support.REFUSED

    assert can.has_dedup == has("dedup")
    assert can.has_delay == has("deliver_at")
    assert can.has_expiry == has("expires_at")
    assert can.has_patterns == has("patterns")
    assert can.has_priority == has("priority")
    assert can.has_readers == has("reader")
    assert can.has_transactions == has("transactions")
    assert can.has_replay == has("replay")
    assert can.has_headers == has("headers")
    assert can.has_dead_letters == has("dead_letters")
    assert capabilities.cells_of(can) == MATRIX[scheme]
    assert (Kind.KEY_SHARED in can.kinds) == has("key_shared")
    assert (Kind.MULTICAST in can.kinds) == has("multicast")
    if scheme != "mqtt":  # whose QoS 2 is a promise of each hop, not of a unit
        assert (2 in can.qos) == has("transactions")


def test_a_url_may_lack_what_its_kind_has() -> None:
    can = msgspec.structs.replace(capabilities.MQTT, has_expiry=False, kinds=(Kind.SHARED,))
    cells = capabilities.cells_of(can)
    assert {row for row in ROWS if cells[row] != MATRIX["mqtt"][row]} == {"expires_at", "multicast"}
    assert cells["expires_at"].text == "R, version 5; 3.1.1 refused"
    assert not capabilities.has(can, "expires_at")
    assert capabilities.has(can, "headers")


def test_a_cell_is_text_for_people() -> None:
    assert MATRIX["redis"]["dedup"].text == "E, for 600 s"
    assert MATRIX["redis"]["shared"].text == "N"


def test_settings_of_a_topic_that_cannot_be_kept_are_refused_by_name() -> None:
    can = capabilities.REDIS
    capabilities.check_topic_policy(can, 1, TopicPolicy(max_age_s=5), ("max_age_s",))
    with pytest.raises(Unsupported, match="redis: topics have one partition, not 3"):
        capabilities.check_topic_policy(can, 3, TopicPolicy(), ())
    policy = TopicPolicy(on_duplicate=OnDuplicate.REPLACE)
    with pytest.raises(Unsupported, match="on_duplicate is not available on redis"):
        capabilities.check_topic_policy(can, 1, policy, ("max_age_s",))
