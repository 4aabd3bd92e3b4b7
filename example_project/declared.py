"""The demo's second half: what a kind declares, at work. Unique jobs, limits, rates and schedules.

Its facts are about the order of things by the database's clock, never about how fast they were.
"""

from __future__ import annotations

import datetime
import itertools
from typing import TYPE_CHECKING

from example_project.telling import Finding, say, scene

if TYPE_CHECKING:
    from collections.abc import Sequence

    from example_project.browser import Browser, Page
    from example_project.rows import Rows, Work
    from example_project.stage import Stage

CUSTOMERS, PAGES, AT_A_TIME = ("ada@example.com", "bob@example.com"), 4, 2
INSTALMENTS, APART = 5, datetime.timedelta(seconds=0.25)
TICKS = 3


class Declared:
    """The scenes, after Ada's order."""

    def __init__(self, stage: Stage, rows: Rows, ada: Browser, order: Page) -> None:
        self.processes = stage.processes
        self.rows = rows
        self.ada = ada
        self.order = order

    def all_scenes(self) -> list[Finding]:
        """Play everything."""
        return [
            self.two_clicks_are_one_mail(),
            self.a_customer_has_two_jobs_at_a_time(),
            self.a_bank_is_called_so_often(),
            self.a_tick_is_one_job_for_many_workers(),
        ]

    def two_clicks_are_one_mail(self) -> Finding:
        """Press a button twice whose job is unique for an hour."""
        scene(
            "7. Two clicks are one job",
            "Ada cannot find her receipt. She presses 'Send the receipt again', and again. The job is",
            "unique for an hour: the second click finds the one that is there.",
        )
        mails = self._mails()
        page = self.ada.open(self.order.address)
        answers = [self.ada.submit(page, to="receipt/") for _ in range(2)]
        jobs = self._all_done("send_receipt", 2)
        say(
            f"Clicks: {len(answers)}. Jobs more: {len(jobs) - 1}. Mails more: {self._mails() - mails}."
        )
        return Finding(
            "two clicks on a button are one job",
            jobs[-1],
            {
                "both clicks lead Ada back to her order": [a.address for a in answers]
                == [self.order.address] * 2,
                "both clicks together made one job": len(jobs) == 2,  # noqa: PLR2004
                "one e-mail more lies in the mail folder": self._mails() == mails + 1,
            },
        )

    def a_customer_has_two_jobs_at_a_time(self) -> Finding:
        """Enqueue eight jobs of two customers, for a worker with eight threads."""
        count = len(CUSTOMERS) * PAGES
        scene(
            f"8. No customer has more than {AT_A_TIME} at a time",
            f"A month begins: manage.py newmonth enqueues {count} pages of statements, {PAGES} for each of two",
            f"customers. The worker has 8 threads, and the kind declares Limit({AT_A_TIME}, key='email').",
        )
        numbers = f"--pages={PAGES}", f"--instalments={INSTALMENTS}"
        self.processes.run("newmonth", "newmonth", *CUSTOMERS, *numbers)
        jobs = self._all_done("write_statement", count)
        most = [
            most_at_once([job for job in jobs if job.email == customer]) for customer in CUSTOMERS
        ]
        say(f"At work at the same time, at most: {most[0]} of Ada's, {most[1]} of Bob's.")
        return Finding(
            f"no customer has more than {AT_A_TIME} at a time",
            jobs[-1],
            {
                "all pages are written": len(jobs) == count,
                "two of each customer's were at work at a time": min(most) >= AT_A_TIME,
                "three of one customer's never were": max(most) <= AT_A_TIME,
            },
        )

    def a_bank_is_called_so_often(self) -> Finding:
        """Look at what else the month began with."""
        scene(
            "9. The bank is called four times a second",
            f"It also enqueued {INSTALMENTS} instalments. The bank takes four calls a second, and the kind",
            "declares Rate(4, per=1): a quarter of a second from start to start.",
        )
        jobs = self._all_done("collect_instalment", INSTALMENTS)
        starts = sorted(job.attempted_at for job in jobs)
        gaps = [b - a for a, b in itertools.pairwise(starts)]
        say(
            f"Seconds from start to start: {', '.join(f'{gap.total_seconds():.2f}' for gap in gaps)}."
        )
        return Finding(
            "a bank is called four times a second",
            jobs[-1],
            {
                "all instalments are collected": len(jobs) == INSTALMENTS,
                "no two started within a quarter of a second": min(gaps) >= APART,
            },
        )

    def a_tick_is_one_job_for_many_workers(self) -> Finding:
        """Start a worker whose code has another schedule: it decides for all."""
        scene(
            "10. A tick is one job, however many workers look",
            "So far the sales were reported once a day. A worker with newer code starts, which reports",
            "them every second. All workers look at the schedule; each tick has one job.",
        )
        self.processes.start("newer worker", "runjobs", "--queues", "mail", SHOP_REPORT_SECONDS="1")
        jobs = self._all_done("report_sales", TICKS)
        workers = self.rows.workers()
        ticks = sorted({job.tick for job in jobs})
        gaps = {(b - a).total_seconds() for a, b in itertools.pairwise(ticks)}
        say(f"Workers: {workers}. Ticks: {', '.join(f'{tick:%H:%M:%S}' for tick in ticks)}.")
        return Finding(
            "each tick of a schedule is one job",
            jobs[-1],
            {
                "several workers looked": workers > 1,
                "each tick has one job": len(ticks) == len(jobs),
                "the ticks are whole seconds apart": all(gap % 1 == 0 for gap in gaps),
            },
        )

    def _all_done(self, kind: str, least: int) -> list[Work]:
        """Wait until so many jobs of a kind are done, and none is left; return them."""

        def done() -> list[Work] | None:
            jobs = self.rows.work(kind)
            return jobs if len(jobs) >= least and {j.status for j in jobs} == {"done"} else None

        return self.processes.wait_for(f"{least} jobs of the kind {kind} are done", done)

    def _mails(self) -> int:
        return len(list(self.processes.folder.glob("mail/*")))


def most_at_once(jobs: Sequence[Work]) -> int:
    """Return how many jobs were at work at the same time, by the times in their rows."""
    starts = [(job.attempted_at, 1) for job in jobs]
    ends = [(job.finished_at, -1) for job in jobs]
    changes = (change for _, change in sorted(starts + ends))
    return max(itertools.accumulate(changes), default=0)
