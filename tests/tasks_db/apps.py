from django.apps import AppConfig


class TasksDbConfig(AppConfig):
    name = "tests.tasks_db"
    label = "django_tasks_database"  # as the real one
