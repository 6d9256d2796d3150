"""The conformance suite of harnesses: what HAR-03 asks of each, against its real program and a recorded model.

```python
from buzz_author.testing import HarnessConformance, HarnessUnderTest


class TestMine(HarnessConformance):
    kind = HarnessUnderTest("mine", make=MyHarness)
```

The `conftest.py` at the root of the tests names the plugin that knows the suite's markers:
`pytest_plugins = ["buzz_author.testing.pytest_plugin"]`.
"""

from __future__ import annotations

from buzz_author.testing.endings import Endings
from buzz_author.testing.faults import Faults
from buzz_author.testing.prefix import Prefix
from buzz_author.testing.steering import Steering
from buzz_author.testing.tools import Tools
from buzz_author.testing.turns import Turns

__all__ = ["HarnessConformance"]


class HarnessConformance(Turns, Prefix, Steering, Tools, Faults, Endings):
    """Everything that a harness is put through. A subclass sets `kind`."""
