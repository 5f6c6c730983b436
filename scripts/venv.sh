#!/bin/sh
# Creates .venv with the versions pinned in requirements.lock, and installs this checkout into it. Needs only Python.
# Does nothing if lock, project file, this script and path haven't changed and the Python in .venv works.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd -P)
stamp=.venv/.codesdk-stamp

fail() {
    printf '%s\n' "$*" >&2
    exit 69
}

fingerprint() { # hashes every input of .venv, including the path, which is in its scripts' shebangs
    {
        printf '%s\n' "$here"
        cat requirements.lock pyproject.toml scripts/venv.sh
    } | cksum
}

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ] && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi

fit() { # whether this Python is new enough and works
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

choose() { # prints the first usable Python; PYTHON overrides the list
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        if fit "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

apt_install() { # $1: reason; the rest: packages
    why=$1
    shift
    command="sudo apt-get update && sudo apt-get install -y --no-install-recommends $*"
    if ! command -v apt-get >/dev/null 2>&1; then
        fail "$why. Install the equivalent of $* and run this again."
    fi
    if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
        fail "$why. Run: $command"
    fi
    echo "$why: installing $* (apt-get)"
    as_root env DEBIAN_FRONTEND=noninteractive sh -c '
        apt="apt-get -q -o DPkg::Lock::Timeout=120"
        $apt install -y --no-install-recommends "$@" || { $apt update && $apt install -y --no-install-recommends "$@"; }
    ' sh "$@" </dev/null >&2 || fail "$why, and apt-get failed. Run: $command"
}

python=$(choose)
if [ -z "$python" ]; then
    apt_install "Python 3.11 or newer is missing" python3 python3-venv
    python=$(choose)
    [ -n "$python" ] || fail "This system's Python is older than 3.11. Install a newer one and set PYTHON=/path/to/it."
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt_install "Python's venv module is missing" "python$version-venv"
fi

echo "Installing the pinned dependencies into .venv (once)"
.venv/bin/python -c '' 2>/dev/null || rm -rf .venv
rm -f "$stamp"
"$python" -m venv .venv
# These would make pip install elsewhere, or prefer files that are not in the lock.
unset PIP_FIND_LINKS PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIREMENT PIP_CONSTRAINT PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
.venv/bin/python -m pip install -qq --require-hashes --only-binary :all: -r requirements.lock
.venv/bin/python -m pip install -qq --no-deps --no-build-isolation -e .
fingerprint >"$stamp"
