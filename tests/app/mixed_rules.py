"""The limits, rates and rules of the chaos: for its kinds, and for those who check what became of them."""

from __future__ import annotations

from django_pgjobs import Rate, Unique

SLOTS = {"chaos_limited": 2, "chaos_ordered": 1}  # of a lane
PACE = Rate(4, per=1, burst=1)
PERIOD = 4.0  # seconds
UNIQUE = {  # rules, by the name under which the ledger notes what a caller was told
    "start-skip": Unique("topic", until="start"),
    "start-replace": Unique("topic", conflict="replace"),
    "finished-skip": Unique("topic"),
    "finished-replace": Unique("topic", until="finished", conflict="replace"),
    "finished-raise": Unique("topic", conflict="raise"),
    "period-skip": Unique("topic", period=PERIOD),
}
MOST = {
    "works": 60,
    "enqueues": 60,
    "stumbles": 60,
    "snoozes": 60,
    "fails": 2,
    "kills": 2,
}  # attempts
