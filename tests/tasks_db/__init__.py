"""What `pgjobs import-tasks` needs of django-tasks-db, for where that is not installed: its table."""
