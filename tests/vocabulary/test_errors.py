"""The catalogue of errors: stable codes, policy as data, and texts that survive a pickle."""

import pickle

import pytest

from penstock.vocabulary import errors
from penstock.vocabulary.errors import PenstockError, catalogue

CODES = {
    "ack-refused", "already-settled", "body-does-not-fit", "closed", "dead-letter-full",
    "disk-full", "draining", "error", "invalid-argument", "invalid-name", "malformed-batch",
    "not-a-store", "not-leased", "position-not-held", "protocol", "publish-failed",
    "publisher-fenced", "publisher-forgotten", "record-damaged", "storage", "store-damaged",
    "store-failed", "store-in-use", "store-too-new", "subscription-conflict",
    "subscription-in-use", "too-large", "topic-exists", "topic-in-use", "unavailable",
    "unknown-subscription", "unknown-topic", "unsupported", "usage", "reader-fenced",
    "not-planned", "held-by-reader",
}  # fmt: skip
"""What programs may have written down: a code is never renamed and never goes away."""

EVERY = sorted(
    (kind for kind in catalogue().values() if kind.__module__ == errors.__name__),
    key=lambda kind: kind.code,
)


def test_no_code_that_was_ever_given_out_is_missing() -> None:
    assert set(catalogue()) >= CODES


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.code)
def test_every_error_pickles_with_text_and_details(kind: type[PenstockError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what happened", refused=[1], lowest="0:3")))
    assert type(copy) is kind
    assert str(copy) == "what happened"
    assert copy.details == {"refused": [1], "lowest": "0:3"}


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.code)
def test_every_error_has_a_code_of_its_own(kind: type[PenstockError]) -> None:
    assert kind is PenstockError or "code" in vars(kind)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.code)
def test_exactly_what_is_unavailable_may_be_tried_again(kind: type[PenstockError]) -> None:
    assert kind.retryable == issubclass(kind, errors.Unavailable)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.code)
def test_exactly_wrong_bytes_close_a_connection(kind: type[PenstockError]) -> None:
    assert kind.closes_connection == issubclass(kind, errors.ProtocolError)


@pytest.mark.parametrize(
    ("kind", "branch"),
    [
        (errors.TooLarge, errors.UsageError),
        (errors.NotLeased, errors.UsageError),
        (errors.PublisherFenced, errors.UsageError),
        (errors.MalformedBatch, errors.ProtocolError),
        (errors.DiskFull, errors.Unavailable),
        (errors.HeldByReader, errors.Unavailable),
        (errors.ReaderFenced, errors.UsageError),
        (errors.DeadLetterFull, errors.Unavailable),
        (errors.StoreInUse, errors.StorageError),
        (errors.RecordDamaged, errors.StorageError),
        (errors.Unsupported, PenstockError),
    ],
)
def test_an_error_stands_on_its_branch(
    kind: type[PenstockError], branch: type[PenstockError]
) -> None:
    assert issubclass(kind, branch)


def test_two_errors_with_one_code_are_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors.DiskFull, "code", "draining")
    with pytest.raises(AssertionError, match="share the code draining"):
        catalogue()


def test_refused_acks_are_listed() -> None:
    refused = [("orders", 0, 7, "handed out again")]
    assert errors.AckRefused("", refused=refused).refused == refused
    assert errors.AckRefused("").refused == []


def test_a_failed_publish_tells_the_three_fates_apart() -> None:
    error = errors.PublishFailed("", confirmed=[0], refused=[1, 2], unknown=[3])
    assert (error.confirmed, error.refused, error.unknown) == ([0], [1, 2], [3])


def test_a_failed_publish_without_details_claims_nothing() -> None:
    error = errors.PublishFailed("")
    assert (error.confirmed, error.refused, error.unknown) == ([], [], [])
