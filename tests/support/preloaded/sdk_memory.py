"""Has botocore build what all clients of a service share once in a process, not once for each client.

A client of EC2 has 800 methods, built in 8 ms; tests make thousands of clients, and never read those methods'
documentation, the only place where they differ. A program that is started normally builds them for each client.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from botocore import client, hooks
from botocore.loaders import Loader
from botocore.model import ServiceModel


def share_among_clients() -> None:
    """Share descriptions, models and methods among all clients from now on."""
    _share_descriptions()
    _share_models_and_methods()
    _share_events()


def _share_descriptions() -> None:
    read: Callable[..., Any] = Loader.load_service_model
    kept: dict[tuple[object, ...], Any] = {}

    def read_once(loader: Loader, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        key = (*loader.search_paths, service_name, type_name, api_version)
        if key not in kept:
            kept[key] = read(loader, service_name, type_name, api_version)
        return kept[key]

    _replace(Loader, "load_service_model", read_once)


def _share_models_and_methods() -> None:
    creator = client.ClientCreator
    load: Callable[..., ServiceModel] = creator._load_service_model  # type: ignore[attr-defined]
    build: Callable[..., dict[str, Any]] = creator._create_methods  # type: ignore[attr-defined]
    # Each with its description, so that no other description can get its id.
    models: dict[int, tuple[object, ServiceModel]] = {}
    methods: dict[int, tuple[ServiceModel, dict[str, Any]]] = {}

    def load_once(self: Any, service_name: str, api_version: str | None = None) -> ServiceModel:
        description = self._loader.load_service_model(service_name, "service-2", api_version=api_version)
        if id(description) not in models:
            models[id(description)] = (description, load(self, service_name, api_version))
        return models[id(description)][1]

    def build_once(self: Any, model: ServiceModel) -> dict[str, Any]:
        if id(model) not in methods:
            methods[id(model)] = (model, build(self, model))
        # The class of a client adds its own to them.
        return dict(methods[id(model)][1])

    _replace(creator, "_load_service_model", load_once)
    _replace(creator, "_create_methods", build_once)


def _share_events() -> None:
    start: Callable[..., None] = hooks.EventAliaser.__init__
    names: dict[str, str] = {}

    def start_with_names(self: Any, event_emitter: Any, event_aliases: Any = None) -> None:
        start(self, event_emitter, event_aliases)
        if event_aliases is None or event_aliases == hooks.EVENT_ALIASES:
            self._alias_name_cache = names

    def accepts_kwargs(handler: Any) -> bool:
        code = getattr(handler, "__code__", None)
        return bool(code.co_flags & inspect.CO_VARKEYWORDS if code else inspect.getfullargspec(handler).varkw)

    _replace(hooks.EventAliaser, "__init__", start_with_names)
    _replace(hooks._PrefixTrie, "_recursive_copy", _copy_handlers)  # type: ignore[attr-defined]
    _replace(hooks, "accepts_kwargs", accepts_kwargs)


def _copy_handlers(trie: Any, node: dict[str, Any]) -> dict[str, Any]:
    """Copy the tree of handlers as botocore does, in half the time."""
    kinds = hooks.NodeList
    return {
        key: _copy_handlers(trie, value)
        if type(value) is dict
        else kinds(value.first[:], value.middle[:], value.last[:])
        if type(value) is kinds
        else value
        for key, value in node.items()
    }


def _replace(owner: Any, name: str, by: Callable[..., Any]) -> None:
    setattr(owner, name, by)
