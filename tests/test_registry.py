"""Components from outside: found by name, refused when they clash, and harmless when they are broken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import pytest

from smoothheads.errors import ConfigError
from smoothheads.registry import Registry


class Plain:
    name: ClassVar[str] = "plain"


def make(group: str = "smoothheads.nothing") -> Registry[type]:
    registry: Registry[type] = Registry("thing", group)
    registry.register(type("First", (), {"name": "first"}))
    return registry


def plugin(folder: Path, monkeypatch: pytest.MonkeyPatch, points: str, code: str) -> None:
    """An installed package with entry points, as pip would leave it."""
    (folder / "some_plugin.py").write_text(code)
    info = folder / "some_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "some_plugin", raising=False)


def test_the_decorator_adds_a_component() -> None:
    registry = make()
    assert registry.register(Plain) is Plain
    assert registry.register(Plain) is Plain  # a module that is imported twice is no clash
    assert registry.get("plain") is Plain
    assert dict(registry.items())["plain"] is Plain


def test_a_name_that_is_taken_is_refused() -> None:
    registry = make()
    registry.register(Plain)
    for other in (type("Other", (), {"name": "plain"}), type("Error", (), {"name": "first"})):
        with pytest.raises(ConfigError, match="already"):
            registry.register(other)


def test_a_component_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="name"):
        make().register(int)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'first'"):
        make().get("frst")


def test_an_entry_point_adds_a_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "class Mine:\n    name = 'mine'\n"
    plugin(tmp_path, monkeypatch, "[smoothheads.things]\nmine = some_plugin:Mine\n", code)
    registry = make("smoothheads.things")
    assert registry.names() == ["first", "mine"]
    assert registry.get("mine").__name__ == "Mine"
    assert registry.failures == {}


def test_a_broken_plugin_is_named_and_nothing_else_suffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = "[smoothheads.things]\nmine = some_plugin:Mine\nbroken = not_there:Thing\n"
    plugin(tmp_path, monkeypatch, points, "class Mine:\n    name = 'mine'\n")
    registry = make("smoothheads.things")
    assert registry.get("mine").__name__ == "Mine"
    assert "not_there" in registry.failures["broken"]
    with pytest.raises(ConfigError, match="The plugin broken failed: ModuleNotFoundError"):
        registry.get("brokn")
