"""A registry of npm packages on loopback, for the real npm: what is published, asked for, and held back."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from buzz_author.harness import NpmProgram

HELD_DEADLINE_S = 60.0


def need_npm() -> None:
    """Skip on a laptop without npm; in CI it has to be there."""
    if shutil.which("npm") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("npm is not here: install node and npm", pytrace=False)
        pytest.skip("npm is not here")


def archive(name: str, version: str, files: Mapping[str, str], **more: object) -> bytes:
    """A package as npm packs it."""
    packed = io.BytesIO()
    manifest = json.dumps({"name": name, "version": version, **more})
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, text in {"package.json": manifest, **files}.items():
            row = tarfile.TarInfo(f"package/{path}")
            row.size, row.mode = len(text.encode()), 0o755
            tar.addfile(row, io.BytesIO(text.encode()))
    return packed.getvalue()


def integrity_of(octets: bytes) -> str:
    """The hash of an archive as npm writes it."""
    return f"sha512-{base64.b64encode(hashlib.sha512(octets).digest()).decode()}"


class Registry:
    """The registry: `publish` into it; `held` keeps archives back until it is set; `asked` is what was asked for."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.archives: dict[str, dict[str, bytes]] = {}
        self.asked: list[str] = []
        self.asked_for_archive = threading.Event()
        self.held = threading.Event()
        self.held.set()

    def publish(self, name: str, version: str, files: Mapping[str, str], **more: object) -> str:
        """Publish a package; its integrity."""
        octets = archive(name, version, files, **more)
        self.archives.setdefault(name, {})[version] = octets
        return integrity_of(octets)

    def document(self, name: str) -> bytes:
        """What npm is told of a package."""
        versions = {
            version: {
                "name": name,
                "version": version,
                "dist": {"tarball": f"{self.url}/{name}/-/{version}.tgz", "integrity": integrity_of(octets)},
            }
            for version, octets in self.archives[name].items()
        }
        return json.dumps({"name": name, "dist-tags": {"latest": max(versions)}, "versions": versions}).encode()

    def environment(self, home: Path) -> dict[str, str]:
        """An environment in which npm asks this registry and nobody else."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
        return kept | {
            "HOME": str(home),
            "npm_config_registry": self.url,
            "npm_config_userconfig": "/dev/null",
            "npm_config_fetch_retries": "0",
        }


@contextmanager
def running() -> Iterator[Registry]:
    """A registry for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path).removeprefix("/")
            registry.asked.append(path)
            name, _, file = path.partition("/-/")
            versions = registry.archives.get(name)
            if versions is None:
                return self._answer(404, b"{}")
            if not file:
                return self._answer(200, registry.document(name))
            registry.asked_for_archive.set()
            held = registry.held  # that of now: a later request may be answered before this one
            held.wait(HELD_DEADLINE_S)
            return self._answer(200, versions[file.removesuffix(".tgz")])

        def _answer(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # whoever asked was killed
                return

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry = Registry(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        registry.held.set()
        server.shutdown()
        thread.join()
        server.server_close()


TOY = NpmProgram("@buzz/toy", "1.2.3", "@buzz/toy/bin/toy", megabytes=1)
TOY_FILES = {"bin/toy": "#!/bin/sh\necho toy\n"}
