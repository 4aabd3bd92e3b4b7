"""Rows that this code did not write: unknown kinds, odd payloads, and jobs of an earlier release."""

from __future__ import annotations

import os

import pytest
from django.db import connection

from django_pgjobs import enqueue, job
from django_pgjobs.models import Job
from django_pgjobs.testing import drain
from tests.db.rows import row

pytestmark = pytest.mark.django_db


def insert(kind, payload="{}"):
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into django_pgjobs_job (kind, payload) values (%s, %s) returning id",
            [kind, payload],
        )
        return Job(pk=cursor.fetchone()[0])


UNKNOWN = [
    "os.system",
    "missing.module.function",
    "tests.app.jobs.nothing",
    "tests.app.jobs.noop",  # a path is no kind, even one that leads to a handler
    "tests.db.module_that_raises",
    "__main__.x",
    "..",
    "." * 200,
    "%s",
    " ",
]


def test_rows_of_unknown_kinds_fail_with_the_reason_and_the_good_ones_run(monkeypatch):
    monkeypatch.setattr(os, "system", pytest.fail)
    bad = [insert(kind, '{"command": "true"}') for kind in UNKNOWN]
    good = [insert("add", '{"a": 1}') for _ in range(100)]

    assert drain() == len(bad) + len(good)

    for each in bad:
        each.refresh_from_db()
        assert (each.status, each.attempts) == ("failed", 1)
        assert "No handler is registered" in each.last_error
    assert Job.objects.done().count() == 100


def test_a_row_of_unknown_kind_runs_after_a_deploy_and_a_retry_by_hand(kinds):
    early = insert("of_tomorrow")
    drain()
    job(kind="of_tomorrow")(lambda: "here")

    assert early.retry() == 1
    assert drain() == 1

    assert row(early)["result"] == "here"


@pytest.mark.parametrize(
    "payload",
    [
        '{"a": {"$type": "pickle", "value": "gASVAAA="}}',
        '{"a": {"$type": "model", "value": {"label": "os.system", "pk": 1, "database": "default"}}}',
        '{"a": {"$type": "model", "value": {"label": "auth.User", "pk": [], "database": "x"}}}',
        '{"a": {"$type": "datetime", "value": "yesterday"}}',
        '{"a": {"$type": "decimal", "value": "NaN"}}',
        '{"a": {"$type": 5}}',
        '{"$type": "date", "value": "2030-01-01"}',
        '{"a": ' + "[" * 3000 + "]" * 3000 + "}",
        '{"a": ' + "9" * 5000 + "}",
    ],
    ids=range(9),
)
def test_a_payload_that_cannot_be_read_fails_its_job_at_once_and_no_other(payload):
    bad, good = insert("add", payload), insert("add", '{"a": 2}')

    assert drain() == 2

    # Not the whole row: no JSON decoder of Python reads an int of 5,000 digits.
    status, attempts, error = Job.objects.values_list("status", "attempts", "last_error").get(
        pk=bad.pk
    )
    assert (status, attempts) == ("failed", 1)
    assert "payload" in error
    assert row(good)["result"] == 2


def test_a_number_that_no_float_holds_arrives_as_jsonb_keeps_it():
    insert("add", '{"a": 1e400}')

    drain()

    assert Job.objects.get().result == 10**400


def test_a_payload_of_another_signature_is_tried_again_later():
    misfit = insert("add", '{"b": 1}')

    assert drain() == 1

    misfit.refresh_from_db()
    assert (misfit.status, misfit.attempts) == ("pending", 1)
    assert misfit.run_at > misfit.attempted_at
    assert misfit.last_error.startswith("TypeError: ")
    assert "'a'" in misfit.last_error


class Deploy:
    """Replaces the handler of one kind, as a new release does."""

    def __init__(self, kinds):
        self.kinds = kinds

    def __call__(self, handler):
        self.kinds.pop("mail", None)
        return job(kind="mail")(handler)


@pytest.fixture
def deploy(kinds):
    return Deploy(kinds)


def make_due():
    Job.objects.pending().update(run_at="2020-01-01T00:00Z")


def test_a_job_waits_out_a_deploy_that_added_an_argument(deploy):
    deploy(lambda order: order)
    waiting = enqueue("mail", order=1)

    deploy(lambda order, language: (order, language))
    drain()
    first = row(waiting)
    assert (first["status"], first["attempts"]) == ("pending", 1)
    assert "TypeError" in first["last_error"]

    deploy(lambda order, language="en": [order, language])
    make_due()
    drain()
    assert row(waiting)["status"] == "done"
    assert row(waiting)["result"] == [1, "en"]
    assert row(waiting)["attempts"] == 2


def test_a_job_does_not_see_that_arguments_became_keywords(deploy):
    deploy(lambda order: order)
    waiting = enqueue("mail", order=1)

    def keywords(*, order):
        return order

    deploy(keywords)
    drain()

    assert row(waiting)["result"] == 1


def test_a_job_whose_argument_was_removed_is_given_up_in_the_end(deploy):
    deploy(lambda order, old: order)
    waiting = enqueue("mail", order=1, old=2)

    deploy(lambda order: order)
    for _ in range(5):
        make_due()
        drain()

    assert row(waiting)["status"] == "failed"
    assert row(waiting)["attempts"] == 5
    assert len(row(waiting)["errors"]) == 5


def test_a_job_of_a_renamed_kind_runs_by_its_alias(kinds):
    waiting = insert("formerly", '{"a": 1}')
    job(kind="presently", aliases=["formerly"])(lambda a: a)

    drain()

    assert row(waiting)["result"] == 1
