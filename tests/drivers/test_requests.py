"""Questions to a broker are values, and the embedded driver answers every one."""

import pickle
from typing import get_args

from penstock.drivers import embedded
from penstock.drivers import requests as q
from penstock.vocabulary.policy import SubscriptionPolicy


def test_the_embedded_driver_answers_every_request() -> None:
    assert set(get_args(q.Request)) == set(embedded._HANDLERS)


def test_requests_travel() -> None:
    wanted = q.CreateSubscription("orders", "billing", SubscriptionPolicy(lease_s=5), "earliest")
    assert pickle.loads(pickle.dumps(wanted)) == wanted
    plan = q.PlanRanges("orders", "tables", "run-7", 10, None, {0: 3})
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert q.Redrive("t", "s", q.Filter(id="1"), 5, is_dry=True) != q.Redrive(
        "t", "s", q.Filter(), 5, is_dry=True
    )
