"""Components that can be added from outside: methods, architectures, data sets, noise, budgets, engines, ...

A registry is a dict from names to components. Our own are added by the decorator when their package is
imported, somebody else's by the same decorator or by an entry point of the registry's group.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Generic, TypeVar

from smoothheads.errors import ConfigError, one_of

T = TypeVar("T")
Component = TypeVar("Component")


class Registry(Generic[T]):
    """Maps names to components of one `kind`; plugins are found by the entry point group `group`."""

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._components: dict[str, T] = {}
        self._failures: dict[str, str] | None = None  # None until the entry points have been loaded
        self.plugins: list[str] = []
        """The names of components that entry points added."""

    def register(self, component: Component) -> Component:
        """Adds a component under its `name` and returns it; raises ConfigError for a name that is taken."""
        name = getattr(component, "name", None)
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{component!r} needs a name to be a {self.kind}: add name: ClassVar[str].")
        if self._components.get(name, component) is not component:
            raise ConfigError(f"There is a {self.kind} {name!r} already: choose another name.")
        self._components[name] = component  # type: ignore[assignment]
        return component

    def get(self, name: str) -> T:
        """Returns the component of that name; raises ConfigError that suggests the nearest known name."""
        if name not in self._components:
            self._load_plugins()
        if name in self._components:
            return self._components[name]
        broken = "".join(f" The plugin {plugin} failed: {why}." for plugin, why in self.failures.items())
        raise ConfigError(f"{one_of(self.kind, name, self.names())}{broken}")

    def names(self) -> list[str]:
        """Returns all names in the order of registration, those of plugins last."""
        self._load_plugins()
        return list(self._components)

    def items(self) -> Iterator[tuple[str, T]]:
        """Yields every name with its component."""
        return ((name, self._components[name]) for name in self.names())

    @property
    def failures(self) -> dict[str, str]:
        """Returns why plugins could not be loaded, by the name of their entry point."""
        self._load_plugins()
        return dict(self._failures or {})

    def _load_plugins(self) -> None:
        if self._failures is not None:
            return
        # A plugin that fails must not keep the others, or our own components, from working.
        self._failures = {}
        for point in metadata.entry_points(group=self.group):
            try:
                self.plugins.append(self.register(point.load()).name)
            except Exception as error:  # a plugin may raise anything while it is imported
                last = traceback.extract_tb(error.__traceback__)[-1]
                self._failures[point.name] = (
                    f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
                )


def as_component(value: Any, base: Any) -> Any:
    """Returns a component as it is, or builds the one that a name in the registry of `base` stands for."""
    registry = base.registry
    if isinstance(value, str):
        return registry.get(value)()
    if isinstance(value, base):
        return value
    raise ConfigError(f"{value!r} is no {registry.kind}: choose from {', '.join(registry.names())}.")
