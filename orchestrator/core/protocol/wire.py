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

RUN_SECRETS = "run-secrets.json"
"""Among a machine's supplies, the file with the secrets that its command needs (see BootOrder.secrets)."""

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
class TaskConfig:
    """One task of a run: a supervised command, and its part of the machine.

    Attributes:
        name: empty for a run's only task.
        command: a shell script, run by `bash -o pipefail` in the task's working folder.
        restarts: how many times a failed command is started again.
        restart_after: seconds between a failure and the next start.
        grace: seconds between SIGTERM and SIGKILL.
        resume: the shell script to run instead of `command` if there is something to resume from; empty for the
            same one.
        unit: the text of the systemd unit; empty for other supervisors, and on clouds, which have a system unit.
        envs: variables in addition to those of the run.
        outputs: folders, relative to the working folder, that live in KEDGE_OUTPUT_DIR.
        checkpoints: a folder, relative to the working folder, that lives in KEDGE_CHECKPOINT_DIR, or empty.
        gpus: the numbers of the only GPUs that the command sees; None for all.
        cpus: how many cores it is pinned to; None for all.
        after: the task that has to succeed before; empty for none.
        nodes: `all`, or `head`: it runs on the first of several machines only.
        port: the head's port for the machines that run the task together; 0: it runs on this machine alone.
    """

    name: str
    command: str
    supervisor: str
    restarts: int
    restart_after: float
    grace: float
    resume: str = ""
    unit: str = ""
    envs: dict[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    checkpoints: str = ""
    gpus: tuple[int, ...] | None = None
    cpus: int | None = None
    after: str = ""
    nodes: str = "all"
    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What the agent needs to run a machine's tasks. It holds secrets: it is sent over SSH and never printed.

    Attributes:
        setup: a shell script, run before the first start; again only if its text, its variables or its inputs have
            changed, or if what it did is tied to the folder of older code.
        tasks: one, whose name is empty, or several with names.
        on_failure: `go-on`, or `stop-all`: once a task has failed for good, the others are stopped.
        sequence: how many modes the run has had before this one; the results of each are in folders of their own.
        continues: the key of the mode (task_folder.py) from whose newest checkpoint each task's first attempt resumes;
            empty for the run's first mode; None to start fresh.
        then: the modes that follow on the same machine, in their order; each starts once all tasks of the one before
            have succeeded.
        done: the tasks that have succeeded on an earlier machine, and aren't started.
        secrets: name -> value; kept in a file that only its owner can read.
        data: paths, relative to the working folder, that are stored beside the code and outlive a change of it.
        python_path: folders, relative to the working folder, to put on PYTHONPATH.
        keep: leave the machine running until its deadline after the command has ended.
        sources: what the machine downloads by itself; the tokens for that are among the secrets.
        python: the Python of this computer on which the command's environment is built; empty on clouds, whose machines
            find their own.
        left_behind: how many bytes to keep of files written outside of the outputs; None for the default of the way
            by which results are copied.
        setup_inputs: paths and globs, relative to the working folder, of the files that `setup` depends on; empty for
            the usual ones, such as requirements.txt, and those that `setup` names.
        addresses: the private addresses of the run's machines, by rank; empty if there is one machine.
        elastic: with how many machines, at least and at most, the command can go on; None: with all of them only.
        modes_port: the head's port where the machines agree on when to begin the next mode; 0: there is one machine.
        recovers: a lost machine is replaced, so that the others wait longer for it.
        token: by which the run's machines recognize each other; empty for one machine. It is kept like a secret.
    """

    run: str
    job: str
    mode: str
    setup: str
    tasks: tuple[TaskConfig, ...]
    on_failure: str = "go-on"
    sequence: int = 0
    continues: str | None = None
    then: tuple[RunConfig, ...] = ()
    done: tuple[str, ...] = ()
    envs: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    gpus_per_node: int = 0
    python_path: tuple[str, ...] = ()
    keep: bool = False
    sources: tuple[DataSource, ...] = ()
    python: str = ""
    left_behind: int | None = None
    setup_inputs: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    elastic: tuple[int, int] | None = None
    modes_port: int = 0
    recovers: bool = False
    token: str = field(default="", repr=False)


def encode_run_config(config: RunConfig) -> bytes:
    """Encode a configuration for an agent; a task without a name also in the form that earlier agents read."""
    content = msgspec.to_builtins(config)
    if not config.tasks[0].name:
        content.update({name: value for name, value in content["tasks"][0].items() if name not in ("name", "envs")})
    return msgspec.json.encode(content)


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
        rank: its number among the machines of the run; those after 0 keep their results apart, below `nodes/RANK`.
        arm_command: argv that arms the timer of the machine's end, as root; a new deadline follows it, in Unix seconds.
            Empty if the machine's provider arms it.
        margin: seconds from `deadline_at` until that timer ends the machine.
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
    rank: int = 0
    arm_command: tuple[str, ...] = ()
    margin: float = 0.0


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
        secrets: names of the variables without which the command isn't started; their values are never in the order.
        secrets_url: where the machine reads them, `ssm://REGION/PATH[?endpoint=URL]`: each is a parameter below PATH,
            its value in JSON. Empty: they come over SSH, in the file `<root>/private/run-secrets.json`.
    """

    code: str = ""
    code_sha256: str = ""
    start_sha256: str = ""
    gpus: int = 0
    torch_wheel: str = ""
    secrets: tuple[str, ...] = ()
    secrets_url: str = ""
