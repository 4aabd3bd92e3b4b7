# ruff: noqa: S311  jitter is no secret
"""Policies and rules: finite delays whatever is asked of them, and refusals of what makes no sense."""

from __future__ import annotations

import datetime
import functools
import math
from dataclasses import FrozenInstanceError
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_pgjobs import Discard, Exponential, Fixed, InvalidOption, Linear, Retry, Snooze
from django_pgjobs.delays import LONGEST
from django_pgjobs.exceptions import InvalidDelay, JobTimeout
from django_pgjobs.retries import DEFAULT, DEFAULTS, Retries, check_retries

ERROR = ValueError("boom")
NO_NUMBERS = [-1, -0.1, math.nan, math.inf, -math.inf, 1e10, 10**400, "2", None, True, [1]]
YEAR_LIKE = 2**31  # attempts that a row can hold, and more


def delay(policy, attempt, rng, error=ERROR):
    return Retries(policy).delay(attempt, error, rng)


# ---------------------------------------------------------------------------------------- policies

caps = st.floats(1, 1e9)
jitters = st.floats(0, 0.9)
policies = st.one_of(
    st.builds(Exponential, st.floats(1, 1_000), caps, jitters),
    st.builds(Linear, st.floats(0.1, 1e9), caps, jitters),
    st.builds(Fixed, st.lists(st.floats(0, 1e9), min_size=1, max_size=20), jitters),
)


@settings(deadline=None)
@given(policy=policies, attempt=st.integers(0, YEAR_LIKE), seed=st.integers(0, 2**32))
def test_any_delay_is_a_number_from_zero_to_the_cap(policy, attempt, seed):
    found = delay(policy, attempt, Random(seed))
    assert 0 <= found <= policy.cap
    assert math.isfinite(found)


@settings(deadline=None)
@given(policy=policies, attempt=st.integers(1, YEAR_LIKE), seed=st.integers(0, 2**32))
def test_a_delay_is_spread_by_the_jitter_around_what_the_policy_says(policy, attempt, seed):
    middle = policy(attempt)
    found = delay(policy, attempt, Random(seed))
    assert found <= middle * (1 + policy.jitter) * (1 + 1e-9)
    # A capped one is spread below the cap, so it may be as much shorter again.
    assert found >= middle * (1 - policy.jitter) / (1 + policy.jitter) * (1 - 1e-9)


@settings(deadline=None)
@given(
    policy=policies.filter(lambda policy: not isinstance(policy, Fixed)),
    attempt=st.integers(1, YEAR_LIKE),
    more=st.integers(0, YEAR_LIKE),
)
def test_exponential_and_linear_never_wait_shorter_after_a_later_attempt(policy, attempt, more):
    assert policy(attempt) <= policy(attempt + more) <= policy.cap


@pytest.mark.parametrize("attempt", range(1, 16))
def test_the_exponential_delay_doubles_with_each_attempt(attempt):
    assert delay(Exponential(jitter=0), attempt, Random(1)) == Exponential()(attempt) == 2**attempt


def test_the_linear_delay_grows_by_its_step_up_to_the_cap():
    policy = Linear(20, cap=70)
    assert [policy(attempt) for attempt in range(1, 6)] == [20, 40, 60, 70, 70]


def test_fixed_delays_come_one_after_the_other_and_the_last_one_again_and_again():
    policy = Fixed([1, datetime.timedelta(minutes=1), 0])
    assert [policy(attempt) for attempt in (1, 2, 3, 4, 10_000)] == [1, 60, 0, 0, 0]


class Highest(Random):
    def random(self):
        return 1 - 2**-53


def test_rounding_does_not_carry_the_longest_delay_over_the_cap():
    made = [
        policy(cap=cap, jitter=share / 10)
        for policy in (Exponential, Linear)
        for cap in range(1, 500)
        for share in range(9)
    ]
    for policy in made:
        assert 0.999 * policy.cap < delay(policy, 100_000, Highest()) <= policy.cap


@pytest.mark.parametrize("attempt", [17, 1_023, 1_024, 1_100, 10_000, 32_767, 2**31])
def test_no_attempt_count_overflows_and_one_day_is_the_longest_default(attempt):
    for policy in (DEFAULT, Exponential(1_000), Exponential(5), Linear(10_000)):
        delays = [delay(policy, attempt, Random(seed)) for seed in range(200)]
        assert max(delays) <= 86_400
        assert min(delays) > 60_000


@pytest.mark.parametrize(
    "policy",
    [DEFAULT, Linear(), Fixed([30]), lambda attempt, error: 30],
    ids=["exponential", "linear", "fixed", "function"],
)
@pytest.mark.parametrize("attempt", [1, 5, 12, 40])
def test_jobs_that_failed_together_come_back_spread_evenly_even_at_the_cap(policy, attempt):
    rng = Random(7)
    delays = [delay(policy, attempt, rng) for _ in range(5_000)]
    middle = sum(delays) / len(delays)
    share = 0.2 if hasattr(policy, "jitter") else 0.095  # a function's are only ever longer
    assert max(delays) - min(delays) > 0.99 * share * middle
    assert all(abs(each - middle) < 0.105 * middle for each in delays)
    first, width = min(delays), (max(delays) - min(delays)) / 40
    bins = [0] * 41
    for each in delays:
        bins[int((each - first) / width)] += 1
    assert max(bins) < 0.05 * len(delays)


def test_a_seed_repeats_its_delays():
    first, second = Random(42), Random(42)
    assert [delay(DEFAULT, n, first) for n in range(20)] == [
        delay(DEFAULT, n, second) for n in range(20)
    ]
    assert delay(DEFAULT, 3, first) != delay(DEFAULT, 3, first)


@pytest.mark.parametrize("option", ["base", "cap", "jitter"])
@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_an_option_of_exponential_out_of_range_is_refused_by_name(option, value):
    with pytest.raises(
        InvalidOption, match=rf"^Exponential\.{option} must be a number from .* got .*\. Choose"
    ):
        Exponential(**{option: value})


@pytest.mark.parametrize("option", ["step", "cap", "jitter"])
@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_an_option_of_linear_out_of_range_is_refused_by_name(option, value):
    with pytest.raises(InvalidOption, match=rf"^Linear\.{option} must be a number from .* got "):
        Linear(**{option: value})


@pytest.mark.parametrize(("policy", "option"), [(Exponential, "base"), (Linear, "step")])
def test_a_policy_without_any_wait_is_refused(policy, option):
    for name in (option, "cap"):
        with pytest.raises(InvalidOption, match=rf"\.{name} must"):
            policy(**{name: 0})


@pytest.mark.parametrize("value", [*NO_NUMBERS, datetime.timedelta(-1), datetime.timedelta.max])
def test_a_fixed_delay_out_of_range_is_refused_by_its_place(value):
    with pytest.raises(InvalidOption, match=r"^Fixed\.delays\[1\] must be .* got .*\. Choose"):
        Fixed([1, value])


@pytest.mark.parametrize("value", [[], (), 5, "15", {1: 2}, None, [1] * 1_001, iter([1])])
def test_what_is_no_list_of_delays_is_refused(value):
    with pytest.raises(InvalidOption, match=r"^Fixed\.delays must be a list of 1 to 1000 delays"):
        Fixed(value)


def test_policies_are_values():
    assert Exponential() == Exponential(2) != Exponential(3)
    assert Fixed([1, 5]) == Fixed((1, datetime.timedelta(seconds=5)))
    assert len({Linear(), Linear(60), Fixed([1]), Fixed([1.0])}) == 2
    for policy in (Exponential(3, cap=100), Linear(5), Fixed([1, 5, 60])):
        assert eval(repr(policy)) == policy  # noqa: S307 -- our own text
        with pytest.raises(FrozenInstanceError):
            policy.jitter = 0


# ----------------------------------------------------------------------------- functions as policies


def test_a_function_is_asked_with_the_attempt_and_its_error_and_gets_at_least_what_it_says():
    asked = []

    def policy(attempt, error):
        asked.append((attempt, error))
        return datetime.timedelta(seconds=40)

    delays = [delay(policy, 3, Random(seed)) for seed in range(200)]
    assert set(asked) == {(3, ERROR)}
    assert 40 <= min(delays) < 40.5
    assert 43.5 < max(delays) <= 44


def test_a_policy_can_be_made_of_another():
    policy = check_retries(lambda n, e: Exponential()(n) + Fixed([1])(n, e), None, None).policy
    assert policy(3, ERROR) == 9


NONSENSE = [None, "5", -1, -0.001, math.nan, math.inf, True, [5], 1e12, datetime.timedelta.max]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=repr)
def test_what_a_function_says_that_is_no_delay_is_an_error(nonsense):
    with pytest.raises(InvalidDelay, match=r"^A delay must be .*, got "):
        delay(lambda attempt, error: nonsense, 1, Random(1))


def test_the_longest_delay_of_a_function_is_not_spread_beyond_itself():
    assert delay(lambda attempt, error: LONGEST, 1, Highest()) == LONGEST


async def acoroutine(attempt, error): ...


class Method:
    def policy(self, attempt, error):
        return 5

    def __call__(self, attempt, error):
        return 6


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (Method().policy, 5),
        (Method(), 6),
        (functools.partial(Method.policy, None), 5),
        (lambda *args: 7, 7),
        (max, None),  # a builtin that does not tell what it takes
    ],
)
def test_any_callable_of_two_is_a_policy(function, said):
    policy = check_retries(function, None, None).policy
    assert policy is function
    assert said is None or policy(1, ERROR) == said


@pytest.mark.parametrize(
    ("retry", "advice"),
    [
        (5, "a list of one"),
        ("exponential", "a list of one"),
        (True, "a list of one"),
        ({}, "a list of one"),
        (Exponential, r"Write Exponential\(\), with brackets"),
        (acoroutine, "Make it a def"),
        (lambda: 5, "two parameters"),
        (lambda attempt: 5, "two parameters"),
        (lambda a, b, c: 5, "two parameters"),
        (lambda a, *, b: 5, "two parameters"),
    ],
)
def test_what_is_no_policy_is_refused_where_it_is_declared(retry, advice):
    with pytest.raises(InvalidOption, match=rf"^retry must be .*, got .*\. .*{advice}"):
        check_retries(retry, None, None)


@pytest.mark.parametrize("retry", [[1, 5, 60], (1, 5, 60), Fixed([1, 5, 60])], ids=repr)
def test_a_list_of_delays_means_fixed(retry):
    assert check_retries(retry, None, None).policy == Fixed([1, 5, 60])


@pytest.mark.parametrize("retry", [[], [-1], [1, "5"]])
def test_a_bad_list_is_refused_as_fixed_delays(retry):
    with pytest.raises(InvalidOption, match=r"^Fixed\.delays"):
        check_retries(retry, None, None)


# ----------------------------------------------------------------------------- retry_on, discard_on


class Late(ConnectionError):
    pass


class Both(Late, KeyError):
    pass


def gives_up(error, retry_on=None, discard_on=None):
    return check_retries(None, retry_on, discard_on).delay(1, error, Random(1)) is None


def test_without_the_options_every_error_is_retried():
    assert check_retries(None, None, None) is DEFAULTS
    for error in (ERROR, Late(), KeyboardInterrupt(), JobTimeout(), ExceptionGroup("g", [ERROR])):
        assert not gives_up(error)


@pytest.mark.parametrize(
    ("error", "retry_on", "discard_on", "expected"),
    [
        (Late(), ConnectionError, None, False),
        (Late(), (KeyError, OSError), None, False),
        (ERROR, ConnectionError, None, True),
        (JobTimeout(), [ConnectionError], None, True),
        (ERROR, None, ValueError, True),
        (Late(), None, {ConnectionError, KeyError}, True),
        (ERROR, None, ConnectionError, False),
        (ERROR, None, Exception, True),
        # both cover it: given up, however near each is
        (Late(), OSError, ConnectionError, True),
        (ConnectionError(), OSError, Late, False),
        (Both(), KeyError, Late, True),
        (Both(), ConnectionError, KeyError, True),
        # an error is what left the handler, not what is inside it
        (ExceptionGroup("g", [Late()]), ConnectionError, None, True),
        (ExceptionGroup("g", [ERROR]), None, ValueError, False),
    ],
)
def test_which_errors_are_given_up(error, retry_on, discard_on, expected):
    assert gives_up(error, retry_on, discard_on) is expected


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_what_is_no_exception_is_retried_whatever_is_declared(error):
    assert not gives_up(error, ConnectionError, ValueError)


def test_what_a_handler_asks_for_is_overruled_by_neither():
    for asked in (Retry(), Retry(5), Snooze(5), InvalidDelay()):
        assert not gives_up(asked, ConnectionError, ValueError)
        assert not gives_up(asked, discard_on=Exception)
    assert gives_up(Discard("no"), retry_on=Exception)
    assert not gives_up(Retry(5), retry_on=Retry)
    assert gives_up(ERROR, retry_on=Retry)


@pytest.mark.parametrize("option", ["retry_on", "discard_on"])
@pytest.mark.parametrize(
    "value",
    [
        (), [], "ValueError", ValueError("x"), 5, int, BaseException, KeyboardInterrupt,
        (ValueError, SystemExit), (ValueError, (KeyError,)), (ValueError, None), lambda error: True,
    ],
)  # fmt: skip
def test_what_is_no_exception_type_is_refused_by_the_option_s_name(option, value):
    given = {"retry": None, "retry_on": None, "discard_on": None, option: value}
    with pytest.raises(InvalidOption, match=rf"^{option} must be a subclass of Exception .*, got "):
        check_retries(*given.values())


@pytest.mark.parametrize(
    ("retry_on", "discard_on"),
    [(Late, Late), (Late, OSError), ((KeyError, Late), (ValueError, OSError)), (Exception,) * 2],
)
def test_an_entry_of_retry_on_that_could_never_count_is_refused(retry_on, discard_on):
    with pytest.raises(InvalidOption, match=r"^retry_on must be something .*, got \w+, which"):
        check_retries(None, retry_on, discard_on)


# ------------------------------------------------------------------------- what handlers can raise


@pytest.mark.parametrize("asked", [Retry, Snooze])
@pytest.mark.parametrize(
    ("given_delay", "seconds"),
    [
        (0, 0), (0.5, 0.5), (90, 90), (LONGEST, LONGEST),
        (datetime.timedelta(hours=1), 3_600), (datetime.timedelta(0), 0),
    ],
    ids=repr,
)  # fmt: skip
def test_a_delay_is_seconds_or_a_timedelta(asked, given_delay, seconds):
    raised = asked(given_delay)
    assert raised.delay == seconds
    assert type(raised)(*raised.args).delay == seconds  # as copies and pickles are made


@pytest.mark.parametrize("asked", [Retry, Snooze])
@pytest.mark.parametrize(
    "bad",
    [
        -1, -1e-9, math.nan, math.inf, -math.inf, LONGEST + 1, 10**400, "60", True, [60],
        datetime.timedelta(seconds=-1), datetime.timedelta.max, datetime.date(2030, 1, 1),
    ],
    ids=repr,
)  # fmt: skip
def test_a_bad_delay_is_refused_where_it_is_written(asked, bad):
    with pytest.raises(
        InvalidDelay, match=rf"^{asked.__name__}\.delay must be a timedelta or .*, got .*\. Use max"
    ):
        asked(bad)


def test_a_delay_that_a_handler_names_is_kept_to_the_second():
    for attempt in (1, 40):
        assert delay(Exponential(), attempt, Random(1), Retry(90)) == 90
        assert delay(Exponential(), attempt, Random(1), Retry(0)) == 0
    assert delay(Fixed([30], jitter=0), 1, Random(1), Retry()) == 30


def test_a_retry_tells_its_delay_and_its_reason():
    assert str(Retry()) == "The handler asked for another attempt."
    with pytest.raises(Retry) as raised:
        raise Retry(90) from ValueError("busy")
    assert (
        str(raised.value)
        == "The handler asked for another attempt in 90 s. Its reason: ValueError('busy')"
    )
    assert str(Discard("no such order")) == "no such order"
