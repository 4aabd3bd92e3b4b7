"""`manage.py pgjobs`: ask about jobs, act on them, and examine what they run on."""

from __future__ import annotations

from typing import ClassVar

from django_pgjobs.management import acting, arguments, asking, examining, granting, importing
from django_pgjobs.management.verbs import Verb, VerbCommand

_ASKS = "viewer"  # the role of who asks and changes nothing
VERBS = {
    "stats": Verb(
        asking.stats, "what is in each queue, and how many workers there are", part=_ASKS
    ),
    "list": Verb(asking.list_jobs, "jobs, by status, queue and kind", asking.add_list, _ASKS),
    "show": Verb(
        asking.show, "all that is stored of one job, secrets masked", asking.add_id, _ASKS
    ),
    "explain": Verb(asking.explain, "why a job is not running", asking.add_id, _ASKS),
    "retry": Verb(acting.retry, "give jobs a new set of attempts", acting.add_choice, "worker"),
    "cancel": Verb(
        acting.cancel, "cancel jobs, ask running ones to stop", acting.add_choice, "worker"
    ),
    "pause": Verb(acting.pause, "have no worker claim from a queue", acting.add_queue),
    "resume": Verb(acting.resume, "let workers claim from it again", acting.add_queue),
    "check": Verb(examining.check, "whether this code can run every waiting job", part=_ASKS),
    "doctor": Verb(
        examining.examine,
        "what makes jobs slow, late or lost, and what to do",
        examining.add_level,
        _ASKS,
    ),
    "grants": Verb(
        granting.grants, "print the SQL that gives roles what they need", granting.add_roles, _ASKS
    ),
    "import-tasks": Verb(
        importing.import_tasks,
        "make jobs of the tasks that wait in django-tasks-db",
        importing.add_options,
    ),
}


class Command(VerbCommand):
    """Ask, act, examine."""

    help = "Ask about jobs, act on them, and examine what they run on."
    verbs: ClassVar = VERBS
    database_help = "the database of the jobs, if no router says it"

    def database(self, alias: str | None) -> str:
        """Return the database of the jobs."""
        return arguments.jobs_database(alias)
