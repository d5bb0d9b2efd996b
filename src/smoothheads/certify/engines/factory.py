"""From settings to an engine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from smoothheads import device as devices
from smoothheads.certify.engines.artefact import Artefacts
from smoothheads.certify.engines.base import Engine
from smoothheads.certify.engines.convert import Training, converted
from smoothheads.certify.engines.eager import TorchEngine
from smoothheads.certify.engines.graph import CudaRecorder
from smoothheads.certify.engines.lazy_openvino import LazyOpenVinoEngine
from smoothheads.certify.engines.lazy_torch import LazyTorchEngine
from smoothheads.certify.engines.openvino import OpenVinoEngine
from smoothheads.config import CertifyConfig
from smoothheads.data import DataInfo
from smoothheads.models.mode import borrowed_mode
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise


def make_engine(
    config: CertifyConfig,
    model: MultiHead,
    info: DataInfo,
    noise: Noise,
    *,
    artefacts: Path | Artefacts | None = None,
    training: Training | None = None,
) -> Engine:
    """Leaves the model in the mode it came in. Nothing in `config` may be `auto` any more; see `choose`.

    `artefacts` is the folder where converted networks are kept (none: they are made anew), or those to run;
    `training` gives the images that int8 is calibrated with, if it is not there yet.
    """
    settings: dict[str, Any] = {
        "classes": info.classes,
        "shape": info.shape,
        "precision": config.precision,
        "threads": config.threads,
        "blocks_per_pass": 1 if config.blocks_per_pass == "auto" else config.blocks_per_pass,
    }
    if config.engine == "torch":
        device = devices.parse(config.device)
        recorder = CudaRecorder(device) if config.graphs and device.type == "cuda" else None
        settings |= {"device": device, "compiled": config.compile == "on", "recorder": recorder}
        if config.lazy_consensus:
            return LazyTorchEngine(model, noise, rule=config.rule, **settings)
        return TorchEngine(model, noise, grouped=config.grouped == "on", **settings)
    with tempfile.TemporaryDirectory() as folder, borrowed_mode(model, training=False):
        parts = (
            artefacts
            if isinstance(artefacts, tuple)
            else converted(config, model, info, artefacts or Path(folder), training)
        )
        if config.lazy_consensus:
            return LazyOpenVinoEngine(model, noise, *parts, rule=config.rule, **settings)
        return OpenVinoEngine(model, noise, *parts, **settings)
