"""Everything together: what a driver's test module inherits."""

from tests.contracts.suites.administration import AdministrationSuite
from tests.contracts.suites.dead_letters import DeadLetterSuite
from tests.contracts.suites.delivering import DeliveringSuite
from tests.contracts.suites.publishing import PublishingSuite
from tests.contracts.suites.settling import SettlingSuite
from tests.contracts.suites.special import SpecialSuite


class DriverSuite(
    PublishingSuite,
    DeliveringSuite,
    SettlingSuite,
    DeadLetterSuite,
    SpecialSuite,
    AdministrationSuite,
):
    """The contract of a URL. A subclass has a fixture `world`."""


CELLS = {
    "kept": "test_messages_are_kept_while_there_is_no_subscription",
    "held": "test_a_message_is_held_until_every_subscription_acked_it",
    "shared": "test_consumers_of_one_subscription_share_the_messages",
    "nack_delay": "test_a_nack_brings_the_message_back_after_its_delay",
    "attempts": "test_a_message_nobody_finishes_in_time_is_a_dead_letter_too",
    "lease_moves": "test_a_lease_that_ends_moves_the_message_to_another_consumer",
    "extend": "test_extending_keeps_a_message_beyond_its_lease",
    "key_shared": "test_key_shared_is_given_or_refused_by_name",
    "multicast": "test_multicast_gives_every_consumer_everything",
    "dead_letters": "test_a_rejected_message_is_a_dead_letter_with_its_story",
    "dedup": "test_a_given_id_is_stored_once",
    "stale_ack": "test_an_ack_that_comes_too_late_is_refused_or_harmless",
    "transactions": "test_transactions",
    "priority": "test_priority",
    "deliver_at": "test_deliver_at",
    "expires_at": "test_expires_at",
    "reader": "test_a_reader",
    "patterns": "test_a_pattern_covers_topics_that_come_later",
    "headers": "test_text_json_empty_and_absent_bodies_stay_apart",
    "partitions": "test_partitions",
    "replay": "test_a_new_subscription_starts_where_it_is_asked_to",
}
"""Capability → the test of its cell, in every column. That a refused one is refused when a program
starts is `test_every_cell_may_be_needed_and_is_given_or_refused_by_name`."""
