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
    local stamp="$venv/.installed-${extras//,/-}" want
    want=$(cksum <pyproject.toml)
    if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c '' 2>/dev/null &&
        [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
        return 0
    fi
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
    echo "installing tsferry[$extras] into $venv (some minutes the first time: Spark is large)"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$extras]" || return
    # pip would compile one file after the other, on one processor.
    "$venv/bin/python" -m compileall -q -j 0 "$venv"/lib/python*/site-packages >/dev/null 2>&1 || true
    echo "$want" >"$stamp"
}
