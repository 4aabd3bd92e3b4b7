"""Outcomes reach the row that they are about, under its claim's token, or nothing."""

from __future__ import annotations

import json
import logging

import psycopg
import pytest
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from django_pgjobs import failures, outcomes, reaper
from django_pgjobs.claims import release, release_orphans
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done, Failed, Snoozed
from tests.db.rows import AGO, FUTURE, claim_of, claimed, execute, make, make_worker, row

pytestmark = pytest.mark.django_db


def failure(claim, delay=None, message="boom"):
    error = failures.entry(ValueError(message), attempt=claim.attempts, worker=f"w {claim.claims}")
    return Failed(claim, error, delay)


def settle(*given, worker=7):
    left = outcomes.settle(execute, worker, given)
    assert not left.locked
    return list(left.stale)


OUTCOMES = {
    "done": Done,
    "done with a result": lambda claim: Done(claim, "1"),
    "retried": lambda claim: failure(claim, 5.0),
    "given up": failure,
    "snoozed": lambda claim: Snoozed(claim, 5.0),
}
all_outcomes = pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
all_others = pytest.mark.parametrize("other", OUTCOMES.values(), ids=OUTCOMES)


@all_outcomes
@pytest.mark.parametrize("token", [{"worker": 8}, {"claims": 0}, {"claims": 2}], ids=str)
def test_an_outcome_with_a_stale_token_changes_nothing_and_is_logged(outcome, token, caplog):
    job = make("running")
    before = row(job)
    worker = token.get("worker", 7)
    stale = outcome(claim_of(job, claims=token.get("claims", 1)))

    with caplog.at_level(logging.WARNING, "django_pgjobs.outcomes"):
        assert settle(stale, worker=worker) == [stale]

    assert row(job) == before
    assert [record.job_id for record in caplog.records] == [job.id]
    assert "lease" in caplog.text


@all_outcomes
def test_an_outcome_that_comes_after_the_reap_is_dropped(outcome):
    job = make("running")
    make_worker(id=7, heartbeat_at=job.locked_at)
    late = outcome(claim_of(job))
    assert reaper.run(execute).jobs == 1
    before = row(job)
    assert before["status"] == "pending"

    assert settle(late) == [late]

    assert row(job) == before


@all_outcomes
@pytest.mark.parametrize("cancelled", [False, True])
def test_the_same_outcome_twice_is_written_once_and_no_loss(outcome, cancelled, caplog):
    job = make("running", cancel_requested_at=AGO if cancelled else None)
    given = outcome(claim_of(job))
    assert settle(given) == []
    before = row(job)

    assert settle(given) == []

    assert row(job) == before
    assert "was settled already: only the answer to that was lost" in caplog.text
    assert "lease" not in caplog.text


@pytest.mark.parametrize("errors", [[], [1], ["x"], [None], [[]], [{}]], ids=str)
def test_a_loss_is_one_whatever_sql_has_put_among_the_errors(errors):
    job = make(claims=1, errors=errors)
    stale = failure(claim_of(job))

    assert settle(stale) == [stale]


def test_a_failure_whose_job_is_done_by_its_own_claim_is_no_loss():
    """As of an atomic handler: the answer to its COMMIT was lost."""
    job = make("running")
    assert settle(Done(claim_of(job))) == []
    assert settle(failure(claim_of(job))) == []
    assert row(job)["errors"] == []


@all_outcomes
@all_others
def test_an_outcome_like_that_of_another_worker_is_dropped(outcome, other):
    job = make("running", claims=2, locked_by=8)
    assert settle(other(claim_of(job)), worker=8) == []
    stale = outcome(claim_of(job, claims=1))

    assert settle(stale) == [stale]


@all_outcomes
def test_an_outcome_that_comes_after_another_claim_of_the_same_worker_is_dropped(outcome):
    job = make()
    [old] = claimed()
    release(execute, 7, [old])
    [new] = claimed()
    before = row(job)

    assert settle(outcome(old)) == [outcome(old)]
    assert row(job) == before

    assert settle(outcome(new)) == []
    assert row(job)["status"] != "running"


@all_outcomes
def test_an_outcome_of_a_job_that_is_gone_is_dropped(outcome):
    job = make("running")
    claim = claim_of(job)
    Job.objects.all().delete()

    assert len(settle(outcome(claim))) == 1


@pytest.mark.parametrize(
    "result",
    [
        1,
        0,
        "",
        "text",
        [],
        {},
        False,
        1.5,
        2**53 + 1,
        10**40,
        "ä日😀",
        {"a": [None, {"b": "c"}]},
        "␀",
    ],
    ids=repr,
)
def test_a_result_is_stored_as_it_is(result):
    job = make("running")

    settle(Done(claim_of(job), json.dumps(result)))

    stored = row(job)["result"]
    assert stored == result
    assert type(stored) is type(result)


def test_no_result_is_null_in_sql():
    job = make("running")

    settle(Done(claim_of(job)))

    assert Job.objects.filter(result__isnull=True).count() == 1


def test_a_mixed_batch_gives_each_job_its_own_outcome():
    jobs = [make("running", claims=1 + n % 3) for n in range(40)]
    kinds = list(OUTCOMES.values())
    given = [kinds[n % 5](claim_of(job)) for n, job in enumerate(jobs)]

    assert settle(*given) == []

    statuses = list(Job.objects.order_by("id").values_list("status", flat=True))
    assert statuses == ["done", "done", "pending", "failed", "pending"] * 8
    assert Job.objects.filter(result=1).count() == 8
    assert list(Job.objects.pending().order_by("id").values_list("attempts", flat=True)) == (
        [1, 0] * 8
    )


def test_stale_outcomes_in_a_batch_do_not_hinder_the_others():
    fresh, stale = make("running"), make("running", locked_by=8)
    for outcome in OUTCOMES.values():
        assert settle(outcome(claim_of(stale))) != []
    given = [Done(claim_of(stale)), Done(claim_of(fresh))]

    assert settle(*given) == given[:1]
    assert row(fresh)["status"] == "done"


def test_a_failed_attempt_is_noted_and_the_next_one_waits_by_the_databases_clock():
    job = make("running", attempts=2)

    settle(failure(claim_of(job), 100.0))

    job.refresh_from_db()
    now = Job.objects.values_list(Now(), flat=True).get()
    assert 90 < (job.run_at - now).total_seconds() <= 100
    assert job.last_error == "ValueError: boom"
    [entry] = job.errors
    assert entry.pop("at")
    assert entry == {
        "attempt": 2,
        "error": "builtins.ValueError",
        "message": "boom",
        "traceback": entry["traceback"],
        "worker": "w 1",
        "started_at": AGO.isoformat(),
    }


@pytest.mark.parametrize("delay", [0.0, 5.0, None])
def test_a_failure_of_a_job_that_was_asked_to_stop_ends_cancelled(delay, caplog):
    caplog.set_level(logging.INFO)
    asked, other = make("running", cancel_requested_at=FUTURE), make("running")

    assert settle(failure(claim_of(asked), delay), failure(claim_of(other), delay)) == []

    assert row(asked)["status"] == "cancelled"
    assert row(asked)["last_error"] == "ValueError: boom"
    assert len(row(asked)["errors"]) == 1
    told = [(one.job_id, one.levelname) for one in caplog.records if "is cancelled" in one.message]
    assert told == [(asked.pk, "INFO")]
    assert row(other)["status"] == ("failed" if delay is None else "pending")


def test_a_snoozed_job_waits_by_the_databases_clock_and_its_attempt_is_given_back():
    job = make("running", attempts=3, claims=8, last_error="earlier", errors=[{"attempt": 2}])

    assert settle(Snoozed(claim_of(job), 100.0)) == []

    job.refresh_from_db()
    now = Job.objects.values_list(Now(), flat=True).get()
    assert 90 < (job.run_at - now).total_seconds() <= 100
    assert (job.status, job.attempts, job.claims) == ("pending", 2, 8)
    assert (job.last_error, job.errors) == ("earlier", [{"attempt": 2}])
    assert job.attempted_at == AGO


def test_a_snoozed_job_that_was_asked_to_stop_is_cancelled_and_counts_no_attempt():
    asked, other = make("running", cancel_requested_at=FUTURE), make("running")

    assert settle(Snoozed(claim_of(asked), 5.0), Snoozed(claim_of(other), 5.0)) == []

    cancelled = row(asked)
    assert (cancelled["status"], cancelled["attempts"]) == ("cancelled", 0)
    assert (cancelled["last_error"], cancelled["errors"]) == ("", [])
    assert row(other)["status"] == "pending"


def test_a_job_that_was_asked_to_stop_and_completed_is_done():
    job = make("running", cancel_requested_at=FUTURE)

    settle(Done(claim_of(job)))

    assert row(job)["status"] == "done"


@pytest.mark.parametrize("give_back", [release, release_orphans])
def test_a_claim_that_is_given_back_after_a_cancel_is_cancelled_and_counts_nothing(give_back):
    job = make("running", attempts=2, cancel_requested_at=FUTURE)
    held = [claim_of(job)] if give_back is release else []

    give_back(execute, 7, held)

    assert row(job)["status"] == "cancelled"
    assert row(job)["attempts"] == 1


def test_two_claims_of_one_job_in_a_batch_settle_the_newer_one_only():
    job = make("running", claims=4)
    newer = claim_of(job)
    older = newer._replace(claims=3)

    stale = settle(failure(older, 5.0), failure(newer, 5.0))

    assert [outcome.claim for outcome in stale] == [older]
    assert row(job)["status"] == "pending"


def test_the_latest_25_errors_are_kept():
    job = make("running", errors=[{"attempt": n} for n in range(1, 25)])

    for attempt in (25, 26, 27):
        claim = claim_of(job, attempts=attempt)
        assert settle(failure(claim, 5.0)) == []
        Job.objects.filter(pk=job.pk).update(
            status="running", locked_at=Now(), locked_by=7, attempts=attempt
        )

    assert [entry["attempt"] for entry in row(job)["errors"]] == list(range(3, 28))


def test_a_reap_keeps_the_latest_25_errors_too():
    job = make("running", attempts=40, max_attempts=99, errors=[{"attempt": n} for n in range(25)])
    make_worker(id=7, died_at=FUTURE, death="killed")

    reaper.run(execute)

    assert [e["attempt"] for e in row(job)["errors"]] == [*range(1, 25), 40]
    assert row(job)["last_error"] == "The worker was lost: killed."


def huge(kind):
    if kind == "message":
        return ValueError("x" * 50_000_000)

    def even(n):
        odd(n - 1)

    def odd(n):
        even(n - 1)

    try:
        even(8_000)
    except RecursionError as error:
        return error


@pytest.mark.parametrize("kind", ["message", "recursion"])
def test_the_row_stays_below_1_mb_after_25_huge_failures(kind):
    job = make("running", max_attempts=99)
    error = failures.entry(huge(kind), attempt=1, worker="w")

    for claims in range(1, 27):
        assert settle(Failed(claim_of(job, claims=claims), error, 0.0)) == []
        claimed()

    [(size, count)] = execute(
        "select octet_length(j::text), jsonb_array_length(errors) from django_pgjobs_job j", {}
    )
    assert count == 25
    assert 10_000 < size < 1_000_000


@pytest.mark.parametrize("write", ["retry", "reap"])
def test_errors_too_large_to_be_kept_are_dropped_for_the_new_one(write):
    job = make("running")
    Job.objects.filter(pk=job.pk).update(
        errors=RawSQL("(select jsonb_agg(md5(n::text)) from generate_series(1, 50000) n)", ())
    )
    if write == "reap":
        make_worker(id=7, died_at=AGO)
        assert reaper.run(execute).jobs == 1
    else:
        assert settle(failure(claim_of(job), 5.0)) == []

    [entry] = row(job)["errors"]
    assert entry["attempt"] == 1


@pytest.mark.django_db(transaction=True)
@all_outcomes
def test_a_locked_row_is_left_for_later_and_holds_up_no_other(outcome, database_url):
    locked, free = make("running"), make("running")
    with psycopg.connect(database_url) as other:
        other.execute("select from django_pgjobs_job where id = %s for update", [locked.id])

        left = outcomes.settle(execute, 7, [outcome(claim_of(locked)), outcome(claim_of(free))])

        assert [one.claim.id for one in left.locked] == [locked.id]
        assert not left.stale
        assert row(locked)["status"] == "running"
        assert row(free)["status"] != "running"

    assert settle(outcome(claim_of(locked))) == []
    assert row(locked)["status"] != "running"
