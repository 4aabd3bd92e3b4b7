"""The demo's last part: messages of pgmq beside jobs, in the same transactions and for the same worker.

The rows of its queues tell what became of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from example_project.telling import Finding, say, scene

if TYPE_CHECKING:
    from example_project.rows import Parcel, Rows
    from example_project.stage import Stage

REDRIVE = "from django_pgjobs.pgmq import DeadLetters; DeadLetters('parcels_dead').redrive()"


class Messages:
    """The scenes, after the checkouts of Ada and Bob."""

    def __init__(self, stage: Stage, rows: Rows) -> None:
        self.processes = stage.processes
        self.rows = rows
        self.order = rows.first_order()

    def send_a_return(self) -> None:
        """Send what cannot be handled, long before it is looked at: it takes its time to be given up."""
        self.ids_of_checkouts = self.rows.parcel_ids_given()
        self.rows.send_return(self.order)

    def all_scenes(self) -> list[Finding]:
        """Play everything."""
        return [
            self.a_message_is_sent_by_a_commit(),
            self.a_poison_message_is_set_aside(),
            self.it_is_driven_back(),
        ]

    def a_message_is_sent_by_a_commit(self) -> Finding:
        """Look at what the two checkouts of the beginning have sent."""
        scene(
            "11. A commit sends a message, a rollback none",
            "Both checkouts also sent a message to 'parcels', a queue of pgmq. Any program may read it; here",
            "the same worker does, with @consumer('parcels'), and prints a label.",
        )
        parcel = self._parcel("archived", returned=False)
        others = [one for one in self.rows.parcels() if one.order != self.order]
        say(
            f"Ids that pgmq gave to the two: {self.ids_of_checkouts}. Messages of Bob's: {len(others)}."
        )
        return Finding(
            "a message is sent by a commit alone",
            parcel,
            {
                "Ada's message was read once, and archived": parcel.attempts == 1,
                "the label of Ada's parcel is printed": self._is_printed("parcel"),
                "a message was sent in Bob's transaction": self.ids_of_checkouts == 2,  # noqa: PLR2004
                "no message of Bob's exists": not others,
            },
        )

    def a_poison_message_is_set_aside(self) -> Finding:
        """Look at what became of the message that was sent meanwhile."""
        scene(
            "12. A poison message is set aside",
            "Meanwhile a program of the carrier's has sent one too, in plain SQL: Ada's parcel comes back. The",
            "printer has no red paper. After two reads the message goes to the queue 'parcels_dead'.",
        )
        parcel = self._parcel("dead", returned=True)
        say(f"reason: {parcel.reason}")
        return Finding(
            "a poison message is set aside, and says why",
            parcel,
            {
                "it was read twice": parcel.attempts == 2,  # noqa: PLR2004
                "its reason is what the printer said": "no red paper" in parcel.reason,
                "it is in one queue": len(self._parcels(returned=True)) == 1,
                "no label is printed for it": not self._is_printed("return"),
            },
        )

    def it_is_driven_back(self) -> Finding:
        """Bring red paper, and the message back into its queue."""
        scene(
            "13. It is driven back",
            "There is red paper. Somebody runs DeadLetters('parcels_dead').redrive().",
        )
        (self.processes.folder / "red-paper").touch()
        self.processes.run("redrive", "shell", "--verbosity=0", "--command", REDRIVE)
        parcel = self._parcel("archived", returned=True)
        return Finding(
            "... driven back, it is handled",
            parcel,
            {
                "it was read once more, and archived": parcel.attempts == 1,
                "it is no dead letter any more": len(self._parcels(returned=True)) == 1,
                "its label is printed": self._is_printed("return"),
            },
        )

    def _parcel(self, status: str, *, returned: bool) -> Parcel:
        """Wait until a message about Ada's order is there, and return it."""

        def found() -> Parcel | None:
            return next((one for one in self._parcels(returned) if one.status == status), None)

        return self.processes.wait_for(f"the message is {status}", found)

    def _parcels(self, returned: bool) -> list[Parcel]:  # noqa: FBT001 -- its callers name it
        ours = [one for one in self.rows.parcels() if one.order == self.order]
        return [one for one in ours if one.returned == returned]

    def _is_printed(self, kind: str) -> bool:
        return (self.processes.folder / "labels" / f"{kind}-{self.order}.txt").exists()
