#!/usr/bin/env bash
# brrrtop as people get it: by uvx, pipx and pip, from the wheels of FOLDER and what they need.
set -euo pipefail
dist=$(realpath "$1")
trace=$(realpath "$(dirname "$0")"/../tests/recordings/traces/stacks.json.gz)
wheels=("$dist"/*_"$(uname -m)".whl)
test -f "${wheels[0]}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export UV_TOOL_DIR=$work/uv UV_CACHE_DIR=$work/uv-cache PIPX_HOME=$work/pipx PIPX_BIN_DIR=$work/bin

uvx --find-links "$dist" brrrtop demo --once >uvx.txt
grep -q "steps, median" uvx.txt

pipx install --pip-args "--find-links $dist" brrrtop
"$work/bin/brrrtop" demo input-bound --once | grep -q "steps, median"

python3 -m venv venv
venv/bin/pip install --quiet --find-links "$dist" brrrtop
venv/bin/brrrtop --version
venv/bin/brrrtop analyze "$trace" >report.txt
grep -q "judged" report.txt
# The libraries that came with the wheel are the ones in use: nothing is compiled here.
CC=/bin/false venv/bin/python - <<'END'
import ctypes
from brrrtop.sources.importers.kineto import scanner_library
from collectors.attach import agent_library
for library in (agent_library.library(), scanner_library.LIBRARY):
    path = library.path()
    assert path.parent == library.bundled_in, path
    ctypes.CDLL(str(path))
END
echo "installs by uvx, pipx and pip"
