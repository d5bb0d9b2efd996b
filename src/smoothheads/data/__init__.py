"""Data sets: grid integers with their facts (q, classes, mean, standard deviation) and a fingerprint.

Nothing here imports torch; training batches are in `smoothheads.data.loader`.
"""

from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import (
    DATASETS,
    DataConfig,
    DataInfo,
    Dataset,
    InMemory,
    Split,
    Splits,
    SubsetConfig,
    named,
)

from smoothheads.data.published import Cifar10, Cifar100, Digits, FashionMnist, Mnist  # isort: skip
from smoothheads.data.npz import Npz  # isort: skip
from smoothheads.data.parquet import Parquet  # isort: skip
from smoothheads.data.folder import Folder  # isort: skip
from smoothheads.data.coerce import as_dataset, as_pixels, from_arrays
from smoothheads.data.inputs import Frame, Input, find_inputs, read_image
from smoothheads.data.splits import (
    augments,
    describe,
    fixed_permutation,
    load,
    load_test,
    read_split,
    select,
    take,
)

__all__ = [
    "DATASETS",
    "ArrayDataset",
    "Cifar10",
    "Cifar100",
    "DataConfig",
    "DataInfo",
    "Dataset",
    "Digits",
    "FashionMnist",
    "Folder",
    "Frame",
    "InMemory",
    "Input",
    "Mnist",
    "Npz",
    "Parquet",
    "Split",
    "Splits",
    "SubsetConfig",
    "as_dataset",
    "as_pixels",
    "augments",
    "describe",
    "find_inputs",
    "fixed_permutation",
    "from_arrays",
    "load",
    "load_test",
    "named",
    "read_image",
    "read_split",
    "select",
    "take",
]
