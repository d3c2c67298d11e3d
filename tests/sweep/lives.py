"""What all boxes' lives have in common: a user with secrets in all possible places, and what is searched."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.ssh.keys import ensure_key
from tests.agent.sources.test_git import Repository
from tests.agent.sources.web import GitHost, Hub, Site, serving
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until
from tests.sweep.folders import Found, read_file, search_folder, search_machine
from tests.sweep.secrets import GZIP, Secrets
from tests.sweep.watching import Processes, Watcher, watching

STEPS = 100_000
JOB = """\
name: swept
workdir: .
start: boot
setup: test -n "$WANDB_API_KEY$INHERITED$BY_NAME"
run: |
  mkdir -p results
  printenv WRITTEN | tee results/written.txt
  python3 train.py
outputs: [results]
checkpoints: ckpt
envs:
  STEPS: {steps}
  PAUSE: 0.2
  SAVE_EVERY: 5
  INHERITED: null
  LITERAL: {literal}
  HF_ENDPOINT: {hub}
  KEDGE_TORCH_WHEEL: {wheel}
secrets: [WANDB_API_KEY, HF_TOKEN, GIT_TOKEN, WRITTEN]
data:
  numbers: ./numbers
  signed.txt: {signed}
  faces: hf://datasets/me/faces
  source: git+{git}/source.git@v1.0
deadline: 15m
budget: 5
supervisor: {{kind: {supervisor}, restarts: 0, grace: 5s}}
"""
_RUN = re.compile(r"swept-\d{4}-[a-z0-9]{4}")
_HEX = re.compile(r"\b[0-9a-f]{32,64}\b")


@dataclass
class Life:
    """A run's life, from its plan to its end.

    Attributes:
        laptop: where its commands run.
        secrets: its secrets; all are made before the first command.
        folder: the user's folders: home, project, state, runtime and temporary ones.
        found: the secrets found so far.
        job: its job file, without `resources`.
        processes: the processes that were seen, once `end` was called.
    """

    laptop: Laptop
    secrets: Secrets
    folder: Path
    stack: ExitStack
    found: Found = field(default_factory=dict)
    job: str = ""
    processes: Processes = field(default_factory=Processes)
    _watcher: Watcher | None = None

    @property
    def home(self) -> Path:
        """The user's home folder; the project is elsewhere."""
        return self.folder / "user"

    def kedge(self, *words: str, code: int | None = 0, env: dict[str, str] | None = None) -> str:
        """Run a command; its output is searched."""
        self._watch()
        said = self.laptop.kedge(*words, code=code, env=env)
        self.search(f"output kedge {words[0]}", (said + self.laptop.errors).encode())
        return said

    def hold(self, *words: str) -> None:
        """Run a command that prints, and look at its process while it can't end: its output is a pipe that is full."""
        watcher = self._watch()
        output, full = os.pipe()
        os.set_blocking(full, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(full, b" ")
        os.set_blocking(full, True)
        with self.laptop.start(*words, stdout=full) as process, os.fdopen(output, "rb") as printed:
            os.close(full)
            watcher.look()
            self.search(f"output kedge {words[0]}", printed.read())
            assert process.wait() == 0

    def _watch(self) -> Watcher:
        """Watch all processes from the first command on."""
        if self._watcher is None:
            self._watcher = self.stack.enter_context(watching(self.secrets))
        return self._watcher

    def search(self, place: str, data: bytes) -> None:
        """Search the content of a place."""
        example = data[:200].decode(errors="replace")
        for name in self.secrets.find(data):
            self.found.setdefault((name, plain(place)), example)

    def add(self, found: Found) -> None:
        """Add what was found elsewhere."""
        for (name, place), example in found.items():
            self.found.setdefault((name, plain(place)), example)

    def search_machine(self, machine: str) -> None:
        """Search what a running machine of a box has written; its own host key is one of the secrets."""
        key = read_file(machine, "/etc/ssh/ssh_host_ed25519_key")
        self.secrets.add_key("a machine's own host key", key.decode())
        self.add(search_machine(self.secrets, machine))

    def search_user_data(self, user_data: bytes) -> None:
        """Search a machine's user-data, and look for the host key in it from now on."""
        text = gzip.decompress(user_data) if user_data.startswith(GZIP) else user_data
        [key] = re.findall("-----BEGIN .*?PRIVATE KEY-----.*?-----END", text.decode().replace("\\n", "\n"), re.DOTALL)
        self.secrets.add_key("a machine's throw-away host key", key)
        self.search("user-data", user_data)

    def begin(self) -> None:
        """Plan the job, launch it, and run the commands that query a run."""
        self.laptop.write_job(self.job)
        given = ("--env", "BY_NAME", "--env", f"GIVEN={self.secrets.values['--env NAME=value']}")
        self.hold("plan", *given)
        self.kedge("plan", *given)
        self.kedge("plan", "--json", *given)
        self.kedge("launch", "--yes", "--detach", *given)
        self.wait_until_it_trains()
        for command in ("status", "status --json", "exec -- true", "cost", "ssh-config", "jobs"):
            self.kedge(*command.split())

    def change(self) -> None:
        """Send other code, stop the command, start it again."""
        script = self.laptop.home / "train.py"
        script.write_text(script.read_text() + "# changed\n")
        self.kedge("sync-code", "--restart")
        self.kedge("stop")
        self.kedge("start")
        self.wait_until_it_trains()

    def wait_until_it_trains(self) -> None:
        """Wait until the command is training, after `setup` and all downloads."""
        wait_until(lambda: self.laptop.json("status")[0]["state"] == "running", seconds=120)
        wait_until(lambda: f" of {STEPS}" in self.kedge("logs"), seconds=120)
        self._watch().look()

    def fail_unexpectedly(self) -> None:
        """Make kedge fail with an unexpected error and a crash report: its ledger is no database."""
        state = self.folder / "broken-state"
        state.mkdir(mode=0o700)
        (state / "ledger.db").write_bytes(b"no database" * 100)
        self.kedge("status", code=1, env={"KEDGE_STATE_DIR": str(state)})
        assert [*(self.folder / "tmp").glob("kedge-crash-*.txt")], self.laptop.errors

    def search_laptop(self) -> None:
        """Search all folders of the user."""
        self.add(search_folder(self.secrets, self.folder, lambda path: f"laptop {path}"))
        self.add(search_folder(self.secrets, self.laptop.runtime, lambda path: f"laptop runtime/{path}"))

    def end(self) -> None:
        """Search the user's folders at the end, and take what was seen of processes."""
        self.search_laptop()
        assert self._watcher
        self.processes = self._watcher.close()
        assert self.processes.missed <= self.processes.started / 20, self.processes
        self.add(self.processes.found)


def plain(place: str) -> str:
    """Return a place as the table names it: ids and digests differ between lives."""
    return _HEX.sub("HASH", _RUN.sub("RUN", place))


@contextmanager
def living(laptop: Laptop, folder: Path, *, supervisor: str) -> Iterator[Life]:
    """Make a user with secrets everywhere, and a job that uses some of them."""
    secrets = Secrets()
    with ExitStack() as stack:
        life = Life(laptop=laptop, secrets=secrets, folder=folder, stack=stack)
        for place in (life.home, folder / "tmp", folder / "elsewhere", laptop.home / "numbers"):
            place.mkdir(mode=0o700)
        (laptop.home / "numbers" / "one.txt").write_text("1")
        subprocess.run(["git", "init", "--quiet", str(laptop.home)], check=True)
        laptop.extra_env |= {
            "HOME": str(life.home),
            "TMPDIR": str(folder / "tmp"),
            "SSH_AUTH_SOCK": stack.enter_context(_agent(secrets, life.home, folder)),
            "HTTPS_PROXY": secrets.make("HTTPS_PROXY", "http://me:{}@127.0.0.1:9"),
            "NO_PROXY": "127.0.0.1,localhost",
        }
        forms = {"HF_TOKEN": "hf_{}", "GIT_TOKEN": "ghp_{}", "AMD_DEVCLOUD_TOKEN": "dop_v1_{}"}
        for name in ("HF_TOKEN", "GIT_TOKEN", "WANDB_API_KEY", "WRITTEN", "INHERITED", "BY_NAME", "GITHUB_TOKEN"):
            laptop.extra_env[name] = secrets.make(name, forms.get(name, "{}"))
        laptop.extra_env["KEDGE_STORE_SECRET_ACCESS_KEY"] = secrets.make("KEDGE_STORE_SECRET_ACCESS_KEY")
        laptop.extra_env["AMD_DEVCLOUD_TOKEN"] = secrets.make("AMD_DEVCLOUD_TOKEN", forms["AMD_DEVCLOUD_TOKEN"])
        laptop.extra_env["LAMBDA_API_KEY"] = secrets.make("LAMBDA_API_KEY", "secret_laptop_{}")
        laptop.extra_env["KEDGE_LAMBDA_ENDPOINT"] = "https://127.0.0.1:9"
        key, _public = ensure_key(laptop.state / "keys")
        secrets.add_key("the key for machines", key.read_text())
        secrets.make("--env NAME=value")
        hub = Hub(files={"x.txt": b"x"}, token=secrets.values["HF_TOKEN"])
        host = GitHost(folder=folder / "elsewhere", token=secrets.values["GIT_TOKEN"])
        signed = Site(files={"/one.txt": b"1"})
        for site in (hub, host, signed):
            stack.enter_context(serving(site))
        Repository(host.folder / "source.git")
        life.job = JOB.format(
            steps=STEPS,
            literal=secrets.make("envs: {NAME: value}"),
            hub=hub.url,
            git=host.url,
            signed=secrets.make("an address's query", signed.url + "/one.txt?sig={}"),
            wheel=secrets.make("KEDGE_TORCH_WHEEL", "http://me:{}@127.0.0.1:9/wheels"),
            supervisor=supervisor,
        )
        yield life


@contextmanager
def _agent(secrets: Secrets, home: Path, folder: Path) -> Iterator[str]:
    """Run the user's own ssh-agent with a key of theirs."""
    (home / ".ssh").mkdir(mode=0o700)
    key, socket = home / ".ssh" / "id_ed25519", folder / "agent"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    secrets.add_key("a key of the user's", key.read_text())
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        wait_until(socket.exists)
        env = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
        subprocess.run(["ssh-add", "-q", str(key)], check=True, env=env)
        yield str(socket)
    finally:
        agent.kill()
        agent.wait()
