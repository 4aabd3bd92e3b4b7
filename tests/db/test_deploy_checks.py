"""Which waiting jobs this code cannot run."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgjobs import deploy_checks, job
from django_pgjobs.deploy_checks import misfits
from django_pgjobs.models import Job
from tests.app.jobs import add, noop
from tests.db import rows

pytestmark = pytest.mark.django_db


def found():
    return [one[:4] for one in misfits("default")]


def test_jobs_that_fit_are_no_misfits():
    noop.enqueue()
    noop.enqueue(i=3)
    add.using(delay=60).enqueue(1, b=2)
    assert found() == []


def test_waiting_jobs_of_an_unknown_kind_are_counted_with_an_example():
    first = rows.make(kind="gone")
    rows.make(kind="gone", run_at=rows.FUTURE, payload={"a": 1})
    rows.make(kind="gone", concurrency_key="k")
    for status in ("running", "done", "failed", "cancelled"):
        rows.make(status, kind="gone too")
    assert found() == [("gone", "unknown kind", 3, first.pk)]
    assert "aliases" in misfits("default")[0].text


def test_an_alias_counts(kinds):
    rows.make(kind="old_name")
    assert found()
    job(kind="new_name", aliases=["old_name"])(lambda: None)
    assert found() == []


def test_payloads_that_the_handler_does_not_take_any_more(kinds):
    for n in range(3):
        rows.make(kind="add", payload={"a": n})
    missing = [rows.make(kind="add", payload=payload) for payload in ({"b": 1}, {"b": 2}, {})]
    unknown = rows.make(kind="add", payload={"a": 1, "c": 1})
    told = {one.text.partition("got: ")[2][:11]: one for one in misfits("default")}
    assert {one.problem for one in told.values()} == {"payload"}
    assert told["missing 'a'"][2:4] == (3, missing[0].pk)
    assert told["unknown 'c'"][2:4] == (1, unknown.pk)


def test_a_handler_that_takes_any_name_fits_any_payload(kinds, monkeypatch):
    monkeypatch.setattr(deploy_checks, "_BATCH", 2)
    job(kind="any")(lambda **_anything: None)
    for n in range(5):
        rows.make(kind="any", payload={f"x{n}": 1})
    rows.make(kind="gone")
    assert [one.kind for one in misfits("default")] == ["gone"]


def test_the_payloads_stay_in_the_database():
    for n in range(50):
        rows.make(kind="noop", payload={"i": n})
    with CaptureQueriesContext(connection) as queries:
        assert found() == []
    assert len(queries) <= 3
    assert Job.objects.count() == 50
