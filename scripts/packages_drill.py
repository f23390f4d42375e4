"""Packages of scripts/release in a bare Debian: installed, used, upgraded, removed and purged.

    scripts/release --machine amd64 && .venv/bin/python scripts/packages_drill.py [--dist dist]
                                        [--suite bookworm] [--root FILE.tar]

As root, with mmdebstrap and a network for Debian's packages. All of it happens in a root directory
of its own, with its own processes and, for what goes over the loopback interface, its own network.
With systemd-nspawn the daemons run under a systemd of its own, with buildah the image is made and
run. Each step says how long it took; exit code 0 if all hold.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.ended_by_signals import end_on_signals  # noqa: E402
from scripts.releasing.bare_root import DRILL_UNIT, UNDER_SYSTEMD, BareRoot, expect  # noqa: E402

WEEK = 604_800_000
NOW = 1_788_000_000_000
DATA = "/var/lib/iotdb/data/data"
SENDER, RECEIVER = "tsferry-sender", "tsferry-receiver"
UNIT = "/etc/systemd/system/tsferry-sender.service"

RECEIVE = """\
AS="setpriv --reuid tsferry --regid tsferry --clear-groups"
$AS tsferry-receiver serve >/root/receiver.log 2>&1 &
server=$!
for second in $(seq 100); do
    $AS tsferry-receiver status >/dev/null 2>&1 && break
    sleep 0.2
done
"""
AT_CENTRE = "setpriv --reuid tsferry --regid tsferry --clear-groups tsferry-receiver"
AT_EDGE = "setpriv --reuid iotdb --regid iotdb --clear-groups tsferry-sender"


class Drill:
    """The steps, in their order; each goes on where the last one left the root directory."""

    def __init__(self, root: BareRoot, bare: Path, dist: Path, work: Path) -> None:
        self.root, self.bare, self.dist, self.work = root, bare, dist, work
        self.kept: dict[str, str] = {}

    def package(self, name: str) -> Path:
        """Of this machine."""
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
        return next(self.dist.glob(f"{name}_*_{machine}.deb"))

    def bring(self, file: Path, name: str = "") -> str:
        """Copy a file into the root directory; where it is in there."""
        shutil.copy(file, self.root.path("/root") / (name or file.name))
        return f"/root/{name or file.name}"

    def newer(self, name: str, version: str) -> str:
        """The package once more, as a later version with another example of the configuration."""
        tree = self.work / f"{name}-{version}"
        subprocess.run(["dpkg-deb", "--raw-extract", self.package(name), tree], check=True)
        control = (tree / "DEBIAN/control").read_text()
        lines = [
            f"Version: {version}" if line.startswith("Version: ") else line
            for line in control.splitlines()
        ]
        (tree / "DEBIAN/control").write_text("\n".join(lines) + "\n")
        example = tree / "etc/tsferry" / f"{name.removeprefix('tsferry-')}.toml"
        example.write_text(example.read_text() + "\n# new in this version\n")
        made = self.root.path("/root") / f"{name}_{version}.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(made)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(tree)
        return f"/root/{made.name}"

    # -- steps ---------------------------------------------------------------------------------

    def lists_of_packages(self) -> None:
        """Of Debian; the time of this is not that of an installation."""
        self.root.run("apt-get update -qq", network=True)

    def sender_is_installed(self) -> None:
        """With Python, which a bare Debian has not."""
        deb = self.bring(self.package(SENDER))
        self.root.run(f"apt-get install -qq --no-install-recommends {deb}", network=True)
        said = self.root.run(
            "tsferry-sender --version; getent passwd tsferry; dpkg --verify tsferry-sender"
        )
        expect(said, "tsferry-sender, version", "/usr/sbin/nologin")
        expect(self.root.run("tsferry-sender check", wrong=True), "run tsferry-sender init")
        assert "flask" not in self.root.run("ls /usr/lib/tsferry-sender/lib/python3*/site-packages")

    def receiver_is_installed(self) -> None:
        """Beside the sender."""
        deb = self.bring(self.package(RECEIVER))
        self.root.run(f"apt-get install -qq --no-install-recommends {deb}", network=True)
        said = self.root.run(
            "tsferry-receiver --version; stat -c '%U %a' /var/lib/tsferry; dpkg --verify"
        )
        expect(said, "tsferry-receiver, version", "tsferry 750")

    def an_edge_is_set_up(self) -> None:
        """By hand, as the page says."""
        write_files(self.root.path(DATA))
        self.root.run(f"""
            useradd --system iotdb
            mkdir -p /var/lib/iotdb/data/system/schema
            chown -R iotdb: /var/lib/iotdb
            sed -i -e 's|^url = .*|url = "http://127.0.0.1:8765"|' \
                -e 's|^#closed_by = .*|closed_by = "tail"|' \
                -e 's|^#quiet_seconds = .*|quiet_seconds = 0|' \
                -e 's|^#\\(token_file = "/etc/tsferry/centre.token"\\).*|\\1|' \
                /etc/tsferry/sender.toml
            {AT_EDGE} init
            tsferry-sender init --units /etc/systemd/system
        """)
        unit = self.root.path(UNIT).read_text()
        expect(unit, "ExecStart=/usr/bin/tsferry-sender ", "User=iotdb", f"ReadWritePaths={DATA} ")
        self.kept["config"] = self.root.path("/etc/tsferry/sender.toml").read_text()

    def a_round_on_loopback(self) -> None:
        """Token, check, round; the receiver has all of it."""
        said = self.root.run(f"""
            {RECEIVE}
            uuid=$(cat /var/lib/iotdb/data/system/schema/sync/uuid.txt | tail -1)
            token=/etc/tsferry/centre.token
            {AT_CENTRE} token create --role sender --sender $uuid | head -1 >$token
            chown iotdb: $token; chmod 600 $token
            {AT_EDGE} check
            {AT_EDGE} sync
            {AT_EDGE} status --check
            {AT_CENTRE} files
            kill $server; wait $server || true
        """)
        expect(said, "3 files loaded", "TSFERRY OK", "root.plant")

    def an_upgrade_over_a_changed_configuration_asks(self) -> None:
        """With nobody to answer dpkg stops, says why, and has lost nothing; then it goes on."""
        deb = self.newer(SENDER, "0.9.1")
        said = self.root.run(f"dpkg -i {deb}", wrong=True)
        expect(
            said,
            "Configuration file '/etc/tsferry/sender.toml'",
            "end of file on stdin at conffile prompt",
        )
        assert self.root.path("/etc/tsferry/sender.toml").read_text() == self.kept["config"]
        said = self.root.run(
            "dpkg --force-confold --configure -a; dpkg-query -W tsferry-sender; ls /etc/tsferry"
        )
        expect(said, "0.9.1", "sender.toml.dpkg-dist")
        assert self.root.path("/etc/tsferry/sender.toml").read_text() == self.kept["config"]
        self._still_knows_its_files()

    def _still_knows_its_files(self) -> None:
        said = self.root.run(f"{RECEIVE}\n{AT_EDGE} sync; {AT_EDGE} status --check; kill $server")
        expect(said, "0 files loaded", "3 files loaded, 0 pending")

    def under_systemd(self) -> None:
        """The units as they are; upgrades restart what ran, and nothing else."""
        if not shutil.which("systemd-nspawn"):
            print("          left out: no systemd-nspawn (Debian: systemd-container)")
            return
        packages = "systemd systemd-sysv dbus"
        self.root.run(f"apt-get install -qq --no-install-recommends {packages}", network=True)
        for version in ("0.9.2", "0.9.3", "0.9.4"):
            self.newer(SENDER, version)
        script = UNDER_SYSTEMD.replace("OLDEST", self.package(SENDER).name)
        self.root.path("/root/under_systemd.sh").write_text(script)
        units = self.root.path("/etc/systemd/system")
        (units / "drill.service").write_text(DRILL_UNIT)
        wants = units / "default.target.wants"
        wants.mkdir()
        (wants / "drill.service").symlink_to("../drill.service")
        # Not registered: the machine that this runs on may have no systemd of its own.
        command = ["systemd-nspawn", "--boot", "--private-network", "--register=no", "--keep-unit"]
        subprocess.run(
            [*command, "--directory", self.root.place],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            check=False, timeout=600,
        )  # fmt: skip
        expect(
            self.root.path("/root/said").read_text(),
            "TSFERRY OK", "restarted what ran", "stopped between", "started behind",
            "left what was stopped", "all well",
        )  # fmt: skip
        shutil.rmtree(wants)
        self._still_knows_its_files()

    def half_a_state_is_named(self) -> None:
        """Data without its catalogue: nothing is made beside it; the receiver does not start."""
        lib = self.root.path("/var/lib/tsferry")
        (lib / "schema").rename(lib / "away")
        said = self.root.run(
            "dpkg-reconfigure tsferry-receiver 2>&1 || dpkg -i /root/tsferry-receiver_*.deb"
        )
        expect(said, "is there without /var/lib/tsferry/schema")
        assert not (lib / "schema").exists()
        said = self.root.run(f"timeout 20 {AT_CENTRE} serve", wrong=True)
        self.kept["half"] = said
        expect(said, "error:")
        shutil.rmtree(lib / "schema", ignore_errors=True)
        (lib / "away").rename(lib / "schema")
        self._still_knows_its_files()

    def removed(self) -> None:
        """The programs; configuration and data stay, and a new installation goes on."""
        self.root.run(
            "apt-get remove -qq tsferry-sender;"
            "test ! -e /usr/lib/tsferry-sender; test ! -e /usr/bin/tsferry-sender"
        )
        assert self.root.path("/etc/tsferry/sender.toml").read_text() == self.kept["config"]
        self.root.run(f"dpkg -i --force-confold /root/{self.package(SENDER).name}")
        self._still_knows_its_files()

    def purged(self) -> None:
        """Configuration too; what stays is named, and no file of data is gone."""
        files = sorted(self.root.path(DATA).rglob("*.tsfile"))
        loaded = sorted(self.root.path("/var/lib/tsferry/data").rglob("*.tsfile"))
        said = self.root.run("apt-get purge -qq tsferry-sender tsferry-receiver")
        expect(
            said,
            "left as it is: /etc/tsferry",
            "left as it is: /var/lib/tsferry",
            f"left as it is: {UNIT}",
        )
        assert not self.root.path("/etc/tsferry/sender.toml").exists()
        assert self.root.path("/etc/tsferry/centre.token").exists()
        assert len(files) == 3
        assert files == sorted(self.root.path(DATA).rglob("*.tsfile"))
        assert len(loaded) == 3
        assert loaded == sorted(self.root.path("/var/lib/tsferry/data").rglob("*.tsfile"))
        wants = self.root.path("/etc/systemd/system/multi-user.target.wants")
        assert not list(wants.glob("tsferry-*"))
        left = self.root.run(
            "ls -d /usr/lib/tsferry-* /usr/bin/tsferry-* /usr/share/doc/tsferry-* 2>&1 || true"
        )
        assert left.count("No such file") == 3, left

    def the_bundle_without_a_network(self) -> None:
        """Damaged, half there, whole, another version, and the way back."""
        tar = self.bring(next(self.dist.glob("*-offline.tar")))
        folder = tar.removesuffix(".tar")
        version = folder.split("-")[-2]
        said = self.root.run(f"""
            cd /root; tar -xf {tar}; cd {folder}
            cp -a wheels/click-*.whl /root/click; echo more >>$(echo wheels/click-*.whl)
            if ./install.sh; then exit 9; fi
            test ! -e /opt/tsferry
            cp -a /root/click $(echo wheels/click-*.whl)
            mkdir -p /opt/tsferry-{version}; touch /opt/tsferry-{version}/.begun
            ./install.sh
            ./install.sh
            test "$(readlink /opt/tsferry)" = tsferry-{version}
            cp -a /opt/tsferry-{version} /opt/tsferry-0.0.9
            ./install.sh --use 0.0.9; test "$(readlink /opt/tsferry)" = tsferry-0.0.9
            ./install.sh
            rm /opt/tsferry; mkdir /opt/tsferry
            if ./install.sh; then exit 9; fi
            rmdir /opt/tsferry; ./install.sh
        """)
        expect(
            said,
            "damaged or not whole",
            "made anew",
            f"version {version}",
            "and whole",
            "no link of this script",
            "--use 0.0.9",
        )
        self.root.path("/etc/tsferry/sender.toml").write_text(self.kept["config"])
        command = AT_EDGE.replace(SENDER, "/opt/tsferry/bin/tsferry-sender")
        expect(self.root.run(f"{command} status"), "loaded          3 files")

    def the_image(self) -> None:
        """Of the Containerfile, on a base of this Debian; it serves, as nobody but its user."""
        if not shutil.which("buildah"):
            print("          left out: no buildah")
            return
        folder = self.work / "image"
        folder.mkdir()
        for each in (self.package(RECEIVER), self.dist / "Containerfile"):
            shutil.copy(each, folder)
        script = """
            container=$(buildah from scratch)
            buildah add --quiet $container "$1" /
            buildah commit --quiet $container tsferry-drill-base
            buildah build --quiet --format docker --build-arg BASE=localhost/tsferry-drill-base \
                --tag tsferry-drill "$0"
            container=$(buildah from localhost/tsferry-drill)
            buildah run $container -- sh -euc "$2"
        """
        inside = """
            id -u
            tsferry-receiver serve &
            for second in $(seq 100); do
                tsferry-receiver status >/dev/null 2>&1 && break
                sleep 0.2
            done
            tsferry-receiver status --check
            kill $!
        """
        storage = [f"--root={self.work / 'images'}", f"--runroot={self.work / 'images-run'}"]
        script = script.replace("buildah ", f"buildah {' '.join(storage)} ")
        done = subprocess.run(
            ["sh", "-euc", script, str(folder), str(self.bare), inside],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"},
        )  # fmt: skip
        expect(done.stdout, "10001", "TSFERRY OK")

    def steps(self) -> list[Callable[[], None]]:
        """In their order."""
        return [
            self.lists_of_packages, self.sender_is_installed, self.receiver_is_installed,
            self.an_edge_is_set_up, self.a_round_on_loopback,
            self.an_upgrade_over_a_changed_configuration_asks, self.half_a_state_is_named,
            self.removed, self.under_systemd, self.purged, self.the_bundle_without_a_network,
            self.the_image,
        ]  # fmt: skip


def write_files(data: Path) -> None:
    """Three TsFiles of one plant."""
    from tsfile import TSDataType

    from scripts.quickstart import write_tsfile

    kinds = [TSDataType.DOUBLE, TSDataType.FLOAT, TSDataType.INT64]
    for number in range(3):
        begin = NOW // WEEK * WEEK + number * 3_600_000
        path = data / f"sequence/root.plant/0/{NOW // WEEK}/{begin}-{number}-0-0.tsfile"
        write_tsfile(path, ["root.plant.pump"], kinds, 600, begin)


def main() -> int:
    """All steps; the root directory goes in the end, unless one failed."""
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--dist", type=Path, default=ROOT / "dist")
    asked.add_argument("--suite", default="bookworm")
    asked.add_argument(
        "--root", type=Path, help="a bare root directory as a tar file; made there if it is missing"
    )
    args = asked.parse_args()
    end_on_signals()
    work = Path(tempfile.mkdtemp(prefix="packages-drill-"))
    bare = args.root or work / "bare.tar"
    if not bare.exists():
        command = ["mmdebstrap", "--quiet", "--variant=minbase", args.suite, str(bare)]
        subprocess.run(command, check=True)
    place = work / "root"
    place.mkdir()
    subprocess.run(["tar", "--directory", place, "--extract", "--file", bare], check=True)
    drill = Drill(BareRoot(place), bare, args.dist.absolute(), work)
    for step in drill.steps():
        begun = time.monotonic()
        name = step.__name__.replace("_", " ")
        try:
            step()
        except Exception:
            print(f"  FAILED  {name}; what it left is in {work}", flush=True)
            raise
        print(f"{time.monotonic() - begun:6.1f} s  {name}", flush=True)
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
