"""The calls about installed plugins: install, upgrade, verify, remove, and what a removed one keeps.

They are among `CALLS`, and apart from the others only because a module should be read in one go.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from buzz_host.services.call import HomeCall, HostCall

if TYPE_CHECKING:
    from buzz_host.services.host import Host
    from buzz_host.services.installs import InstallReport, KeptData, PluginCheck, Removal
    from buzz_host.settings import Home


@attrs.frozen(kw_only=True)
class InstallPlugin(HostCall["InstallReport"]):
    """Install what `source` names: a path, seen from the folder `here`, or a git repository. `agreed` answers every
    question with yes."""

    name = "plugins.install"
    source: str
    here: str
    subdir: str = ""
    agreed: bool = False

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.installs import InstallReport

        return InstallReport

    async def answer(self, host: Host) -> InstallReport:
        from buzz_host.services.installs import install_plugin

        return await install_plugin(host, self.source, Path(self.here), self.subdir, agreed=self.agreed)


@attrs.frozen(kw_only=True)
class UpgradePlugin(HostCall["InstallReport"]):
    """Install the newest version of an installed plugin from where it came."""

    name = "plugins.upgrade"
    plugin: str

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.installs import InstallReport

        return InstallReport

    async def answer(self, host: Host) -> InstallReport:
        from buzz_host.services.installs import upgrade_plugin

        return await upgrade_plugin(host, self.plugin)


@attrs.frozen(kw_only=True)
class InstalledNames(HomeCall[tuple[str, ...]]):
    """The names of the installed plugins."""

    name = "plugins.installed"

    @staticmethod
    def answer_type() -> object:
        return tuple[str, ...]

    def answer(self, home: Home) -> tuple[str, ...]:
        from buzz_host.services.installs import installed_names

        return installed_names(home)


@attrs.frozen(kw_only=True)
class VerifyPlugins(HomeCall["tuple[PluginCheck, ...]"]):
    """Hold the installed plugins, or one of them, against the lock."""

    name = "plugins.verify"
    plugin: str | None = None

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.installs import PluginCheck

        return tuple[PluginCheck, ...]

    def answer(self, home: Home) -> tuple[PluginCheck, ...]:
        from buzz_host.services.installs import check_installed

        return check_installed(home, self.plugin)


@attrs.frozen(kw_only=True)
class RemovePlugin(HomeCall["Removal"]):
    """Take a plugin out of the home; what it keeps there stays."""

    name = "plugins.remove"
    plugin: str

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.installs import Removal

        return Removal

    def answer(self, home: Home) -> Removal:
        from buzz_host.services.installs import remove_plugin

        return remove_plugin(home, self.plugin)


@attrs.frozen(kw_only=True)
class ShowKeptData(HomeCall["KeptData"]):
    """What a plugin keeps in the home."""

    name = "plugins.kept"
    plugin: str

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.installs import KeptData

        return KeptData

    def answer(self, home: Home) -> KeptData:
        from buzz_host.services.installs import kept_data

        return kept_data(home, self.plugin)


@attrs.frozen(kw_only=True)
class PurgeData(HostCall["KeptData"]):
    """Delete what a plugin that was removed keeps in the home."""

    name = "plugins.purge"
    plugin: str

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.installs import KeptData

        return KeptData

    async def answer(self, host: Host) -> KeptData:
        from buzz_host.services.installs import purge_data

        return await purge_data(host, self.plugin)


ALL = (InstallPlugin, UpgradePlugin, InstalledNames, VerifyPlugins, RemovePlugin, ShowKeptData, PurgeData)
