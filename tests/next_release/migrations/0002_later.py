from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations

from tests.next_release.additions import COLUMNS, constraint


class Migration(migrations.Migration):
    dependencies = [("django_pgjobs", "0001_initial")]
    operations = [
        *(
            migrations.AddField(model, name, field())
            for model, columns in COLUMNS.items()
            for name, field in columns.items()
        ),
        AddConstraintNotValid("job", constraint()),
    ]
