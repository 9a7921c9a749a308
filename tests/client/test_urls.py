import pytest

from penstock.client.urls import check_url
from penstock.vocabulary.errors import InvalidArgument


def test_a_url_is_judged_without_opening_anything() -> None:
    assert check_url("penstock://h:1") == "penstock"
    with pytest.raises(InvalidArgument, match="did you mean 'penstock:"):
        check_url("penstok://h:1")
