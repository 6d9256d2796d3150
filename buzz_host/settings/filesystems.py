"""Which file system a home is on: network file systems break the locks that SQLite and we rely on (DESIGN 6).

Read from the kernel's table of mounts. A network that hides behind a local name (a block device over iSCSI, a virtual
machine's disk) is none here, and behaves like a disk.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "davfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
        "pvfs2", "smb3", "smbfs", "fuse.ceph", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone",
        "fuse.s3fs", "fuse.sshfs",
    }
)  # fmt: skip


def network_file_system(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of network file system that `folder` is on; None for a local one, or where it cannot be known."""
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    place = folder.resolve()
    # The longest mount point above the folder; of two at the same point, the later one covers the earlier.
    nearest, kind = -1, ""
    for line in table.split("\n"):
        fields, _, rest = line.partition(" - ")
        words = fields.split(" ")
        if len(words) < 5 or not rest:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        if place.is_relative_to(point) and len(point.parts) >= nearest:
            nearest, kind = len(point.parts), rest.split(" ")[0]
    return kind if kind in NETWORK_FILE_SYSTEMS else None
