"""An authority that signs certificates, and revokes them; by the command `openssl`."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["Authority"]

_CONFIG = """
[ca]
default_ca = here
[here]
database = {dir}/index
new_certs_dir = {dir}
serial = {dir}/serial
crlnumber = {dir}/crlnumber
certificate = {dir}/ca.pem
private_key = {dir}/ca.key
default_md = sha256
default_days = 2
default_crl_days = 2
policy = any
unique_subject = no
[any]
commonName = supplied
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """One in a directory of its own.

    Attributes:
        ca: its certificate.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._dir = directory
        self.ca = directory / "ca.pem"
        self._config = directory / "config"
        self._config.write_text(_CONFIG.format(dir=directory))
        for name, content in (("index", ""), ("serial", "01"), ("crlnumber", "01")):
            (directory / name).write_text(content)
        _openssl(
            *("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={directory.name}"),
            *("-keyout", directory / "ca.key", "-out", self.ca),
        )

    def issue(
        self,
        name: str,
        *alternatives: str,
        ends: str | None = None,
        usage: str = "clientAuth",
    ) -> tuple[Path, Path]:
        """A certificate and its key.

        Args:
            name: of the files, and the common name.
            alternatives: as OpenSSL has them, such as `DNS:edge.example`.
            ends: such as 20200101000000Z; in two days, if left out.
            usage: what it is for.
        """
        cert, key = self._dir / f"{name}.pem", self._dir / f"{name}.key"
        request, extensions = self._dir / "request", self._dir / "extensions"
        lines = [f"extendedKeyUsage = {usage}"]
        if alternatives:
            lines.append(f"subjectAltName = {','.join(alternatives)}")
        extensions.write_text("\n".join(lines))
        _openssl("req", "-new", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        key.chmod(0o600)
        when = () if ends is None else ("-startdate", "20190101000000Z", "-enddate", ends)
        _openssl(
            *("ca", "-batch", "-notext", "-config", self._config, "-extfile", extensions, *when),
            *("-in", request, "-out", cert),
        )
        return cert, key

    def revoke(self, cert: Path) -> None:
        """Have a certificate in the next list."""
        _openssl("ca", "-config", self._config, "-revoke", cert)

    def crl(self) -> Path:
        """The list of what is revoked, as of now."""
        made = self._dir / "crl.pem"
        _openssl("ca", "-config", self._config, "-gencrl", "-out", made)
        return made


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
