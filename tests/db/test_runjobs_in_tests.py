"""`call_command("runjobs", drain=True)` in a test: where it works, and what it says where it does not."""

from __future__ import annotations

import threading

import pytest
from django.core.management import CommandError, call_command
from django.test import TestCase, TransactionTestCase

from django_pgjobs import enqueue, job
from tests.db.rows import row


class RunjobsInATestCase(TestCase):
    def test_it_refuses_and_names_what_works(self):
        enqueue("noop")

        with pytest.raises(CommandError) as caught:
            call_command("runjobs", drain=True, verbosity=0)

        for way in ("testing.drain()", "TransactionTestCase", "transactional_db"):
            assert way in str(caught.value)


class RunjobsInATransactionTestCase(TransactionTestCase):
    def test_it_works(self):
        queued = enqueue("add", a=1)

        call_command("runjobs", drain=True, verbosity=0)

        assert row(queued)["result"] == 1


def test_it_works_with_transactional_db(transactional_db):
    queued = enqueue("add", a=1)

    call_command("runjobs", drain=True, verbosity=0)

    assert row(queued)["result"] == 1


def test_it_refuses_with_db(db):
    with pytest.raises(CommandError, match="transactional_db"):
        call_command("runjobs", drain=True, verbosity=0)


def test_nobody_is_said_to_replace_a_process_where_nobody_does(transactional_db, kinds, caplog):
    gate = threading.Event()

    @job(timeout=0.01, max_attempts=1)
    def deaf() -> None:
        gate.wait()

    queued = deaf.enqueue()

    try:
        with pytest.raises(SystemExit):
            call_command("runjobs", drain=True, verbosity=0)
    finally:
        gate.set()

    assert "A handler does not stop: worker" in caplog.text
    assert "replaced" not in caplog.text
    assert row(queued)["status"] == "failed"
