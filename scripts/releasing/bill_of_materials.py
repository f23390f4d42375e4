"""What a package contains, as CycloneDX (https://cyclonedx.org/docs/1.6/json/)."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from scripts.releasing.wheels import Wheel

__all__ = ["bill_of_materials"]


def bill_of_materials(package: str, version: str, wheels: Iterable[Wheel], epoch: int) -> bytes:
    """The bill as JSON; the same package has the same one.

    Args:
        package: file name of what is delivered, without its version's suffix.
        version: of tsferry.
        wheels: all that are in it, that of tsferry too.
        epoch: seconds since 1970, for its time.
    """
    entries = sorted(wheels, key=lambda each: (each.name.lower(), each.path.name))
    said = [f"{each.path.name} {each.sha256}" for each in entries]
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, "\n".join([package, version, *said])),
        components=map(_component, entries),
    )
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(epoch, datetime.UTC)
    bom.metadata.component = whole = Component(
        name=package, version=version, type=ComponentType.APPLICATION, bom_ref=package
    )
    bom.register_dependency(whole, bom.components)
    return (JsonV1Dot6(bom).output_as_string(indent=1) + "\n").encode()


def _component(wheel: Wheel) -> Component:
    name = wheel.name.lower().replace("_", "-").replace(".", "-")
    # Several wheels of one version are in a bundle, one for each machine and Python.
    purl = PackageURL("pypi", None, name, wheel.version, {"file_name": wheel.path.name})
    classed = [
        each.rpartition(" :: ")[2]
        for each in wheel.metadata.get_all("Classifier", [])
        if each.startswith("License :: ")
    ]
    said = wheel.metadata["License-Expression"] or wheel.metadata["License"] or ", ".join(classed)
    # What is no expression of SPDX is told as it stands; a whole text stands in the wheel.
    short = said.strip() if "\n" not in said.strip() else ""
    return Component(
        name=wheel.name,
        version=wheel.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=wheel.path.name,
        licenses=[LicenseFactory().make_from_string(short)] if short else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel.sha256)],
    )
