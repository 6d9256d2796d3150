"""The home folder and `buzz.toml`: where everything of a person's installation lies, and what they decided.

The lowest room of the host. `Home` knows the paths, `Settings` what stands in `buzz.toml`, `edit` changes that file so
that neither a crash nor another process ever costs a person an edit (REG-03, OPS-02, OPS-03).
"""

from buzz_host.settings.buzz_toml import AgentSettings, Settings, SettingsError, Signature, signature
from buzz_host.settings.editing import SettingsEdit, edit
from buzz_host.settings.files import locked, replace_file
from buzz_host.settings.home import Home, HomeError

__all__ = [
    "AgentSettings",
    "Home",
    "HomeError",
    "Settings",
    "SettingsEdit",
    "SettingsError",
    "Signature",
    "edit",
    "locked",
    "replace_file",
    "signature",
]
