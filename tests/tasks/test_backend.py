"""The backend: what `enqueue()` stores and refuses, and how tasks are declared."""

from __future__ import annotations

import datetime
import math
import pickle
import threading
from types import FunctionType

import django
import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core import checks
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from django_pgjobs import (
    DuplicateJob,
    DuplicateKind,
    InvalidOption,
    InvalidPayload,
    Limit,
    Rate,
    Unique,
    enqueue,
    get_job,
    registry,
)
from django_pgjobs.models import Job
from django_pgjobs.tasks import PgJobsBackend, PgJobsTask, framework, task
from django_pgjobs.testing import assert_enqueued, drain
from tests.app import tasks

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

SOON = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)


def bill(customer_id, amount=0):
    return amount


async def wait():
    """Do nothing."""


def count():
    yield 1


async def count_async():
    yield 1


def stored():
    return Job.objects.values_list("kind", "payload", "queue", "priority").get()


def test_the_backend_promises_everything_there_is():
    backend = framework.task_backends["default"]
    assert isinstance(backend, PgJobsBackend)
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


def test_a_task_is_a_job_with_its_arguments_by_name():
    result = tasks.add_up.using(priority=7, queue_name="mail").enqueue(1, b=2)

    assert stored() == ("tests.app.tasks.add_up", {"a": 1, "b": 2}, "mail", 7)
    assert (result.args, result.kwargs) == ([1], {"b": 2})
    assert result.id == str(Job.objects.get().pk)


def test_the_arguments_of_a_result_are_as_they_were_passed():
    for args, kwargs in [((1, 2), {}), ((1,), {"b": 2}), ((), {"b": 2, "a": 1}), ((1,), {})]:
        result = tasks.add_up.enqueue(*args, **kwargs)
        read = tasks.add_up.get_result(result.id)
        assert (read.args, read.kwargs) == (list(args), kwargs)
        assert read == result


@pytest.mark.parametrize("value", [1e16, 1e23, 1e300, -1e300, 5e-324])
def test_floats_of_any_size_are_the_same_in_the_result_and_in_the_row(value):
    result = tasks.give_back.enqueue(value)
    assert tasks.give_back.get_result(result.id) == result
    assert_enqueued(tasks.give_back, payload={"value": value})
    drain()
    assert tasks.give_back.get_result(result.id).return_value == value


def test_a_job_exists_if_the_transaction_commits():
    with transaction.atomic():
        tasks.add_up.enqueue(1)
        transaction.set_rollback(True)
    assert not Job.objects.exists()


def test_aenqueue_and_aget_result():
    async def roundtrip():
        result = await tasks.add_up.aenqueue(1)
        return result, await tasks.add_up.aget_result(result.id)

    result, read = async_to_sync(roundtrip)()
    assert read == result


def test_run_after_may_be_a_moment_or_a_time_from_the_enqueue():
    at = tasks.add_up.using(run_after=SOON)
    later = tasks.add_up.using(run_after=datetime.timedelta(hours=2))

    at_result, later_result = at.enqueue(1), later.enqueue(1)

    job = Job.objects.get(pk=later_result.id)
    assert Job.objects.get(pk=at_result.id).run_at == SOON
    assert job.run_at - job.created_at == datetime.timedelta(hours=2)
    assert drain() == 0


@pytest.mark.parametrize("run_after", [None, SOON, datetime.timedelta(minutes=1, microseconds=1)])
def test_the_task_of_a_result_is_the_one_that_was_enqueued(run_after):
    chosen = tasks.add_up.using(
        priority=-3, queue_name="mail", run_after=run_after, backend="second"
    )
    read = framework.task_backends["default"].get_result(chosen.enqueue(1).id)
    assert read.task == chosen
    assert read.task.run_after == run_after
    assert read.backend == "second"


def test_a_result_outlives_the_settings_it_was_made_under(settings):
    result = tasks.add_up.using(queue_name="mail", backend="second").enqueue(1)
    settings.TASKS = {"default": {"BACKEND": "django_pgjobs.tasks.PgJobsBackend"}}

    read = framework.task_backends["default"].get_result(result.id)

    assert (read.task.queue_name, read.backend) == ("mail", "second")


def test_a_result_is_refreshed_though_the_settings_have_lost_its_alias(settings):
    result = tasks.add_up.using(backend="second").enqueue(1)
    settings.TASKS = {"default": {"BACKEND": "django_pgjobs.tasks.PgJobsBackend"}}
    drain()

    result.refresh()
    assert result.return_value == 1

    read = framework.task_backends["default"].get_result(result.id)
    async_to_sync(read.arefresh)()
    for refused in (
        lambda: read.task.enqueue(1),
        lambda: tasks.add_up.using(backend="second"),
        lambda: read.task.using(priority=3),
    ):
        with pytest.raises(framework.InvalidTaskBackend, match="second"):
            refused()
    assert Job.objects.count() == 1


ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")


def test_an_id_that_is_none_has_no_result_however_near_it_is():
    good = tasks.add_up.enqueue(1).id
    near = [f"0{good}", f" {good}", f"{good}\n", f"+{good}", good.translate(ARABIC), int(good)]
    for bad in [*near, "", "x", "-1", str(2**63 - 1), str(2**63), "9" * 70, None]:
        with pytest.raises(framework.TaskResultDoesNotExist):
            framework.task_backends["default"].get_result(bad)


def test_a_job_that_is_no_task_has_no_result():
    job = enqueue("noop")
    with pytest.raises(framework.TaskResultDoesNotExist):
        framework.task_backends["default"].get_result(str(job.pk))


def test_a_task_that_sql_or_its_name_enqueued_has_a_result():
    job = enqueue("tests.app.tasks.add_up", a=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into django_pgjobs_job (kind, payload) "
            """values ('tests.app.tasks.add_up', '{"a": 2}') returning id"""
        )
        [by_sql] = cursor.fetchone()

    drain()

    assert tasks.add_up.get_result(str(job.pk)).return_value == 1
    read = tasks.add_up.get_result(str(by_sql))
    assert (read.return_value, read.args, read.kwargs) == (2, [], {"a": 2})
    assert read.attempts == 1


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (math.nan, InvalidPayload),
        (math.inf, InvalidPayload),
        ("a\x00b", InvalidPayload),
        ("\ud800", InvalidPayload),
        ({1: 2}, InvalidPayload),
        (SOON, TypeError),
        ({1, 2}, TypeError),
        (b"\xff", ValueError),
    ],
)
def test_what_cannot_be_stored_is_refused_before_any_sql(value, error, django_assert_num_queries):
    with transaction.atomic():
        with django_assert_num_queries(0), pytest.raises(error):
            tasks.give_back.enqueue(value)
        tasks.give_back.enqueue(1)
    assert Job.objects.count() == 1


@pytest.mark.parametrize("cycle", [False, True])
def test_arguments_that_are_nested_too_deep_are_refused(cycle, django_assert_num_queries):
    deep = []
    if cycle:
        deep.append(deep)
    for _ in range(5_000):
        deep = [deep]
    with django_assert_num_queries(0), pytest.raises(InvalidPayload, match="deep"):
        tasks.give_back.enqueue(deep)


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(InvalidPayload, match="missing 'a'"):
        tasks.add_up.enqueue()
    with pytest.raises(InvalidPayload, match="unknown 'c'"):
        tasks.add_up.enqueue(a=1, c=2)


def test_arguments_are_normalised_as_json():
    result = tasks.give_back.enqueue((1, {"$type": "x"}))
    assert result.args == [[1, {"$type": "x"}]]

    drain()

    result.refresh()
    assert result.return_value == [1, {"$type": "x"}]
    assert tasks.give_back.get_result(result.id).args == [[1, {"$type": "x"}]]


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_name": "q" * 64},
        {"queue_name": "a b"},
        {"priority": 101},
        {"priority": 1.5},
        {"run_after": datetime.datetime(2999, 1, 1)},  # noqa: DTZ001 -- naive on purpose
        {"run_after": datetime.datetime.max.replace(tzinfo=datetime.UTC)},
    ],
)
def test_an_invalid_task_is_refused_before_any_sql(changes, django_assert_num_queries):
    with django_assert_num_queries(0), pytest.raises(framework.InvalidTask):
        tasks.add_up.using(**changes)


def test_a_task_is_validated_again_at_enqueue(settings):
    chosen = tasks.add_up.using(queue_name="mail")
    settings.TASKS = {"default": {"BACKEND": "django_pgjobs.tasks.PgJobsBackend"}}
    with pytest.raises(framework.InvalidTask, match="mail"):
        chosen.enqueue(1)


@pytest.mark.parametrize(
    "run_after",
    [
        datetime.timedelta(days=100_000),
        datetime.datetime.min.replace(tzinfo=datetime.UTC),
        datetime.date(2999, 1, 1),
        0,
        "soon",
    ],
)
def test_a_refused_run_after_is_called_so(run_after, django_assert_num_queries):
    refused = pytest.raises(framework.InvalidTask, match=r"^run_after must be .*\.$")
    with django_assert_num_queries(0), refused:
        tasks.add_up.using(run_after=run_after)


# ------------------------------------------------------------------------------------- options


def test_options_of_the_task_are_those_of_its_kind():
    assert isinstance(tasks.try_twice, PgJobsTask)
    kind = get_job("tests.app.tasks.try_twice")
    assert kind.options.max_attempts == 2
    assert kind.timeout == 30
    tasks.try_twice.enqueue()
    assert Job.objects.get().max_attempts == 2


def test_limits_know_arguments_by_name_however_they_are_passed():
    billing = task(concurrency=Limit(1, key="customer_id"), rate=Rate(9, per=1, key="customer_id"))(
        bill
    )
    billing.enqueue(7)
    billing.enqueue(customer_id=7)
    assert len(set(Job.objects.values_list("concurrency_key", flat=True))) == 1
    assert Job.objects.first().concurrency_key


def test_a_unique_task_returns_the_result_of_the_job_that_is_there():
    billing = task(unique=Unique(key="customer_id"))(bill)
    first, second = billing.enqueue(7), billing.enqueue(7, amount=2)
    assert second.id == first.id
    assert (second.args, second.kwargs) == ([7], {})
    with pytest.raises(DuplicateJob):
        billing.using(unique=Unique(key="customer_id", conflict="raise")).enqueue(7)


def test_using_changes_what_goes_into_the_row():
    user = User.objects.create()
    changes = {"max_attempts": 9, "concurrency_key": "k", "unique_key": "u", "subject": user}
    tasks.add_up.using(**changes).using(priority=1).enqueue(1)
    job = Job.objects.get()
    assert (job.max_attempts, job.concurrency_key, job.priority) == (9, "k", 1)
    assert job.unique_key
    assert job.subject_id == str(user.pk)


@pytest.mark.parametrize(
    "changes",
    [
        *({"max_attempts": value} for value in (0, False, "", 1.0)),
        *({"unique": value} for value in (False, 0, "customer_id", Unique(key="nobody"))),
        *({"unique_key": value} for value in (0, False)),
        *({"concurrency_key": value} for value in ("", 0, False)),
        *({"subject": value} for value in (False, 0, "")),
    ],
)
def test_using_refuses_an_option_that_is_false_as_one_that_is_wrong(changes):
    with pytest.raises(framework.InvalidTask, match=next(iter(changes))):
        tasks.add_up.using(**changes)


def test_none_takes_a_declared_option_back():
    billing = task(unique=Unique(), max_attempts=3)(bill)
    often, more = billing.using(unique=None), billing.using(max_attempts=None)

    first, second = often.enqueue(7), often.enqueue(7)

    assert first.id != second.id
    assert Job.objects.get(pk=first.id).unique_key is None
    assert Job.objects.get(pk=first.id).max_attempts == 3
    assert Job.objects.get(pk=more.enqueue(8).id).max_attempts == 5


def test_a_task_that_is_declared_again_with_the_same_options_is_the_same():
    options = {"timeout": 5, "aliases": ["bill"], "retry": [1, 2], "rate": Rate(9, per=1)}
    assert task(**options)(bill) == task(**dict(options))(bill)


@pytest.mark.parametrize(
    "options",
    [
        *({"timeout": -1}, {"atomic": True}, {"aliases": ["old"]}),
        *({"max_attempts": 0}, {"max_attempts": 2}, {"unique": Unique()}),
        *({"priority": 3}, {"queue_name": "mail"}, {"backend": "second"}),
    ],
)
def test_a_task_cannot_be_declared_again_with_options_that_are_others_or_wrong(options):
    task(bill)
    with pytest.raises(framework.InvalidTask, match=next(iter(options))):
        task(**options)(bill)


def test_the_advice_for_two_tasks_of_one_name_is_one_that_can_be_followed():
    task(bill)
    other = FunctionType(bill.__code__, bill.__globals__, "bill")
    other.__module__, other.__qualname__ = bill.__module__, bill.__qualname__
    with pytest.raises(DuplicateKind, match="Rename one of them"):
        task(other)


def test_a_copy_may_differ_from_the_declaration_and_be_copied_again():
    copy = task(bill).using(priority=3, queue_name="mail", max_attempts=2, unique_key="k")
    again = copy.using(backend="second")
    assert (again.priority, again.queue_name, again.unique_key) == (3, "mail", "k")
    assert task(bill).priority == 0


def test_using_refuses_what_the_worker_reads_from_the_declaration():
    with pytest.raises(InvalidOption, match=r"'timeout'.* Write it into @task"):
        tasks.add_up.using(timeout=3)


def test_using_lists_what_it_takes():
    with pytest.raises(InvalidOption) as error:
        tasks.add_up.using(colour="red")
    for name in ("priority", "queue_name", "run_after", "backend", "max_attempts", "subject"):
        assert name in str(error.value)


@pytest.mark.parametrize("option", ["unique_key", "concurrency_key", "subject"])
def test_what_is_for_using_is_not_declared(option):
    with pytest.raises(framework.InvalidTask, match=rf"^{option} .*\.using\({option}="):
        task(**{option: "x"})(bill)


def test_run_after_is_not_declared():
    with pytest.raises(TypeError, match=r"using\(run_after="):
        task(run_after=3)(bill)


@pytest.mark.parametrize("function", [count, count_async])
def test_a_generator_is_no_task(function):
    with pytest.raises(framework.InvalidTask, match="generator"):
        task(function)


@pytest.mark.parametrize(
    "options",
    [{"max_attempts": 0}, {"timeout": -1}, {"retry": 5}, {"unique": Unique(key="nobody")}],
)
def test_an_invalid_option_makes_an_invalid_task(options):
    with pytest.raises(framework.InvalidTask):
        task(**options)(bill)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError):
        task(colour="red")(bill)


def test_atomic_is_for_sync_functions():
    with pytest.raises(framework.InvalidTask, match="atomic"):
        task(atomic=True)(wait)


@pytest.mark.skipif(django.VERSION < (6, 1), reason="The framework does not pickle tasks before.")
def test_a_task_can_be_pickled():
    copy = tasks.add_up.using(priority=3, max_attempts=7, unique_key="k")
    for chosen in (tasks.add_up, copy):
        again = pickle.loads(pickle.dumps(chosen))  # noqa: S301 -- our own
        assert again == chosen
        assert (again.max_attempts, again.unique_key) == (chosen.max_attempts, chosen.unique_key)


@pytest.mark.parametrize("run_after", [5, "soon", datetime.date(2999, 1, 1)])
def test_what_run_after_takes_is_said(run_after):
    with pytest.raises(framework.InvalidTask, match="a datetime or a timedelta"):
        tasks.add_up.using(run_after=run_after)


def test_a_task_of_another_backend_can_be_enqueued_here(settings):
    settings.TASKS = {
        "default": {
            "BACKEND": framework.BaseTaskBackend.__module__.replace("base", "dummy")
            + ".DummyBackend"
        },
        "jobs": {"BACKEND": "django_pgjobs.tasks.PgJobsBackend"},
    }
    plain = task(bill)
    assert not isinstance(plain, PgJobsTask)

    result = plain.using(backend="jobs").enqueue(1)

    assert stored()[0] == f"{__name__}.bill"
    assert framework.task_backends["jobs"].get_result(result.id).task == plain.using(backend="jobs")


def test_a_backend_is_made_before_the_models_are_there_and_for_each_thread(monkeypatch):
    monkeypatch.setattr("django.apps.registry.apps.models_ready", False)
    found = []
    thread = threading.Thread(target=lambda: found.append(framework.task_backends["default"]))
    thread.start()
    thread.join()
    assert isinstance(found[0], PgJobsBackend)
    assert found[0] is not framework.task_backends["default"]


# -------------------------------------------------------------------------------------- checks


def ids_of(settings, **params):
    settings.TASKS = {"default": {"BACKEND": "django_pgjobs.tasks.PgJobsBackend", **params}}
    return [message.id for message in checks.run_checks()]


def test_a_good_backend_has_no_faults(settings):
    assert ids_of(settings, QUEUES=["default", "mail"]) == []


def test_checks_name_each_fault_of_the_settings(settings):
    assert ids_of(settings, OPTIONS={"database": "other"}, QUEUES=["a b"]) == [
        "pgjobs.E021",
        "pgjobs.E022",
    ]


@pytest.mark.parametrize("queues", [5, None, "mail", b"mail", [["mail"]], [5]])
def test_queues_that_are_no_list_of_names_are_a_fault_and_keep_no_task_from_being_declared(
    settings, queues
):
    assert ids_of(settings, QUEUES=queues) == ["pgjobs.E022"]
    assert task(queue_name="mail")(bill).queue_name == "mail"


def test_a_key_that_nobody_reads_is_warned_of(settings):
    assert ids_of(settings, queues=["mail"], OPTION={}) == ["pgjobs.W020"] * 2


def test_a_missing_app_is_a_fault(settings):
    backend = framework.task_backends["default"]
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django_pgjobs"]
    assert [message.id for message in backend.check()] == ["pgjobs.E020"]


def test_check_reaches_the_backend(settings):
    settings.TASKS = {
        "default": {"BACKEND": "django_pgjobs.tasks.PgJobsBackend", "OPTIONS": {"x": 1}}
    }
    with pytest.raises(Exception, match=r"pgjobs\.E021"):
        call_command("check")


def test_the_registry_knows_tasks_that_modules_have_declared():
    assert registry.find("tests.app.tasks.add_up", ask=False).task is tasks.add_up
    assert timezone.is_aware(tasks.add_up.enqueue(1).enqueued_at)
