"""Machines of the manual's pages: directories here, on which the pages' commands run for real.

What stands on a page is for machines with names and root; here each machine is a directory, all are
reached by loopback, and nobody is root. So of what a page says there is put in its place:

* paths (`/etc/tsferry`): below the machine's directory; `/mnt` is one for all machines, a share;
* names of machines (`centre.example.org`): `localhost`; ports, each for one that is free;
* `/opt/tsferry/bin`: the commands of the environment that the tests run in;
* `systemctl`: `Machine.run`, which starts what the unit's file says, as it stands there;
* `scp centre:/etc/x .`: a copy between the directories, as `cp` from a share; paths within a
  configuration that is copied are those of the machine that it comes to;
* ids, tokens and uuids: those that the commands made here, where the page shows them first.

Nothing else is touched: the commands are those that stand there, in their order. Of what they say
sizes, times and other long numbers count as equal to what is shown; counts do not.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.support.manual_text import Command, Edit, Event, NotRun, Step
from tests.support.ports import free_port
from tests.support.procs import Child, Children, wait_until

__all__ = ["Machine", "Machines"]

BIN = Path(sys.executable).parent
OURS = ("tsferry-receiver", "tsferry-sender", "tsferry-verify")
BOUND = 90.0
"""Seconds in which what is said again has to come true."""
_READ_AGAIN = ("was read again", "listening on", "as it was")
"""What a program of ours says when it has read its configuration again, or could not."""
_PORTS = r"(?<=:)(?:8765|8766|9090)\b|(?<=port = )\d+"
_PATH = r"(?P<at>\b[a-z][a-z0-9-]*:)?(?P<url>file://)?(?P<path>(?<![\w.-])/(?:etc|var|srv|mnt|home)\b[^\s'\"`;|<>,)\]]*)"
_NAME = r"\b[a-z][a-z0-9-]*\.example\.org\b"
_AT = {"8765": "centre.example.org", "8766": "collect.example.org"}
"""The names that stand before the ports on the pages."""
_SHELL = re.compile(r"[|&;<>$`*?(){}]")
_VARIES = re.compile(
    r"(?P<any>\.\.\.)|(?P<user>(?<=which runs as )\w.*)"
    r"|(?P<token>tsf_[\w.-]+)|(?P<id>\b[0-9a-f]{32}\b|\b\d{15,}\b|\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8}\b)"
    r"|(?P<size>\b[\d,.]+ (?:B|KiB|MiB|GiB)\b)|(?P<count>(?<![\d.,:+-])\d{1,3}(?![\d.,:+-]*\d))"
    r"|(?P<number>\d[\d.,:+-]*(?<![.,:+-]))|(?P<space>\s+)"
)


class Machine:
    """One machine: its directory, its environment, the services that it runs."""

    def __init__(self, name: str, root: Path, children: Children) -> None:
        self.name, self.root = name, root
        self.services: dict[str, Child] = {}
        self.of_the_system: dict[str, list[str]] = {}
        """Services whose units come with other packages, and what these start."""
        self.port = 0
        """That a receiver has whose configuration says nothing of it."""
        self._children = children
        self._env = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "TSFERRY_RECEIVER_CONFIG": str(self.path("/etc/tsferry/receiver.toml")),
            "TSFERRY_SENDER_CONFIG": str(self.path("/etc/tsferry/sender.toml")),
            "TSFERRY_RECEIVER_LIMITS__MIN_FREE_BYTES": "4096",
        }
        for each in (
            "/etc/tsferry",
            "/etc/systemd/system",
            "/etc/cron.d",
            "/var/lib/tsferry",
            "/home/me",
        ):
            self.path(each).mkdir(parents=True, exist_ok=True)

    @property
    def env(self) -> dict[str, str]:
        """For commands, beside the environment of this process."""
        config = self.path("/etc/tsferry/receiver.toml")
        if config.exists() and re.search(r"(?m)^port = ", config.read_text()):
            return self._env
        return {**self._env, "TSFERRY_RECEIVER_LISTEN__PORT": str(self.port)}

    def path(self, said: str) -> Path:
        """Where a path of the page is here."""
        return self.root / said.lstrip("/")

    def run(self, typed: str) -> tuple[int, str]:
        """Exit code and output of a command."""
        words = typed.split(maxsplit=1)
        if words[0] == "systemctl":
            return self._systemctl(shlex.split(words[1]))
        if words[0] in OURS and not _SHELL.search(re.sub(r"'[^']*'", "", typed)):
            program, *arguments = shlex.split(typed)
            child = self._children.start(
                [str(BIN / program), *arguments], env=self.env, forked=True
            )
            return child.wait(bound=BOUND), child.text()
        done = subprocess.run(
            ["bash", "-c", typed],
            cwd=self.root,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=2 * BOUND,
        )
        return done.returncode, done.stdout

    def make_at_home(self, others: Iterable[Machine]) -> None:
        """Paths of other machines, in configurations that were copied from there, are its own."""
        for file in self.path("/etc/tsferry").glob("*.toml"):
            text = file.read_text()
            for other in others:
                text = text.replace(f"{other.root}/", f"{self.root}/")
            file.write_text(text)

    def _start_ours(self, arguments: list[str]) -> Child:
        return self._children.start(arguments, env=self.env, forked=True)

    def cron(self, name: str) -> list[tuple[int, str]]:
        """What the lines of a file of cron come to: it is time for each of them."""
        lines = self.path(f"/etc/cron.d/{name}").read_text().splitlines()
        jobs = [
            each.split(maxsplit=6)[6] for each in lines if each[:1].isdigit() or each[:1] == "*"
        ]
        return [self.run(each) for each in jobs]

    # -- services ----------------------------------------------------------------------------

    def _systemctl(self, words: list[str]) -> tuple[int, str]:
        verb, names = words[0], [each for each in words[1:] if not each.startswith("-")]
        for name in names:
            if verb in ("stop", "restart", "disable") and name in self.services:
                self.services.pop(name).terminate(bound=BOUND)
            if verb in ("start", "restart", "enable"):
                self._start(name)
            if verb == "reload":
                self._reload(self.services[name])
        return 0, ""

    def _reload(self, service: Child) -> None:
        """People take longer for the next line than a reload does."""
        assert service.running
        before = _reloads(service)
        service.signal(1)
        with contextlib.suppress(AssertionError):  # what is no program of ours says nothing
            service.until(lambda: _reloads(service) > before, "it has read again")

    def _start(self, name: str) -> None:
        """Run what the unit says."""
        if name in self.services and self.services[name].running:
            return
        if command := self.of_the_system.get(name):
            self.services[name] = self._children.start(command)
            return
        unit = self.path(f"/etc/systemd/system/{name}.service").read_text()
        (line,) = re.findall(r"(?m)^ExecStart=(.+)$", unit)
        child = self._children.start(
            shlex.split(line.replace("%%", "%")), env=self.env, forked=True
        )
        self.services[name] = child
        if name == "tsferry-receiver":
            child.until(lambda: "listening on" in child.text(), "listening", bound=BOUND)

    def stop(self) -> None:
        """Stop all services, as a shutdown does."""
        for each in self.services.values():
            each.terminate(bound=BOUND)
        self.services.clear()

    def lose(self) -> None:
        """The power goes, and does not come back."""
        for each in self.services.values():
            each.kill()
        self.services.clear()


class Machines:
    """All machines of a page, and what its names stand for here."""

    def __init__(self, root: Path, children: Children) -> None:
        self.root, self._children = root, children
        self.happens: dict[str, Callable[[], object]] = {}
        """What events on the page do."""
        self._all: dict[str, Machine] = {}
        self._ports: dict[str, int] = {}
        self.names: dict[str, str] = {}
        """What ids of the pages stand for."""
        (root / "mnt").mkdir(parents=True, exist_ok=True)

    def __getitem__(self, name: str) -> Machine:
        if name not in self._all:
            made = self._all[name] = Machine(name, self.root / name, self._children)
            made.port = self.port("8765")
            made.of_the_system["prometheus"] = [
                "prometheus",
                f"--config.file={made.path('/etc/prometheus/prometheus.yml')}",
                f"--storage.tsdb.path={made.path('/var/lib/prometheus')}",
                f"--web.listen-address=127.0.0.1:{self.port('9090')}",
            ]
        return self._all[name]

    def stop(self) -> None:
        """Stop all services, and forget the machines; what they have on disk stays."""
        for each in self._all.values():
            each.stop()
        self._all.clear()

    def port(self, said: str) -> int:
        """That stands for a port of the page."""
        if said not in self._ports:
            self._ports[said] = free_port()
        return self._ports[said]

    def follow(self, steps: list[Step]) -> None:
        """Do as a page says, from top to bottom.

        Raises:
            AssertionError: a command does not do, or does not say, what the page says.
        """
        for each in steps:
            if isinstance(each, Command):
                self._carry_out(each)
            elif isinstance(each, Edit):
                self._edit(each)
            elif isinstance(each, Event):
                assert each.what in self.happens, f"line {each.line}: nobody does {each.what!r}"
                self.happens[each.what]()
            else:
                assert isinstance(each, NotRun)

    def here(self, text: str, machine: Machine) -> str:
        """What is said on the page, as it is here."""
        for said in sorted(self.names, key=len, reverse=True):
            text = text.replace(said, self.names[said])
        text = re.sub(_PORTS, lambda found: str(self.port(found[0])), text)
        text = re.sub(_NAME, "localhost", text).replace("0.0.0.0", "127.0.0.1")
        text = text.replace("/opt/tsferry/bin", str(BIN))
        return re.sub(_PATH, lambda found: self._path(found, machine), text)

    def _path(self, found: re.Match[str], machine: Machine) -> str:
        at = self[found["at"][:-1]] if found["at"] and found["at"][:-1] in self._all else None
        rest = "" if at else found["at"] or ""
        shared = found["path"].startswith("/mnt")
        real = self.root / found["path"][1:] if shared else (at or machine).path(found["path"])
        slash = "/" if found["path"].endswith("/") else ""
        return f"{rest}{found['url'] or ''}{real}{slash}"

    def there(self, text: str, machine: Machine) -> str:
        """What a command says here, as it would be on the page."""
        text = text.replace(str(machine.root), "").replace(str(self.root / "mnt"), "/mnt")
        for said, port in self._ports.items():
            name = _AT.get(said, "localhost")
            text = text.replace(f"localhost:{port}", f"{name}:{said}")
        return text

    def _carry_out(self, command: Command) -> None:
        machine = self[command.machine]
        typed = self.here(command.typed, machine)
        if typed.startswith("scp "):
            typed = f"cp {typed[4:]}"
        if not command.again:
            self._compare(command, *machine.run(typed))
            if typed.startswith("cp "):
                machine.make_at_home(self._all.values())
            return
        last: list[AssertionError] = []

        def came_true() -> bool:
            time.sleep(0.2)  # each look is a command, and what it waits for wants the processor
            try:
                self._compare(command, *machine.run(typed))
            except AssertionError as error:
                last[:] = [error]
                return False
            return True

        try:
            wait_until(came_true, f"line {command.line}", bound=BOUND)
        except AssertionError as error:
            raise (last or [error])[0] from error

    def _compare(self, command: Command, code: int, output: str) -> None:
        """Look at what it said, and learn what is called how here."""
        said = self.there(output, self[command.machine])
        where = f"line {command.line}: {command.typed}"
        assert code == command.code, f"{where}\nends with {code}, not {command.code}:\n{said}"
        rest = said.splitlines()
        for line in command.shown:
            pattern, names = _pattern(line, self.names)
            for number, one in enumerate(rest):
                if found := pattern.fullmatch(one.strip()):
                    self._learn(zip(names, found.groups(), strict=True))
                    del rest[: number + 1]
                    break
            else:
                raise AssertionError(f"{where}\ndoes not say: {line}\nbut:\n{said}")

    def _learn(self, named: Iterable[tuple[str, str]]) -> None:
        for said, real in named:
            self.names[said] = real
            if said.startswith("tsf_"):  # its id stands in it
                self.names[said[4:12]] = real[4:12]

    def _edit(self, edit: Edit) -> None:
        machine = self[edit.machine]
        file = machine.path(edit.file)
        text = self.here(edit.text, machine)
        if edit.kind != "toml":
            file.write_text(text)
            return
        file.write_text(_with_keys(file.read_text(), text))


def _pattern(line: str, known: Mapping[str, str]) -> tuple[re.Pattern[str], list[str]]:
    """What matches a line that is shown, and the names that its groups stand for."""
    parts, at, names = [], 0, []
    line = line.strip()
    for found in _VARIES.finditer(line):
        parts.append(re.escape(line[at : found.start()]))
        at = found.end()
        said = found[0]
        if found["any"] or found["user"]:
            parts.append(".*")
        elif found["space"]:
            parts.append(r"\s+")
        elif found["size"]:
            parts.append(r"[\d,.]+ [KMGB]\w*")
        elif found["count"]:
            parts.append(said)
        elif said in known:
            parts.append(re.escape(known[said]))
        elif found["token"] or found["id"]:
            names.append(said)
            parts.append(r"(tsf_[\w-]+)" if found["token"] else r"([0-9a-f]+)")
        else:
            parts.append(r"[\d.,:+-]*\d")
    parts.append(re.escape(line[at:]))
    return re.compile("".join(parts)), names


def _with_keys(text: str, wanted: str) -> str:
    """The configuration with keys set, as an editor would: in the lines that have them."""
    table = ""
    for line in wanted.splitlines():
        if line.startswith("["):
            table = line.strip()
        elif "=" in line:
            key = line.partition("=")[0].strip()
            head, found, behind = text.partition(f"\n{table}\n" if table else "\n")
            assert found, f"no table {table}"
            own, next_one, rest = behind.partition("\n[")
            own, count = re.subn(
                rf"(?m)^#?{re.escape(key)} = .*$", line.replace("\\", r"\\"), own, count=1
            )
            assert count, f"no key {key} in {table or 'the file'}"
            text = "".join((head, found, own, next_one, rest))
    tomllib.loads(text)
    return text


def _reloads(service: Child) -> int:
    return sum(map(service.text().count, _READ_AGAIN))
