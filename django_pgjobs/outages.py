"""How long the database has been out of reach, and how long to go on trying.

Invariant: one that cannot be reached, or whose tables are to be migrated, is waited for without limit; one
that refuses statements for another reason, as after a failover, is not.
"""

from __future__ import annotations

import logging
import math
import time

from django_pgjobs.sessions import CONNECTION_ERRORS, SCHEMA_ERRORS, reason

logger = logging.getLogger(__name__)

_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.1, 5.0  # seconds between tries
_PATIENCE = 30.0  # seconds of refusals until the end


class Outage:
    """The failures of one caller since its last success."""

    def __init__(self) -> None:
        """Begin without any."""
        self.end()

    def end(self) -> None:
        """Take note of a success."""
        self._backoff = _FIRST_BACKOFF
        self._refused_since = math.inf

    def note(self, error: Exception) -> float:
        """Take note of a failure; return the seconds to wait until the next try."""
        refused = not isinstance(error, CONNECTION_ERRORS)
        ends = not refused or isinstance(error, SCHEMA_ERRORS)  # by itself, sooner or later
        self._refused_since = math.inf if ends else min(self._refused_since, time.monotonic())
        what = "refuses a statement" if refused else "cannot be reached"
        do = ". Run manage.py migrate." if refused and ends else ""
        logger.warning("The database %s, trying again: %s%s", what, reason(error), do)
        return self.pause()

    def pause(self) -> float:
        """Return the seconds to wait until the next try."""
        backoff = self._backoff
        self._backoff = min(backoff * 2, _LONGEST_BACKOFF)
        return backoff

    @property
    def hopeless(self) -> bool:
        """Whether it has refused for so long that it will not end by itself."""
        return time.monotonic() - self._refused_since > _PATIENCE
