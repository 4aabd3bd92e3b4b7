"""Tests on the real pgmq; an environment without its wheel has none to install."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("pgmq") else ["test_*.py"]


@pytest.fixture
def queue(db):
    """An empty queue, which the end of the test takes away."""
    from django_pgjobs.pgmq import Queue  # noqa: PLC0415 -- not without the wheel

    queue = Queue("emails")
    queue.create()
    return queue


@pytest.fixture
def committed(transactional_db):
    """Two queues that other connections see, `emails` and `emails_dead`."""
    from django_pgjobs.pgmq import Queue  # noqa: PLC0415 -- likewise

    queues = [Queue("emails"), Queue("emails_dead")]
    for queue in queues:
        queue.create()
    yield queues[0]
    for queue in queues:
        queue.drop()
