"""The examinations of `pgjobs`: check a deploy, and look for what is wrong."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django_pgjobs import deploy_checks, doctor
from django_pgjobs.doctor.findings import Severity
from django_pgjobs.management import answers
from django_pgjobs.management.answers import FOUND, Answer


def check(database: str, _options: dict[str, Any]) -> Answer:
    """Find waiting jobs that this code cannot run."""
    misfits = deploy_checks.misfits(database)
    if not misfits:
        return Answer({"misfits": []}, "This code can run every waiting job.")
    columns = ("kind", "problem", "jobs", "example")
    lines = [answers.table(columns, (one[:4] for one in misfits)), ""]
    lines += [answers.printable(one.text) for one in misfits]
    return Answer({"misfits": [one._asdict() for one in misfits]}, "\n".join(lines), FOUND)


def add_level(parser: ArgumentParser) -> None:
    """Declare what is bad enough."""
    parser.add_argument(
        "--fail-level",
        choices=[Severity.WARNING.value, Severity.ERROR.value],
        default=Severity.ERROR.value,
        help="exit with 1 from this severity on (default error)",
    )


def examine(database: str, options: dict[str, Any]) -> Answer:
    """Look for what makes jobs slow, late or lost."""
    findings = doctor.examine(database)
    worst = max((finding.severity for finding in findings), key=lambda one: one.rank)
    lines = []
    for finding in findings:
        what = answers.printable(finding.what)
        lines.append(f"{finding.severity.upper():<7}  {finding.check}: {what}")
        if finding.do:
            lines.append(f"{'':<9}{answers.printable(finding.do)}")
    data = {"severity": worst, "findings": [finding._asdict() for finding in findings]}
    is_bad = worst.rank >= Severity(options["fail_level"]).rank
    return Answer(data, "\n".join(lines), FOUND if is_bad else 0)
