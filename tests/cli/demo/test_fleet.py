import pytest

from penstock.cli.demo import fleet
from penstock.gateway.samples import from_json
from penstock.pipeline.datasets import finding
from penstock.pipeline.datasets.raw import raw_batch


def bytes_of(body: object) -> bytes:
    assert isinstance(body, bytes)
    return body


@pytest.mark.parametrize("name", ["pms", "mppt", "inverter"])
def test_what_it_calls_wrong_is_refused_and_the_rest_is_right(name: str) -> None:
    dataset = finding.find(name)
    seen = wrong = 0
    for post in fleet.posts(60):
        if post.dataset != name:
            continue
        messages = from_json(dataset, post.body, {})
        found = dataset.validate(raw_batch([bytes_of(each.body) for each in messages]))
        assert len(messages) == post.readings
        assert len(found.refused) == post.wrong.total()
        seen += len(messages)
        wrong += len(found.refused)
    assert 0 < wrong < seen * 0.05


def test_the_same_number_gives_the_same_day() -> None:
    assert list(fleet.posts(3)) == list(fleet.posts(3))
    assert list(fleet.posts(3)) != list(fleet.posts(3, seed=8))


def test_no_reading_comes_twice() -> None:
    keys = [(post.dataset, key) for post in fleet.posts(600) for key in post.keys.elements()]
    assert len(keys) == len(set(keys))
