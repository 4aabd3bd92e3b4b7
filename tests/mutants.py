"""Plant each fault, and demand that the tests which are there for it fail: `make mutants`.

    make mutants
    make mutants ARGS="no-fence reap-by-age"

A fault that all of its tests survive, or that cannot be planted any more, makes the exit status 1.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from example_project.postgres import EmbeddedPostgres, EmbeddedPostgresError
from tests.databases import SETTINGS
from tests.plugin import URL_VARIABLE

ROOT = Path(__file__).parents[1]
VARIABLE = "PGJOBS_TEST_FAULT"
AT_A_TIME = 2
LONGEST = 150.0  # seconds for the tests of one fault
FAILED = 1  # pytest's status where tests ran and some failed

_ASYNC, _FENCING = "acceptance/test_async_handlers.py::", "concurrency/test_fencing.py::"
_CLAIMS, _DEATHS = "db/test_claims.py::", "acceptance/test_supervisor_deaths.py::"
_TIMEOUTS, _ZOMBIES = "acceptance/test_timeouts.py::", "acceptance/test_zombies.py::"
_ATOMIC, _TRANSACTIONS = "db/test_atomic.py::", "db/test_transactions.py::"
_POLICIES, _RETRIES = "unit/test_retries.py::", "db/test_retry_options.py::"
_UNIQUE, _RIVALS = "db/test_unique.py::", "concurrency/test_unique.py::"
_MAINTENANCE = "concurrency/test_maintenance.py::"
_CANCELLING = "acceptance/test_cancelling.py::"
_SCHEDULES, _LIMITS = "db/test_schedules.py::", "concurrency/test_limits.py::"
_IDLE = "test_an_idle_worker_makes_one_statement_a_round_whatever_is_declared_and_delayed"
_EXPLAIN, _COMMAND = "db/test_explain.py::", "db/test_pgjobs_command.py::"
_PRODUCERS, _ROLES = "db/test_producers.py::", "db/test_worker_roles.py::"
_DRAINING = "acceptance/test_draining_view.py::"
_DENIALS, _KEYED = "admin/test_denials.py::", "admin/test_keyed_jobs.py::"
_FILTERS, _HISTORIES = "admin/test_filters.py::", "admin/test_histories.py::"
_CHOICES, _ASSERTING = "db/test_drain_choices.py::", "db/test_asserting.py::"
_IMMEDIATE, _TRAVEL = "db/test_immediate.py::", "db/test_travel.py::"
_LETTERS, _MESSAGES = "pgmq/test_pgmq_command.py::", "pgmq/test_admin.py::"
_CONSUMERS = "pgmq/test_consumers.py::"
_FUNCTIONS, _CALLS = "db/test_functions.py::", "concurrency/test_functions.py::"
_MODEL = "model/test_state_machine.py::"
_FAILOVER = (
    "acceptance/test_failover.py::"
    "test_workers_leave_a_primary_that_is_read_only_now_and_stays_reachable"
)
_INTERLEAVINGS = (
    "concurrency/test_interleavings.py::test_two_writers_leave_what_one_after_the_other_leaves"
)

CAUGHT_BY: dict[str, tuple[str, ...]] = {
    # statements
    "no-fence": (f"{_FENCING}test_a_write_with_an_older_token_changes_nothing",),
    "fence-without-claims": (f"{_FENCING}test_a_write_with_an_older_token_changes_nothing",),
    "claim-in-a-join": (f"{_FENCING}test_a_claim_takes_as_many_as_it_asked_for_whatever_the_plan",),
    "claim-waits": (
        f"{_CLAIMS}test_what_one_session_is_claiming_another_passes_over_without_waiting",
    ),
    "claim-counts-no-attempt": (f"{_CLAIMS}test_a_claim_tells_what_the_row_says",),
    "claim-after-death": (f"{_CLAIMS}test_a_worker_whose_death_is_recorded_claims_nothing",),
    "claim-before-its-time": (
        f"{_CLAIMS}test_a_job_of_the_future_is_not_claimed_however_high_its_priority",
    ),
    "pauses-are-ignored": (f"{_CLAIMS}test_a_paused_queue_gives_nothing_until_it_is_resumed",),
    "pauses-wait-for-a-look": (
        "db/test_pauses.py::test_a_pause_holds_for_a_worker_that_is_at_work_on_the_queue",
    ),
    "settle-waits": (_INTERLEAVINGS,),
    "release-keeps-attempt": (f"{_CLAIMS}test_a_released_job_is_claimed_again_with_another_token",),
    "any-settle-was-ours": (
        "db/test_settle.py::test_an_outcome_like_that_of_another_worker_is_dropped",
        "db/test_settle.py::test_an_outcome_that_comes_after_the_reap_is_dropped",
    ),
    "orphans-stay": (
        f"{_CLAIMS}test_orphans_are_the_rows_that_a_worker_does_not_know_that_it_has",
    ),
    "reap-by-id-only": (f"{_FENCING}test_of_two_reapers_one_takes_the_job",),
    "reap-waits": (_INTERLEAVINGS,),
    "reap-charges-all": (f"{_DEATHS}test_only_what_had_started_is_charged",),
    "reap-charges-nothing": (f"{_DEATHS}test_only_what_had_started_is_charged",),
    "reap-by-age": (
        "acceptance/test_exactly_once.py::test_a_slow_job_of_a_living_worker_is_never_reaped",
    ),
    "reap-registered-only": (
        f"{_MAINTENANCE}test_a_running_row_without_a_worker_is_lost_once_it_is_older_than_the_lease",
    ),
    "dead-beats": (f"{_FENCING}test_a_heartbeat_revives_nobody",),
    "deaths-without-a-look": (f"{_FENCING}test_a_heartbeat_on_its_way_saves_its_worker",),
    "prune-waits": (f"{_MAINTENANCE}test_pruning_passes_a_row_that_somebody_holds",),
    # what plain SQL is given
    "functions-know-no-fence": (f"{_CALLS}test_of_two_that_reap_at_once_one_takes_the_job",),
    "functions-reap-the-living": (
        f"{_FUNCTIONS}test_it_records_deaths_and_reaps_every_kind_of_lost_job",
    ),
    "functions-miss-heartbeats": (f"{_CALLS}test_a_heartbeat_on_its_way_saves_its_worker",),
    "functions-prune-too-early": (f"{_FUNCTIONS}test_its_defaults_are_those_of_the_settings",),
    "functions-prune-what-is-kept": (
        f"{_FUNCTIONS}test_it_deletes_what_is_old_enough_by_its_arguments",
    ),
    "functions-are-not-called": (
        f"{_FUNCTIONS}test_the_reaper_calls_the_functions_and_no_statement_beside_them",
    ),
    "delayed-jobs-are-told": (
        "db/test_notify_on_insert.py::test_nothing_is_said_of_delayed_jobs_nor_of_what_does_not_wait",
    ),
    # enqueue
    "wake-ups-in-the-transaction": ("db/test_notify.py",),
    "enqueued-outside": ("acceptance/test_transaction_truth.py",),
    "verbs-wait": (_INTERLEAVINGS,),
    # unique jobs
    "started-keys-are-held": (f"{_UNIQUE}test_until_start_a_key_is_held_until_the_claim",),
    "running-jobs-are-replaced": (
        f"{_UNIQUE}test_replace_until_finished_leaves_a_running_job_as_it_is_and_returns_it",
    ),
    "stand-ins-start-early": (
        f"{_RIVALS}test_until_start_a_job_that_stands_for_others_does_not_start_before_they_are_committed",
    ),
    "conflicts-are-errors": (
        f"{_RIVALS}test_a_job_that_is_not_committed_is_waited_for_and_believed_only_then",
    ),
    "finders-lock": (
        f"{_RIVALS}test_who_finds_a_job_waits_for_nobody_who_writes_it_nor_they_for_whom_it_was_found",
    ),
    "batches-keep-a-part": (
        f"{_RIVALS}test_until_start_every_enqueue_that_is_committed_is_followed_by_a_start",
    ),
    "keys-are-taken-in-any-order": (
        f"{_RIVALS}test_of_many_who_enqueue_the_same_keys_each_is_told_of_the_one_job_there_is",
    ),
    "freed-keys-come-last": (
        "db/test_unique.py::test_a_batch_keeps_its_order_where_periods_are_over",
    ),
    # limits
    "gates-stand-open": (
        f"{_LIMITS}test_what_one_session_is_claiming_another_counts_though_it_cannot_see_it",
    ),
    "gates-lock-as-they-count": (
        f"{_LIMITS}test_what_one_session_is_claiming_another_counts_though_it_cannot_see_it",
    ),
    "each-counts-its-own": (
        "db/test_limits.py::test_slots_of_a_dead_worker_come_back_with_the_reaper",
    ),
    "starts-cost-nothing": ("db/test_rates.py::test_starts_are_spread_evenly_over_the_period",),
    "rates-save-up": (
        "db/test_rates.py::test_after_a_quiet_time_a_burst_may_start_at_once_and_never_more",
    ),
    "later-ones-overtake": (
        "db/test_ordered.py::test_one_that_waits_for_its_next_attempt_holds_the_later_ones_back",
    ),
    "locked-rows-are-waited-for": (
        f"{_LIMITS}test_rows_that_somebody_holds_hold_up_none_behind_them",
    ),
    "claims-lock-all-they-see": (f"{_LIMITS}test_a_claim_holds_no_row_but_those_that_it_takes",),
    "seats-know-no-queue": (
        "db/test_limits.py::test_the_free_slots_of_a_queue_go_to_its_keys_in_turn",
    ),
    "delayed-keys-are-due": (f"db/test_limits.py::{_IDLE}",),
    "limited-queues-are-due": (f"db/test_limits.py::{_IDLE}",),
    "stricter-kinds-are-passed-by": (
        "db/test_shared_keys.py::test_a_stricter_kind_starts_however_much_waits_behind_it",
        "db/test_shared_keys.py::test_it_does_so_where_each_queue_has_a_worker_of_its_own",
    ),
    "gates-are-entered-in-any-order": (
        f"{_LIMITS}test_claims_that_enter_the_same_gates_in_opposite_orders_do_not_deadlock",
    ),
    "old-rates-hold": ("db/test_rates.py::test_what_a_slow_rate_has_set_does_not_outlive_it",),
    "changed-rates-pay-for-all": (
        "db/test_rates.py::test_kinds_that_share_a_key_keep_to_their_rates_when_that_of_another_is_changed",
    ),
    "late-looks-cost-starts": (
        "db/test_rates.py::test_a_worker_that_looks_late_starts_as_many_as_if_it_had_been_in_time",
    ),
    "queues-are-ordered-before-a-join": (
        "db/test_limit_plans.py::test_a_look_at_a_key_that_is_held_up_reads_some_pages_of_each_queue",
    ),
    "statements-may-sort": (
        "db/test_limit_plans.py::test_a_look_reads_some_pages_of_each_lane_that_it_passes",
    ),
    "statements-are-compiled": (
        "db/test_isolation.py::test_the_workers_own_statements_are_never_compiled_and_go_by_the_order_of_indexes",
        "acceptance/test_poolers.py::test_what_a_worker_sets_is_set_for_its_own_statement",
    ),
    # handlers
    "stuck-is-retried-at-once": (
        f"{_TIMEOUTS}test_the_others_of_a_process_finish_before_it_is_replaced",
    ),
    "timeouts-are-losses": (
        f"{_TIMEOUTS}test_what_cannot_be_interrupted_has_its_process_replaced",
    ),
    "late-results-count": (
        f"{_TIMEOUTS}test_a_handler_that_catches_the_interruption_and_returns_has_failed",
    ),
    "interruption-is-an-exception": (
        f"{_TIMEOUTS}test_python_code_is_interrupted_and_its_worker_goes_on",
    ),
    "watch-waits-for-the-gil": (
        f"{_TIMEOUTS}test_what_cannot_be_interrupted_has_its_process_replaced[gil]",
    ),
    "tasks-share-a-context": (f"{_ASYNC}test_each_has_a_context_of_its_own",),
    "lanes-keep-transactions": (
        f"{_ASYNC}test_a_transaction_that_is_left_open_reaches_no_other_job",
    ),
    "a-lane-for-each": (f"{_ASYNC}test_the_orm_works_and_its_connections_are_few",),
    "any-kind-is-claimed": (
        f"{_ASYNC}test_async_jobs_run_while_every_thread_is_busy",
        f"{_ASYNC}test_sync_jobs_run_while_the_loop_is_full",
    ),
    "limits-wait-for-any-room": (
        f"{_ASYNC}test_what_has_limits_waits_only_for_room_of_its_own_sort",
    ),
    "calls-outlive-their-job": (
        f"{_TIMEOUTS}test_async_code_that_is_not_cancelled_has_its_process_replaced[query]",
    ),
    "the-loop-ends": (f"{_ASYNC}test_what_a_handler_raises_is_its_job_s_alone",),
    "threads-end-unnoticed": (
        "db/test_worker.py::test_an_error_that_ends_a_worker_ends_its_threads_and_connections",
    ),
    # transactions
    "atomic-is-ignored": (
        "acceptance/test_atomic_jobs.py::test_a_lease_that_is_lost_meanwhile_takes_the_writes_back",
    ),
    "lost-leases-commit": (f"{_ATOMIC}test_a_lost_lease_takes_the_writes_back",),
    "failures-keep-writes": (
        f"{_ATOMIC}test_an_error_takes_the_writes_back_and_is_left_for_the_pump",
    ),
    "broken-transactions-pass": (
        f"{_ATOMIC}test_a_transaction_that_the_handler_broke_is_a_failure_and_leaves_nothing",
    ),
    "lost-claims-count-nothing": (
        "acceptance/test_claim_by_transaction.py::test_a_lost_connection_is_a_failed_attempt",
    ),
    "lost-claims-are-anybodys": (
        f"{_TRANSACTIONS}test_a_job_whose_commit_was_refused_is_counted_before_another_thread_takes_it",
    ),
    "retake-of-any-claim": ("db/test_retake.py",),
    "retakes-without-an-answer-are-forgotten": (
        "acceptance/test_lost_answers.py::test_an_attempt_that_was_rolled_back_is_counted_all_the_same",
    ),
    "callbacks-undo": (
        f"{_ATOMIC}test_a_callback_that_fails_after_the_commit_is_logged_and_changes_nothing",
    ),
    # retries
    "snoozes-spend-attempts": (
        f"{_RETRIES}test_a_snooze_spends_no_attempt_and_is_no_error",
        "db/test_settle.py::test_a_snoozed_job_waits_by_the_databases_clock_and_its_attempt_is_given_back",
    ),
    "snoozes-are-failures": (f"{_RETRIES}test_a_job_can_be_snoozed_for_ever",),
    "snoozed-writes-are-kept": (
        f"{_RETRIES}test_what_the_handler_wrote_in_its_job_s_transaction_is_rolled_back",
    ),
    "named-delays-are-ignored": (f"{_RETRIES}test_a_retry_fails_the_attempt_and_names_its_delay",),
    "discards-are-retried": (f"{_RETRIES}test_a_discard_gives_up_at_once_for_its_reason",),
    "any-error-is-retried": (f"{_RETRIES}test_the_options_say_which_errors_are_retried",),
    "retry-on-wins": (f"{_POLICIES}test_which_errors_are_given_up",),
    "bad-policies-lose-jobs": (
        f"{_RETRIES}test_a_policy_that_fails_leaves_it_to_the_default_one_and_is_logged_once",
    ),
    "any-answer-is-a-delay": (
        f"{_POLICIES}test_what_a_function_says_that_is_no_delay_is_an_error",
    ),
    "failures-come-back-together": (
        f"{_RETRIES}test_a_thousand_jobs_that_fail_together_come_back_apart",
    ),
    # cancelling and progress
    "requests-wait-for-room": (
        f"{_CANCELLING}test_a_handler_that_looks_stops_soon_also_in_a_worker_that_is_full",
    ),
    "requests-reach-any-claim": (
        "db/test_relay.py::test_a_request_to_a_later_claim_is_not_passed_to_this_one",
    ),
    "progress-is-not-fenced": ("db/test_relay.py::test_progress_of_a_lost_lease_changes_nothing",),
    "progress-waits": (
        "db/test_relay.py::test_a_row_that_somebody_has_locked_is_left_and_no_other_waits_for_it",
    ),
    "cancellations-are-failures": (
        f"{_CANCELLING}test_async_handlers_are_cancelled_whether_they_take_a_context_or_not",
    ),
    "stops-are-retried": ("db/test_cancelling.py::test_a_handler_may_decide_so_itself",),
    "requests-beat-completions": (
        "db/test_cancelling.py::test_a_cancel_before_the_completion_is_a_request_and_the_completion_wins",
    ),
    "tidying-up-is-cancelled": (
        f"{_CANCELLING}test_async_handlers_are_cancelled_whether_they_take_a_context_or_not",
    ),
    # schedules
    "ticks-unlocked": (f"{_SCHEDULES}test_twelve_workers_make_one_job_for_each_tick",),
    "ticks-wait": (
        f"{_SCHEDULES}test_a_row_that_somebody_holds_is_passed_over_and_the_others_fire",
    ),
    "ticks-apart": (f"{_SCHEDULES}test_a_worker_killed_at_a_tick_leaves_it_to_another",),
    "ticks-by-the-host-s-clock": (f"{_SCHEDULES}test_the_clock_of_the_host_decides_nothing",),
    "the-past-counts-when-enabled": (
        f"{_SCHEDULES}test_what_was_off_does_not_fire_for_the_past_when_it_is_switched_on",
    ),
    # questions
    "probes-keep-the-lock": (f"{_EXPLAIN}test_it_keeps_no_lock_and_changes_nothing",),
    "whoever-leaves-serves": (f"{_EXPLAIN}test_a_job_whose_queue_no_living_worker_serves",),
    "lines-have-no-order": (f"{_EXPLAIN}test_the_line_is_that_in_which_a_worker_claims",),
    "every-kind-is-known": (f"{_EXPLAIN}test_a_job_of_a_kind_that_no_living_worker_knows",),
    "aliases-are-unknown": ("db/test_deploy_checks.py::test_an_alias_counts",),
    "secrets-are-shown": (f"{_COMMAND}test_show_masks_secrets_and_shows_all_else",),
    "writers-hold-nothing-back": (
        "db/test_doctor.py::test_a_transaction_that_has_written_and_idles_holds_it_too",
    ),
    # roles
    "what-has-no-rows-is-left": (
        "db/test_role_operations.py::test_what_row_security_says_nothing_of_is_taken_from_all_but_the_owner",
    ),
    "roles-start-without-a-look": (
        f"{_ROLES}test_a_worker_that_lacks_a_grant_says_which_and_starts_nothing",
        f"{_ROLES}test_a_worker_that_sees_nothing_says_so_instead_of_idling",
    ),
    "missing-policies-are-unseen": (
        f"{_ROLES}test_a_worker_that_sees_nothing_says_so_instead_of_idling",
    ),
    "producers-read-payloads": (
        f"{_PRODUCERS}test_a_producer_reads_no_payload_and_no_other_table",
    ),
    "producers-see-all-rows": (
        f"{_PRODUCERS}test_a_producer_sees_what_waits_or_holds_a_key_and_replacers_all",
    ),
    "policies-are-for-everybody": (
        f"{_PRODUCERS}test_whoever_has_no_policy_sees_and_writes_nothing_whatever_is_granted",
    ),
    "refused-enqueues-get-no-advice": (
        f"{_PRODUCERS}test_a_producer_needs_each_of_its_grants_and_is_told_which",
    ),
    # Django's tasks
    "any-module-is-imported": (
        "tasks/test_finding.py::test_nothing_outside_the_installed_apps_is_imported",
    ),
    "run-after-is-lost": (
        "tasks/test_backend.py::test_run_after_may_be_a_moment_or_a_time_from_the_enqueue",
    ),
    "signals-have-another-sender": (
        "tasks/test_signals.py::test_each_signal_is_sent_once_in_order_by_the_class_of_the_backend",
    ),
    "calls-fit-any-function": (
        "tasks/test_calls.py::test_a_call_without_names_that_does_not_fit_is_refused_before_any_sql",
    ),
    "any-declaration-counts": (
        "tasks/test_backend.py::test_a_task_cannot_be_declared_again_with_options_that_are_others_or_wrong",
    ),
    "tasks-of-classes-are-lost": (
        "tasks/test_finding.py::test_the_result_of_a_task_in_a_class_is_there_from_the_first_call",
    ),
    # pgmq
    "messages-have-no-fence": (
        f"{_CONSUMERS}test_an_acknowledgement_that_comes_too_late_is_told_and_changes_nothing",
        f"{_CONSUMERS}test_a_failure_that_comes_too_late_does_not_touch_the_message",
    ),
    "late-messages-commit": (
        f"{_CONSUMERS}test_an_atomic_handler_that_was_overtaken_keeps_nothing_and_says_so",
    ),
    "atomic-messages-end-outside": (
        f"{_CONSUMERS}test_an_atomic_handler_that_sets_a_rollback_has_failed",
    ),
    "messages-are-popped": (
        f"{_CONSUMERS}test_a_failure_is_written_into_the_headers_and_the_message_stays",
    ),
    "dead-letters-move-in-two-steps": (
        f"{_CONSUMERS}test_a_message_is_in_its_queue_until_it_is_among_the_dead_letters",
    ),
    "poison-is-read-for-ever": (
        f"{_CONSUMERS}test_a_message_that_was_read_too_often_is_not_handled_any_more",
        f"{_CONSUMERS}test_without_dead_letters_it_goes_to_the_archive_with_its_error",
    ),
    "visibility-is-not-prolonged": (
        f"{_CONSUMERS}test_a_message_is_hidden_for_as_long_as_its_handler_lives",
    ),
    "stops-keep-messages": (
        f"{_CONSUMERS}test_what_no_handler_has_begun_is_given_back_at_once_and_counts_for_nothing",
    ),
    "messages-given-back-count": (
        f"{_CONSUMERS}test_what_no_handler_has_begun_is_given_back_at_once_and_counts_for_nothing",
    ),
    "short-messages-are-waited-for": (
        f"{_CONSUMERS}test_a_slow_message_among_short_ones_holds_up_none",
    ),
    "notifications-are-not-heard": (
        f"{_CONSUMERS}test_a_notification_wakes_a_consumer_that_polls_seldom",
    ),
    "locked-messages-are-waited-for": (
        f"{_CONSUMERS}test_a_message_that_somebody_has_locked_holds_up_no_other",
    ),
    "locked-messages-are-lost": (
        f"{_CONSUMERS}test_a_message_that_somebody_has_locked_holds_up_no_other",
        f"{_CONSUMERS}test_a_failure_of_a_message_that_somebody_has_locked_is_recorded_later",
    ),
    "consumers-start-without-a-look": (
        f"{_CONSUMERS}test_without_pgmq_it_is_told_at_the_start",
        "pgmq/test_roles.py::test_a_schema_that_may_not_be_used_is_told_with_all_else",
    ),
    "dropped-queues-are-waited-for-by-drains": (
        f"{_CONSUMERS}test_a_queue_that_is_dropped_meanwhile_is_told_once_and_waited_for",
    ),
    "messages-count-for-nothing": (f"{_CONSUMERS}test_max_jobs_counts_messages",),
    "jobs-count-no-messages": (f"{_CONSUMERS}test_max_jobs_counts_jobs_and_messages_together",),
    # admin
    "refused-pages-are-bare-errors": (
        f"{_DENIALS}test_every_page_tells_a_role_with_nothing_what_it_lacks_and_which_command_prints_it",
        f"{_DENIALS}test_every_act_of_a_viewer_is_refused_with_a_message_where_it_came_from",
    ),
    "templates-are-refused-unheard": (
        f"{_DENIALS}test_a_page_names_the_one_grant_that_is_missing",
    ),
    "filters-know-the-code-alone": (
        f"{_FILTERS}test_queues_are_offered_wherever_their_name_stands",
    ),
    "filters-offer-all-names": (f"{_FILTERS}test_of_names_without_number_some_are_offered",),
    "acts-on-many-are-anybody-s": (
        f"{_HISTORIES}test_an_act_on_many_is_in_the_history_of_those_whose_filters_fit",
    ),
    "acts-on-many-leave-no-history": (
        f"{_HISTORIES}test_an_act_on_many_is_in_the_history_of_those_whose_filters_fit",
    ),
    "lanes-that-were-seen-are-all": (
        f"{_KEYED}test_of_more_lanes_than_are_looked_at_the_page_says_that_one_may_be_missing",
    ),
    "keyed-jobs-are-listed-by-key": (
        f"{_KEYED}test_of_few_keys_with_many_jobs_the_highest_priorities_are_listed",
    ),
    "what-was-not-counted-is-none": (f"{_KEYED}test_what_was_not_counted_is_not_told_as_none",),
    # what projects test with
    "drains-ignore-kinds": (f"{_CHOICES}test_kinds_are_names_or_job_types",),
    "jobs-put-off-stay-so": (f"{_CHOICES}test_jobs_of_other_kinds_are_left_exactly_as_they_were",),
    "drains-see-the-lanes-of-the-first-claim": (
        "db/test_drain.py::test_a_job_that_a_job_has_enqueued_runs_though_its_queue_and_priority_are_new",
    ),
    "drains-end-between-two-looks": (
        f"{_TRAVEL}test_a_job_that_becomes_due_between_two_looks_is_run",
    ),
    "callbacks-of-handlers-are-left": (
        "db/test_drain.py::test_what_happened_on_commit_does_not_happen_again",
    ),
    "refutations-know-any-argument-of-a-task": (
        "tasks/test_testing.py::test_an_argument_that_a_task_has_not_is_refused",
    ),
    "assertions-match-anything": (
        f"{_ASSERTING}test_a_payload_may_have_more_than_is_asked_for",
        f"{_ASSERTING}test_options_are_compared",
    ),
    "refutations-know-any-kind": (
        f"{_ASSERTING}test_an_assertion_that_could_never_hold_is_refused",
    ),
    "failures-are-texts-alone": (
        f"{_CHOICES}test_the_exception_of_a_handler_is_raised_with_its_traceback",
    ),
    "immediate-jobs-run-in-blocks": (
        f"{_IMMEDIATE}test_inside_a_block_it_runs_at_the_end_of_the_outermost",
    ),
    "all-is-made-due": (f"{_TRAVEL}test_whatever_is_not_delayed_stays_as_it_is",),
    "time-jumps-to-the-end": (f"{_TRAVEL}test_delayed_jobs_run_in_the_order_of_their_times",),
    "days-follow-the-clocks": (
        f"{_TRAVEL}test_a_day_has_24_hours_whatever_the_time_zone_of_the_session",
    ),
    "any-payload-is-performed": ("db/test_perform.py::test_what_enqueue_refuses_is_refused",),
    # pgmq
    "redriven-letters-stay": (
        "pgmq/test_dead_letters.py::test_all_are_driven_back_as_they_were",
        f"{_MESSAGES}test_selected_dead_letters_go_back_and_the_history_says_who_did_it",
    ),
    "what-stays-takes-a-place": (
        f"{_LETTERS}test_the_oldest_go_first_and_what_has_nowhere_to_go_takes_no_place",
    ),
    "queues-are-counted-to-their-end": (
        f"{_MESSAGES}test_a_large_queue_is_counted_as_far_as_the_page_says",
    ),
    "viewers-may-act-on-messages": (
        f"{_MESSAGES}test_only_who_has_the_permission_may_act",
        f"{_MESSAGES}test_the_pages_offer_what_the_user_may_do",
    ),
    "messages-show-secrets": (
        f"{_LETTERS}test_one_is_shown_with_secrets_masked",
        f"{_MESSAGES}test_a_dead_letter_says_where_it_comes_from_and_why_it_is_here",
    ),
    "looks-take-all-messages": (f"{_MESSAGES}test_a_page_reads_no_more_rows_than_it_shows",),
    "a-lost-table-hides-the-others": (
        f"{_LETTERS}test_a_queue_whose_table_is_gone_does_not_hide_the_others",
    ),
    "purges-ask-nobody": (f"{_LETTERS}test_a_purge_asks_first",),
    "purges-wait-for-the-queue": (
        f"{_MESSAGES}test_a_purge_does_not_wait_for_a_queue_that_is_in_use",
    ),
    # connections
    "listen-through-poolers": (
        "acceptance/test_poolers.py::test_wake_ups_left_on_are_told_once_and_leave_nothing",
    ),
    "keeper-stays-where-it-is-refused": (_FAILOVER,),
    "handlers-stay-where-they-are-refused": (_FAILOVER,),
    "forks-share-connections": (
        "acceptance/test_tls_and_forks.py::test_workers_and_what_their_handlers_fork_share_no_stream",
    ),
    "silence-is-borne": (
        "acceptance/test_silent_backends.py::test_a_heartbeat_without_an_answer_is_sent_again_before_the_lease_is_over",
    ),
    # leases and supervisors
    "any-lease-is-safe": (
        "acceptance/test_supervisor_leases.py::test_children_of_a_stopped_supervisor_start_nothing_once_their_lease_is_unsafe",
    ),
    "deaths-name-nothing": (f"{_DEATHS}test_only_what_had_started_is_charged",),
    "no-heartbeats": (
        "acceptance/test_supervisor_leases.py::test_a_handler_that_holds_the_gil_beyond_the_lease_keeps_its_job",
    ),
    "want-of-memory-is-guessed": (
        f"{_DEATHS}test_a_death_is_known_at_once_by_its_reason_and_another_child_goes_on",
    ),
    "any-exit-0-is-clean": (
        f"{_DEATHS}test_a_death_is_known_at_once_by_its_reason_and_another_child_goes_on",
    ),
    "leaving-is-stopping": (
        "acceptance/test_supervisor_children.py::test_the_replacement_works_while_the_old_one_finishes_however_long_that_takes",
    ),
    "orders-follow-a-number": (
        "unit/test_children.py::test_who_died_before_it_was_introduced_leaves_its_name_to_no_other",
    ),
    # the view that drains
    "any-token-drains": (f"{_DRAINING}test_without_the_token_no_job_is_run",),
    "batches-ignore-their-bound": (f"{_DRAINING}test_it_does_no_more_than_so_many_jobs",),
    "batches-start-jobs-to-the-end": (
        f"{_DRAINING}test_no_job_starts_once_its_time_is_over_and_what_runs_may_end",
    ),
    "batches-wait-for-any-handler": (
        f"{_DRAINING}test_what_runs_too_long_is_told_to_stop_and_has_had_an_attempt",
    ),
    "batches-leave-their-threads": (f"{_DRAINING}test_nothing_of_it_stays_in_the_process",),
}

# Those that the state machine must catch as well, by itself.
MODEL = (f"{_MODEL}test_rows_are_what_the_reference_says_whatever_happens_to_them",)
CAUGHT_BY_THE_MODEL = (
    "no-fence",
    "fence-without-claims",
    "claim-counts-no-attempt",
    "claim-after-death",
    "claim-before-its-time",
    "pauses-are-ignored",
    "release-keeps-attempt",
    "orphans-stay",
    "reap-charges-all",
    "reap-charges-nothing",
    "started-keys-are-held",
    "running-jobs-are-replaced",
    "each-counts-its-own",
    "starts-cost-nothing",
    "rates-save-up",
    "later-ones-overtake",
    "snoozes-spend-attempts",
    "snoozes-are-failures",
    "named-delays-are-ignored",
    "discards-are-retried",
)

_FAILURE = re.compile(r"^FAILED (\S+?::.+?)(?: - .*)?$", re.MULTILINE)


class Verdict(NamedTuple):
    """What became of one fault."""

    fault: str
    said: str
    seconds: float
    output: str

    def __str__(self) -> str:
        by = _FAILURE.search(self.output) if self.said == "caught" else None
        test = f" by {by[1].rpartition('::')[2]}" if by else ""
        return f"{self.said:<8} {self.fault}{test} ({self.seconds:.0f} s)"


def judge(case: tuple[str, tuple[str, ...]], url: str) -> Verdict:
    """Run the tests of a fault with it planted, and say whether one of them failed."""
    fault, names = case
    environment = {**os.environ, VARIABLE: fault, URL_VARIABLE: url}
    tests = [f"tests/{name}".removesuffix("::") for name in names]
    began = time.monotonic()
    options = ["-x", "-q", "--no-header", "--timeout=60", "-m", ""]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        run = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return Verdict(fault, f"no end within {LONGEST:g} s", time.monotonic() - began, output)
    if "Adapt the fault" in run.stdout:
        said = "cannot be planted any more"
    elif run.returncode == FAILED:
        said = "caught"
    else:
        said = "survived" if run.returncode == 0 else f"pytest ended with {run.returncode}"
    return Verdict(fault, said, time.monotonic() - began, run.stdout)


def main() -> int:
    """Parse the arguments and judge, two at a time."""
    parser = argparse.ArgumentParser(
        prog="make mutants", description="Plant faults, see them caught."
    )
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="by default all")
    chosen = parser.parse_args().faults or list(CAUGHT_BY)
    if unknown := set(chosen) - set(CAUGHT_BY):
        parser.error(f"FAULT must be one of {', '.join(CAUGHT_BY)}, got {', '.join(unknown)}.")
    cases = [(fault, CAUGHT_BY[fault]) for fault in chosen]
    cases += [(fault, MODEL) for fault in CAUGHT_BY_THE_MODEL if fault in chosen]
    began = time.monotonic()
    try:
        with (
            EmbeddedPostgres(fsync=False, settings=SETTINGS) as server,
            ThreadPoolExecutor(AT_A_TIME) as pool,
        ):
            verdicts = []
            for verdict in pool.map(lambda case: judge(case, server.url), cases):
                print(verdict, flush=True)
                verdicts.append(verdict)
    except EmbeddedPostgresError as error:
        sys.exit(f"make mutants needs a PostgreSQL of its own: {error}")
    missed = [verdict for verdict in verdicts if verdict.said != "caught"]
    for verdict in missed:
        print(f"\n{verdict.fault}: {verdict.said}\n{verdict.output[-2_000:]}")
    print(
        f"{len(verdicts) - len(missed)} of {len(verdicts)} caught in {time.monotonic() - began:.0f} s"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
