"""A page in the browser and an HTTP API: certificates that tighten while you look, and the runs of a folder.

    from smoothheads.serve import notebook
    notebook("runs/some")

`Server` runs it from Python, `smoothheads serve` from the command line. It needs the extra `serve`.
"""

from smoothheads.serve.server import Limits, Server, notebook

__all__ = ["Limits", "Server", "notebook"]
