"""Machines on one network that can be parted: namespaces around one that carries what they say.

What is parted is not told so: packets vanish, as behind a switch that is gone.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

__all__ = ["PartedNetwork", "parted_network"]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class PartedNetwork:
    """Each machine has an address, `addresses`, and a namespace."""

    def __init__(self, tag: str, names: Sequence[str]) -> None:
        self._tag = tag
        self.addresses = {name: f"10.98.{number}.2" for number, name in enumerate(names, 1)}
        self.carrier = f"{tag}carrier"
        self._parted: set[tuple[str, str]] = set()

    def namespace(self, name: str) -> str:
        return f"{self._tag}{name}"

    def make(self) -> None:
        _ip("netns", "add", self.carrier)
        subprocess.run(
            ["ip", "netns", "exec", self.carrier, "sysctl", "-qw", "net.ipv4.ip_forward=1"],
            check=True,
            capture_output=True,
        )
        for number, (name, address) in enumerate(self.addresses.items(), 1):
            there, device = self.namespace(name), f"to{number}"
            _ip("netns", "add", there)
            link = ("link", "add", device, "type", "veth", "peer", "wire", "netns", there)
            _ip("-n", self.carrier, *link)
            _ip("-n", self.carrier, "addr", "add", f"10.98.{number}.1/24", "dev", device)
            _ip("-n", self.carrier, "link", "set", device, "up")
            _ip("-n", there, "addr", "add", f"{address}/24", "dev", "wire")
            _ip("-n", there, "link", "set", "wire", "up")
            _ip("-n", there, "link", "set", "lo", "up")
            _ip("-n", there, "route", "add", "default", "via", f"10.98.{number}.1")

    def part(self, one: str, other: str) -> None:
        """Nothing comes from one to the other any more, nor back."""
        for a, b in ((one, other), (other, one)):
            self._rule("add", a, b)
            self._parted.add((a, b))

    def heal(self) -> None:
        """All hear each other."""
        for a, b in self._parted:
            self._rule("del", a, b)
        self._parted.clear()

    def _rule(self, what: str, a: str, b: str) -> None:
        between = ("from", self.addresses[a], "to", self.addresses[b])
        _ip("-n", self.carrier, "rule", what, *between, "blackhole")

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """This thread, and those that it starts meanwhile, are on that machine's network."""
        with open("/proc/thread-self/ns/net", "rb") as home:
            self._enter(f"/run/netns/{self.namespace(name)}")
            try:
                yield
            finally:
                self._enter(home.name, home.fileno())

    def _enter(self, path: str, fd: int | None = None) -> None:
        opened = os.open(path, os.O_RDONLY) if fd is None else fd
        try:
            if ctypes.CDLL(None, use_errno=True).setns(opened, 0):
                raise OSError(ctypes.get_errno(), "setns", path)
        finally:
            if fd is None:
                os.close(opened)

    def unmake(self) -> None:
        for name in (*map(self.namespace, self.addresses), self.carrier):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextmanager
def parted_network(*names: str) -> Iterator[PartedNetwork]:
    """A network of machines with these names; skips the test where none can be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root for namespaces")
    network = PartedNetwork(f"tsfp{os.getpid()}", names)
    try:
        try:
            network.make()
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no network namespaces here")
        yield network
    finally:
        network.unmake()
