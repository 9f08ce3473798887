"""What the relay promises when something fails, line by line, and the tests that hold it to that."""

from importlib import import_module
from pathlib import Path

import pytest

PROMISES = {
    "next hop down: 451, and nothing is kept": [
        "test_next_hop.test_a_next_hop_that_is_down",
        "test_next_hop.test_a_next_hop_that_goes_down_while_connections_to_it_are_kept",
        "test_machine.test_names_that_do_not_resolve",
        "test_names.test_a_next_hop_is_found_by_its_name",
        "test_names.test_a_name_server_that_does_not_answer",
        "test_names.test_a_name_server_that_is_dead",
        "test_names.test_clients_that_wait_for_a_silent_name_server_hold_up_nothing_else",
        "test_names.test_a_relay_ends_while_a_name_server_is_silent",
    ],
    "next hop slow or broken off: 451, and nothing is kept": [
        "test_next_hop.test_a_next_hop_that_ends_the_conversation",
        "test_next_hop.test_a_next_hop_that_breaks_off_at_each_byte_that_it_says",
        "test_next_hop.test_a_next_hop_that_breaks_off_at_each_byte_that_it_hears",
        "test_next_hop.test_a_next_hop_that_has_taken_the_message_and_cannot_say_so",
        "test_next_hop.test_a_next_hop_that_is_slow_within_the_limits_gets_its_mail",
        "test_next_hop.test_a_next_hop_that_does_not_read",
        "test_next_hop.test_a_next_hop_that_talks_nonsense",
        "test_next_hop.test_a_next_hop_that_says_250_before_it_has_the_message",
        "test_next_hop.test_a_next_hop_that_says_250_twice",
        "test_next_hop_tls.test_tls_that_fails",
        "test_next_hop_tls.test_tls_that_is_not_offered",
        "test_next_hop_tls.test_a_certificate_of_somebody_else",
        "test_next_hop_tls.test_tls_that_works",
    ],
    "next hop refuses: its reply, verbatim": [
        "test_next_hop.test_a_refusal_comes_back_verbatim",
        "test_next_hop.test_a_next_hop_that_says_421_in_mid_session",
        "test_next_hop.test_one_recipient_of_three_is_refused",
    ],
    "cannot parse, tokenise, score: delivered as unsure, and the header says so": [
        "test_machine.test_a_mail_that_cannot_be_judged_is_delivered_as_unsure",
        "test_machine.test_a_mail_that_cannot_be_marked_stays_with_the_client",
        "test_machine.test_a_mail_that_cannot_be_journalled_is_delivered_and_the_client_told",
    ],
    "database locked: delivered, judged from memory": [
        "test_locked.test_a_database_that_is_locked_for_seconds",
        "test_locked.test_a_database_that_is_locked_at_the_start",
        "test_locked.test_a_database_that_is_locked_for_a_minute",
        "test_database.test_two_daemons_on_one_database",
    ],
    "database full or read-only: delivered, judged from memory": [
        "test_disk.test_a_disk_that_is_full_under_the_database",
        "test_disk.test_a_disk_that_is_full_under_the_maildir_leaves_the_mail_with_the_client",
        "test_disk.test_a_disk_that_turns_read_only_under_the_database",
        "test_disk.test_a_file_system_that_is_read_only_at_the_start_is_refused_in_one_line",
        "test_disk.test_a_database_that_becomes_read_only",
        "test_disk.test_a_database_that_may_not_be_written_is_refused_at_the_start_in_one_line",
    ],
    "database corrupt: delivered, judged from memory": [
        "test_database.test_pages_that_are_overwritten",
        "test_database.test_a_schema_that_is_behind_is_migrated_at_the_start",
        "test_database.test_a_schema_that_is_ahead_is_refused_at_the_start_and_left_alone",
        "test_database.test_tables_that_another_version_changes_under_a_running_relay",
    ],
    "database gone: delivered, judged from memory": [
        "test_database.test_a_database_that_is_deleted",
        "test_database.test_a_database_that_was_away_is_followed_again",
    ],
    "too large to scan: passed, and the header says so": [
        "test_machine.test_a_mail_that_is_too_large_to_scan_passes_and_says_so",
    ],
    "too large to relay: 552 at MAIL when SIZE says so, else after the dot": [
        "test_machine.test_a_mail_that_is_too_large_to_relay_hears_552",
    ],
    "too many connections: 421": [
        "test_clients.test_more_connections_than_allowed_hear_421_at_once",
        "test_machine.test_file_descriptors_at_their_limit",
        "test_machine.test_the_log_at_the_limit_of_descriptors_stays_readable",
    ],
    "too slow: 421": [
        "test_clients.test_a_client_that_falls_silent_is_told_so",
        "test_clients.test_a_command_of_one_byte_a_second_meets_the_idle_limit",
        "test_clients.test_a_client_that_never_reads_loses_its_place_and_holds_up_nobody",
    ],
    "too many errors: 421": ["test_clients.test_a_client_with_too_many_errors_hears_421"],
    "SIGTERM: running transactions finish, new ones 421, then exit 0": [
        "test_kills.test_sigterm_lets_a_transaction_finish_and_turns_a_new_one_away",
        "test_kills.test_a_signal_after_the_dot",
        "test_kills.test_a_next_hop_that_thinks_longer_than_the_drain_time_does_not_keep_the_relay_from_ending",
        "test_kills.test_a_signal_that_comes_again_and_again_does_not_cut_the_end_short",
    ],
    "kill -9, power loss: the client has no 250 and sends again; no half-written learn": [
        "test_kills.test_kill_9_before_the_dot_leaves_the_message_with_the_client",
        "test_kills.test_a_signal_after_the_dot",
        "test_strikes.test_a_signal_during_a_learn_leaves_no_half_of_it",
        "test_strikes.test_a_signal_during_a_batch_of_the_journal_loses_no_mail",
        "test_strikes.test_a_signal_during_a_migration_leaves_the_old_schema_or_the_new",
        "test_strikes.test_kill_9_during_a_training_loses_no_batch_that_was_done",
        "test_strikes.test_kill_9_while_a_maildir_is_written_leaves_no_half_mail",
        "test_database.test_a_copy_of_a_database_in_use_is_whole",
    ],
    "memory runs out: 4xx, and only for what does not fit": ["test_machine.test_memory_at_its_limit"],
    "the clock jumps: nothing happens": ["test_machine.test_a_clock_that_jumps"],
    "the client breaks off: what has no dot is nowhere": [
        "test_clients.test_a_client_that_breaks_off_at_each_byte",
        "test_clients.test_a_client_that_breaks_off_after_the_dot",
        "test_clients.test_a_client_that_half_closes_after_the_dot_still_gets_its_answer",
        "test_clients.test_a_client_that_sends_its_mail_drop_by_drop",
    ],
}


OWN = {"test_promises", "test_account"}
"""Files about the harness itself."""


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_its_tests(promise: str) -> None:
    for name in PROMISES[promise]:
        module, _, test = name.partition(".")
        assert callable(getattr(import_module(f"tests.faults.{module}"), test, None)), name


def test_each_test_stands_below_a_promise() -> None:
    files = [file.stem for file in Path(__file__).parent.glob("test_*.py") if file.stem not in OWN]
    tests = {
        f"{file}.{name}"
        for file in files
        for name in vars(import_module(f"tests.faults.{file}"))
        if name[:5] == "test_"
    }
    assert tests == {test for tests in PROMISES.values() for test in tests}
