"""`perform()`: one handler, through the payload's codec and the execution, without a row."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from django.contrib.auth.models import User

from django_pgjobs import InvalidPayload, Retry, Snooze, UnknownKind, get_job, job
from django_pgjobs.models import Job, Worker
from django_pgjobs.testing import perform

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


def test_a_handler_runs_by_name_or_by_job_type_and_leaves_no_row():
    assert perform("add", a=1, b=2) == 3
    assert perform(get_job("add"), 1, 2) == 3
    assert perform("anoop") is None
    assert not Job.objects.exists()
    assert not Worker.objects.exists()


def test_the_payload_and_the_result_pass_through_the_codec():
    got = []

    @job
    def keep(*, numbers, price, user):
        got.append((numbers, price, user))
        return (1, {2: datetime.date(2026, 1, 2)}.get(3))

    user = User.objects.create(username="u")

    assert perform(keep, numbers=(1, 2), price=Decimal("9.90"), user=user) == [1, None]
    [(numbers, price, loaded)] = got
    assert (numbers, price, loaded) == ([1, 2], Decimal("9.90"), user)
    assert loaded is not user


def test_what_enqueue_refuses_is_refused():
    with pytest.raises(InvalidPayload, match="unknown 'c'"):
        perform("add", a=1, c=2)
    with pytest.raises(InvalidPayload, match=r"payload\.a must be"):
        perform("add", a=object())
    with pytest.raises(UnknownKind):
        perform("nope")


@pytest.mark.parametrize("error", [ValueError("no"), Retry(60), Snooze(60)], ids=repr)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_the_handler_raises_is_raised(error, is_async):
    def breaks():
        raise error

    async def abreaks():
        raise error

    with pytest.raises(type(error)) as caught:
        perform(job(kind="breaks")(abreaks if is_async else breaks))

    assert caught.value is error


def test_what_is_no_exception_is_raised_too():
    job(kind="exits")(leave)

    with pytest.raises(SystemExit) as caught:
        perform("exits")

    assert caught.value.code == 3


def test_nothing_is_logged_of_a_job_that_is_none(caplog):
    caplog.set_level("DEBUG", "django_pgjobs")

    perform("noop")
    with pytest.raises(ValueError, match="boom"):
        perform("boom")

    assert caplog.messages == []


def test_a_handler_that_cannot_be_called_is_named():
    @job
    def greets(user): ...

    gone = User.objects.create(username="u")
    User.objects.filter(pk=gone.pk).delete()

    with pytest.raises(AssertionError, match=r"^The handler of 'greets' must .*InvalidPayload"):
        perform(greets, gone)


def leave():
    raise SystemExit(3)


def test_a_context_tells_of_the_attempt():
    @job(takes_context=True)
    def tell(context, n):
        context.progress(0.5, "half")
        context.check()
        return [context.attempt, context.cancelled, context.job.kind, context.job.payload, n]

    assert perform(tell, n=1) == [1, False, "tell", {"n": 1}, 1]


def test_the_job_of_a_context_lacks_nothing():
    @job(takes_context=True, queue="mail", priority=3)
    def tell(context):
        # What is not there would be read from the row.
        assert {field.attname for field in Job._meta.concrete_fields} <= vars(context.job).keys()
        return [context.job.queue, context.job.priority, context.job.errors]

    assert perform(tell) == ["mail", 3, []]


def test_an_atomic_handler_that_fails_leaves_nothing():
    @job(atomic=True)
    def half(name, *, fail):
        User.objects.create(username=name)
        if fail:
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 -- the handler's own
        perform(half, "u", fail=True)
    perform(half, "v", fail=False)

    assert [user.username for user in User.objects.all()] == ["v"]
