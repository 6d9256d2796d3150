"""Processes that die as a tree: with the session that they work for, and with the host (DESIGN 12).

`Children` starts and ends them, `launcher.py` is the keeper that stands between the host and each program, `sweep`
ends what a host that was killed could not.
"""

from buzz_host.processes.child import ChildProcess
from buzz_host.processes.children import Children, ProcessesClosed, ProgramHost
from buzz_host.processes.sweep import Swept, sweep

__all__ = ["ChildProcess", "Children", "ProcessesClosed", "ProgramHost", "Swept", "sweep"]
