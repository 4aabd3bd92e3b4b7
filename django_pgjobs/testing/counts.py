"""Numbers that say how many of something."""

from __future__ import annotations

from django_pgjobs.exceptions import InvalidOption


def check_count(name: str, count: object) -> None:
    """Demand what can count something, or raise `InvalidOption`."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise InvalidOption(
            f"{name} must be a whole number from 0 on, got {count!r:.80}. Pass an int."
        )
