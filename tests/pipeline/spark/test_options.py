"""Options of the Spark source: every one checked, every error names it."""

import pytest

from penstock.pipeline.spark import options
from penstock.vocabulary.errors import InvalidArgument, Unsupported

LEAST = {"url": "file:./data", "topic": "orders"}


def test_defaults() -> None:
    found = options.parse(LEAST)
    assert found.emit == options.BODIES
    assert found.start == "earliest"
    assert found.rows_max == options.ROWS_DEFAULT
    assert found.reports


def test_kafka_is_left_to_sparks_own_connector() -> None:
    with pytest.raises(Unsupported, match=r"use format\('kafka'\), or `penstock pipeline run`"):
        options.parse(LEAST | {"url": "kafka://h1"})


def test_names_come_in_any_case_as_spark_gives_them() -> None:
    found = options.parse(LEAST | {"MAXROWSPERBATCH": "7", "startingoffsets": '{"0": 17}'})
    assert (found.rows_max, found.start) == (7, {0: 17})


def test_a_dataset_means_typed_columns() -> None:
    assert options.parse(LEAST | {"dataset": "pms"}).emit == options.TYPED


@pytest.mark.parametrize(
    ("given", "takes_schema"),
    [
        ({}, True),
        ({"emit": "typed", "mode": "failfast"}, True),
        ({"emit": "bodies"}, False),
        ({"emit": "ranges"}, False),
        ({"dataset": "pms"}, False),
    ],
)
def test_a_schema_may_be_given_where_nothing_else_says_the_columns(
    given: dict[str, str], takes_schema: bool
) -> None:
    found = options.parse(LEAST | given)
    assert found.takes_schema is takes_schema
    assert found.mode == ("FAILFAST" if "mode" in given else None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": ""}, "needs the option 'topic'"),
        ({"subscribtion": "x"}, "no option 'subscribtion'; did you mean 'subscription'"),
        ({"zzz": "x"}, "no option 'zzz'; known: url"),
        ({"maxRowsPerBatch": "0"}, "option maxRowsPerBatch must be a whole number from 1 on"),
        ({"emit": "rows"}, "option emit must be one of bodies, ranges, typed, not 'rows'"),
        ({"emit": "bodies", "dataset": "pms"}, "option dataset goes with emit=typed"),
        ({"dataset": "pmss"}, "no dataset 'pmss'; did you mean 'pms'"),
        ({"startingOffsets": "soon"}, "option startingOffsets: 'soon' must be"),
        ({"startingOffsets": '{"0": -1}'}, "option startingOffsets"),
        ({"mode": "strict"}, "option mode must be one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"progress": "maybe"}, "option progress must be one of spark, caller"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said.replace("(", r"\(")):
        options.parse(LEAST | given)


def test_a_start_may_be_a_time() -> None:
    assert options.starting("1700000000.5") == 1700000000.5
