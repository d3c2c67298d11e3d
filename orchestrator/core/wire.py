"""What kedge sends to the agent: the JSON that `kedge-agent start` reads.

The agent reads the same names in orchestrator/agent/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIRRORED = "kedge-data://"
"""Begins the address of a data set of the laptop's in the machine's store; its name follows."""

TORCH_WHEEL = "KEDGE_TORCH_WHEEL"
"""The variable in a job's `envs` that says which torch a machine installs (see BootOrder.torch_wheel)."""

LEFT_BEHIND_BYTES = 1_000_000_000
"""Kept of what a command writes beside its outputs, where an object store takes it and the job says nothing."""
LEFT_BEHIND_OVER_SSH_BYTES = 100_000_000
"""The same where it can only be copied home by whoever fetches, from a machine that bills meanwhile."""

SUPPLIED = "supplied"
"""The last word of a machine that has taken what it was brought (see ports.Supplies)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """Data that the machine fetches by itself, before `setup`.

    Attributes:
        source: an address (see core/job.py, DataMount), or MIRRORED and a name.
        target: where it lies, relative to the working folder; one of RunConfig.data, or within one.
        index: of a mirrored data set, the SHA-256 of what says which files there are: another one isn't taken.
    """

    source: str
    target: str
    index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What the agent needs to run a command. It holds secrets: it is sent over SSH and never printed.

    Attributes:
        command: a shell script, run by `bash -o pipefail` in the code's folder.
        setup: a shell script run once for each content of the code, before the first start.
        secrets: name -> value; kept in a file that only the user can read.
        outputs: folders, relative to the working folder, that live in KEDGE_OUTPUT_DIR.
        checkpoints: a folder, relative to the working folder, that lives in KEDGE_CHECKPOINT_DIR, or empty.
        data: paths, relative to the working folder, that live beside the code and outlive a change of it.
        restart_after: seconds between a failure and the next start.
        grace: seconds between SIGTERM and SIGKILL.
        unit: the text of the systemd unit; empty for other supervisors, and for the unit of a cloud machine's system.
        python_path: folders, relative to the code, put on PYTHONPATH.
        keep: leave the machine to its deadline when the command is over.
        sources: what the machine fetches by itself; the tokens for it are among the secrets.
        python: of this computer, on top of which the command's environment is made; empty on clouds, whose machines
            find their own.
        left_behind: how many bytes to keep of what the command writes beside its outputs; None for what suits the way
            by which results travel.
        resume: the shell script that is run instead of `command` where there is something to go on from; empty for the
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineConfig:
    """What the agent knows of the machine from birth: `<root>/machine.json`, written by whatever boots it.

    Attributes:
        created: Unix seconds, when billing began.
        deadline: Unix seconds.
        usd_per_hour: a decimal number as text.
        store_url: `file:///folder` for the local provider, `s3://BUCKET/PREFIX?region=REGION[&endpoint=URL][&keys=FILE]`
            on clouds, with the file of a machine that has no role; empty for nowhere.
        end_command: argv that ends the machine.
        sockets: a short path of a private folder for tmux's and screen's sockets.
        path: folders put before PATH for the command.
        sample_every: seconds between two samples.
        ship_every: seconds between two copies to the store.
        linger: seconds that a finished machine with a store waits for whoever follows it before it ends itself.
        metadata: whose metadata service tells that the machine is about to be taken away: `aws`, or empty for nobody's.
    """

    machine: str
    run: str
    provider: str
    root: str
    created: float
    deadline: float
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
    """What a machine does by itself when it has booted: `<root>/boot.json`, which `kedge-agent boot` reads.

    Attributes:
        code: content hash of the code that it pulls from the run's prefix; empty for none.
        code_sha256: of its archive there, `code/<sha256>.tar.gz`: another one isn't unpacked.
        start_sha256: of the prefix's `start.json`, a RunConfig without secrets, whose command it starts; another one
            isn't read. Empty: nothing is started.
        gpus: how many the machine is sold with: so many must pass a burn-in before anything else; 0 for none.
        torch_wheel: where a torch has to be installed, the tag of its wheel, such as rocm6.4, or the address of an
            index; empty for what suits the machine; `none`: the job needs no torch, and there is no burn-in.
    """

    code: str = ""
    code_sha256: str = ""
    start_sha256: str = ""
    gpus: int = 0
    torch_wheel: str = ""
