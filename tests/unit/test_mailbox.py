import signal
import subprocess
import sys
import threading
import time

from django_pgjobs.mailbox import Mailbox
from tests.waiting import eventually


def test_all_there_is_comes_out_in_order_and_once():
    box: Mailbox[int] = Mailbox()
    for number in range(3):
        box.put(number)
    assert box.take() == [0, 1, 2]
    assert box.take(0) == []


def test_news_of_what_was_taken_already_ends_no_wait():
    box: Mailbox[str] = Mailbox()
    box.put("first")
    assert box.take() == ["first"]  # without waiting, so the lock still says that there is news
    threading.Timer(0.1, box.put, ["second"]).start()
    assert box.take(30) == ["second"]


def test_a_wait_ends_with_the_first_put_of_another_thread():
    box: Mailbox[str] = Mailbox()
    taken: list[str] = []
    taker = threading.Thread(target=lambda: taken.extend(box.take()))
    taker.start()
    box.put("news")
    taker.join(10)
    assert taken == ["news"]


def test_who_waits_for_several_gets_them_together_or_what_there_is_at_the_end():
    box: Mailbox[int] = Mailbox()
    for number in range(3):
        threading.Timer(0.1 * number, box.put, [number]).start()
    assert box.take(30, least=3) == [0, 1, 2]
    box.put(3)
    assert box.take(0.01, least=2) == [3]
    threading.Timer(0.1, box.put, [4]).start()
    assert box.take(30) == [4]


def test_a_signal_handler_may_put_while_the_box_is_waited_at_and_while_it_is_put_into():
    box: Mailbox[str] = Mailbox()
    before = signal.signal(signal.SIGALRM, lambda *_: box.put("signal"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert box.take(30) == ["signal"]
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        taken: list[str] = []
        for _ in range(50_000):
            box.put("own")
            taken += box.take()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    taken += box.take(0)
    assert taken.count("own") == 50_000
    assert "signal" in taken


def test_a_wait_of_a_process_that_was_stopped_beyond_its_end_is_over():
    code = (
        "from django_pgjobs.mailbox import Mailbox\n"
        "print('waiting', flush=True)\n"
        "Mailbox().take(0.5)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        eventually(lambda: time.monotonic() - stopped > 1)
        process.send_signal(signal.SIGCONT)
        try:
            assert process.wait(10) == 0
        finally:
            process.kill()
