"""The names that a queue of pgmq can have.

pgmq makes tables, indexes and channels of a name. Where it folds, cuts or refuses one, two names could mean
one table, or the name in its list another one than the table: what would be changed is refused here.

Invariant: what passes is a name that pgmq keeps as it is, known before any SQL.
"""

from __future__ import annotations

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.refusals import shown
from django_pgjobs.texts import is_storable

LONGEST = 47  # bytes: PostgreSQL cuts identifiers at 63, and pgmq puts up to 16 before a name

_REFUSED = ("$", ";", "--", "'")  # by pgmq itself


def check_name(name: object) -> str:
    """Return the name of a queue, or raise `InvalidOption`."""
    if not isinstance(name, str) or not name or not is_storable(name):
        raise _invalid("text that is not empty", name, "Name a queue.")
    if len(name.encode()) > LONGEST:
        got = f"{len(name.encode())} bytes, {shown(name)}"
        raise InvalidOption(
            f"The name of a queue must have at most {LONGEST} bytes in UTF-8, got {got}. Shorten it."
        )
    if any(part in name for part in _REFUSED):
        raise _invalid(f"without {', '.join(_REFUSED)}", name, "pgmq refuses them.")
    if name != name.lower():
        advice = f"Write {shown(name.lower())}: pgmq gives both names one table."
        raise _invalid("in lower case", name, advice)
    return name


def table_of(name: str) -> str:
    """Return the table of a queue as SQL with parameters may name it, whatever its name."""
    return 'pgmq."q_{}"'.format(name.replace('"', '""').replace("%", "%%"))


def _invalid(expected: str, got: object, advice: str) -> InvalidOption:
    return InvalidOption(f"The name of a queue must be {expected}, got {shown(got)}. {advice}")
