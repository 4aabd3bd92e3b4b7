"""`@job`: what it takes, what it returns, and one handler for each kind."""

from __future__ import annotations

import asyncio
import datetime
import functools
import inspect

import pytest

from django_pgjobs import DuplicateKind, InvalidOption, JobType, UnknownKind, get_job, job
from django_pgjobs.registry import register
from tests.app import jobs as app_jobs

pytestmark = pytest.mark.usefixtures("kinds")


def test_bare_it_registers_a_function_under_its_own_name():
    @job
    def bare(a: int) -> int:
        """Say something."""
        return a + 1

    assert get_job("bare") is bare
    assert (bare.kind, bare.aliases, bare.is_async) == ("bare", (), False)
    assert bare.options.queue == "default"
    assert (bare.options.priority, bare.options.max_attempts) == (0, None)


def test_with_options_it_keeps_them():
    @job(kind="shop.mail", queue="mail", priority=7, max_attempts=3, aliases=["old", "older"])
    def with_options() -> None: ...

    assert get_job("shop.mail") is get_job("old") is get_job("older") is with_options
    assert (with_options.options.queue, with_options.options.priority) == ("mail", 7)
    assert with_options.options.max_attempts == 3
    with pytest.raises(UnknownKind):
        get_job("with_options")


def test_a_timeout_belongs_to_the_kind():
    @job(timeout=datetime.timedelta(seconds=90))
    def timed() -> None: ...

    assert timed.timeout == timed.using(priority=1).timeout == 90
    with pytest.raises(InvalidOption, match="timeout must be"):
        job(timeout=0)
    with pytest.raises(InvalidOption, match="no option 'timeout'"):
        timed.using(timeout=1)


def test_with_empty_brackets_it_is_as_bare():
    @job()
    def empty() -> None: ...

    assert get_job("empty") is empty


def test_the_function_can_be_called_as_itself():
    @job
    def called(a, b=2):
        return a, b

    assert called(1) == (1, 2)
    assert called(1, b=3) == (1, 3)
    assert isinstance(called, JobType)
    assert called.__name__ == "called"
    assert inspect.signature(called) == inspect.signature(called.handler)


def test_an_async_function_can_be_awaited_as_itself():
    @job
    async def acalled(a):
        return a + 1

    assert acalled.is_async
    assert asyncio.run(acalled(1)) == 2


def test_attributes_of_the_function_do_not_replace_those_of_the_job_type():
    def odd():
        pass

    odd.kind = odd.handler = odd.options = odd.signature = "wrong"
    odd.mark = "kept"

    declared = job(odd)

    assert (declared.kind, declared.handler) == ("odd", odd)
    assert declared.options.queue == "default"
    assert declared.mark == "kept"


def test_arguments_may_have_any_name():
    @job
    def named(self, kind, args, handler=None):
        return self, kind, args, handler

    payload = {"self": 1, "kind": 2, "args": 3}
    assert named(**payload) == (1, 2, 3, None)
    assert named._entry((), payload).payload == '{"self":1,"kind":2,"args":3}'


class Callable:
    def __call__(self):
        pass

    def method(self):
        pass


def generator():
    yield


async def agenerator():
    yield


@pytest.mark.parametrize(
    "handler",
    [
        generator,
        agenerator,
        Callable,
        Callable(),
        print,
        functools.partial(generator),
        app_jobs.noop,
    ],
    ids=["generator", "async generator", "class", "object", "builtin", "partial", "job"],
)
def test_what_is_no_plain_function_is_refused(handler):
    with pytest.raises(InvalidOption, match="@job needs a function"):
        job(kind="odd")(handler)
    with pytest.raises(UnknownKind):
        get_job("odd")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"queue": ""}, "^queue must"),
        ({"queue": "a,b"}, "^queue must"),
        ({"priority": "1"}, "^priority must"),
        ({"priority": 101}, "^priority must"),
        ({"max_attempts": 0}, "^max_attempts must"),
        ({"kind": ""}, "^kind must"),
        ({"kind": "x" * 201}, "^kind must"),
        ({"kind": "a b"}, "^kind must"),
        ({"kind": 5}, "^kind must"),
        ({"aliases": "old"}, "^aliases must"),
        ({"aliases": 5}, "^aliases must"),
        ({"aliases": [""]}, "^kind must"),
        ({"aliases": [None]}, "^kind must"),
        ({"que": "mail"}, "no option 'que'.*queue"),
        ({"max_attempt": 1}, "no option 'max_attempt'.*max_attempts"),
        ({"zzz": 1}, "no option 'zzz'.*It takes kind, queue"),
        ({"run_at": None}, "no option 'run_at'"),
        ({"database": "other"}, "no option 'database'"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_where_it_is_declared(options, named, kinds):
    before = dict(kinds)

    with pytest.raises(InvalidOption, match=named):

        @job(**options)
        def refused(): ...

    assert kinds == before


def test_two_handlers_of_one_kind_are_an_error_that_names_both():
    @job(kind="twice")
    def first(): ...

    with pytest.raises(DuplicateKind) as error:

        @job(kind="twice")
        def second(): ...

    message = str(error.value)
    assert "'twice'" in message
    assert "first" in message
    assert "second" in message
    assert message.count("test_registry.py:") == 2
    assert get_job("twice") is first


def test_an_alias_is_a_kind_too():
    @job(aliases=["old"])
    def first(): ...

    with pytest.raises(DuplicateKind, match="'old'"):

        @job(kind="new", aliases=["newer", "old"])
        def second(): ...

    with pytest.raises(DuplicateKind, match="'old'"):

        @job
        def old(): ...

    for kind in ("new", "newer"):
        with pytest.raises(UnknownKind):
            get_job(kind)


def test_the_same_function_again_replaces_its_older_self():
    @job
    def reloaded(): ...

    again = JobType(reloaded.handler, "reloaded", reloaded.options)
    register(again)

    assert get_job("reloaded") is again


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("nop", "'noop'"),
        ("Noop", "'noop'"),
        ("bom", "'boom'"),
        ("os.system", "Declare its handler"),
        ("", "Declare its handler"),
        ("..", "Declare its handler"),
        (None, "Declare its handler"),
        ([], "Declare its handler"),
        (app_jobs.noop, "Call its own enqueue"),
    ],
)
def test_an_unknown_kind_is_an_error_with_the_nearest_known_ones(kind, hint):
    with pytest.raises(UnknownKind, match=hint) as error:
        get_job(kind)

    assert isinstance(error.value, LookupError)


def test_an_endless_kind_makes_a_short_message():
    with pytest.raises(UnknownKind) as error:
        get_job("." * 10_000)

    assert len(str(error.value)) < 500


def test_using_gives_a_copy_and_leaves_the_kind_as_it_was():
    noop = get_job("noop")

    changed = noop.using(queue="mail", priority=3).using(max_attempts=2)

    assert (changed.kind, changed.handler) == (noop.kind, noop.handler)
    assert (changed.options.queue, changed.options.priority) == ("mail", 3)
    assert changed.options.max_attempts == 2
    assert noop.options.queue == "default"
    assert get_job("noop") is noop


@pytest.mark.parametrize("option", ["que", "kind", "aliases", "retry"])
def test_using_refuses_an_option_that_it_does_not_have(option):
    with pytest.raises(InvalidOption, match=rf"using\(\) has no option '{option}'"):
        get_job("noop").using(**{option: "x"})


@pytest.mark.parametrize(
    ("option", "place"),
    [
        ("rate", r"@job, or for a queue into PGJOBS\['QUEUES'\]"),
        ("concurrency", r"@job, or for a queue into PGJOBS\['QUEUES'\]"),
        *((name, "@job") for name in ("ordered", "schedule", "retry", "timeout", "kind")),
    ],
)
def test_using_says_where_an_option_of_the_kind_belongs(option, place):
    said = (
        rf"^using\(\) has no option '{option}', which is one of the kind\. Write it into {place}\.$"
    )
    with pytest.raises(InvalidOption, match=said):
        get_job("noop").using(**{option: 3})


def test_a_job_type_says_what_it_is():
    assert repr(get_job("noop")).startswith("<JobType noop: noop (")


def test_two_closures_of_one_function_are_two_handlers(kinds):
    def make(n):
        def handler() -> int:
            return n

        return handler

    job(kind="closure")(make(1))

    with pytest.raises(DuplicateKind):
        job(kind="closure")(make(2))


def test_two_handlers_behind_a_decorator_without_wraps_are_not_taken_for_one(kinds):
    def bare(handler):
        def wrapper(**kwargs: object) -> object:
            return handler(**kwargs)

        return wrapper

    job(bare(lambda: "pay"))

    with pytest.raises(DuplicateKind):
        job(bare(lambda: "refund"))


def test_a_lambda_needs_a_kind(kinds):
    with pytest.raises(InvalidOption, match="kind="):
        job(lambda: None)
