"""A root directory in which packages are tried, and what a systemd in it is asked to run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["DRILL_UNIT", "UNDER_SYSTEMD", "BareRoot", "expect"]

UNDER_SYSTEMD = """\
set -eu
systemctl enable --now tsferry-receiver tsferry-sender
process() { systemctl show --property MainPID --value tsferry-sender; }
runs() { systemctl --quiet is-active tsferry-sender; }
install() { dpkg --force-confold "$1" "$2" </dev/null; }
for second in $(seq 100); do
    tsferry-sender status | grep -q 'no daemon runs' || break
    sleep 0.2
done
setpriv --reuid tsferry --regid tsferry --clear-groups tsferry-receiver status --check
first=$(process)
install -i /root/tsferry-sender_0.9.2.deb
runs && test "$(process)" != "$first" && echo restarted what ran
dpkg --unpack /root/tsferry-sender_0.9.3.deb
runs || echo stopped between unpacking and configuring
dpkg --force-confold --configure -a </dev/null
runs && echo started behind an installation that broke off
systemctl stop tsferry-sender
install -i /root/tsferry-sender_0.9.4.deb
runs || echo left what was stopped
systemctl start tsferry-sender
install -i /root/OLDEST
runs && echo all well
"""
"""Run by a real systemd, which is started for it."""
DRILL_UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
TimeoutStartSec=600
ExecStart=/bin/sh /root/under_systemd.sh
StandardOutput=file:/root/said
StandardError=inherit
ExecStopPost=/bin/systemctl --no-block poweroff
"""


class BareRoot:
    """A root directory in which commands run, with processes and mounts of their own."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, script: str, *, wrong: bool = False, network: bool = False) -> str:
        """What a script for sh prints, on both streams.

        Args:
            script: stops at the first command that fails.
            wrong: it must end with an error, not without one.
            network: the machine's; else a loopback interface alone.
        """
        isolation = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        isolation += [] if network else ["--net"]
        lo = "" if network else "ip link set lo up; "
        inside = f'{lo}mount -t proc proc "$0/proc"; exec chroot "$0" sh -euc "$1" </dev/null'
        proxies = {key: text for key, text in os.environ.items() if key.lower().endswith("_proxy")}
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C.UTF-8",
            **proxies,
        }
        done = subprocess.run(
            [*isolation, "sh", "-euc", inside, str(self.place), script],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
            check=False,
        )  # fmt: skip
        if (done.returncode != 0) != wrong:
            raise AssertionError(f"exit code {done.returncode} of:\n{script}\n\n{done.stdout}")
        return done.stdout

    def path(self, path: str) -> Path:
        """Of what has an absolute path in there."""
        return self.place / path.lstrip("/")


def expect(text: str, *parts: str) -> None:
    """All of it is said."""
    for each in parts:
        assert each in text, f"{each!r} is not in:\n{text}"
