"""Fields that are components, another form of their settings, and parsing without torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from smoothheads.config import from_dict, to_dict
from smoothheads.errors import ConfigError
from smoothheads.registry import Registry

SHAPES: Registry[type[Shape]] = Registry("shape", "smoothheads.nothing")


class Shape:
    name: ClassVar[str]
    registry: ClassVar[Registry[Any]] = SHAPES


@SHAPES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Circle(Shape):
    name: ClassVar[str] = "circle"
    radius: float = 1.0

    @classmethod
    def upgrade(cls, data: dict[str, Any]) -> dict[str, Any]:
        if "diameter" in data:
            data["radius"] = data.pop("diameter") / 2
        return data


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    shape: Shape = field(default_factory=Circle)
    frame: Shape | None = None


def test_a_component_is_parsed_by_the_class_of_its_name() -> None:
    drawing = Drawing(shape=Circle(radius=2.0), frame=Circle())
    assert from_dict(Drawing, to_dict(drawing)) == drawing
    assert from_dict(Drawing, {"shape": "circle"}) == Drawing()


def test_upgrade_reads_another_form() -> None:
    assert from_dict(Drawing, {"shape": {"name": "circle", "diameter": 4.0}}).shape == Circle(radius=2.0)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"name": "circel"}, "Unknown shape 'circel': did you mean 'circle'"),
        ({"radius": 1.0}, "Write shape as a shape with its `name`"),
        (3, "Write shape as a shape with its `name`"),
        ({"name": "circle", "radios": 1.0}, "did you mean 'radius'"),
    ],
)
def test_component_refuses_unknown_name_and_form(shape: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(Drawing, {"shape": shape})


def test_settings_are_parsed_without_torch() -> None:
    code = (
        "import sys, smoothheads as sh; from smoothheads.config import from_dict, to_dict; "
        "from_dict(sh.RunConfig, to_dict(sh.RunConfig())); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
