"""The manifests of docs/scaling.md parse, and say what Ray and Kubernetes want to know."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"


def test_the_manifests_parse() -> None:
    yaml = pytest.importorskip("yaml")
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    found: dict[str, Any] = {each["kind"]: each for block in blocks for each in yaml.safe_load_all(block)}
    cluster = found["RayCluster"]
    assert cluster["apiVersion"] == "ray.io/v1"
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
    volume = groups[0]["template"]["spec"]["volumes"][0]
    assert volume["persistentVolumeClaim"]["claimName"] == found["PersistentVolumeClaim"]["metadata"]["name"]


def test_the_slurm_script_is_a_script() -> None:
    scripts = re.findall(r"```bash\n(#!/bin/bash.*?)```", DOCS.read_text(), re.DOTALL)
    assert any("ray start --head" in script for script in scripts)
    for script in scripts:
        assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0
