"""`buzz serve`: the running host of a home, in the foreground; every other command then acts through it."""

from __future__ import annotations

import click

from buzz_host.cli.options import home_option, home_path, json_option


@click.command()
@json_option
@home_option
def serve(as_json: bool) -> None:
    """Run the host of a home until it is ended, with Ctrl-C or `kill`.

    Plugins stay loaded, and every other command acts through it: quicker, and with what the running plugins know.
    One line says that it is ready; with --json, one object.
    """
    import gc

    from buzz_host.cli.output import print_json
    from buzz_host.serve.running import Serving
    from buzz_host.serve.running import serve as run
    from buzz_host.terminal import printable_line

    # A command imports much and ends soon; a host lives long, and its garbage is to be collected.
    gc.set_threshold(*DEFAULT_GC_THRESHOLDS)

    def ready(now: Serving) -> None:
        if as_json:
            print_json(
                {
                    "event": "serving",
                    "home": str(now.home),
                    "pid": now.pid,
                    "socket": str(now.socket),
                    "version": now.version,
                }
            )
        else:
            click.echo(printable_line(f"serving {now.home} as process {now.pid}, at {now.socket}"))

    run(home_path(), ready)


DEFAULT_GC_THRESHOLDS = (700, 10, 10)
