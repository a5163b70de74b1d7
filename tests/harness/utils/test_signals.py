"""Signals that are held back: the first waits, the second does not, and what was ignored stays ignored."""

import multiprocessing
import signal
from collections.abc import Iterator

import pytest

from harness.utils import processes
from harness.utils.signals import ENDING, HeldSignals, Terminated, end_on_sigterm

EXCEPTIONS = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_on_sigterm()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _held(sent: list[signal.Signals], *, patient: bool = False, deliver: bool = False) -> None:
    """Send signals within a block, and take each from the list that was held back."""
    with HeldSignals(patient=patient) as held:
        held.deliver()  # nothing waits
        for number in list(sent):
            signal.raise_signal(number)
            assert held.pending
            sent.remove(number)
        if deliver:
            held.deliver()
            sent.append(signal.SIGINT)


@pytest.mark.parametrize(("number", "error"), EXCEPTIONS)
@pytest.mark.parametrize("deliver", [False, True])
def test_a_signal_waits_for_the_end_of_the_block_or_delivery(
    number: signal.Signals, error: type[BaseException], deliver: bool
) -> None:
    sent = [number]
    with pytest.raises(error):
        _held(sent, deliver=deliver)
    assert sent == []


@pytest.mark.parametrize(("number", "error"), EXCEPTIONS)
def test_a_second_signal_is_answered_at_once(number: signal.Signals, error: type[BaseException]) -> None:
    sent = [signal.SIGINT, number]
    with pytest.raises(error):
        _held(sent)
    assert sent == [number]


def test_patience_holds_all_of_them() -> None:
    sent = [signal.SIGINT] * 3
    with pytest.raises(KeyboardInterrupt):
        _held(sent, patient=True)
    assert sent == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])  # the last is Slurm's warning
def test_a_handler_that_raises_nothing_lets_the_block_go_on(number: signal.Signals) -> None:
    asked = []
    before = signal.signal(number, lambda number, _: asked.append(number))
    handler = signal.getsignal(number)
    with HeldSignals() as held:
        signal.raise_signal(number)
        assert (held.pending, asked) == (True, [])
        held.deliver()
        assert (held.pending, asked) == (False, [number])
        signal.raise_signal(number)
    assert asked == [number] * 2
    assert signal.getsignal(number) is handler
    signal.signal(number, before)


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with HeldSignals() as held:
        signal.raise_signal(signal.SIGINT)
        assert not held.pending
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize(("stubborn", "grace", "end"), [(False, 60.0, signal.SIGTERM), (True, 0.2, signal.SIGKILL)])
def test_workers_are_asked_to_end_and_then_killed(
    monkeypatch: pytest.MonkeyPatch, stubborn: bool, grace: float, end: signal.Signals
) -> None:
    monkeypatch.setattr(processes, "GRACE_S", grace)
    ready = multiprocessing.get_context("spawn").Event()
    worker = processes.make_worker("tests.harness.utils.waiting:wait", ready, stubborn)
    worker.start()
    ready.wait(60)
    processes.end_workers([worker])
    assert worker.exitcode == -end
