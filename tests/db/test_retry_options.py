"""What handlers ask for and kinds declare about failed attempts, in every way that a job can run."""

from __future__ import annotations

import asyncio
import datetime
import logging
import math
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_pgjobs import (
    Discard,
    Exponential,
    Fixed,
    Linear,
    Retry,
    Snooze,
    execution,
    job,
    outcomes,
)
from django_pgjobs.models import Job
from django_pgjobs.testing import drain
from tests.db.rows import FUTURE, claimed, execute, make, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

MODES = ["sync", "async", "atomic", "transaction"]
all_modes = pytest.mark.parametrize("mode", MODES)
ROLLS_BACK = {"atomic", "transaction"}
EARLIER = datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def declare(settings):
    """Declare a handler of the kind "probe" that writes a row, then runs `body`."""
    settings.PGJOBS = {"QUEUES": {"ledger": {"claim": "transaction"}}}

    def declared(body, mode="sync", **options):
        def handler():
            Group.objects.create(name=str(uuid4()))
            body()

        async def ahandler():
            await Group.objects.acreate(name=str(uuid4()))
            await asyncio.sleep(0)
            body()

        options |= {"atomic": mode == "atomic", "kind": "probe"}
        options["queue"] = "ledger" if mode == "transaction" else "default"
        return job(**options)(ahandler if mode == "async" else handler)

    return declared


def raising(error):
    def body():
        raise error

    return body


def ran(declared, **columns):
    """Run one job of it once; return the row, and the seconds that it waits from the last attempt on."""
    made = make(kind="probe", queue=declared.options.queue, run_at=EARLIER, **columns)
    assert drain() == 1
    made.refresh_from_db()
    waits = (made.run_at - made.attempted_at).total_seconds()
    return made, waits


# ------------------------------------------------------------------------- what handlers can raise


@all_modes
def test_a_retry_fails_the_attempt_and_names_its_delay(declare, mode):
    retried, waits = ran(declare(raising(Retry(300)), mode))

    assert (retried.status, retried.attempts, retried.claims) == ("pending", 1, 1)
    assert 299 < waits < 305
    [entry] = retried.errors
    assert entry["error"] == "django_pgjobs.exceptions.Retry"
    assert retried.last_error.endswith("The handler asked for another attempt in 300 s.")


@all_modes
def test_a_retry_without_a_delay_waits_as_the_policy_says(declare, mode):
    retried, waits = ran(declare(raising(Retry()), mode, retry=[700]))

    assert (retried.status, retried.attempts) == ("pending", 1)
    assert 629 < waits < 775


@all_modes
def test_a_retry_in_the_last_attempt_gives_up(declare, mode):
    failed, _ = ran(declare(raising(Retry(1)), mode), attempts=4, max_attempts=5)

    assert (failed.status, failed.attempts, len(failed.errors)) == ("failed", 5, 1)


@all_modes
def test_a_snooze_spends_no_attempt_and_is_no_error(declare, mode):
    snoozed, waits = ran(declare(raising(Snooze(datetime.timedelta(minutes=5))), mode))

    assert (snoozed.status, snoozed.attempts, snoozed.claims) == ("pending", 0, 1)
    assert (snoozed.last_error, snoozed.errors) == ("", [])
    assert snoozed.locked_by is snoozed.locked_at is snoozed.finished_at is None
    assert 299 < waits < 305


@all_modes
def test_a_job_can_be_snoozed_for_ever(declare, mode):
    declared = declare(raising(Snooze(60)), mode)
    made = make(kind="probe", queue=declared.options.queue, max_attempts=1)
    for _ in range(4):
        assert drain() == 1
        Job.objects.update(run_at=EARLIER)

    made.refresh_from_db()
    assert (made.status, made.attempts, made.claims) == ("pending", 0, 4)


@all_modes
def test_a_discard_gives_up_at_once_for_its_reason(declare, mode):
    failed, _ = ran(declare(raising(Discard("no such order")), mode))

    assert (failed.status, failed.attempts) == ("failed", 1)
    assert failed.last_error == "django_pgjobs.exceptions.Discard: no such order"
    [entry] = failed.errors
    assert (entry["message"], entry["attempt"]) == ("no such order", 1)


@all_modes
@pytest.mark.parametrize(
    "asked",
    [Retry(60), Snooze(60), Discard("no"), ValueError("no")],
    ids=lambda e: type(e).__name__,
)
def test_what_the_handler_wrote_in_its_job_s_transaction_is_rolled_back(declare, mode, asked):
    ran(declare(raising(asked), mode))

    assert Group.objects.exists() == (mode not in ROLLS_BACK)


@all_modes
@pytest.mark.parametrize(
    "asked", [Retry(300), Snooze(300), Discard("no")], ids=lambda e: str(e)[:12]
)
def test_they_work_from_deep_within_and_with_a_cause(declare, mode, asked):
    def deep(n=20):
        if n:
            return deep(n - 1)
        try:
            with transaction.atomic():
                raise ConnectionError("the true reason")
        except ConnectionError as error:
            raise asked from error

    # An async handler may open a transaction in a function for sync_to_async() only.
    found, _ = ran(declare(raising_chain(asked) if mode == "async" else deep, mode))

    expected = {Retry: "pending", Snooze: "pending", Discard: "failed"}[type(asked)]
    assert found.status == expected
    if isinstance(asked, Snooze):
        assert found.errors == []
    else:
        assert "ConnectionError: the true reason" in found.errors[0]["traceback"]


def raising_chain(asked):
    def body():
        raise asked from ConnectionError("the true reason")

    return body


def test_a_retry_shows_the_reason_that_it_was_raised_from(declare):
    retried, _ = ran(declare(raising_chain(Retry(5))))

    assert "in 5 s. Its reason: ConnectionError('the true reason')" in retried.last_error


BAD = [-1, math.nan, math.inf, 1e12, "60", None]


@all_modes
@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_a_snooze_with_a_bad_delay_is_a_failed_attempt_that_says_so(declare, mode, bad):
    declared = declare(lambda: raise_(Snooze(bad)), mode, retry_on=ConnectionError)
    retried, waits = ran(declared)

    assert (retried.status, retried.attempts) == ("pending", 1)
    assert "Snooze.delay must be" in retried.last_error
    assert 1.7 < waits < 3


@pytest.mark.parametrize("bad", BAD[:-1], ids=repr)
def test_so_is_a_retry(declare, bad):
    retried, waits = ran(declare(lambda: raise_(Retry(bad)), discard_on=ValueError))

    assert (retried.status, retried.attempts) == ("pending", 1)
    assert "Retry.delay must be" in retried.last_error
    assert 1.7 < waits < 3


def raise_(error):
    raise error


class Unchecked:
    """What a subclass, or an assignment, makes of the delay of an exception."""

    def __init__(self, delay):
        Exception.__init__(self, "unchecked")
        self.delay = delay


@pytest.mark.parametrize("asked", [Retry, Snooze])
@pytest.mark.parametrize("bad", [-1, math.nan, "60", object()])
def test_a_delay_that_was_checked_by_nobody_loses_no_job(declare, asked, bad, caplog):
    error = type("Careless", (Unchecked, asked), {"__str__": Exception.__str__})(bad)

    retried, waits = ran(declare(raising(error)))

    assert (retried.status, retried.attempts) == ("pending", 1)
    assert 1.7 < waits < 3
    broken = [r for r in caplog.records if "default policy" in r.getMessage()]
    assert len(broken) == (asked is Retry)  # of a snooze nothing is known but that it failed


class Liar(Exception):
    """Says that it is something else, or fails to say what it is."""

    said: type[Exception] | None = None

    @property
    def __class__(self):
        if self.said is None:
            raise RuntimeError("I will not say")
        return self.said


@pytest.mark.parametrize("said", [None, Snooze, Discard, Retry])
def test_what_an_exception_says_of_its_own_class_counts_for_nothing(declare, said):
    retried, waits = ran(declare(raising(type("L", (Liar,), {"said": said})())))

    assert (retried.status, retried.attempts) == ("pending", 1)
    assert 1.7 < waits < 3


@pytest.mark.parametrize("mode", MODES[:3])  # claimed by transaction it cannot be asked to stop
def test_a_snooze_of_a_job_that_is_to_be_cancelled_ends_it_without_an_attempt(declare, mode):
    declared = declare(raising(Snooze(60)), mode)
    made = make(kind="probe", queue=declared.options.queue, cancel_requested_at=FUTURE)
    drain()

    made.refresh_from_db()
    assert (made.status, made.attempts, made.errors) == ("cancelled", 0, [])


def test_a_snoozed_job_is_one_line_of_the_log(declare, caplog):
    with caplog.at_level(logging.INFO, "django_pgjobs.execution"):
        made, _ = ran(declare(raising(Snooze(90))))

    [record] = [r for r in caplog.records if "snoozed" in r.getMessage()]
    assert record.getMessage() == f"Job {made.pk} (probe) is snoozed for 90.0 s."
    assert (record.levelno, record.job_id, record.exc_info) == (logging.INFO, made.pk, None)


# ------------------------------------------------------------------------------------- the options


@all_modes
@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        ([100, 200], [100, 200, 200]),
        (Fixed([100, 200]), [100, 200, 200]),
        (Linear(100, cap=250), [100, 200, 227]),  # a capped delay is spread below the cap
        (Exponential(10), [10, 100, 1_000]),
        (lambda attempt, error: 100 * attempt + len(str(error)), [108, 210, 315]),
    ],
    ids=["list", "fixed", "linear", "exponential", "function"],
)
def test_a_policy_decides_how_long_a_failed_job_waits(declare, mode, retry, expected):
    declared = declare(raising(ValueError("boom")), mode, retry=retry, max_attempts=4)
    made = make(kind="probe", queue=declared.options.queue, max_attempts=4)
    waits = []
    while drain():
        made.refresh_from_db()
        waits.append((made.run_at - made.attempted_at).total_seconds())
        Job.objects.pending().update(run_at=EARLIER)

    assert made.status == "failed"
    assert waits[:3] == [pytest.approx(wait, rel=0.11) for wait in expected]


@all_modes
def test_a_policy_is_asked_with_the_attempt_since_the_last_retry_by_hand(declare, mode):
    asked = []

    def policy(attempt, error):
        asked.append((attempt, type(error)))
        return 5

    declared = declare(raising(ValueError()), mode, retry=policy)
    ran(declared, attempts=11, attempts_before=10, max_attempts=15)

    assert asked == [(2, ValueError)]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"retry_on": ConnectionError}, "failed"),
        ({"retry_on": (ConnectionError, LookupError)}, "pending"),
        ({"discard_on": ConnectionError}, "pending"),
        ({"discard_on": LookupError}, "failed"),
        ({"retry_on": Exception, "discard_on": LookupError}, "failed"),
    ],
    ids=str,
)
@all_modes
def test_the_options_say_which_errors_are_retried(declare, mode, options, status):
    found, _ = ran(declare(raising(KeyError("x")), mode, **options))

    assert (found.status, found.attempts, len(found.errors)) == (status, 1, 1)
    assert found.last_error == "KeyError: 'x'"


def broken(error):
    def policy(attempt, failure):
        raise error

    return policy


def _unshowable():
    def refuse(*_):
        raise SystemExit

    return type("Unshowable", (Exception,), {"__str__": refuse, "__repr__": refuse})()


@pytest.mark.parametrize(
    "policy",
    [
        broken(ZeroDivisionError("no")),
        broken(OverflowError("too large")),
        broken(SystemExit(1)),
        broken(KeyboardInterrupt()),
        broken(Retry(5)),
        broken(_unshowable()),
        lambda attempt, error: None,
        lambda attempt, error: "soon",
        lambda attempt, error: -5,
        lambda attempt, error: math.nan,
        lambda attempt, error: math.inf,
        lambda attempt, error: datetime.timedelta.max,
        lambda attempt, error: 10.0**12,
    ],
    ids=range(13),
)
@all_modes
def test_a_policy_that_fails_leaves_it_to_the_default_one_and_is_logged_once(
    declare, mode, policy, caplog
):
    retried, waits = ran(declare(raising(ValueError("boom")), mode, retry=policy))

    assert (retried.status, retried.attempts) == ("pending", 1)
    assert 1.7 < waits < 3
    assert retried.last_error == "ValueError: boom"
    [record] = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert (record.kind, record.job_id, record.name) == (
        "probe",
        retried.pk,
        "django_pgjobs.execution",
    )


def test_a_policy_gives_up_by_a_discard_whose_reason_is_kept(declare):
    failed, _ = ran(declare(raising(ValueError("boom")), retry=broken(Discard("too late"))))

    assert (failed.status, failed.attempts) == ("failed", 1)
    assert failed.last_error == "django_pgjobs.exceptions.Discard: too late"
    assert "ValueError: boom" in failed.errors[0]["traceback"]


def test_a_policy_is_not_asked_after_the_last_attempt(declare):
    failed, _ = ran(
        declare(raising(ValueError("boom")), retry=pytest.fail), attempts=4, max_attempts=5
    )

    assert failed.status == "failed"
    assert failed.last_error == "ValueError: boom"


def test_a_thousand_jobs_that_fail_together_come_back_apart(declare):
    declare(lambda: raise_(ConnectionError("down")), retry=[100])
    Job.objects.bulk_create(Job(kind="probe", run_at=EARLIER) for _ in range(1_000))
    logging.disable()
    try:
        ended = [execution.run(claim, "w") for claim in claimed(1_000)]
    finally:
        logging.disable(logging.NOTSET)

    outcomes.settle(execute, 7, ended)

    times = sorted(Job.objects.pending().values_list("run_at", flat=True))
    seconds = [int((at - times[0]).total_seconds()) for at in times]
    assert len(seconds) == 1_000
    assert seconds[-1] >= 18  # of 100, give or take 10
    assert max(map(seconds.count, set(seconds))) < 100


def test_a_kind_that_is_known_no_more_is_given_up_whatever_it_declared(kinds, declare):
    declare(raising(ValueError()), retry=[100])
    made = make(kind="probe")
    kinds.pop("probe")

    drain()

    assert row(made)["status"] == "failed"
