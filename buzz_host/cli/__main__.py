"""`python -m buzz_host.cli` is `buzz`."""

from buzz_host.cli import main

main()
