from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations

from tests.next_release.additions import constraint, fields


class Migration(migrations.Migration):
    dependencies = [("django_pgjobs", "0002_functions")]
    operations = [*fields("Job"), AddConstraintNotValid("job", constraint())]
