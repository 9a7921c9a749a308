"""Refusals of the Spark lane: codes of their own, and they cross processes."""

import pickle

import pytest

from penstock.pipeline.refusals import PipelineRefused
from penstock.pipeline.spark import refusals

KINDS = [
    refusals.SparkMissing, refusals.JavaMissing, refusals.JarsMissing, refusals.QueryFailed,
]  # fmt: skip


def test_every_refusal_has_a_code_of_its_own() -> None:
    assert len({kind.code for kind in KINDS}) == len(KINDS)
    assert all(issubclass(kind, PipelineRefused) for kind in KINDS[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_pickles(kind: type[Exception]) -> None:
    found = pickle.loads(pickle.dumps(kind("no Java")))
    assert (type(found), found.text) == (kind, "no Java")
