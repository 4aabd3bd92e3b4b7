"""What the later release adds to each model."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models import Q, Value
from django.db.models.functions import Now

COLUMNS = {
    "Job": {
        "note": lambda: models.TextField(null=True),
        "weight": lambda: models.IntegerField(db_default=1),
        "labels": lambda: models.JSONField(db_default=Value([], models.JSONField())),
        "seen_at": lambda: models.DateTimeField(db_default=Now()),
    },
    "Worker": {"region": lambda: models.CharField(max_length=20, db_default="")},
    "Queue": {"note": lambda: models.TextField(null=True)},
    "Gate": {"note": lambda: models.TextField(null=True)},
    "Figure": {"waste": lambda: models.FloatField(db_default=0)},
    "Schedule": {"note": lambda: models.TextField(db_default="")},
}


def fields(model: str) -> list[migrations.AddField]:
    return [migrations.AddField(model, name, field()) for name, field in COLUMNS[model].items()]


def index() -> models.Index:
    return models.Index("weight", name="pgjobs_job_weight", condition=Q(status="pending"))


def constraint() -> models.CheckConstraint:
    return models.CheckConstraint(name="pgjobs_job_weight_range", condition=Q(weight__gte=0))
