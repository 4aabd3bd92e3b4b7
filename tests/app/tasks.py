"""Tasks of the framework for the tests, on whichever Django this is."""

from __future__ import annotations

import threading

from django_pgjobs import Fixed, Retry, Unique
from django_pgjobs.tasks import task


@task
def add_up(a, b=0):
    return a + b


@task
async def add_up_async(a, b=0):
    return a + b


@task
def collect(*args, **kwargs):
    return [list(args), kwargs]


@task
def subtract(a, /, b=1):
    return a - b


@task
def demand(a, *args, k):
    return [a, list(args), k]


@task(takes_context=True)
def collect_with_context(context, *args, **kwargs):
    return [context.attempt, list(args), kwargs]


@task
def fail(text="no"):
    raise ValueError(text)


@task(unique=Unique())
def once_at_a_time(a):
    return a


@task
def give_back(value):
    return value


@task
def give_back_nothing_storable():
    return threading.Lock()


@task(takes_context=True)
def tell_attempt(context, a=0):
    return [context.task_result.id, context.attempt, a]


@task(takes_context=True)
async def tell_attempt_async(context, a=0):
    return [context.task_result.id, context.attempt, a]


@task(takes_context=True)
def fail_twice(context):
    if context.attempt < 3:
        raise Retry(0)
    return context.task_result.worker_ids


@task(max_attempts=2, retry=Fixed([1]), timeout=30)
def try_twice():
    raise KeyError


def no_task():
    raise AssertionError
