"""Every question of the vocabulary has an answer."""

from typing import get_args

import pytest

from penstock.broker.asking import HANDLERS, answer_request
from penstock.broker.broker import Broker
from penstock.journal.memory import MemoryDisk
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import UnknownTopic
from penstock.vocabulary.policy import TopicPolicy


def test_every_request_has_a_handler() -> None:
    assert set(get_args(q.Request)) == set(HANDLERS)


def test_an_answer_comes_once_it_is_durable_and_errors_are_raised() -> None:
    broker = Broker.open(MemoryDisk(), timers=False)
    try:
        assert answer_request(broker, q.CreateTopic("orders", 3, TopicPolicy())) is None
        assert answer_request(broker, q.DescribeTopic("orders"))["partitions"] == 3
        with pytest.raises(UnknownTopic):
            answer_request(broker, q.DescribeTopic("parcels"))
    finally:
        broker.close()
