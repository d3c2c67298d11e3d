"""A command that creates a machine, for a test that kills it.

Its arguments are the laptop's state folder, and the names of data volumes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from orchestrator.core.job import VolumeSpec
from tests.adapters.aws.world import AwsWorld
from tests.cloudbox.aws.box import Box

if __name__ == "__main__":
    # An order is made without the box. The SDK reads the box's endpoint from the environment.
    world = AwsWorld(api=cast("Box", None), folder=Path(sys.argv[1]))
    volumes = tuple(VolumeSpec(name=name, target=f"data/{name}", size_gib=1) for name in sys.argv[2:])
    world.provider().create(world.order(volumes=volumes))
