"""Messages between processes that write a checkpoint together, and processes that form a group: what isn't in time."""

import threading
import time

import pytest
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]  # public, but not in its __all__

from trainer.base.errors import TrainerError
from trainer.checkpoints.peers import Peers
from trainer.group import rendezvous

TIMEOUT_SECONDS = 30.0


def peers_of(size: int, *, timeout_seconds: float = TIMEOUT_SECONDS, exit_timeout_seconds: float = 5.0) -> list[Peers]:
    store: Store = HashStore()
    return [
        Peers(
            store,
            rank=rank,
            size=size,
            is_local_main=rank == 0,
            timeout_seconds=timeout_seconds,
            exit_timeout_seconds=exit_timeout_seconds,
        )
        for rank in range(size)
    ]


def test_messages_are_read_by_topic_and_rank() -> None:
    """By each process, as often as it likes, also if they come later than the question."""
    first, second = peers_of(2)
    later = threading.Timer(0.05, lambda: second.publish("topic", "of the second"))
    later.start()
    first.publish("topic", "of the first")
    first.publish("other", "é")
    assert first.all_gather("topic") == second.all_gather("topic") == ["of the first", "of the second"]
    assert second.receive("other", 0) == "é"


def test_only_the_main_process_makes_what_is_broadcast() -> None:
    first, second = peers_of(2)
    assert first.broadcast_from_main("name", lambda: "a") == "a"
    assert second.broadcast_from_main("name", lambda: "b") == "a"


def test_failure_of_one_ends_the_others_waits_with_its_first_reason() -> None:
    """Messages that were published are still readable."""
    first, second = peers_of(2)
    second.publish("topic", "here")
    second.fail("the disk is full")
    first.fail("later")
    assert first.receive("topic", 1) == "here"
    with pytest.raises(OSError, match=r"^process 1: the disk is full$"):
        first.receive("another topic", 1)


@pytest.mark.parametrize("exits", [True, False])
def test_message_that_does_not_come_in_time_is_an_error(exits: bool) -> None:
    """A process that exits waits only for its shorter time, from then on."""
    times = (TIMEOUT_SECONDS, 0.2) if exits else (0.2, TIMEOUT_SECONDS)
    (waiting, _) = peers_of(2, timeout_seconds=times[0], exit_timeout_seconds=times[1])
    began = time.monotonic()
    if exits:
        waiting.shorten_waits()
    with pytest.raises(TimeoutError, match=r"^process 1 is gone, or has not finished its shard$"):
        waiting.receive("topic", 1)
    assert 0.2 <= time.monotonic() - began < TIMEOUT_SECONDS / 2


@pytest.mark.parametrize("rank", [0, 1])
def test_group_that_is_not_complete_in_time_is_an_error(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits says for how long it has waited."""
    monkeypatch.setattr(rendezvous, "TIMEOUT_SECONDS", 1.0)
    with pytest.raises(TrainerError) as refused:
        rendezvous.open_group_store(HashStore(), rank=rank, size=2)
    assert str(refused.value) == (
        "not all processes joined the group\n"
        "  why: some did not join within 1 s\n"
        "  fix: look at the output of the other processes or machines, then start again"
    )


def test_group_ignores_what_an_earlier_start_left() -> None:
    """A hello and an answer of before: the new ones count, and only this start's processes are waited for."""
    store = HashStore()
    store.set("hello/1", "old")
    store.set("joined/old/1", "1")
    opened: list[Store] = []
    threads = [
        threading.Thread(target=lambda rank=rank: opened.append(rendezvous.open_group_store(store, rank=rank, size=3)))
        for rank in range(3)
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert len(opened) == 3
    opened[0].set("key", "value")
    assert [part.get("key") for part in opened] == [b"value"] * 3
