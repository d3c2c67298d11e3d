"""moto's server in the tests' own process, which refuses what breaks AWS's models as the box does."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.cloudbox.aws.model.refusing import check_request
from tests.cloudbox.aws.wire.answers import AwsError, error
from tests.cloudbox.aws.wire.call import Environ, parse_call
from tests.cloudbox.aws.wire.moto_memory import remember_constants

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse


class _Strict:
    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        # moto's own orders ("/moto-api/reset") are no calls of AWS.
        if not environ["PATH_INFO"].startswith("/moto-api"):
            call = parse_call(environ)
            try:
                check_request(call)
            except AwsError as problem:
                return error(call, problem)(environ, start_response)
        return self._moto(environ, start_response)  # type: ignore[no-any-return]


@contextmanager
def serving_moto() -> Iterator[str]:
    """Serve AWS on a port of its own; yield the endpoint's URL."""
    remember_constants()
    server = make_server("127.0.0.1", 0, _Strict(), threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
