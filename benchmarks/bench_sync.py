"""How long it takes to send code to a machine over a slow line, measured against rsync."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.corpus import describe_corpus, write_corpus
from benchmarks.laptop import KEDGE, BenchLaptop, bench_laptop
from benchmarks.proxy import slow_line
from benchmarks.rounds import Benchmark, Contender, main, timed
from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.ssh.options import openssh_argv, openssh_options
from orchestrator.adapters.ssh.ssh_files import SshFiles, answers
from orchestrator.core.machine import Machine, SshAddress

ROUNDS = 9
MEMORY = Path("/dev/shm")
ROUND_TRIP_MS = 50
MBIT = 200
# A command that runs for as long as the benchmark, as it does when users sync code.
JOB = """\
name: corpus
workdir: .
run: sleep 3000
deadline: 55m
supervisor: {kind: nohup, restarts: 0}
"""
_CHANGES = count()

OWN = ("ControlMaster=no", "ControlPath=none")
"""The SSH client's options for a new connection."""

Command = Callable[[], float]


@dataclass(frozen=True)
class Bench:
    """The laptop, and its machine at the far end of the slow line."""

    laptop: BenchLaptop
    machine: Machine
    address: SshAddress

    @property
    def target(self) -> Path:
        """Where rsync copies to; the machine is this computer."""
        return Path(self.machine.root) / "rsync-target"

    @property
    def places(self) -> SshFiles:
        """Return the folders in which kedge keeps its pins and sockets."""
        return SshFiles(pins=self.laptop.state / "pins", runtime=self.laptop.runtime / "ssh")

    def command(self, *words: str) -> float:
        """Time a command."""
        return timed(words, cwd=self.laptop.home, env=self.laptop.env)

    def kedge(self, *words: str) -> float:
        """Time a command that finds a live control socket, as it does after a launch."""
        if not answers(self.places.control_socket(self.address)):
            self.command(*self.ssh("ControlMaster=auto"), self.address.host, "true")
        return self.command(KEDGE, *words)

    def kedge_alone(self, *words: str) -> float:
        """Time a command that has to connect first."""
        with contextlib.suppress(RuntimeError):
            self.command(*self.ssh(), "-O", "exit", self.address.host)
        return self.command(KEDGE, *words)

    def rsync(self, *options: str) -> float:
        """Time rsync over SSH with these options; without a control path it connects first."""
        shell = shlex.join(self.ssh(*options))
        here = f"{self.laptop.home}/"
        there = f"{self.address.host}:{self.target}/"
        return self.command("rsync", "-az", "--delete", "--exclude=.git", "-e", shell, here, there)

    def ssh(self, *options: str) -> list[str]:
        """Return an SSH client's argv up to the host: kedge's key, pin and ciphers; the given options override them."""
        extra = [part for option in options for part in ("-o", option)]
        *argv, _, _ = openssh_argv(openssh_options(self.places, self.address), self.address, extra)
        return argv

    def forget(self) -> None:
        """Delete the code from the machine, and the laptop's record of what it has sent."""
        shutil.rmtree(self.laptop.state / "code", ignore_errors=True)
        shutil.rmtree(Path(self.machine.root) / "releases", ignore_errors=True)
        (Path(self.machine.root) / "code").unlink(missing_ok=True)
        shutil.rmtree(self.target, ignore_errors=True)

    def sync_and_change(self, command: Command) -> None:
        """Bring a contender's copy up to date, then change a file."""
        command()
        self.change()

    def change(self) -> None:
        """Change one file."""
        with (self.laptop.home / "package_07" / "module_0007.py").open("a") as file:
            file.write(f"CHANGE = {next(_CHANGES)}\n")


def fill(benchmark: Benchmark) -> None:
    """Time a cold copy, one of a changed file, and one of nothing."""
    with bench_laptop() as laptop, machines_in_memory(laptop) as where:
        write_corpus(laptop.home)
        (laptop.home / "kedge.yaml").write_text(JOB)
        laptop.kedge("launch", "--yes", "--detach")
        with far_machine(laptop) as bench:
            measure(benchmark, bench)
            verify(bench)
        benchmark.notes += [
            describe_corpus(laptop.home),
            f"line: {ROUND_TRIP_MS} ms round trip, {MBIT} Mbit/s each way; every command is a whole process",
            where,
            "rsync: -az --delete, a connection of its own with kedge's key and ciphers; kedge: its kept control socket",
        ]


def measure(benchmark: Benchmark, bench: Bench) -> None:
    """Time the three cases."""
    benchmark.measure(contenders("cold", bench, lambda _command: bench.forget()))
    benchmark.measure(contenders("one changed file", bench, bench.sync_and_change))
    status = "nothing changed: kedge status"
    benchmark.measure(
        [
            Contender(name=status, run=lambda: bench.kedge("status")),
            Contender(
                name="nothing changed: kedge sync-code",
                run=lambda: bench.kedge("sync-code"),
                against=status,
                bar=1.10,
            ),
            Contender(name="nothing changed: rsync -az", run=lambda: bench.rsync(*OWN), against=status),
        ]
    )


def contenders(case: str, bench: Bench, prepare: Callable[[Command], None]) -> Sequence[Contender]:
    """List the contenders. Before each turn, the contender's own command prepares the case."""
    peer = f"{case}: rsync -az"

    def contender(name: str, command: Command, bar: float | None = None) -> Contender:
        def run() -> float:
            prepare(command)
            return command()

        full = f"{case}: {name}"
        return Contender(name=full, run=run, against="" if full == peer else peer, bar=bar)

    return [
        contender("rsync -az", partial(bench.rsync, *OWN)),
        contender("kedge sync-code", partial(bench.kedge, "sync-code"), bar=0.50),
        contender("kedge, no socket", partial(bench.kedge_alone, "sync-code")),
        contender("rsync, kedge's socket", bench.rsync),
    ]


def verify(bench: Bench) -> None:
    """Check that both have copied everything.

    Raises:
        CalledProcessError: a tree differs from the laptop's.
    """
    for copy in (Path(bench.machine.root) / "code", bench.target):
        bench.kedge("sync-code")
        bench.rsync(*OWN)
        argv = ["diff", "-rq", "--exclude=.git", str(bench.laptop.home), f"{copy}/"]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def machines_in_memory(laptop: BenchLaptop) -> Iterator[str]:
    """Put the machine's files in memory if possible, and say where they are.

    ext4 searches for inodes that were not freed within the last minutes. A benchmark that makes and removes thousands
    of files would measure that search (up to a second), for all contenders alike.
    """
    if not MEMORY.is_dir():
        yield "the machine's files are on this computer's disk"
        return
    with tempfile.TemporaryDirectory(prefix="kedge-bench-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        (laptop.state / "machines").symlink_to(folder)
        try:
            yield f"the machine's files are in {MEMORY}, the laptop's on its disk"
        finally:
            # A live machine would go on writing into the folder while it is removed.
            laptop.wipe()


@contextlib.contextmanager
def far_machine(laptop: BenchLaptop) -> Iterator[Bench]:
    """Put the slow line in front of the laptop's machine, in the ledger and in the provider's answers."""
    ledger = SqliteLedger(laptop.state, SystemClock())
    (machine,) = ledger.machines(live_only=True)
    assert machine.address is not None
    with slow_line(machine.address.port, round_trip_ms=ROUND_TRIP_MS, mbit=MBIT) as port:
        address = replace(machine.address, port=port)
        ledger.put_machine(replace(machine, address=address))
        ledger.close()
        ready = Path(machine.root) / "ready.json"
        ready.write_text(json.dumps({**json.loads(ready.read_bytes()), "port": port}))
        bench = Bench(laptop, machine, address)
        bench.places.pin(address)
        yield bench


if __name__ == "__main__":
    main("sync", "Code to a machine: kedge sync-code and rsync over a slow line", fill, rounds=ROUNDS)
