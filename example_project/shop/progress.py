"""What the jobs of an order are doing, in a customer's words."""

from __future__ import annotations

from collections.abc import Iterable

from django_pgjobs import Job

TITLES = {
    "send_receipt": "Receipt by email",
    "make_invoice": "Invoice",
    "book_courier": "Courier",
    "add_loyalty_points": "Loyalty points",
}


class Step:
    """One job, as its customer sees it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.title = TITLES.get(job.kind, job.kind)

    @property
    def story(self) -> str:
        """What its status means."""
        job = self.job
        match job.status:
            case "pending" if job.attempts:
                return f"It did not work yet. The next attempt is due at {job.run_at:%H:%M:%S} UTC."
            case "pending":
                return "Waits for a worker."
            case "running":
                return f"A worker is running it{self.share}."
            case "done":
                return f"Done at attempt {job.attempts}."
            case "failed":
                return "We have given up. Our staff can retry it."
            case _:
                return "Our staff have cancelled it."

    @property
    def share(self) -> str:
        """How far its handler says it is, if it says so."""
        said = self.job.meta.get("progress")
        return f": {said['fraction']:.0%} done" if said else ""

    @property
    def last_error(self) -> str:
        """What went wrong the last time: the exception's message, without its class."""
        errors = self.job.errors
        return (errors and errors[-1]["message"]) or self.job.last_error


class Progress:
    """All jobs of an order."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.steps = [Step(job) for job in jobs]
        self.finished = sum(step.job.finished_at is not None for step in self.steps)

    @property
    def goes_on(self) -> bool:
        """Whether something can still change by itself."""
        return self.finished < len(self.steps)

    @property
    def receipt(self) -> str:
        """The status of the receipt's job; empty if it is no longer there."""
        statuses = [step.job.status for step in self.steps if step.job.kind == "send_receipt"]
        return statuses[0] if statuses else ""
