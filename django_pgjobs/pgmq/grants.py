"""Which privileges on pgmq a role needs that does not own it, as SQL.

Invariant: pgmq's functions run with the rights of who calls them, so these are all that there is; who creates and
drops queues must own them.
"""

from __future__ import annotations

_LOOKS = {"tables": "SELECT", "sequences": "SELECT"}  # figures read the last id that was given out
_USES = {**_LOOKS, "tables": "SELECT, INSERT, UPDATE, DELETE, TRUNCATE"}  # the last one to purge


def grants(role: str, *, looks_only: bool) -> list[str]:
    """Return what lets a role, quoted, look at all queues or use them; the second half is for queues to come."""
    privileges = _LOOKS if looks_only else _USES
    return [
        f"GRANT USAGE ON SCHEMA pgmq TO {role};",
        *(
            f"GRANT {which} ON ALL {kind.upper()} IN SCHEMA pgmq TO {role};"
            for kind, which in privileges.items()
        ),
        *(
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA pgmq GRANT {which} ON {kind.upper()} TO {role};"
            for kind, which in privileges.items()
        ),
    ]
