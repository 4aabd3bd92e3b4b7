"""`manage.py newmonth`: what is due when a month begins, as jobs of one transaction."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from example_project.shop.jobs import collect_instalment, write_statement


class Command(BaseCommand):
    """Enqueue the pages of the customers' statements, and the instalments."""

    help = "Have the statements of these customers written, and the instalments collected."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("email", nargs="+")
        parser.add_argument("--pages", type=int, default=4, help="of each statement")
        parser.add_argument("--instalments", type=int, default=5, help="that are due")

    def handle(
        self, *_args: Any, email: list[str], pages: int, instalments: int, **_options: Any
    ) -> None:
        """Enqueue all of it, or nothing."""
        with transaction.atomic():
            write_statement.enqueue_many(
                {"email": each, "page": page} for page in range(1, pages + 1) for each in email
            )
            collect_instalment.enqueue_many({"number": n} for n in range(1, instalments + 1))
