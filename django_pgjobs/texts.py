"""What text PostgreSQL can store.

Invariant: what passes here is stored and read back as it was given.
"""

from __future__ import annotations


def is_storable(text: str) -> bool:
    """Say whether it has neither NUL, which PostgreSQL's types refuse, nor lone surrogates, no UTF-8."""
    return "\x00" not in text and (text.isascii() or _is_unicode(text))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
