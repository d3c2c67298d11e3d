"""Which secret may be in which place: the one table; docs/security.md has it in words ("Where each secret lives").

A place is one of

    argv PROGRAM, environ PROGRAM                   of this computer; in a box's machine with `machine ` before it
    laptop PATH                                     home (the project), user (the home folder), state, tmp, runtime
    machine /PATH                                   on its disk, on a volume, in memory
    user-data, tags, api CALL, bucket KEY           what the cloud was given
    parameter NAME                                  AWS's parameter store, decrypted
    output kedge COMMAND                            both streams

with RUN for a run's id and HASH for a digest. A secret that no row allows is a leak. A secret that isn't where a row
says is an error too: an outdated row would hide the next leak in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.sweep.folders import Found

LOCAL, AWS, DIGITALOCEAN = "local", "aws", "do"
EVERYWHERE = (LOCAL, AWS, DIGITALOCEAN)
CLOUDS = (AWS, DIGITALOCEAN)

CREDENTIALS = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN", "AMD_DEVCLOUD_TOKEN"),
    "LAMBDA_API_KEY",
    *("SPACES_SECRET_ACCESS_KEY", "KEDGE_STORE_SECRET_ACCESS_KEY", "KEDGE_DIGITALOCEAN_DELETE_TOKEN"),
)
"""Kedge's own credentials, from the shell."""
OTHERS = ("GITHUB_TOKEN", "HTTPS_PROXY")
"""In the shell, but not requested by the job."""
IN_FILE = ("~/.aws/credentials: secret key", "~/.aws/credentials: session token")
TAKEN = ("HF_TOKEN", "GIT_TOKEN", "WANDB_API_KEY", "WRITTEN", "INHERITED", "BY_NAME")
"""`secrets`, `null` under `envs`, and `--env NAME`; the job writes WRITTEN to its log and its results."""
LITERAL = ("envs: {NAME: value}", "--env NAME=value", "KEDGE_TORCH_WHEEL")
"""Values that the user writes down: kedge doesn't treat them as secrets."""

_SHORT = ("git", "env", "ssh-keygen", "uname", "systemctl", "loginctl", "nvidia-smi", "amd-smi", "rocm-smi")
_FETCHING = ("fetch.sh", "kedge-agent fetch-data", "git", "git-remote-http", "sh -c")
_PARAMETERS = "AWS's parameter store, encrypted, below `/kedge/runs/RUN/`"
_COMMAND = ("setup.sh", "command.sh", "mkdir", "printenv", "tee", "train.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Secrets that may be in a place.

    Attributes:
        secrets: the secrets' names.
        place: a pattern; `*` stands for any text.
        page: the words of docs/security.md for this place.
        seen: the lives in which each of these secrets must be found there.
    """

    secrets: tuple[str, ...]
    place: str
    page: str
    seen: tuple[str, ...] = ()


TABLE = (
    # The shell's.
    Row(
        secrets=(*CREDENTIALS, *OTHERS, *TAKEN),
        place="environ orchestrator.cli",
        page="environment and memory of a kedge command",
        seen=EVERYWHERE,
    ),
    *(Row(secrets=(*CREDENTIALS, *OTHERS, *TAKEN), place=f"environ {name}", page=f"`{name}`") for name in _SHORT),
    Row(secrets=IN_FILE, place="laptop user/.aws/credentials", page="`~/.aws`", seen=(AWS,)),
    # What droplets are brought.
    Row(
        secrets=("SPACES_SECRET_ACCESS_KEY",),
        place="machine /opt/kedge/private/spaces.json",
        page="`<root>/private/spaces.json`",
        seen=(DIGITALOCEAN,),
    ),
    # Of clouds without buckets: neither droplets nor AWS's machines have it.
    Row(
        secrets=("KEDGE_STORE_SECRET_ACCESS_KEY",),
        place="machine /opt/kedge/private/store.json",
        page="`<root>/private/store.json`",
    ),
    Row(
        secrets=("KEDGE_DIGITALOCEAN_DELETE_TOKEN",),
        place="machine /var/lib/kedge/api.curl",
        page="`/var/lib/kedge/api.curl`",
        seen=(DIGITALOCEAN,),
    ),
    # Of jobs that start at boot, which on this computer none does.
    Row(secrets=TAKEN, place="api ssm PutParameter", page=_PARAMETERS, seen=(AWS,)),
    Row(secrets=TAKEN, place="parameter /kedge/runs/RUN/m*", page=_PARAMETERS, seen=(AWS,)),
    Row(secrets=TAKEN, place="machine /opt/kedge/private/run-secrets.json", page="`<root>/private/run-secrets.json`"),
    Row(
        secrets=(*LITERAL, "an address's query"),
        place="bucket runs/RUN/start.json",
        page="`start.json` in the bucket with `start: boot`",
        seen=CLOUDS,
    ),
    # The job's.
    Row(secrets=TAKEN, place="machine /opt/kedge/secrets.json", page="`<root>/secrets.json`", seen=CLOUDS),
    Row(secrets=TAKEN, place="laptop state/machines/RUN-m1/secrets.json", page="you, with `local`", seen=(LOCAL,)),
    *(
        Row(secrets=(*TAKEN, *LITERAL), place=f"{where}environ {name}", page=page, seen=seen if name == lasts else ())
        for where, seen in (("", (LOCAL,)), ("machine ", CLOUDS))
        for names, page, lasts in (
            (_COMMAND, "environment of `setup` and `run`", "train.py"),
            (_FETCHING, "environment of what fetches `data`", ""),
        )
        for name in names
    ),
    *(
        Row(secrets=("WRITTEN",), place=place, page="wherever the job itself writes them", seen=seen)
        for place, seen in (
            ("machine /opt/kedge/results/run.log", CLOUDS),
            ("machine /opt/kedge/results/output/results/written.txt", CLOUDS),
            ("machine /dev/shm/written", CLOUDS),
            ("machine /run/log/journal/HASH/system.journal", (AWS,)),
            ("laptop state/machines/RUN-m1/results/run.log", (LOCAL,)),
            ("laptop state/machines/RUN-m1/results/output/results/written.txt", (LOCAL,)),
            ("bucket runs/RUN/blobs/HASH", CLOUDS),
            ("laptop state/store/RUN/blobs/HASH", (LOCAL,)),
            ("laptop home/kedge-results/RUN/run.log", EVERYWHERE),
            ("laptop home/kedge-results/RUN/output/results/written.txt", EVERYWHERE),
            ("output kedge logs", EVERYWHERE),
        )
    ),
    # Keys.
    Row(
        secrets=("a key of the user's",),
        place="laptop user/.ssh/id_ed25519",
        page="where you keep them: kedge copies none",
        seen=EVERYWHERE,
    ),
    Row(
        secrets=("the key for machines",),
        place="laptop state/keys/id_ed25519",
        page="`<state>/keys/id_ed25519`",
        seen=EVERYWHERE,
    ),
    Row(secrets=("a machine's throw-away host key",), place="user-data", page="user-data: at the cloud", seen=CLOUDS),
    Row(secrets=("a machine's throw-away host key",), place="api POST /v2/droplets", page="user-data: at the cloud"),
    Row(
        secrets=("a machine's throw-away host key", "KEDGE_TORCH_WHEEL"),
        place="machine /var/lib/cloud/*",
        page="cloud-init's files",
        seen=CLOUDS,
    ),
    Row(
        secrets=("a machine's own host key",),
        place="machine /etc/ssh/ssh_host_ed25519_key",
        page="`/etc/ssh`",
        seen=CLOUDS,
    ),
    # Values that are written down.
    Row(
        secrets=("--env NAME=value",),
        place="argv orchestrator.cli",
        page="others see it in the command line",
        seen=EVERYWHERE,
    ),
    Row(secrets=(*LITERAL, "an address's query"), place="laptop state/ledger.db*", page="ledger", seen=EVERYWHERE),
    Row(
        secrets=(*LITERAL, "an address's query"),
        place="machine /opt/kedge/run.json",
        page="`<root>/run.json`",
        seen=CLOUDS,
    ),
    Row(
        secrets=(*LITERAL, "an address's query"),
        place="laptop state/machines/RUN-m1/run.json",
        page="`<root>/run.json`",
        seen=(LOCAL,),
    ),
    *(
        Row(secrets=(LITERAL[0], LITERAL[2], "an address's query"), place=place, page="files in `workdir`", seen=seen)
        for place, seen in (
            ("laptop home/kedge.yaml", EVERYWHERE),
            ("machine /opt/kedge/releases/HASH/kedge.yaml", CLOUDS),
            ("laptop state/machines/RUN-m1/releases/HASH/kedge.yaml", (LOCAL,)),
            ("laptop state/ended/RUN-m2/kedge.yaml", (LOCAL,)),
            ("bucket *code/HASH.tar.gz", CLOUDS),
        )
    ),
    Row(
        secrets=("an address's query",),
        place="machine /opt/kedge/data/.fetched/HASH.json",
        page="`<root>/data/.fetched/`",
        seen=CLOUDS,
    ),
    Row(
        secrets=("an address's query",),
        place="laptop state/machines/RUN-m1/data/.fetched/HASH.json",
        page="`<root>/data/.fetched/`",
        seen=(LOCAL,),
    ),
    Row(secrets=("KEDGE_TORCH_WHEEL",), place="user-data", page="user-data", seen=CLOUDS),
    Row(secrets=("KEDGE_TORCH_WHEEL",), place="api POST /v2/droplets", page="user-data", seen=(DIGITALOCEAN,)),
    Row(secrets=("KEDGE_TORCH_WHEEL",), place="machine /opt/kedge/boot.json", page="`<root>/boot.json`", seen=CLOUDS),
)


def assert_allowed(found: Found, names: Collection[str], life: str) -> None:
    """Compare the secrets that a life has left with the table.

    Args:
        found: the secrets found, and where.
        names: the names of all secrets that were searched for.
        life: one of EVERYWHERE.
    """
    known = {name for row in TABLE for name in row.secrets}
    assert set(names) <= known | {"credentials of the role"}, "a secret that the table doesn't know"
    leaks = [
        f"{secret} is in {place} ({example[:300]!r})"
        for (secret, place), example in sorted(found.items())
        if not any(secret in row.secrets and fnmatchcase(place, row.place) for row in TABLE)
    ]
    assert not leaks, "\n".join(["secrets are where they mustn't be:", *leaks])
    missing = [
        f"{secret} isn't in {row.place}" for row, secret in _expected(names, life) if not _is_found(found, secret, row)
    ]
    assert not missing, "\n".join(["secrets aren't where the table says that they are:", *missing])


def _expected(names: Collection[str], life: str) -> Iterator[tuple[Row, str]]:
    return ((row, secret) for row in TABLE if life in row.seen for secret in row.secrets if secret in names)


def _is_found(found: Found, secret: str, row: Row) -> bool:
    return any(name == secret and fnmatchcase(place, row.place) for name, place in found)
