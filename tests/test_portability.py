"""Nothing that only Linux has is needed to import the package, or to count the cores."""

from __future__ import annotations

import subprocess
import sys

# What Windows or macOS lack; other packages look for themselves, so only ours are kept from it.
SCRIPT = """
import builtins, importlib, os, pkgutil, signal, sys
import matplotlib.figure, pyarrow.parquet, scipy.stats, sklearn.datasets, torch.distributed  # theirs first

UNIX = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}
real = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    if name in UNIX and globals and globals.get("__name__", "").startswith("smoothheads"):
        raise ModuleNotFoundError(f"{globals['__name__']} imports {name}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = guarded
for module, names in {
    os: ("sched_getaffinity", "fork", "getuid", "O_DIRECTORY"),
    signal: ("pthread_sigmask", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGHUP"),
}.items():
    for name in names:
        delattr(module, name)

import smoothheads
for module in pkgutil.walk_packages(smoothheads.__path__, "smoothheads."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except smoothheads.SmoothheadsError as error:  # an extra that is not installed
            assert type(error).__name__ == "MissingExtraError", error

from smoothheads.device import cores
assert cores() == os.cpu_count()
"""


def test_every_module_imports_without_what_only_unix_has() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
