# Sourced by the other scripts: makes .venv beside the sources, or another folder, and installs into
# it what pyproject asks for, once for each state of pyproject. Usage: venv <extras> [<folder>], for
# example: venv all,dev
venv() {
    local extras=$1 venv=${2:-.venv} python=""
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11, 2))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        echo "tsferry needs Python 3.11.2 or later; set PYTHON to one" >&2
        return 2
    fi
    local stamp="$venv/.installed-${extras//,/-}" want each
    want=$(cksum <pyproject.toml)
    # Its commands and our packages are named by their whole paths: copied or moved together with the
    # sources, it would run those of the place that it was made at.
    if [ -x "$venv/bin/tsferry-sender" ] && ! _is_of_here "$venv"; then
        echo "$venv was made for sources at another place: making it anew"
        rm -rf "$venv"
    fi
    for each in "$stamp" "$venv/.installed-all" "$venv/.installed-all-dev"; do
        case $extras,$each in *dev*,*-all) continue ;; esac # which has all but that
        if [ "$(cat "$each" 2>/dev/null)" = "$want" ] && "$venv/bin/python" -c '' 2>/dev/null; then
            return 0
        fi
    done
    if ! [ -x "$venv/bin/pip" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
        echo "making $venv with $("$python" --version)"
        rm -rf "$venv"
        if ! "$python" -m venv "$venv" 2>/dev/null; then
            rm -rf "$venv"
            if ! "$python" -m virtualenv -q "$venv" 2>/dev/null; then
                echo "this Python cannot make virtual environments (Debian: apt install python3-venv)" >&2
                return 2
            fi
        fi
    fi
    case $extras in
        *all*) echo "installing tsferry[$extras] into $venv (a minute or some, the first time: Spark is 450 MB)" ;;
        *) echo "installing tsferry[$extras] into $venv" ;;
    esac
    # Spark comes as source, of which pip makes a wheel and unpacks that: compressed in between, it
    # takes half a minute of a processor to no end. -qq: or an older pip says how it does that.
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile \
        --config-settings=--build-option=--compression=stored --editable ".[$extras]" || return
    # For the hundreds of programs that tests start. pip would compile one file after the other, on
    # one processor; who runs a few programs is quicker with what these compile as they come to it.
    case $extras in
        *dev*) "$venv/bin/python" -m compileall -q -j 0 "$venv"/lib/python*/site-packages >/dev/null 2>&1 || true ;;
    esac
    echo "$want" >"$stamp"
}

# Whether the commands of an environment are its own, and run the sources in the working directory.
_is_of_here() {
    "$1/bin/python" -P - "$1" <<'END' 2>/dev/null
import os, sys
from importlib.util import find_spec

environment = sys.argv[1]
with open(os.path.join(environment, "bin", "tsferry-sender")) as command:
    begin = command.readline() + command.readline()  # two, where the path is a long one
places = {os.path.abspath(environment), os.path.realpath(environment)}
commands = any(f"{place}/bin/" in begin for place in places)
sources = os.path.samefile(os.path.dirname(find_spec("common").origin), "common")
sys.exit(not (commands and sources))
END
}
