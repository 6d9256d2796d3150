"""What harnesses share whose program speaks JSON lines over its standard input and output (HAR-03).

`LineChannel` is the program with its pipes; `RpcChannel` is JSON-RPC over one. The rest is what every such harness
needs alike: the environment that a program is given, and the fault that a status means.
"""

from __future__ import annotations
