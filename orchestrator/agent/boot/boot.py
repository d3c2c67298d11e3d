"""`boot`: runs the phases (agent, GPUs, torch, burn-in, code, secrets, start), and writes the outcome to the sentinel.

It may run at every boot: finished phases are not repeated.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping

from ..base import state
from ..base.config import earlier_modes
from ..base.errors import AgentError, RequestError
from ..base.files import write_json
from ..base.layout import Layout
from ..base.parse import build, parse_run_config, read_boot_order, read_machine_config
from ..base.record import to_json
from ..base.wire import BURN_IN, IDLE, BootOrder, BootPhase, Readiness, RunConfig
from ..bootstrap import await_role
from ..code import releases
from ..code.pull import pull_code
from ..python.torch_env import NO_TORCH, ensure_torch
from ..run.start import start
from ..s3 import pins
from ..s3.store import open_store
from .burn_in import require_burn_in
from .secrets import read_secrets, supplied_file

START = "start.json"
_OWN = ("torch", BURN_IN, "code", "secrets", "start")


def execute(layout: Layout) -> int:
    """Run the phases, and write the sentinel in any case; 0 on success."""
    layout.ready_file.unlink(missing_ok=True)
    ready = Boot(layout).work()
    write_json(layout.ready_file, to_json(ready), durable=True)
    return 0 if ready.ok else 1


class Boot:
    """The phases in order; the first failure ends the boot."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._order = BootOrder()
        self._secrets: dict[str, str] = {}
        self._phases = _earlier(layout)

    def work(self) -> Readiness:
        """Run the phases."""
        done = (
            self._phase("agent", self._prepare)
            and self._check_gpus()
            and self._phase("code", self._pull)
            and self._find_secrets()
            and self._phase("start", self._start)
        )
        return Readiness(ok=done, phases=tuple(self._phases))

    def _prepare(self) -> None:
        self._layout.prepare()
        read_machine_config(self._layout)
        self._order = read_boot_order(self._layout)

    def _check_gpus(self) -> bool:
        """Check the GPUs before anything is fetched: a machine that fails is replaced by another."""
        order = self._order
        if order.gpus <= 0 or order.torch_wheel == NO_TORCH or not self._is_idle():
            # Without GPUs there is nothing to check; while a command uses them, they can't be checked.
            return True
        return self._phase("torch", self._find_torch) and self._phase(BURN_IN, self._burn_in)

    def _find_torch(self) -> None:
        order = self._order
        ensure_torch(self._layout, read_machine_config(self._layout), order.torch_wheel, gpus=order.gpus)

    def _burn_in(self) -> None:
        require_burn_in(self._layout, self._order.gpus)

    def _pull(self) -> None:
        # Code that is already here may be newer than the order: `sync-code` may have sent it since.
        if self._order.code and not releases.code_hash(self._layout):
            await_role(lambda: pull_code(self._layout, self._order.code, self._order.code_sha256))

    def _find_secrets(self) -> bool:
        return not (self._order.secrets and self._starts()) or self._phase("secrets", self._read_secrets)

    def _read_secrets(self) -> None:
        self._secrets = read_secrets(self._layout, self._order)

    def _starts(self) -> bool:
        """Whether there is a task to start: a start that was cut off has left some, and others that wait for them.

        The watch restarts those that were started before this boot and aren't over. Later modes are the laptop's.
        """
        is_left = any(each.command.state == IDLE for each in state.load_all(self._layout))
        return bool(self._order.start_sha256) and is_left and not earlier_modes(self._layout)

    def _start(self) -> None:
        if self._starts():
            config = parse_run_config(await_role(self._read_start))
            start(self._layout, with_secrets(config, self._secrets))
            # From here on, secrets.json has them.
            supplied_file(self._layout).unlink(missing_ok=True)

    def _is_idle(self) -> bool:
        return state.observe_run(self._layout).command.state == IDLE

    def _read_start(self) -> bytes:
        store = open_store(read_machine_config(self._layout))
        raw = store.read(START) if store else None
        if raw is None:
            raise AgentError("the store has no order to start a run", why=f"it has no {START}")
        pins.require(raw, self._order.start_sha256, START)
        return raw

    def _phase(self, name: str, action: Callable[[], None]) -> bool:
        began = time.time()
        error = ""
        try:
            action()
        except Exception as err:  # noqa: BLE001 - whatever it was, the sentinel has to say so
            error = f"{type(err).__name__}: {err}".replace("\n", ";")
            sys.stderr.write(f"kedge-agent boot, {name}: {error}\n")
        self._add(BootPhase(name, began, time.time(), ok=not error, error=error))
        return not error

    def _add(self, phase: BootPhase) -> None:
        if phase.ok and phase.phase in (earlier.phase for earlier in self._phases):
            # The bootstrap has already recorded how long fetching the agent took.
            return
        self._phases = [*(earlier for earlier in self._phases if earlier.phase != phase.phase), phase]
        with self._layout.boot_log.open("a") as log:
            log.write(json.dumps(to_json(phase)) + "\n")


def _earlier(layout: Layout) -> list[BootPhase]:
    """Read the latest outcome of the earlier phases, which other programs wrote."""
    try:
        phases = [build(BootPhase, json.loads(line)) for line in layout.boot_log.read_text().splitlines()]
    except (OSError, ValueError, TypeError, RecursionError, RequestError):
        return []
    return list({phase.phase: phase for phase in phases if phase.phase not in _OWN}.values())


def with_secrets(config: RunConfig, values: Mapping[str, str]) -> RunConfig:
    """Add the values of the secrets; each of several modes has only those that it names."""
    if not config.then:
        return config.replace(secrets={**config.secrets, **values})
    first, *then = (
        each.replace(secrets={name: values[name] for name in each.secrets}) for each in (config, *config.then)
    )
    return first.replace(then=tuple(then))
