"""Questions to a broker are values."""

import pickle

from penstock.vocabulary import requests as q
from penstock.vocabulary.policy import SubscriptionPolicy


def test_requests_travel() -> None:
    wanted = q.CreateSubscription("orders", "billing", SubscriptionPolicy(lease_s=5), "earliest")
    assert pickle.loads(pickle.dumps(wanted)) == wanted
    plan = q.PlanRanges("orders", "tables", "run-7", 10, None, {0: 3})
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert q.Redrive("t", "s", q.Filter(id="1"), 5, is_dry=True) != q.Redrive(
        "t", "s", q.Filter(), 5, is_dry=True
    )
