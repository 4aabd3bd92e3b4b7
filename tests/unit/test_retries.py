# ruff: noqa: S311  jitter is no secret
from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.retries import DEFAULT, Exponential


@pytest.mark.parametrize("attempt", range(1, 16))
def test_the_delay_doubles_with_each_attempt(attempt):
    assert Exponential(jitter=0).delay(attempt, Random(1)) == 2**attempt


@settings(deadline=None)
@given(
    base=st.floats(1, 1_000),
    cap=st.floats(1, 1e9),
    jitter=st.floats(0, 0.9),
    attempt=st.integers(0, 2**31),
    seed=st.integers(0, 2**32),
)
def test_any_delay_is_above_zero_and_never_over_the_cap(base, cap, jitter, attempt, seed):
    delay = Exponential(base, cap, jitter).delay(attempt, Random(seed))
    assert 0 < delay <= cap


class Highest(Random):
    def random(self):
        return 1 - 2**-53


def test_rounding_does_not_carry_the_longest_delay_over_the_cap():
    policies = [
        Exponential(cap=cap, jitter=share / 10) for cap in range(1, 500) for share in range(9)
    ]
    for policy in policies:
        assert 0.999 * policy.cap < policy.delay(1_000, Highest()) <= policy.cap


@pytest.mark.parametrize("attempt", [17, 1_023, 1_024, 1_100, 32_767, 2**31])
def test_no_attempt_count_overflows_and_one_day_is_the_longest_default(attempt):
    delays = [DEFAULT.delay(attempt, Random(seed)) for seed in range(200)]
    assert max(delays) <= 86_400
    assert min(delays) > 60_000


@pytest.mark.parametrize("attempt", [1, 5, 12, 40])
def test_jobs_that_failed_together_come_back_spread_evenly_even_at_the_cap(attempt):
    rng = Random(7)
    delays = [DEFAULT.delay(attempt, rng) for _ in range(5_000)]
    middle = sum(delays) / len(delays)
    assert max(delays) - min(delays) > 0.199 * middle
    assert all(abs(delay - middle) < 0.105 * middle for delay in delays)
    first, width = min(delays), (max(delays) - min(delays)) / 40
    bins = [0] * 41
    for delay in delays:
        bins[int((delay - first) / width)] += 1
    assert max(bins) < 0.05 * len(delays)


def test_a_seed_repeats_its_delays():
    first, second = Random(42), Random(42)
    assert [DEFAULT.delay(n, first) for n in range(20)] == [
        DEFAULT.delay(n, second) for n in range(20)
    ]
    assert DEFAULT.delay(3, first) != DEFAULT.delay(3, first)


@pytest.mark.parametrize("option", ["base", "cap", "jitter"])
@pytest.mark.parametrize("value", [-1, -0.1, math.nan, math.inf, -math.inf, 1e10, "2", None, True])
def test_an_option_out_of_range_is_refused_by_name(option, value):
    with pytest.raises(
        InvalidOption, match=rf"^Exponential\.{option} must be a number from .* got "
    ):
        Exponential(**{option: value})


@pytest.mark.parametrize("option", ["base", "cap"])
def test_a_policy_without_any_wait_is_refused(option):
    with pytest.raises(InvalidOption):
        Exponential(**{option: 0})
