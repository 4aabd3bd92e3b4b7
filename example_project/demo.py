"""The demo: a shop, real processes, real rows, and what becomes of them when things go wrong.

It reads from top to bottom, as it is played. Each scene ends in a `Finding`, whose facts were looked up
in the database, on the disk or over HTTP. The exit status is 0 only if all of them are true.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from example_project.browser import Browser
from example_project.declared import Declared
from example_project.messages import Messages
from example_project.postgres import EmbeddedPostgresError
from example_project.processes import DemoError, exit_on_signals
from example_project.rows import JobRow, Rows
from example_project.stage import STAFF, Stage, set_up
from example_project.telling import Finding, report, say, scene

if TYPE_CHECKING:
    from pathlib import Path

ADA, BOB = "ada@example.com", "bob@example.com"
THE_LAST_UMBRELLA = "products/1/"
LEASE = 3  # seconds
INTERRUPTED = 130


class Play:
    """The scenes, and those who act in them: the customers Ada and Bob."""

    def __init__(self, stage: Stage, rows: Rows) -> None:
        self.stage = stage
        self.processes = stage.processes
        self.rows = rows
        self.ada, self.bob = Browser(stage.site), Browser(stage.site)

    def all_scenes(self) -> list[Finding]:
        """Play everything."""
        self.processes.start("worker", "runjobs", "--exclude", "documents")
        print("  a worker       manage.py runjobs --exclude documents", flush=True)
        # Both have the page open while there is one umbrella left.
        self.adas_page = self.ada.open(THE_LAST_UMBRELLA)
        self.bobs_page = self.bob.open(THE_LAST_UMBRELLA)
        findings = [
            self.a_commit_gives_a_receipt(),
            self.a_rollback_gives_nothing(),
            self.a_failed_job_is_tried_again(),
            self.a_hopeless_job_is_given_up(),
            self.staff_retry_it_in_the_admin(),
            self.a_killed_workers_job_is_finished_by_another(),
            self.bob_got_nothing_to_the_end(),
        ]
        messages = Messages(self.stage, self.rows)
        messages.send_a_return()
        findings += Declared(self.stage, self.rows, self.ada, self.order).all_scenes()
        return findings + messages.all_scenes()

    def a_commit_gives_a_receipt(self) -> Finding:
        """Ada's checkout: one transaction with an order and four jobs."""
        scene("1. A commit gives a receipt", "Ada orders the last umbrella over HTTP.")
        self.order = self.ada.submit(self.adas_page, email=ADA)
        if "/orders/" not in self.order.address:
            raise DemoError(
                f"Ada's checkout must lead to her order, got {self.order.address} with status "
                f"{self.order.status}.\n{self.stage.web.tail()}"
            )
        job = self._finished("send_receipt")
        receipts = self._receipts(ADA)
        for file in receipts:
            say(f"In the mail folder: {file.name}, {subject_of(file)}")
        return Finding(
            "a commit gives a receipt",
            job,
            {
                "Ada has one order": self.rows.orders(ADA) == 1,
                "the job of her receipt is done, at once": (job.status, job.attempts)
                == ("done", 1),
                "one e-mail to Ada lies in the mail folder": len(receipts) == 1,
            },
        )

    def a_rollback_gives_nothing(self) -> Finding:
        """Bob's checkout: the same lines of the same view, until it finds the stock empty."""
        scene(
            "2. A rollback gives neither an order nor a job",
            "Bob orders the same umbrella. His checkout inserts an order and four jobs, finds that",
            "the stock is empty, and rolls back.",
        )
        jobs_before, ids_before = len(self.rows.jobs()), self.rows.ids_given()
        answer = self.bob.submit(self.bobs_page, email=BOB)
        inserted = self.rows.ids_given() - ids_before
        jobs, orders = len(self.rows.jobs()) - jobs_before, self.rows.orders(BOB)
        say(f"Ids that PostgreSQL gave to Bob's jobs: {inserted}. Rows that are there: {jobs}.")
        return Finding(
            "a rollback gives neither order nor job",
            None,
            {
                "Bob is told that the umbrella is gone (409)": answer.status == 409,  # noqa: PLR2004
                "jobs were inserted in Bob's transaction": inserted > 0,
                "no job of Bob's exists": jobs == 0,
                "no order of Bob's exists": orders == 0,
            },
        )

    def a_failed_job_is_tried_again(self) -> Finding:
        """Have a courier who answers the third call only; the policy waits 2 s, then 4 s."""
        scene(
            "3. A failed job is tried again",
            "The courier's service answers only the third call. After the first failure the job",
            "waits about 2 s, after the second about 4 s.",
        )
        job = self._finished("book_courier")
        page = self.ada.open(self.order.address)
        return Finding(
            "a job fails twice, then succeeds",
            job,
            {
                "it is done after three attempts": (job.status, job.attempts) == ("done", 3),
                "the courier was called three times": self.rows.courier_calls() == 3,  # noqa: PLR2004
                "the two failures are noted": [e["attempt"] for e in job.errors] == [1, 2],
                "Ada's page shows the tracking code": "PARCEL-" in page.text,
            },
        )

    def a_hopeless_job_is_given_up(self) -> Finding:
        """Ask a partner who never answers, with a job that has two attempts."""
        scene(
            "4. A hopeless job is given up",
            "The loyalty programme has ended, and its job declares max_attempts=2. By now the row",
            "must say 'failed', and why.",
        )
        job = self._finished("add_loyalty_points")
        say(f"last_error: {job.last_error}")
        return Finding(
            "a job is given up, with its error",
            job,
            {
                "it has failed after two attempts": (job.status, job.attempts) == ("failed", 2),
                "its last error is what the partner said": "programme has ended" in job.last_error,
                "both failures are noted": [e["attempt"] for e in job.errors] == [1, 2],
            },
        )

    def staff_retry_it_in_the_admin(self) -> Finding:
        """Log in, find the failed job, and press the button of its page."""
        scene(
            "5. Staff retry it in the admin",
            "The partner is back. Somebody of the staff logs in, looks for failed jobs, opens this one",
            "and presses Retry: it gets two more attempts.",
        )
        (self.processes.folder / "loyalty").touch()
        staff = Browser(self.stage.site)
        staff.submit(staff.open("admin/login/"), username=STAFF, password=self.stage.password)
        listed = staff.open("admin/django_pgjobs/job/?status=failed&kind=add_loyalty_points")
        link = f"/admin/django_pgjobs/job/{self.rows.job('add_loyalty_points').id}/change/"
        if link not in listed.text:
            raise DemoError(f"The list must show the failed job, got status {listed.status}.")
        page = staff.open(link)
        answer = staff.submit(page, to="../act/retry/")
        job = self._finished("add_loyalty_points", "done")
        return Finding(
            "... retried in the admin, it succeeds",
            job,
            {
                "its page shows both errors": page.text.count("programme has ended") > 1,
                "the admin says that one job is retried": "Retry: 1 job." in answer.text,
                "it is done after three attempts in all": (job.status, job.attempts) == ("done", 3),
            },
        )

    def a_killed_workers_job_is_finished_by_another(self) -> Finding:
        """Kill a worker that would need ten minutes for an invoice in the middle of it."""
        scene(
            "6. A killed worker's job is finished by another",
            "Invoices are slow, and nobody has served their queue so far. A worker starts one:",
        )
        serve = ("runjobs", "--queues", "documents")
        victim = self.processes.start("first invoice worker", *serve, SHOP_INVOICE_SECONDS="600")
        draft = self.processes.wait_for("the invoice is begun", lambda: self._invoice(".draft"))
        self.processes.wait_for("the job is running", lambda: self._is_running("make_invoice"))
        self.processes.kill(victim)
        say(f"kill -9 {victim.pid}: the row still says 'running', but nobody is at work.")
        successor = self.processes.start("second invoice worker", *serve, SHOP_INVOICE_SECONDS="1")
        say(f"Another worker starts, process {successor.pid}. {LEASE} s after the last heartbeat")
        say("the lease of the dead one ends, and the job is free for a second attempt.")
        job = self._finished("make_invoice")
        invoice = self._invoice(".txt") or ""
        say(f"The invoice is there. {' '.join(invoice.splitlines()[1:])}.")
        first, second = writer_of(draft), writer_of(invoice)
        lost = job.errors[0] if job.errors else {"message": "", "worker": ""}
        return Finding(
            "a killed worker's job, finished by another",
            job,
            {
                "it is done after two attempts": (job.status, job.attempts) == ("done", 2),
                "its first error says that the worker was lost": "was lost" in lost["message"],
                "the lost worker is the killed one": f":{first} #" in lost["worker"],
                "another process has written the invoice": bool(second) and second != first,
                "no half of an invoice is left": not self._invoice(".draft"),
            },
        )

    def bob_got_nothing_to_the_end(self) -> Finding:
        """Look again: since his rollback workers have had all the time to do something wrong."""
        return Finding(
            "... and no worker has ever seen its jobs",
            None,
            {
                "there is no receipt for Bob": not self._receipts(BOB),
                "there are Ada's four jobs and no others": len(self.rows.jobs()) == 4,  # noqa: PLR2004
            },
        )

    def _finished(self, kind: str, status: str = "") -> JobRow:
        def finished() -> JobRow | None:
            job = self.rows.finished(kind)
            return job if job and job.status.startswith(status) else None

        return self.processes.wait_for(f"the job {kind} is {status or 'finished'}", finished)

    def _is_running(self, kind: str) -> bool:
        return self.rows.job(kind).status == "running"

    def _receipts(self, email: str) -> list[Path]:
        mails = sorted(self.processes.folder.glob("mail/*"))
        return [mail for mail in mails if f"To: {email}" in mail.read_text()]

    def _invoice(self, suffix: str) -> str | None:
        """Return the text of the invoice for Ada's order, or of its draft, if it is there."""
        name = f"invoice-{self.rows.first_order()}{suffix}"
        with suppress(FileNotFoundError):
            return (self.processes.folder / "invoices" / name).read_text()
        return None


def writer_of(invoice: str) -> str:
    """Return the id of the process that says to have written an invoice."""
    found = re.search(r"process (\d+)", invoice)
    return found.group(1) if found else ""


def subject_of(mail: Path) -> str:
    """Return the subject of an e-mail."""
    return next((line for line in mail.read_text().splitlines() if line.startswith("Subj")), "")


def main() -> int:
    """Play the demo; return the exit status."""
    exit_on_signals()
    started = time.monotonic()
    print("Setting up a shop")
    try:
        with (
            set_up(SHOP_LEASE=str(LEASE), SHOP_HEARTBEAT="1", SHOP_PARCEL_SECONDS="1") as stage,
            psycopg.connect(stage.database_url, autocommit=True) as connection,
        ):
            findings = Play(stage, Rows(connection)).all_scenes()
    except KeyboardInterrupt:
        print("\nStopped; nothing is left behind.")
        return INTERRUPTED
    except (DemoError, EmbeddedPostgresError, psycopg.Error, OSError) as error:
        print(f"\nThe demo cannot go on. {error}", file=sys.stderr)
        return 1
    return 0 if report(findings, time.monotonic() - started) else 1


if __name__ == "__main__":
    sys.exit(main())
