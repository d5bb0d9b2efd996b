"""Whatever people pass as a classifier: networks of other libraries, ONNX files, plain functions.

`adapt` turns networks of PyTorch into a MultiHead and everything else into a `BlackBox`, which is called with
noisy images as NumPy arrays. Torch and all other libraries are imported when they are needed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import pickle
import pkgutil
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smoothheads import hub
from smoothheads.errors import CheckpointError, ConfigError, import_extra, reason

if TYPE_CHECKING:
    from smoothheads.data import DataInfo
    from smoothheads.models.denoiser import DenoisedInput
    from smoothheads.models.multihead import MultiHead

Floats: TypeAlias = NDArray[np.float32]


class BlackBox(ABC):
    """A classifier that is only called. It is a base classifier f like any other, because the certificate
    needs nothing but votes; what cannot be checked about it is in `notes`.

    Args:
        name: What messages and the manifest call it.
        mean: Subtracted from every channel of an image in [0, 1], behind the noise.
        std: What the difference is divided by.
    """

    kind: ClassVar[str]
    notes: tuple[str, ...] = ()
    front: DenoisedInput | None = None
    """Denoises the images, if there is a denoiser in front of the classifier."""

    def __init__(
        self, name: str, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
    ) -> None:
        self.name, self.threads, self.classes = name, 1, 0
        self.preprocessing: dict[str, Floats] = {}
        for what, values in (("mean", mean), ("std", std)):
            if values is None:
                continue
            array = np.asarray(values, dtype=np.float32).reshape(-1)
            if not np.isfinite(array).all() or (what == "std" and (array <= 0).any()):
                remedy = "finite and above 0" if what == "std" else "finite"
                raise ConfigError(f"{what} is {list(values)}, but it must be {remedy}.")
            self.preprocessing[what] = array

    def prepare(self, info: DataInfo, threads: int = 1) -> None:
        """Fits the classifier to images of this kind; raises ConfigError where it takes others."""
        self.threads, self.classes = threads, info.classes
        for what, values in self.preprocessing.items():
            if len(values) not in (1, info.shape[0]):
                raise ConfigError(
                    f"{what} has {len(values)} values, and the images have {info.shape[0]} channels: give "
                    "one value per channel."
                )

    def logits(self, samples_NCHW: Floats) -> Floats:
        """Returns logits [N, C] of noisy images; predicted classes become logits of 0 and 1."""
        if self.front is not None:
            samples_NCHW = self.front.denoise_array(samples_NCHW, self.threads)
        if "mean" in self.preprocessing:
            samples_NCHW = samples_NCHW - self.preprocessing["mean"][:, None, None]
        if "std" in self.preprocessing:
            samples_NCHW = samples_NCHW / self.preprocessing["std"][:, None, None]
        return logits_of(self._call(samples_NCHW), self.classes, self.name)

    @abstractmethod
    def _call(self, samples_NCHW: Floats) -> Any: ...

    @abstractmethod
    def _hash(self) -> str:
        """Returns a hash of what is known about the function itself."""

    def fingerprint(self) -> str:
        """Returns a hash of what is known about the function, with the denoiser in front of it."""
        if self.front is None:
            return self._hash()
        return hashlib.sha256(f"{self._hash()} {self.front.describe()}".encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Returns what tells this function from any other, for the manifest."""
        facts: dict[str, Any] = {"classifier": self.kind, "name": self.name, "sha256": self._hash()}
        if self.front is not None:
            facts["denoiser"] = self.front.describe()
        return facts | {what: values.tolist() for what, values in self.preprocessing.items()}


class PlainFunction(BlackBox):
    """A function of NumPy images [N, C, H, W] that returns logits [N, classes] or classes [N]."""

    kind = "function"

    def __init__(self, function: Callable[[Floats], Any], **preprocessing: Any) -> None:
        module = getattr(function, "__module__", None) or type(function).__module__
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        super().__init__(f"{module}:{name}", **preprocessing)
        self.function = function
        self.notes = (
            f"{self.name} is called as a black box: nothing can tell whether it changes between two calls, "
            "keeps state, or computes the same in another process",
        )

    def _call(self, samples_NCHW: Floats) -> Any:
        return self.function(samples_NCHW)

    def _hash(self) -> str:
        code = getattr(self.function, "__code__", None)
        parts = repr((code.co_code, code.co_consts, code.co_names)) if code is not None else ""
        return hashlib.sha256(f"{self.name} {parts}".encode()).hexdigest()


class SklearnClassifier(BlackBox):
    """An estimator with `predict_proba`, for images that are flattened in the order channels, rows,
    columns."""

    kind = "scikit-learn"

    def __init__(self, estimator: Any, **preprocessing: Any) -> None:
        super().__init__(type(estimator).__name__, **preprocessing)
        self.estimator = estimator

    def prepare(self, info: DataInfo, threads: int = 1) -> None:
        super().prepare(info, threads)
        # The estimator knows its classes by their numbers or by their names.
        found = list(map(str, self.estimator.classes_))
        for names in (list(map(str, range(info.classes))), list(info.class_names)):
            if set(found) <= set(names):
                self._columns = [names.index(each) for each in found]
                return
        raise ConfigError(
            f"{self.name} knows the classes {', '.join(found[:5])}, and the images have "
            f"{', '.join(info.class_names[:5])}: train it on the labels of these images."
        )

    def _call(self, samples_NCHW: Floats) -> Any:
        flat = samples_NCHW.reshape(len(samples_NCHW), -1)
        # A class that the training data did not have keeps the probability 0.
        logits = np.zeros((len(flat), self.classes), np.float32)
        logits[:, self._columns] = self.estimator.predict_proba(flat)
        return logits

    def _hash(self) -> str:
        try:
            return hashlib.sha256(pickle.dumps(self.estimator)).hexdigest()
        except Exception:  # an estimator that holds somebody's own code
            return hashlib.sha256(repr(self.estimator).encode()).hexdigest()


class OnnxFile(BlackBox):
    """An ONNX file with the image as its only input, channels first or last, run by onnxruntime.

    Args:
        path: The file.
        preprocessing: mean and std, if the file does not normalise the images itself.
    """

    kind = "onnx"

    def __init__(self, path: Path | str, **preprocessing: Any) -> None:
        super().__init__(Path(path).name, **preprocessing)
        try:
            self._data = Path(path).read_bytes()
        except OSError as error:
            raise CheckpointError(f"Cannot read {path}: {error.strerror}.") from None
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1:
            names = ", ".join(each.name for each in inputs)
            raise ConfigError(
                f"{path} has {len(inputs)} inputs ({names}): export the network with the image as its only "
                "input."
            )
        types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
        if inputs[0].type not in types:
            raise ConfigError(
                f"{path} takes {inputs[0].type}, and noisy images are not whole numbers: export it with "
                "float inputs."
            )
        self._input, self._type = inputs[0].name, types[inputs[0].type]
        self._sizes = [each if isinstance(each, int) and each > 0 else None for each in inputs[0].shape]
        # Of several outputs the one called logits counts, else the first one.
        self._output = next((each.name for each in outputs if each.name == "logits"), outputs[0].name)

    @property
    def _session(self) -> Any:
        return open_session(self._data, self.threads, self.name)

    def prepare(self, info: DataInfo, threads: int = 1) -> None:
        super().prepare(info, threads)
        channels, height, width = info.shape
        layouts = [(channels, height, width), (height, width, channels)]
        fits = [
            len(self._sizes) == 4
            and all(have in (None, size) for have, size in zip(self._sizes[1:], layout, strict=True))
            for layout in layouts
        ]
        if not any(fits):
            takes = "x".join(str(each or "?") for each in self._sizes[1:])
            raise ConfigError(
                f"{self.name} takes images of {takes}, and these have {channels}x{height}x{width} (channels "
                "x height x width): resize the images, or export the network for this size."
            )
        self._channels_last = not fits[0]

    def _call(self, samples_NCHW: Floats) -> Any:
        samples = samples_NCHW.transpose(0, 2, 3, 1) if self._channels_last else samples_NCHW
        samples = np.ascontiguousarray(samples, dtype=self._type)
        # A file with a fixed batch size gets full batches, the last one filled up with copies of an image.
        batch, parts = self._sizes[0] or len(samples), []
        for first in range(0, len(samples), batch):
            part = samples[first : first + batch]
            full = np.concatenate([part, np.repeat(part[-1:], batch - len(part), axis=0)])
            parts.append(self._session.run([self._output], {self._input: full})[0][: len(part)])
        return np.concatenate(parts)

    def _hash(self) -> str:
        return hashlib.sha256(self._data).hexdigest()


@lru_cache(maxsize=2)
def open_session(data: bytes, threads: int, name: str) -> Any:
    """Returns an onnxruntime session; raises CheckpointError for bytes that it cannot run."""
    runtime = import_extra("onnxruntime", "onnx")
    # One thread pool of a fixed size, so that sums are in the same order everywhere; warnings stay away.
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    try:
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own exceptions have no common base
        raise CheckpointError(
            f"{name} is no ONNX network that can be run ({reason(error)[:120]}): export it again."
        ) from None


def logits_of(outputs: Any, classes: int, name: str) -> Floats:
    """Returns what a classifier answered as logits [N, C]; the engine looks at their shape.

    Raises ConfigError for what is neither numbers nor classes.

    Args:
        outputs: Logits [N, C] or classes [N], as an array, a tensor or a list.
        classes: The number C of classes.
        name: What a message calls the classifier.
    """
    outputs = select_logits(outputs)
    values = np.asarray(outputs.detach().cpu().numpy() if hasattr(outputs, "detach") else outputs)
    whole, real = (np.issubdtype(values.dtype, kind) for kind in (np.integer, np.floating))
    if not (whole or (real and values.ndim != 1)):
        raise ConfigError(
            f"{name} returns {values.dtype} values of shape {values.shape}, which are neither logits [N, "
            "classes] nor whole numbers of classes [N]; for two classes return two columns."
        )
    if values.ndim != 1:
        logits: Floats = values.astype(np.float32)
        return logits
    if not 0 <= values.min() <= values.max() < classes:
        raise ConfigError(
            f"{name} returns classes from {values.min()} to {values.max()}, and the images have the classes "
            f"0 to {classes - 1}."
        )
    one_hot: Floats = np.eye(classes, dtype=np.float32)[values]
    return one_hot


def select_logits(outputs: Any) -> Any:
    """Returns the logits of a model that answers with an object, a mapping, a tuple or a list.

    Raises ConfigError for an answer in which nothing tells where the logits are.
    """
    if hasattr(outputs, "logits"):
        return outputs.logits
    if isinstance(outputs, Mapping):
        if "logits" in outputs or len(outputs) == 1:
            return outputs.get("logits", next(iter(outputs.values())))
        raise ConfigError(
            f"The network returns a mapping with {', '.join(map(str, outputs)) or 'nothing'}: return the "
            "logits [N, classes] alone, or under the name `logits`."
        )
    if outputs is None or isinstance(outputs, str):
        raise ConfigError(f"The network returns {outputs!r}: return logits [N, classes].")
    # Of several arrays the first counts, as in the libraries whose networks return tuples.
    if isinstance(outputs, tuple) and outputs and hasattr(outputs[0], "shape"):
        return outputs[0]
    if isinstance(outputs, list) and outputs and getattr(outputs[0], "ndim", 0) >= 2:
        return outputs[0]
    return outputs


def adapt(
    model: Any,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | tuple[int, int] | None = None,
    processor: Any = None,
) -> MultiHead | BlackBox:
    """Returns any classifier in the form that is certified: for pixels in [0, 1] plus noise.

    Args:
        model: A module of PyTorch (of one in half or double precision a float32 copy is used), one of Hugging
            Face (whose output has `.logits`) or timm (whose data configuration gives mean, std and size),
            `hf://user/name` or a folder that holds one of those, a path of an ONNX file, an estimator of
            scikit-learn, or a function of NumPy images [N, C, H, W] that returns logits or classes.
        mean: Subtracted from every channel, if the model does not do so itself.
        std: What the difference is divided by.
        size: The side, or height and width, to which a module's images are resized behind the noise.
        processor: The image processor of a Hugging Face model, which gives mean, std and size.
    """
    if isinstance(model, BlackBox):
        return model
    if isinstance(model, type):
        raise ConfigError(f"{model.__name__} is a class: pass an instance, as in {model.__name__}().")
    if isinstance(model, (str, os.PathLike)) and Path(model).suffix != ".onnx":
        model, found = load_pretrained(hub.local(str(model)))
        processor = processor or found
    if processor is not None:
        known = _read_processor(processor)
        mean, std, size = mean or known[0], std or known[1], size or known[2]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _adapt_module(model, size, mean, std)
    if size is not None:
        raise ConfigError("size is for modules of PyTorch: resize the images in front of the classifier.")
    if isinstance(model, (str, os.PathLike)):
        return OnnxFile(Path(model), mean=mean, std=std)
    if hasattr(model, "predict_proba") and hasattr(model, "classes_"):
        return SklearnClassifier(model, mean=mean, std=std)
    if callable(model):
        return PlainFunction(model, mean=mean, std=std)
    raise ConfigError(
        f"A {type(model).__name__} is no classifier: pass a module, an ONNX file, an estimator with "
        "predict_proba, or a function."
    )


def _read_processor(processor: Any) -> tuple[list[float] | None, list[float] | None, Any]:
    """Returns mean, std and size of an image processor of transformers, for pixels in [0, 1]."""
    # The processor multiplies pixels from 0 to 255 by its factor, and normalises then.
    factor = getattr(processor, "rescale_factor", 1 / 255) if getattr(processor, "do_rescale", True) else 1.0
    means, stds = [0.0], [1.0]
    if getattr(processor, "do_normalize", True):
        means, stds = list(processor.image_mean), list(processor.image_std)
    mean, std = ([each / (255 * factor) for each in values] for values in (means, stds))
    # Images to certify are cropped already, so that they get the size of the crop.
    crop = getattr(processor, "do_center_crop", False)
    sides = getattr(processor, "crop_size" if crop else "size", None) or {}
    sides = {"shortest_edge": sides} if isinstance(sides, int) else dict(sides)
    side = sides.get("shortest_edge")
    height, width = sides.get("height") or side, sides.get("width") or side
    return mean, std, (height, width) if height and width else None


def pretrained_config(place: Path | str) -> dict[str, Any]:
    """Returns config.json of a model of transformers or timm, or nothing if the folder holds none."""
    try:
        config = json.loads(Path(place, "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) and {"model_type", "pretrained_cfg"} & set(config) else {}


def load_pretrained(folder: Path) -> tuple[Any, SimpleNamespace | None]:
    """Returns the classifier in a folder that transformers or timm wrote, and its image processor.

    No code in the folder is run, and no pickle is read.
    """
    config = pretrained_config(folder)
    if not config:
        raise ConfigError(
            f"{folder} is no ONNX file and no model of transformers or timm: open a checkpoint, a run or an "
            "export with sh.from_pretrained."
        )
    if "pretrained_cfg" in config:
        timm = import_extra("timm", "denoise")
        return timm.create_model(f"local-dir:{folder}", pretrained=True).eval(), None
    kind = import_extra("transformers", "denoise").AutoModelForImageClassification
    try:
        model = kind.from_pretrained(folder, use_safetensors=True, local_files_only=True)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"transformers cannot open {folder} ({reason(error)}).") from error
    path = folder / "preprocessor_config.json"
    return model.eval(), SimpleNamespace(**json.loads(path.read_bytes())) if path.is_file() else None


def _adapt_module(
    model: Any, size: int | tuple[int, int] | None, mean: Sequence[float] | None, std: Sequence[float] | None
) -> MultiHead:
    """Returns a module, in float32, with what its data configuration says in front of it."""
    from torch import nn

    from smoothheads.models.multihead import MultiHead, Normalize, Resize, as_multihead

    usable = as_multihead(model, convert=True)
    if isinstance(model, MultiHead):
        return usable
    # timm keeps what its networks were trained with on the network itself.
    timm = getattr(model, "pretrained_cfg", None)
    if isinstance(timm, Mapping) and mean is None and std is None:
        mean, std = timm.get("mean"), timm.get("std")
        if size is None and (expected := timm.get("input_size")):
            size = (expected[1], expected[2])
    layers: list[nn.Module] = []
    if size is not None:
        layers.append(Resize((size, size) if isinstance(size, int) else (size[0], size[1])))
    if mean is not None and std is not None:
        layers.append(Normalize(mean, std))
    if not layers:
        return usable
    adapted = MultiHead(nn.Identity(), list(usable.heads), nn.Sequential(*layers))
    adapted.notes = usable.notes
    return adapted


def is_own_model(place: str | Path) -> bool:
    """Returns whether the name is that of an ONNX file, of an object or of a model that others wrote."""
    return str(place).endswith(".onnx") or is_object_name(place) or bool(pretrained_config(place))


def is_object_name(place: str | Path) -> bool:
    """Returns whether the name has the form `package.module:function`."""
    return bool(re.fullmatch(r"(?!zoo:)[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", str(place)))


def load_object(name: str) -> Any:
    """Returns what `package.module:function` names: a classifier, or what a factory without arguments makes.

    A class or a function without required arguments is a factory; a function of one argument is the
    classifier itself. The current folder is searched too.
    """
    # For good, because worker processes take over the path and import the module again.
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found: Any = pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"Cannot find {name} ({error}): check the name.") from None
    if not _is_factory(found):
        return found
    try:
        return found()
    except Exception as error:  # whatever somebody's own code raises
        raise ConfigError(f"{name}() fails ({reason(error)}).") from error


def _is_factory(found: Any) -> bool:
    if not inspect.isfunction(found):
        return isinstance(found, type)
    try:
        inspect.signature(found).bind()
    except TypeError:  # it has required arguments
        return False
    return True
