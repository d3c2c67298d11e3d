"""`python -m tests.cloudbox`: one box, which lives as long as its standard input."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from pathlib import Path

from tests.cloudbox.nspawn.needs import prepare_machines

# Moto reads these when it is imported: what a launch names has to exist.
_MOTO = {
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_ENABLE_KEYPAIR_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",
    # Whatever moto asks AWS itself must not leave this computer.
    "AWS_EC2_METADATA_DISABLED": "true",
}


_HELP = """\
A cloud in a box. In another terminal, for kedge or any other client of {cloud}:

{exports}

Then, for example:

{examples}

Orders (tests/cloudbox/README.md): {control}/control/...
Ctrl-C ends it, with all that it runs."""


def main() -> int:
    """Run a box until standard input ends, the parent dies, or somebody interrupts."""
    arguments = _parse()
    if arguments.machines and (reason := prepare_machines()):
        print(reason, file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="kedge-cloudbox-", dir=arguments.folder))
    tempfile.tempdir = str(folder)
    logging.basicConfig(level=logging.WARNING)
    # That it leaves out a bucket's policy and a budget, in two ways: they change nothing in the box.
    warnings.filterwarnings("ignore", "Tried to parse AWS::")
    logging.getLogger("moto").setLevel(logging.ERROR)
    os.environ.update(_MOTO)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    try:
        arguments.run(folder, over, with_machines=arguments.machines)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cloudbox", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the box makes its own folder (default: the temporary one)")
    clouds = parser.add_mutually_exclusive_group()
    for name, run, cloud in (
        ("digitalocean", _run_digitalocean, "DigitalOcean"),
        ("lambda", _run_lambda, "Lambda Cloud"),
    ):
        clouds.add_argument(f"--{name}", dest="run", action="store_const", const=run, help=f"{cloud} instead of AWS")
    parser.set_defaults(run=_run_aws)
    parser.add_argument("--no-machines", dest="machines", action="store_false", help="the API only: no root, no Linux")
    return parser.parse_args()


def _run_aws(folder: Path, over: threading.Event, *, with_machines: bool) -> None:
    from tests.cloudbox.aws.descriptions import read_descriptions_once

    read_descriptions_once()
    from tests.cloudbox.aws.box import environment
    from tests.cloudbox.aws.cloud import Cloud
    from tests.cloudbox.aws.server import serve

    cloud = Cloud(folder, with_machines=with_machines)
    try:
        endpoint, control = serve(cloud)
        examples = "kedge bootstrap --provider aws\nkedge launch --provider aws --gpu t4 --spot --job digits"
        if sys.stdin.isatty():
            _explain("AWS", environment(endpoint), examples, control, folder)
        _live({"endpoint": endpoint, "control": control}, over)
    finally:
        cloud.close()


def _run_digitalocean(folder: Path, over: threading.Event, *, with_machines: bool) -> None:
    from tests.cloudbox.digitalocean.box import start_box
    from tests.cloudbox.digitalocean.control import render_orders
    from tests.cloudbox.rest.control import Control

    with start_box(folder, machines=with_machines) as do:
        control = Control(render_orders(do))
        try:
            if sys.stdin.isatty():
                launch = "kedge launch --provider do --gpu h100 --job digits"
                _explain("DigitalOcean", do.environ, launch, control.url, folder)
            _live({"environ": do.environ, "control": control.url}, over)
        finally:
            control.close()


def _run_lambda(folder: Path, over: threading.Event, *, with_machines: bool) -> None:
    from tests.cloudbox.lambdacloud.box import start_box
    from tests.cloudbox.lambdacloud.orders import render_orders
    from tests.cloudbox.rest.control import Control

    with start_box(folder, machines=with_machines) as lam:
        control = Control(render_orders(lam))
        try:
            if sys.stdin.isatty():
                example = (
                    'curl --cacert "$KEDGE_LAMBDA_CA" -u "$LAMBDA_API_KEY:" $KEDGE_LAMBDA_ENDPOINT/api/v1/instances'
                )
                _explain("Lambda Cloud", lam.environ, example, control.url, folder)
            _live({"environ": lam.environ, "control": control.url}, over)
        finally:
            control.close()


def _live(ready: dict[str, object], over: threading.Event) -> None:
    # Moto's data are hundreds of thousands of objects, and stay: no garbage collection looks at them.
    gc.collect()
    gc.freeze()
    if not sys.stdin.isatty():
        print(json.dumps(ready), flush=True)
        threading.Thread(target=_watch_input, args=(over,), daemon=True).start()
    _wait(over)


def _wait(over: threading.Event) -> None:
    # A parent that is killed closes the pipe, unless another child of its inherited it.
    parent = os.getppid()
    while not over.wait(0.5):
        if os.getppid() != parent:
            return


def _watch_input(over: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    over.set()


def _explain(cloud: str, environ: dict[str, str], examples: str, control: str, folder: Path) -> None:
    # What kedge remembers of the box's machines goes with the box.
    own = {"KEDGE_STATE_DIR": f"{folder}/kedge", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    exports = "\n".join(f"export {name}={value}" for name, value in {**environ, **own}.items())
    print(_HELP.format(cloud=cloud, exports=exports, examples=examples, control=control), flush=True)


if __name__ == "__main__":
    sys.exit(main())
