"""The messages that kedge sends to the agent: configurations of runs, machines and boots.

The agent reads the same names in orchestrator/agent/base/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from orchestrator.core.protocol.decoding import DEADLINE_KEY

MIRRORED = "kedge-data://"
"""Prefix of the address of a data set that was mirrored from the laptop into the machine's store; its name follows."""

TORCH_WHEEL = "KEDGE_TORCH_WHEEL"
"""The variable in a job's `envs` that chooses the torch that a machine installs (see BootOrder.torch_wheel)."""

LEFT_BEHIND_BYTES = 1_000_000_000
"""How much to keep of files written outside of the outputs, by default, if an object store receives them."""
LEFT_BEHIND_OVER_SSH_BYTES = 100_000_000
"""The same default without an object store: only a fetch copies them, while the machine bills."""

SUPPLIED = "supplied"
"""The last line that a machine prints once it has taken its supplies (see ports.Supplies)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """Data that the machine downloads by itself, before `setup`.

    Attributes:
        source: an address (see core/job.py, DataMount), or MIRRORED and a name.
        target: where it lies, relative to the working folder; one of RunConfig.data, or within one.
        index: of mirrored data, the SHA-256 of its list of files; data with another list is refused.
    """

    source: str
    target: str
    index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What the agent needs to run a command. It holds secrets: it is sent over SSH and never printed.

    Attributes:
        command: a shell script, run by `bash -o pipefail` in the code's folder.
        setup: a shell script, run once for each version of the code, before the first start.
        secrets: name -> value; kept in a file that only its owner can read.
        outputs: folders, relative to the working folder, that live in KEDGE_OUTPUT_DIR.
        checkpoints: a folder, relative to the working folder, that lives in KEDGE_CHECKPOINT_DIR, or empty.
        data: paths, relative to the working folder, that are stored beside the code and outlive a change of it.
        restart_after: seconds between a failure and the next start.
        grace: seconds between SIGTERM and SIGKILL.
        unit: the text of the systemd unit; empty for other supervisors, and on clouds, which have a system unit.
        python_path: folders, relative to the code, to put on PYTHONPATH.
        keep: leave the machine running until its deadline after the command has ended.
        sources: what the machine downloads by itself; the tokens for that are among the secrets.
        python: the Python of this computer on which the command's environment is built; empty on clouds, whose machines
            find their own.
        left_behind: how many bytes to keep of files written outside of the outputs; None for the default of the way
            by which results are copied.
        resume: the shell script to run instead of `command` if there is something to resume from; empty for the
            same one.
    """

    run: str
    job: str
    mode: str
    command: str
    setup: str
    supervisor: str
    restarts: int
    restart_after: float
    grace: float
    envs: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    checkpoints: str = ""
    data: tuple[str, ...] = ()
    gpus_per_node: int = 0
    unit: str = ""
    python_path: tuple[str, ...] = ()
    keep: bool = False
    sources: tuple[DataSource, ...] = ()
    python: str = ""
    left_behind: int | None = None
    resume: str = ""


class MachineConfig(msgspec.Struct, frozen=True, kw_only=True, rename=DEADLINE_KEY):
    """What the agent knows of the machine from the start: `<root>/machine.json`, written at boot.

    Attributes:
        created: Unix seconds, when billing began.
        deadline_at: Unix seconds.
        usd_per_hour: a decimal number as text.
        store_url: `file:///folder` for the local provider, `s3://BUCKET/PREFIX?region=REGION[&endpoint=URL][&keys=FILE]`
            on clouds, with a file of keys for a machine without an IAM role; empty for nowhere.
        end_command: argv that ends the machine.
        sockets: a short path of a private folder for the sockets of tmux and screen.
        path: folders to put before PATH for the command.
        sample_every: seconds between two samples.
        ship_every: seconds between two uploads to the store.
        linger: seconds that a finished machine with a store waits for its follower before it ends itself.
        metadata: the metadata service that announces a reclaim: `aws`, or empty for none.
    """

    machine: str
    run: str
    provider: str
    root: str
    created: float
    deadline_at: float
    usd_per_hour: str
    store_url: str = ""
    end_command: tuple[str, ...] = ()
    sockets: str = ""
    path: tuple[str, ...] = ()
    sample_every: float = 5.0
    ship_every: float = 30.0
    linger: float = 120.0
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootOrder:
    """What a machine does by itself after its boot: `<root>/boot.json`, which `kedge-agent boot` reads.

    Attributes:
        code: content hash of the code to download from the run's prefix; empty for none.
        code_sha256: of its archive there, `code/<sha256>.tar.gz`; an archive with another hash isn't unpacked.
        start_sha256: of the prefix's `start.json`, a RunConfig without secrets, whose command it starts; a file with a
            different hash isn't read. Empty: nothing is started.
        gpus: how many the machine is sold with; that many must pass a burn-in before anything else. 0 for none.
        torch_wheel: if torch must be installed, the tag of its wheel, such as rocm6.4, or the address of an
            index; empty for the one that fits the machine; `none`: the job needs no torch, and there is no burn-in.
    """

    code: str = ""
    code_sha256: str = ""
    start_sha256: str = ""
    gpus: int = 0
    torch_wheel: str = ""
