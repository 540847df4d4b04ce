# shellcheck shell=sh
# Sourced by scripts that compare with PyTorch: $python becomes one that can import it, as replay.sh says.  Without one the
# script says "skipped: ..." and succeeds.
venv=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/tensorgrad/venv
skip() { echo "skipped: $1"; echo "0 passed, 0 failed"; exit 0; }
has_torch() { "$1" -c 'import numpy, torch' >/dev/null 2>&1; }
within() { # within SECONDS command...
    if command -v timeout >/dev/null 2>&1; then timeout "$@"; else shift; "$@"; fi
}

python=${1:-${TG_PYTHON:-}}
if [ -n "$python" ]; then
    has_torch "$python" || skip "$python cannot import torch and numpy"
elif has_torch python3; then
    python=python3
else
    python=$venv/bin/python
    if ! has_torch "$python"; then
        echo "no PyTorch: installing one in $venv"
        mkdir -p "$(dirname "$venv")" && python3 -m venv "$venv" >/dev/null 2>&1 ||
            skip "no PyTorch and no way to make $venv"
        cpu=https://download.pytorch.org/whl/cpu
        within 30 "$python" -m pip install -q numpy expecttest safetensors >/dev/null 2>&1
        within 80 "$python" -m pip install -q --retries 0 --index-url "$cpu" torch >/dev/null 2>&1 ||
            within 80 "$python" -m pip install -q --retries 0 torch >/dev/null 2>&1
        has_torch "$python" || skip "no PyTorch could be installed in $venv"
    fi
fi
