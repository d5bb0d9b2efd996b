"""Components that can be added from outside: methods, architectures, data sets, noise, budgets, engines, ...

A component is a class with a `name` of its own. Ours are listed by where they are defined, so that nothing is
imported before it is asked for. Somebody else's package adds one with the decorator, or with an entry point
of the registry's group, which is loaded when a name is not one of ours or when all names are listed.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, Generic, TypeVar

from smoothheads.errors import ConfigError, one_of

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to components of one `kind`; `group` is the entry point group of plugins."""

    def __init__(self, kind: str, group: str, ours: Mapping[str, str]) -> None:
        """`ours` maps a name to `module:attribute` below `smoothheads`."""
        self.kind, self.group = kind, group
        self._ours = dict(ours)
        self._loaded: dict[str, T] = {}
        self._failed: dict[str, str] | None = None  # None: entry points were not looked at yet

    def register(self, component: T) -> T:
        """The decorator: adds a component under its `name`; a name that is taken by another is refused."""
        name = _name_of(component, self.kind)
        if name in self._ours or self._loaded.get(name, component) is not component:
            raise ConfigError(
                f"a {self.kind} with a name of its own", f"{name!r}, which is taken", "choose another name"
            )
        self._loaded[name] = component
        return component

    def get(self, name: str) -> T:
        """Raises ConfigError with the nearest name for an unknown one, and says which plugins failed."""
        if name in self._ours and name not in self._loaded:
            module, _, attribute = self._ours[name].partition(":")
            self._loaded[name] = getattr(importlib.import_module(f"smoothheads.{module}"), attribute)
        if name not in self._loaded:
            self._load_plugins()
        if name in self._loaded:
            return self._loaded[name]
        error = one_of(self.kind, name, self.names())
        if self._failed:
            broken = "; ".join(f"{plugin}: {why}" for plugin, why in self._failed.items())
            raise ConfigError(error.expected, error.got, f"{error.remedy} (plugins that failed: {broken})")
        raise error

    def names(self) -> list[str]:
        """Ours first, in their order, then those of plugins; imports the plugins but none of ours."""
        self._load_plugins()
        return [*self._ours, *sorted(self._loaded.keys() - self._ours.keys())]

    def items(self) -> Iterator[tuple[str, T]]:
        """All components by name; imports them all."""
        return ((name, self.get(name)) for name in self.names())

    @property
    def failures(self) -> dict[str, str]:
        """Why plugins could not be loaded, by the name of their entry point."""
        self._load_plugins()
        return dict(self._failed or {})

    def _load_plugins(self) -> None:
        if self._failed is not None:
            return
        self._failed = {}
        for point in metadata.entry_points(group=self.group):
            try:
                self.register(point.load())
            except Exception as error:  # whatever somebody else's module raises
                last = traceback.extract_tb(error.__traceback__)[-1]
                self._failed[point.name] = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"


def as_component(value: Any, base: Any) -> Any:
    """A component as it is, or the one that a name in the `registry` of `base` stands for, with its defaults;
    raises ConfigError for anything else."""
    registry = base.registry
    if isinstance(value, str):
        return registry.get(value)()
    if isinstance(value, base):
        return value
    known = ", ".join(registry.names())
    raise ConfigError(f"a known {registry.kind}", repr(value), f"choose from: {known}")


def _name_of(component: Any, kind: str) -> str:
    name = getattr(component, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a {kind} with a `name`", repr(component), "give the class a name: ClassVar[str]")
    return name
