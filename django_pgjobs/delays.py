"""Read a delay, which is a number of seconds or a timedelta.

Invariant: what `seconds()` returns is finite, not negative, and so short that any time the table can
reach today plus this delay is one that it can store.
"""

from __future__ import annotations

import datetime

LONGEST = 100 * 365.25 * 86_400  # seconds
EXPECTED = f"a timedelta or a number of seconds from 0 to {LONGEST:.0f} (100 years)"


def seconds(delay: object) -> float | None:
    """Return `delay` in seconds, or None where it is no delay."""
    if isinstance(delay, datetime.timedelta):
        delay = delay.total_seconds()
    number = isinstance(delay, int | float) and not isinstance(delay, bool)
    if number and 0 <= delay <= LONGEST:  # type: ignore[operator]  # false for NaN
        return float(delay)  # type: ignore[arg-type]
    return None
