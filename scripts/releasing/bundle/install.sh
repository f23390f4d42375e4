#!/bin/sh
# Installs @NAME@ @VERSION@ from this folder, without a network.
#
#   ./install.sh [--prefix DIR] [--python PYTHON]   into DIR-@VERSION@, and DIR becomes a link to it
#   ./install.sh [--prefix DIR] --use VERSION       the link to a version that is still there: the way back
#
# DIR is /opt/tsferry, unless named. Data, configuration and units are not touched.
set -eu

version=@VERSION@
name=@NAME@
prefix=/opt/tsferry
python=
use=

die() {
    echo "install.sh: $*" >&2
    exit 1
}

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "$0"
}

while [ $# -gt 0 ]; do
    case "$1" in
        --prefix | --python | --use)
            [ $# -gt 1 ] || die "$1 needs a value"
            case "$1" in
                --prefix) prefix=${2%/} ;;
                --python) python=$2 ;;
                --use) use=$2 ;;
            esac
            shift 2
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            usage >&2
            exit 2
            ;;
    esac
done
case "$prefix" in
    /?*) ;;
    *) die "--prefix $prefix: an absolute path, please" ;;
esac
here=$(cd "$(dirname "$0")" && pwd)

check_bytes() {
    found=$(cd "$here" && sha256sum -c SHA256SUMS 2>&1) || {
        echo "$found" | grep -v ': OK$' >&2 || true
        die "the bundle is damaged or not whole: bring it here again; nothing was changed"
    }
}

fits() {
    "$1" -c 'import sys, venv; sys.exit(not (3, 11, 2) <= sys.version_info < (3, 15))' 2>/dev/null
}

find_python() {
    if [ -n "$python" ]; then
        fits "$python" || die "$python is no Python 3.11.2 to 3.14 with venv; nothing was changed"
        return
    fi
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        ! fits "$python" || return 0
    done
    die "no Python 3.11.2 to 3.14 with venv is here; name one with --python; nothing was changed"
}

check_link() {
    if [ -e "$prefix" ] && [ ! -L "$prefix" ]; then
        die "$prefix is there and no link of this script (an installation by pip?): move it away, or name another with --prefix; nothing was changed"
    fi
    if [ -L "$prefix" ]; then
        case "$(readlink "$prefix")" in
            "${prefix##*/}"-*) ;;
            *) die "$prefix is a link to $(readlink "$prefix"), which this script did not make; nothing was changed" ;;
        esac
    fi
}

point_to() {
    rm -f "$prefix.new"
    ln -s "${prefix##*/}-$1" "$prefix.new"
    mv -T "$prefix.new" "$prefix"
}

if [ -n "$use" ]; then
    check_link
    [ -f "$prefix-$use/.complete" ] || die "$prefix-$use is not installed whole; nothing was changed"
    point_to "$use"
    echo "$prefix is version $use now; a daemon that runs is as it was until it is restarted"
    exit 0
fi

check_bytes
find_python
check_link
place=$prefix-$version
before=
[ ! -L "$prefix" ] || before=$(readlink "$prefix")

if [ -f "$place/.complete" ] && cmp -s "$place/.complete" "$here/SHA256SUMS" && "$place/bin/$name" --version >/dev/null; then
    echo "$place is there, of this bundle, and whole"
elif [ -f "$place/.complete" ] && ! cmp -s "$place/.complete" "$here/SHA256SUMS"; then
    die "$place is there, of another bundle: remove it first, or use another --prefix; nothing was changed"
else
    if [ -e "$place" ]; then
        [ -f "$place/.begun" ] || die "$place is there and was not made by this script; nothing was changed"
        echo "$place is left of an installation that broke off, or is damaged: it is made anew"
        rm -rf "$place"
    fi
    mkdir -p "$place"
    echo "$name $version" >"$place/.begun"
    # Without pip: that of Debian's venv is a package of its own. pip runs from its wheel.
    "$python" -m venv --without-pip "$place"
    set -- "$here"/wheels/pip-*.whl
    "$place/bin/python" "$1/pip" --disable-pip-version-check install --quiet --no-input --no-index \
        --no-cache-dir --find-links "$here/wheels" --require-hashes --requirement "$here/requirements.txt" ||
        die "pip could not install it, as it says above; $prefix is as it was"
    cp -R "$here/share" "$place/"
    "$place/bin/$name" --version
    cp "$here/SHA256SUMS" "$place/.complete.new"
    # Whole on the disk before the link says so.
    sync
    mv "$place/.complete.new" "$place/.complete"
fi
point_to "$version"
echo "installed: $prefix/bin/$name"
case "$before" in
    "" | "${prefix##*/}-$version")
        echo "next: $prefix/bin/$name --config /etc/tsferry/sender.toml init --help"
        ;;
    *)
        echo "before it was $before, which is still there: ./install.sh --prefix $prefix --use ${before#"${prefix##*/}"-}"
        echo "next: restart the daemon (systemctl restart $name)"
        ;;
esac
