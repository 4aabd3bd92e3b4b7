from django.contrib.postgres.operations import AddIndexConcurrently, ValidateConstraint
from django.db import migrations

from tests.next_release.additions import constraint, index


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("django_pgjobs", "0007_schedule")]
    operations = [
        ValidateConstraint("job", constraint().name),
        AddIndexConcurrently("job", index()),
    ]
