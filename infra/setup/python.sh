#!/usr/bin/env bash
# Makes the virtual environment in the given folder, with kedge and what one of the locks names: kedge, trainer or tests.
set -euo pipefail

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
	if ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-venv" >/dev/null; then
		echo "This Python can't make virtual environments: install its venv package (python$version-venv)." >&2
		exit 2
	fi
fi
echo "Installing kedge into $venv (the trainer's torch takes a while)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
# Every file as it was when it was locked, or nothing.
"${pip[@]}" --require-hashes -r "locks/$lock.txt"
# In no lock: which of its builds fits is the computer's.
[ "$lock" = kedge ] || "${pip[@]}" -c constraints.txt torch
# What builds it has been locked, too.
"${pip[@]}" --no-deps --no-build-isolation -e .
