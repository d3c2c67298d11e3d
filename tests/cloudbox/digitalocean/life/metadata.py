"""The metadata service of one droplet, on its own loopback address.

Paths as in docs.digitalocean.com/reference/api/metadata (2026-11): no tokens, plain text; what isn't there is 404.
A real droplet finds it at 169.254.169.254, which all machines of a computer would share: here it has a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from tests.cloudbox.digitalocean.account.state import Droplet
from tests.cloudbox.http_server import LoopbackServer, QuietHandler

NAME = "metadata.droplet"
"""Which each machine's hosts file has for its own address."""
PORT = 8111
"""Of every droplet's address: nobody else has a socket there."""
URL = f"http://{NAME}:{PORT}"

_ROOT = "/metadata/v1"


class MetadataService:
    """Serves one droplet until `close`."""

    def __init__(self, droplet: Droplet) -> None:
        self._values = _describe(droplet)
        self._server = _Server(droplet.address, self)
        self._server.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    def find(self, path: str) -> str | None:
        """Return the value at a path below /metadata/v1, or the names in a folder; None where there is nothing."""
        if path == ".json":
            return json.dumps(self._values)
        found: Any = self._values
        for part in filter(None, path.split("/")):
            if not isinstance(found, Mapping) or part not in found:
                return None
            found = found[part]
        if isinstance(found, Mapping):
            return "\n".join(f"{name}/" if isinstance(value, Mapping) else name for name, value in found.items())
        return "\n".join(found) if isinstance(found, list) else str(found)


def _describe(droplet: Droplet) -> dict[str, Any]:
    ipv4 = {"address": droplet.address, "netmask": "255.0.0.0", "gateway": "127.0.0.1"}
    return {
        "id": str(droplet.id),
        "hostname": droplet.name,
        "user-data": droplet.user_data,
        "vendor-data": "",
        "public-keys": list(droplet.public_keys),
        "region": droplet.region,
        "tags": list(droplet.tags),
        "interfaces": {"public": {"0": {"ipv4": ipv4, "mac": "04:01:2a:0f:2a:01", "type": "public"}}},
    }


class _Server(LoopbackServer):
    def __init__(self, address: str, service: MetadataService) -> None:
        super().__init__(address, _Handler, port=PORT)
        self.service = service


class _Handler(QuietHandler):
    def respond(self) -> None:
        value = None
        if self.command == "GET" and self.path.startswith(_ROOT):
            value = cast("_Server", self.server).service.find(self.path.removeprefix(_ROOT))
        if value is None:
            self.answer(404, b"not found")
        else:
            self.answer(200, value.encode())
