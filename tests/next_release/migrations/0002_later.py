from django.contrib.postgres.operations import (
    AddConstraintNotValid,
    AddIndexConcurrently,
    ValidateConstraint,
)
from django.db import migrations

from tests.next_release.additions import COLUMNS, constraint, index


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("django_pgjobs", "0001_initial")]
    operations = [
        *(
            migrations.AddField(model, name, field())
            for model, columns in COLUMNS.items()
            for name, field in columns.items()
        ),
        AddIndexConcurrently("job", index()),
        AddConstraintNotValid("job", constraint()),
        ValidateConstraint("job", constraint().name),
    ]
