"""Numbers of things in the English of logs and commands; what pages show, gettext puts in the plural.

Invariant: one is one, and never `1 jobs`.
"""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """Return such as `1 job` and `1,200 jobs`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
