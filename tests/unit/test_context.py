"""What a handler with a context is called with, and what it may say."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from fractions import Fraction

import pytest

from django_pgjobs import InvalidOption, InvalidPayload, JobCancelled, JobContext, job
from django_pgjobs.claims import Claim
from django_pgjobs.lines import Line, Progress

pytestmark = pytest.mark.usefixtures("kinds")


@pytest.fixture
def line():
    return Line()


@pytest.fixture
def context(line):
    return JobContext(Claim(7, "export", '{"order_id": 1}', 3, 2, 5, 4, "mail"), line)


def test_the_context_is_no_argument_of_a_payload():
    @job(takes_context=True)
    def export(context, order_id, *, copy=False): ...

    bind = export.signature.bind
    assert bind("export", (7,), {}) == {"order_id": 7}
    assert bind("export", (), {"order_id": 7, "copy": True}) == {"order_id": 7, "copy": True}
    for args, kwargs in [((7, 8), {}), ((), {"context": 1, "order_id": 7}), ((), {})]:
        with pytest.raises(InvalidPayload, match=r"must fit export\(order_id, \*, copy=False\)"):
            bind("export", args, kwargs)


def test_a_payload_of_any_keys_cannot_have_one_of_the_context_s_name():
    @job(takes_context=True)
    def named(context, **options): ...

    @job(takes_context=True)
    def unnamed(context, /, **options): ...

    with pytest.raises(InvalidPayload, match="'context', which is the context's"):
        named.signature.bind("named", (), {"context": 1})
    assert unnamed.signature.bind("unnamed", (), {"context": 1}) == {"context": 1}


def by_keyword(*, context): ...


def nothing(): ...


def many(*contexts): ...


@pytest.mark.parametrize("handler", [by_keyword, nothing, many])
def test_a_handler_without_a_place_for_the_context_is_refused(handler):
    with pytest.raises(InvalidOption, match="first argument is the context"):
        job(takes_context=True)(handler)


def test_takes_context_must_be_a_bool():
    with pytest.raises(InvalidOption, match="takes_context must be True or False, got 1"):
        job(takes_context=1)(lambda context: None)


def test_a_handler_is_called_by_hand_as_itself(context):
    @job(takes_context=True)
    def number(context, n):
        return context.attempt + n

    assert number(context, 1) == 4


def test_what_the_claim_has_read_costs_no_statement(context):
    assert context.attempt == 3
    known = context.job
    assert (known.pk, known.kind, known.queue, known.payload) == (
        7,
        "export",
        "mail",
        {"order_id": 1},
    )
    assert (known.status, known.attempts, known.attempts_before) == ("running", 3, 2)
    assert (known.max_attempts, known.claims) == (5, 4)
    assert context.job is known
    assert repr(context) == "<JobContext of export #7, attempt 3>"


def test_check_raises_once_the_job_is_to_stop(context, line):
    context.check()
    assert not context.cancelled
    line.asked = True
    assert context.cancelled
    with pytest.raises(JobCancelled, match="was cancelled while it ran"):
        context.check()


@pytest.mark.parametrize(
    ("fraction", "kept"),
    [
        (0, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 4), 0.25),
        (sum([0.1] * 3) / 0.3, 1.0),
        (-1e-12, 0.0),
    ],
)
def test_progress_is_a_fraction_of_the_whole(context, line, fraction, kept):
    context.progress(fraction, "half of it")
    assert line.said == Progress(kept, "half of it")


@pytest.mark.parametrize(
    "fraction",
    [
        *(-0.1, 1.1, 50, math.nan, math.inf, -math.inf, True, "0.5", None, 10**400, 0.5j),
        *(Decimal("1.1"), Decimal("nan"), Decimal("snan"), Decimal("inf"), Fraction(3, 2)),
    ],
)
def test_what_is_no_fraction_is_refused_and_says_nothing(context, line, fraction):
    with pytest.raises(InvalidOption, match="fraction must be a number from 0 to 1, got"):
        context.progress(fraction)
    assert line.said is None


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x" * 201, b"half", None, 5])
def test_a_text_that_cannot_be_stored_is_refused(context, line, text):
    with pytest.raises(InvalidOption, match="text must be a str of up to 200 characters"):
        context.progress(0.5, text)
    assert line.said is None


def test_progress_may_be_said_and_asked_for_in_async_code(context, line):
    async def handler():
        context.progress(0.5)
        context.check()
        return context.job.pk

    assert asyncio.run(handler()) == 7
    assert line.said == Progress(0.5, "")
