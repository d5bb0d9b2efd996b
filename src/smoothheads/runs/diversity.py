"""How different a checkpoint's heads are under noise, on test images. Noise is keyed, logits are streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from smoothheads import device as devices
from smoothheads.certify.soundness import require_finite, require_function
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset
from smoothheads.errors import DataError
from smoothheads.noise import make_noise
from smoothheads.results.diversity import Gaps, Spread
from smoothheads.runs.sampling import Sampling
from smoothheads.types import Phase, Pixels

OnCopies = Callable[[int], None]


class NoisyLogits:
    """Logits of all heads on keyed noisy copies; the noise is the pilot's, which no certificate rests on."""

    def __init__(self, ready: Checkpoint, sampling: Sampling, on_copies: OnCopies | None = None) -> None:
        self.noise = make_noise(
            sampling.noise, sampling.sigma, ready.info.grid, sampling.seed, sampling.block
        )
        self.device = devices.parse(sampling.device)
        self.model = ready.model.eval().to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._on_copies = on_copies
        self._probed = False

    def blocks(self, image: Pixels, index: int, count: int) -> Iterator[Tensor]:
        """[L, M, C] on the CPU, `count` copies in all. Raises SoundnessError when a logit is not finite."""
        for block, start in enumerate(range(0, count, self.noise.block_size)):
            wanted = min(self.noise.block_size, count - start)
            yield self._block(image, index, block)[:, :wanted]
            if self._on_copies:
                self._on_copies(wanted)

    @torch.inference_mode()
    def _block(self, image: Pixels, index: int, block: int) -> Tensor:
        copies = torch.from_numpy(self.noise.noisy(image, index, Phase.PILOT, block)).to(self.device)
        if not self._probed:
            require_function(self._logits, copies, tolerance=1e-3)
            self._probed = True
        logits = self._logits(copies)
        require_finite(logits, index)
        return logits.cpu()

    def _logits(self, copies: Tensor) -> Tensor:
        logits: Tensor = self.model(copies.contiguous(memory_format=torch.channels_last))
        return logits.float()


def measure(
    ready: Checkpoint, dataset: Dataset, sampling: Sampling, on_copies: OnCopies | None = None
) -> Spread:
    """The heads compared on `copies` noisy copies of every image of `dataset`."""
    if not len(dataset):
        raise DataError("at least one image", "an empty selection", "widen the subset")
    logits = NoisyLogits(ready, sampling, on_copies)
    spread = Spread(len(ready.model.heads))
    with devices.threads(sampling.threads):
        for position, index in enumerate(dataset.indices.tolist()):
            blocks = logits.blocks(dataset.image(position), index, sampling.copies)
            spread.add_image(blocks, int(dataset.labels[position]))
    return spread


def gaps(
    ready: Checkpoint, dataset: Dataset, position: int, sampling: Sampling, on_copies: OnCopies | None = None
) -> Gaps:
    """Log-probability gaps of one image of `dataset` on `draws` noisy copies (the SOME paper's Figure 2)."""
    logits = NoisyLogits(ready, sampling, on_copies)
    found = Gaps(len(ready.model.heads))
    label, index = int(dataset.labels[position]), int(dataset.indices[position])
    with devices.threads(sampling.threads):
        for block in logits.blocks(dataset.image(position), index, sampling.draws):
            found.add(block, label)
    return found
