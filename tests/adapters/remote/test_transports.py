"""Commands over both transports to a real sshd: arguments, input, output and its limits."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.core.errors import KedgeError, NonsenseError, UnreachableError
from orchestrator.core.ports import Remote
from orchestrator.core.protocol.decoding import LINE_BYTES


def test_a_command_returns_its_exit_code_and_both_outputs_as_bytes(remote: Remote) -> None:
    """Outputs are separate bytes; a failure is an exit code, not an exception."""
    done = remote.run(["sh", "-c", r"printf 'a\377\0b'; printf 'err\376' >&2; exit 7"])
    assert (done.exit_code, done.stdout, done.stderr) == (7, b"a\xff\x00b", b"err\xfe")


def test_arguments_arrive_as_they_were_given(remote: Remote) -> None:
    """Spaces, quotes, newlines, globs, variables, unicode and empty words pass the machine's shell unchanged."""
    words = ["", "a b", "it's", '"q"', "l1\nl2", "$HOME", "*", "`id`", "é☃", "-n", ";", "\\"]
    done = remote.run(["printf", r"%s\0", *words])
    assert done.stdout.decode().split("\0")[:-1] == words


def test_input_arrives_whole_and_ends(remote: Remote) -> None:
    """Megabytes of binary input reach the command, and it sees the end of input."""
    data = random.Random(1).randbytes(6_000_000)
    done = remote.run(["sha256sum"], stdin=data)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_a_command_without_input_sees_an_empty_one(remote: Remote) -> None:
    """It doesn't wait for a terminal."""
    assert remote.run(["wc", "-c"]).stdout.strip() == b"0"


def test_input_and_both_outputs_flow_at_the_same_time(remote: Remote) -> None:
    """Much more data than any buffer holds flows in and out without a deadlock."""
    data = random.Random(2).randbytes(5_000_000)
    done = remote.run(["tee", "/dev/stderr"], stdin=data, most=len(data))
    assert (done.stdout, done.stderr) == (data, data)


def test_a_command_that_stops_reading_ends_an_endless_stream(remote: Remote) -> None:
    """The sender doesn't wait for a reader that is gone, and the exit code is the command's."""

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 100_000

    done = remote.send(["sh", "-c", "head -c 1000000 | wc -c; exit 3"], endless())
    assert (done.exit_code, done.stdout.strip()) == (3, b"1000000")


def test_a_slow_reader_slows_down_the_sender(remote: Remote, tmp_path: Path) -> None:
    """Chunks are made when they are needed: a large stream doesn't fill the memory."""
    gate, made = tmp_path / "gate", 0
    os.mkfifo(gate)

    def chunks() -> Iterator[bytes]:
        nonlocal made
        for _ in range(200):
            made += 1
            yield b"x" * 1_000_000

    def open_gate() -> None:
        seen = -1
        while made != seen or not made:
            seen = made
            time.sleep(0.3)
        gate.write_text("open")

    opener = threading.Thread(target=open_gate)
    seen_at_gate = []

    def watch() -> None:
        opener.join()
        seen_at_gate.append(made)

    opener.start()
    watcher = threading.Thread(target=watch)
    watcher.start()
    done = remote.send(["sh", "-c", 'cat "$0" >/dev/null; head -c 1000000 | wc -c', str(gate)], chunks())
    watcher.join()
    assert done.exit_code == 0
    assert seen_at_gate[0] < 60


def test_an_exception_while_chunks_are_made_reaches_the_caller(remote: Remote) -> None:
    """An error of the sender isn't mistaken for a broken connection, and the connection stays usable."""

    def failing() -> Iterator[bytes]:
        yield b"some"
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        remote.send(["cat"], failing())
    assert remote.run(["true"]).exit_code == 0


def test_a_command_past_its_timeout_is_given_up(remote: Remote) -> None:
    """Soon after the timeout the caller gets an error that names the command. The connection stays usable."""
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match=r"didn't finish `sleep 60` within 1s"):
        remote.run(["sleep", "60"], timeout=timedelta(seconds=1))
    assert time.monotonic() - begun < 30
    assert remote.run(["true"]).exit_code == 0


def test_lines_come_as_they_are_printed(remote: Remote, tmp_path: Path) -> None:
    """The first line arrives while the command still runs. A last line without a newline counts."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    lines = remote.lines(["sh", "-c", 'printf "one\\n\\ntwo\\n"; cat "$0"; printf last', str(gate)])
    assert [next(lines), next(lines), next(lines)] == [b"one", b"", b"two"]
    gate.write_text("three\n")
    assert list(lines) == [b"three", b"last"]


@pytest.mark.parametrize("output", ["1", "2"], ids=["stdout", "stderr"])
def test_endless_output_is_cut_off(remote: Remote, output: str) -> None:
    """Kedge keeps no more of an answer than an honest machine could send. The connection stays usable."""
    begun = time.monotonic()
    with pytest.raises(NonsenseError, match="invalid answer"):
        remote.run(["sh", "-c", f"exec yes >&{output}"])
    assert time.monotonic() - begun < 20
    assert remote.run(["true"]).exit_code == 0


def test_endless_standard_error_of_a_stream_is_cut_off(remote: Remote) -> None:
    """It is kept until the end of the stream, so it has a limit too."""
    with pytest.raises(NonsenseError):
        list(remote.lines(["sh", "-c", "exec yes >&2"]))


def test_a_line_without_an_end_is_given_up_quickly(remote: Remote) -> None:
    """Its parts are copied only once: 60 MB took 22 s before. The longest line of an honest agent arrives whole."""
    line = "x" * (LINE_BYTES - 1)
    assert list(remote.lines(["sh", "-c", f"head -c {len(line)} /dev/zero | tr '\\0' x; echo; echo end"])) == [
        line.encode(),
        b"end",
    ]
    begun = time.process_time()
    with pytest.raises(NonsenseError, match="a line can't be read"):
        list(remote.lines(["sh", "-c", "head -c 60000000 /dev/zero | tr '\\0' x"]))
    assert time.process_time() - begun < 8


def test_lines_can_be_left_early(remote: Remote) -> None:
    """Closing the iterator doesn't wait for the command, and the connection stays usable."""
    lines = remote.lines(["sh", "-c", "echo one; sleep 60"])
    assert next(lines) == b"one"
    begun = time.monotonic()
    lines.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begun < 30
    assert remote.run(["true"]).exit_code == 0


def test_a_followed_command_that_fails_raises_an_error(remote: Remote) -> None:
    """It comes after the lines, and quotes the command's last words."""
    lines = remote.lines(["sh", "-c", "echo one; echo no such log >&2; exit 4"])
    assert next(lines) == b"one"
    with pytest.raises(KedgeError) as caught:
        next(lines)
    assert caught.value.why == "no such log"
    assert not isinstance(caught.value, UnreachableError)
