"""Which database a job goes to, and the warning where the open transaction is another one's."""

from __future__ import annotations

import warnings
from contextlib import suppress

import pytest
from django.db import connection, transaction

from django_pgjobs import ForeignTransaction, InvalidOption, enqueue, get_job
from django_pgjobs.models import Job

pytestmark = pytest.mark.django_db(databases=["default", "other"], transaction=True)

noop = get_job("noop")


class JobsElsewhere:
    """The jobs live in the other database."""

    def db_for_write(self, model, **hints):
        return "other" if model is Job else None


def counts():
    return [Job.objects.using(alias).count() for alias in ("default", "other")]


def test_a_job_goes_where_the_router_says(settings):
    settings.DATABASE_ROUTERS = [JobsElsewhere()]

    job = enqueue("noop")
    noop.enqueue_many([{}, {}])

    assert counts() == [0, 3]
    assert job._state.db == "other"


def test_a_job_goes_to_the_database_that_the_caller_names(settings):
    job = noop.using(database="other").enqueue()
    noop.using(database="other").enqueue_many([{}])
    settings.DATABASE_ROUTERS = [JobsElsewhere()]
    noop.using(database="default").enqueue()

    assert counts() == [1, 2]
    assert job.cancel() == 1
    assert Job.objects.using("other").cancelled().count() == 1


def test_a_job_belongs_to_the_transaction_of_its_own_database():
    with suppress(ZeroDivisionError), transaction.atomic(using="other"):
        noop.using(database="other").enqueue()
        raise ZeroDivisionError

    assert counts() == [0, 0]


def test_an_unknown_database_is_refused():
    with pytest.raises(InvalidOption, match=r"^database must be an alias"):
        noop.using(database="nowhere")


def test_a_job_enqueued_beside_another_databases_transaction_is_committed_with_a_warning():
    with suppress(ZeroDivisionError), transaction.atomic(using="other"):
        with pytest.warns(ForeignTransaction, match="'default' while .* is open on 'other'"):
            enqueue("noop")
        raise ZeroDivisionError

    assert counts() == [1, 0]


@pytest.mark.parametrize("way", ["by name", "through the function", "many"])
def test_the_warning_comes_once_for_each_line_that_enqueues_and_names_it(way):
    ways = {
        "by name": lambda: enqueue("noop"),
        "through the function": noop.enqueue,
        "many": lambda: noop.enqueue_many([{}]),
    }
    with warnings.catch_warnings(record=True) as caught, transaction.atomic(using="other"):
        warnings.simplefilter("default")
        for _ in range(3):
            ways[way]()
        assert len(caught) == 1
        enqueue("noop")

    lines = {(warning.filename, warning.lineno) for warning in caught}
    assert len(caught) == len(lines) == 2
    assert {filename for filename, _ in lines} == {__file__}


def test_there_is_no_warning_where_the_jobs_own_transaction_is_open_too():
    with transaction.atomic(using="other"), transaction.atomic():
        enqueue("noop")
        noop.using(database="other").enqueue()

    assert counts() == [1, 1]


def test_there_is_no_warning_without_any_transaction():
    enqueue("noop")

    assert counts() == [1, 0]


def test_there_is_no_warning_where_the_jobs_connection_commits_by_hand():
    transaction.set_autocommit(False)
    try:
        with transaction.atomic(using="other"):
            enqueue("noop")
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)

    assert counts() == [0, 0]
    assert connection.get_autocommit()
