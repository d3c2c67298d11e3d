"""Builds a job from its file, one of its modes, and the laptop's environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import msgspec

from orchestrator.adapters.jobfile.assembly.bundled import runs_bundled_trainer
from orchestrator.adapters.jobfile.assembly.chosen_mode import ChosenMode
from orchestrator.adapters.jobfile.assembly.flags import without_variables
from orchestrator.adapters.jobfile.assembly.keys import merge_part, requirements_of
from orchestrator.adapters.jobfile.assembly.laptop import Laptop
from orchestrator.adapters.jobfile.assembly.sudo import decide_sudo
from orchestrator.adapters.jobfile.assembly.tasks import build_tasks, scripts_of
from orchestrator.adapters.jobfile.assembly.variables import read_variables
from orchestrator.adapters.jobfile.document import Document
from orchestrator.adapters.jobfile.models import JobPart, ModePart
from orchestrator.adapters.jobfile.parts import MountPart, ResourcesPart, VolumePart
from orchestrator.adapters.jobfile.problems import KeyPath, quoted
from orchestrator.adapters.jobfile.provider_parts import ProviderPart
from orchestrator.adapters.jobfile.source_map import SourceMap
from orchestrator.adapters.jobfile.values.addresses import is_address, parse_address
from orchestrator.adapters.jobfile.values.names import fit_name
from orchestrator.adapters.jobfile.values.paths import is_through_link, laptop_path, relative_folder
from orchestrator.adapters.jobfile.values.requirements import Requirements, merge_requirements, parse_provider
from orchestrator.adapters.jobfile.values.site import merge_site
from orchestrator.adapters.sync.data_tree import find_places, refuse_leaving
from orchestrator.core.job import AtEnd, DataMount, Job, Resources, VolumeSpec
from orchestrator.core.values.disk import check_initialization, plan_disk
from orchestrator.core.values.site import Site

_ANY_SIZE_GIB = 1 << 16


def build_job(document: Document, part: JobPart, mode: ChosenMode, laptop: Laptop) -> Job:
    """Apply a mode to a job, and build the complete job.

    Raises:
        BadRequestError: the laptop lacks something that the job names, or the job contradicts itself.
    """
    if mode.is_open and part.expect is not None:
        part = part.model_copy(update={"expect": part.expect.model_copy(update={"duration": None, "basis": None})})
    layers = [part, *mode.layers]
    job = _Builder(SourceMap(document=document, mode=mode.name), part, layers, laptop).job()
    tasks = tuple(without_variables(task, mode.variables) for task in job.tasks)
    return msgspec.structs.replace(job, mode_arguments=mode.values, tasks=tasks)


def merge_provider(
    sites: tuple[tuple[str, Site], ...], part: ProviderPart | None, document: Document, around: KeyPath = ()
) -> tuple[tuple[str, Site], ...]:
    """Merge a `provider:` block into the sites so far; `around` are the keys above the block in its document."""
    laid = dict(sites)
    for provider, said in part.model_dump(exclude_none=True).items() if part else ():
        names = {"subnet": "subnets", "private_ip": "private"}
        lines = {key: document.line((*around, "provider", provider, key)) for key in said}
        laid[provider] = merge_site(
            laid.get(provider, Site()),
            {names.get(key, key): value for key, value in said.items()},
            {key: f"{document.path}:{line}" for key, line in lines.items()},
        )
    return tuple(laid.items())


class _Builder:
    """Builds a job from its layers; a later layer wins."""

    def __init__(self, source_map: SourceMap, part: JobPart, layers: Sequence[ModePart], laptop: Laptop) -> None:
        self._source_map = source_map
        self._path = source_map.document.path
        self._part = part
        self._layers = layers
        self._laptop = laptop
        self._variables = read_variables(source_map, layers, laptop)

    def job(self) -> Job:
        workdir = self._workdir()
        job = Job(
            name=self._part.name or self._default_name(),
            path=str(self._path),
            mode=self._source_map.mode,
            workdir=None if workdir is None else str(workdir),
            resources=self._resources(),
            envs=tuple(self._variables.envs.items()),
            secrets=self._variables.secrets,
            inherited=self._variables.inherited,
            data=self._data(),
            sites=self._sites(),
        )
        job = reduce(merge_part, self._layers, job)
        tasks = build_tasks(self._source_map, self._layers, job)
        scripts: list[tuple[KeyPath, str]] = [(("setup",), job.setup), *scripts_of(tasks)]
        return msgspec.structs.replace(
            job,
            tasks=tasks,
            sudo=decide_sudo(self._source_map, self._last("sudo"), scripts),
            bundled_trainer=any(runs_bundled_trainer(task.run, workdir) for task in tasks),
        )

    def _last(self, field: str) -> Any:
        said = [getattr(layer, field) for layer in self._layers]
        return next((value for value in reversed(said) if value is not None), None)

    def _default_name(self) -> str:
        return fit_name(self._path.parent.name if self._path.stem == "kedge" else self._path.stem)

    def _workdir(self) -> Path | None:
        if self._part.workdir is None:
            return None
        said = self._variables.expand(self._part.workdir, ("workdir",))
        path = self._source_map.at(("workdir",), partial(laptop_path, said, self._path.parent))
        if not path.is_dir():
            raise self._source_map.refusal(
                ("workdir",), f"{quoted(said)} is not a folder", fix="name the folder that holds the code"
            )
        return path

    def _resources(self) -> Resources:
        resources = Resources()
        for layer in self._layers:
            if layer.resources is not None:
                resources = merge_requirements(resources, self._requirements(layer.resources))
        if resources.disk_iops is not None or resources.disk_mibps is not None:
            # If the image determines the disk's size, only the ranges can be checked here.
            size = resources.disk_gib or _ANY_SIZE_GIB
            key = "disk_iops" if resources.disk_mibps is None else "disk_throughput"
            plan = partial(plan_disk, size, iops=resources.disk_iops, mibps=resources.disk_mibps)
            self._source_map.at(("resources", key), plan)
        return replace(resources, volumes=self._volumes())

    def _sites(self) -> tuple[tuple[str, Site], ...]:
        sites = self._laptop.sites
        for layer in self._layers:
            around: KeyPath = () if layer is self._part else ("modes", self._source_map.mode)
            sites = merge_provider(sites, layer.provider, self._source_map.document, around)
        self._refuse_proxy_commands(sites)
        return sites

    def _refuse_proxy_commands(self, sites: tuple[tuple[str, Site], ...]) -> None:
        """Refuse a job file's proxy command, which runs on this computer, unless the user's settings have it too."""
        own = dict(self._laptop.sites)
        for provider, site in sites:
            if site.proxy_command in ("", own.get(provider, Site()).proxy_command) or self._laptop.allows_proxy_command:
                continue
            raise self._source_map.refusal(
                ("provider", provider, "proxy_command"),
                f"a job file can't choose a command for your computer: {quoted(site.proxy_command)}",
                why="it would run as you, with your keys, and a job file may come with a stranger's repository",
                fix=f"write it under `provider: {provider}:` of your own settings (config.yaml), name a `jump_host` "
                "instead, or allow this job's with --allow-proxy-command",
            )

    def _volumes(self) -> tuple[VolumeSpec, ...]:
        return tuple(self._volume(part) for part in self._last("volumes") or ())

    def _volume(self, part: VolumePart) -> VolumeSpec:
        spec = VolumeSpec(
            name=part.name,
            target=part.target,
            size_gib=part.size,
            at_end=part.at_end or AtEnd.KEEP,
            iops=part.iops,
            mibps=part.throughput,
            snapshot_id=part.snapshot,
            initialization_mibps=part.initialization_rate,
        )
        self._source_map.at(("volumes",), lambda: spec.disk)
        self._source_map.at(("volumes",), partial(check_initialization, part.snapshot, part.initialization_rate))
        return spec

    def _requirements(self, part: ResourcesPart) -> Requirements:
        if part.infra is not None and {"cloud", "region", "zone"} & part.given().keys():
            raise self._source_map.refusal(
                ("resources", "infra"),
                "`infra` sets the place already",
                why="`cloud`, `region` and `zone` beside it may contradict it",
                fix="keep `infra` alone",
            )
        requirements = requirements_of(part)
        if "provider" in requirements:
            parse = partial(parse_provider, requirements["provider"], self._laptop.providers)
            requirements["provider"] = self._source_map.at(
                ("resources", "cloud" if part.infra is None else "infra"), parse
            )
        return requirements

    def _data(self) -> tuple[DataMount, ...]:
        mounts: dict[str, tuple[KeyPath, MountPart]] = {}
        for part in self._part.file_mounts or ():
            mounts[part.target] = ("file_mounts", part.target), part
        for layer in self._layers:
            for index, part in enumerate(layer.data or ()):
                mounts[part.target] = self._data_key(layer, index, part.target), part
        return tuple(self._mount(key, part) for key, part in mounts.values())

    def _data_key(self, layer: ModePart, index: int, target: str) -> KeyPath:
        around: KeyPath = ("data",) if layer is self._part else ("modes", self._source_map.mode, "data")
        as_mapping = (*around, target)
        return as_mapping if as_mapping in self._source_map.document.lines else (*around, index)

    def _mount(self, key: KeyPath, part: MountPart) -> DataMount:
        said, target = (self._variables.expand(text, key) for text in (part.source, part.target))
        return self._source_map.at(key, partial(self._placed, said, target, follow_links=bool(part.follow_links)))

    def _placed(self, said: str, target: str, *, follow_links: bool) -> DataMount:
        if is_address(said):
            return DataMount(source=str(parse_address(said)), target=relative_folder(target))
        source = laptop_path(said, self._path.parent)
        if not follow_links:
            refuse_leaving(source)
        return DataMount(
            source=str(source),
            target=relative_folder(target),
            follows=find_places(source) if follow_links else (),
            written=said if is_through_link(said, self._path.parent) else "",
        )
