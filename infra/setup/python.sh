#!/usr/bin/env bash
# Makes a virtual environment with kedge and the packages of one lock: python.sh VENV kedge|trainer|tests|docs
#
# Run it in the checkout. The installation is editable; with the lock `kedge` it is a copy.
set -euo pipefail
. infra/setup/torch.sh

venv=$1
lock=$2

python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
	if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
		python=$candidate
		break
	fi
done
if [ -z "$python" ]; then
	echo "kedge needs Python 3.11 or newer; found: $(python3 --version 2>&1 || echo none)." >&2
	echo "On Debian 12 and Ubuntu 24.04: apt-get install python3 python3-venv" >&2
	exit 2
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
	version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	sudo=()
	[ "$(id -u)" -eq 0 ] || sudo=(sudo)
	echo "Installing python$version-venv"
	if ! "${sudo[@]}" bash infra/setup/install.sh "python$version-venv"; then
		echo "This Python can't make virtual environments: install its venv package (python$version-venv)." >&2
		exit 2
	fi
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# Python compiles a module at its first import: a third of torch's modules are never imported.
pip=("$venv/bin/python" -m pip --disable-pip-version-check install --no-compile)
[ -t 1 ] || pip+=(--progress-bar off)

# Every file must have its locked hash; pip first, because the locked one shows progress.
echo "Installing pip, then what kedge needs"
"${pip[@]}" --quiet --require-hashes -r <(awk '/^[^ ]/ { wanted = /^pip==/ } wanted' locks/machine.txt)
"${pip[@]}" --require-hashes -r "locks/$lock.txt"

# Not in the locks, because the right build depends on the computer. A user who has configured an index has chosen.
install_torch() {
	local config
	config=$("$venv/bin/python" -m pip config list)
	if [ "$(torch_build)" = cpu ] && ! grep -qE '(index-url|find-links|no-index)=' <<<"$config"; then
		echo "Installing torch's build for the CPU: no GPU is seen here"
		if "${pip[@]}" --retries 1 -c constraints.txt --index-url "$cpu_index" torch; then
			return
		fi
		echo "$cpu_index has none for this Python, or can't be reached. The usual build instead:" >&2
		bash infra/setup/room.sh "$venv" "$lock" usual
	fi
	"${pip[@]}" -c constraints.txt torch
}
[[ "$lock" = @(kedge|docs) ]] || install_torch

# The build backend is locked, too.
source=(.)
[ "$lock" = kedge ] || source=(--editable .)
"${pip[@]}" --quiet --force-reinstall --no-deps --no-build-isolation "${source[@]}"
