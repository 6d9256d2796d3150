"""The conformance suite of harnesses: what HAR-03 asks of each, against its real program and a recorded model.

```python
from buzz_author.testing import HarnessConformance, HarnessUnderTest


class TestMine(HarnessConformance):
    kind = HarnessUnderTest("mine", make=MyHarness)
```

Somebody's `conftest.py` names the plugin that knows the suite's markers:
`pytest_plugins = ["buzz_author.testing.pytest_plugin"]`.
"""

from __future__ import annotations

from buzz_author.testing.turns import Turns

__all__ = ["HarnessConformance"]


class HarnessConformance(Turns):
    """Everything that a harness is put through. A subclass sets `kind`."""
