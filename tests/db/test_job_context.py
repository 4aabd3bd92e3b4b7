"""`context.job`: what the claim has read is there, and the rest is what the row says."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgjobs import job
from django_pgjobs.models import Job
from django_pgjobs.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

KNOWN = (
    *("id", "kind", "queue", "payload", "status"),
    *("attempts", "attempts_before", "max_attempts", "claims"),
)


def columns(job):
    return {field.attname: getattr(job, field.attname) for field in Job._meta.concrete_fields}


@pytest.mark.parametrize("options", [{}, {"atomic": True}, {"queue": "ledger"}], ids=str)
def test_a_sync_handler_reads_further_columns_when_it_uses_them(settings, options):
    settings.PGJOBS = {"QUEUES": {"ledger": {"claim": "transaction"}}}
    seen = {}

    @job(takes_context=True, max_attempts=4, **options)
    def export(context, order_id):
        with CaptureQueriesContext(connection) as queries:
            seen["known"] = {name: getattr(context.job, name) for name in KNOWN}
        assert len(queries) == 0
        with CaptureQueriesContext(connection) as queries:
            assert context.job.priority == context.job.priority == 9
        assert len(queries) == 1
        seen["all"] = columns(context.job)
        seen["row"] = columns(Job.objects.get())

    made = export.using(priority=9).enqueue(order_id=7)
    drain()
    made.refresh_from_db()
    assert made.status == "done", made.last_error
    assert seen["all"] == seen["row"]
    assert seen["known"] == {name: seen["row"][name] for name in KNOWN}
    assert (seen["known"]["status"], seen["known"]["payload"]) == ("running", {"order_id": 7})


def test_an_async_handler_gets_the_row_itself():
    @job(takes_context=True)
    async def export(context):
        assert context.job.attempts == 1
        whole = await Job.objects.aget(pk=context.job.pk)
        return whole.priority

    made = export.using(priority=9).enqueue()
    drain()
    made.refresh_from_db()
    assert (made.status, made.result) == ("done", 9), made.last_error
