"""The box's two ports, both on 127.0.0.1: AWS, and orders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.cloudbox.aws.cloud import Cloud
from tests.cloudbox.aws.control import Control
from tests.cloudbox.aws.gate import Gate

_WARM = ("ec2", "s3", "iam", "ssm")
"""Loaded before the box says that it is ready."""


class _Quiet(MotoRequestHandler):
    def log_request(self, *_: Any) -> None:
        """Say nothing: the box records calls itself."""

    def connection_dropped(self, *_: Any) -> None:
        """Hang up: the connection would be kept for the next request otherwise."""
        self.close_connection = True


def serve(cloud: Cloud) -> tuple[str, str]:
    """Answer from now on, in the background; return the URLs of AWS and of the orders."""
    moto = DomainDispatcherApplication(create_backend_app)
    for service in _WARM:
        moto.app_instances[service] = create_backend_app(service)  # type: ignore[arg-type]
    cloud.lifecycle.endpoint = _listen(Gate(cloud, moto))
    return cloud.lifecycle.endpoint, _listen(Control(cloud))


def _listen(app: Callable[..., Any]) -> str:
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
