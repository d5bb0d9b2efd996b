"""From settings to an engine."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from smoothheads import device as devices
from smoothheads.certify.engines.base import Engine
from smoothheads.certify.engines.convert import Training, converted
from smoothheads.certify.engines.eager import TorchEngine
from smoothheads.certify.engines.lazy import LazyConsensusEngine
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
    artefacts: Path | None = None,
    training: Training | None = None,
) -> Engine:
    """Leaves the model in the mode it came in. Nothing in `config` may be `auto` any more; see `choose`.

    `artefacts` is the folder where converted networks are kept (none: they are made anew); `training` gives
    the images that int8 is calibrated with, if it is not there yet.
    """
    device = devices.parse(config.device)
    blocks_per_pass = 1 if config.blocks_per_pass == "auto" else config.blocks_per_pass
    if config.engine == "torch":
        kind = (
            partial(LazyConsensusEngine, rule=config.rule)
            if config.lazy_consensus
            else partial(TorchEngine, grouped=config.grouped == "on", blocks_per_pass=blocks_per_pass)
        )
        return kind(
            model,
            noise,
            classes=info.classes,
            shape=info.shape,
            precision=config.precision,
            device=device,
            threads=config.threads,
            compiled=config.compile == "on",
        )
    with tempfile.TemporaryDirectory() as folder, borrowed_mode(model, training=False):
        artefact = converted(config, model, info, artefacts or Path(folder), training)
        return OpenVinoEngine(
            model,
            noise,
            artefact,
            classes=info.classes,
            shape=info.shape,
            precision=config.precision,
            threads=config.threads,
            blocks_per_pass=blocks_per_pass,
        )
