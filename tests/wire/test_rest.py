import json
from http import HTTPStatus

import pytest

from penstock.vocabulary.errors import (
    AckRefused,
    Draining,
    PenstockError,
    UnknownTopic,
    catalogue,
)
from penstock.wire.rest import REASONS, STATUSES, TITLES, Refused, problem, status_of


@pytest.mark.parametrize("code", sorted(catalogue()))
def test_every_error_has_a_status_and_a_problem(code: str) -> None:
    error = catalogue()[code]("what happened")
    status, body, _ = problem(error)
    said = json.loads(body)
    assert 400 <= status < 600
    assert status in REASONS
    assert said["code"] == code
    assert said["status"] == status
    assert said["detail"] == "what happened"
    assert said["title"].endswith(".")


def test_the_table_names_no_code_that_does_not_exist() -> None:
    assert set(STATUSES) <= set(catalogue())


@pytest.mark.parametrize("code", sorted(TITLES))
def test_codes_of_http_are_not_those_of_the_broker(code: str) -> None:
    assert code not in catalogue()


def test_a_code_without_a_line_has_the_status_of_its_family() -> None:
    class New(UnknownTopic):
        code = "brand-new"

    try:
        assert status_of(New("x")) == 400
    finally:
        del New
        import gc  # noqa: PLC0415 - the class must leave the catalogue again

        gc.collect()


def test_what_may_be_tried_again_says_when() -> None:
    _, _, headers = problem(Draining("x"))
    assert headers["retry-after"] == "1"


def test_details_of_an_error_are_told() -> None:
    _, body, _ = problem(AckRefused("x", refused=[("t", 0, 1, "why")], status="mine"))
    said = json.loads(body)
    assert said["refused"] == [["t", 0, 1, "why"]]
    assert said["status"] == 409


def test_details_that_json_cannot_hold_are_shown_as_text() -> None:
    _, body, _ = problem(PenstockError("x", odd=object()))
    assert json.loads(body)["odd"].startswith("<object")


def test_an_unknown_error_tells_nothing_about_the_inside() -> None:
    status, body, _ = problem(RuntimeError("secret path"))
    assert status == 500
    assert b"secret" not in body


def test_a_refusal_carries_its_headers() -> None:
    refused = Refused(405, "method-not-allowed", "no", allow="GET")
    status, _, headers = problem(refused)
    assert (status, headers) == (405, {"allow": "GET"})


def test_reasons_are_those_of_the_standard() -> None:
    renamed = {413, 414, 422}  # older Pythons have older words
    for status, reason in REASONS.items():
        if status not in renamed:
            assert HTTPStatus(status).phrase == reason
