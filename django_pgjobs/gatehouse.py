"""The table of gates: what limits lock and where rates keep their time.

Invariant: a row holds no count. The running jobs are the truth, so nothing here can leak.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Value
from django.db.models.functions import Now


class Gate(models.Model):
    """What a claim locks before it counts the running jobs of a key, or of a limited queue."""

    # No page shows it, so nothing here is translated.
    name = models.CharField(max_length=210, primary_key=True)
    visit = models.BigIntegerField(db_default=0)  # the mark of the claim that locked it last
    next_at = models.DateTimeField(
        db_default=Now()
    )  # the start that its rate allows next, or the last
    # How many microseconds behind that the last start of each rate is: see `gates`.
    rates = models.JSONField(db_default=Value({}, models.JSONField()))

    def __str__(self) -> str:
        return self.name
