#!/usr/bin/env bash
# Installs the programs that kedge calls on this computer, where any is missing.
set -euo pipefail

packages=()
need() { # PROGRAM PACKAGE
	PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || packages+=("$2")
}
need sshd openssh-server
need ssh openssh-client
need rsync rsync
need tmux tmux
need screen screen
need zstd zstd
need git git
need systemd-analyze systemd

[ "${#packages[@]}" -eq 0 ] && exit 0

if [ "$(uname -s)" = Darwin ]; then
	echo "Missing: ${packages[*]}" >&2
	echo "macOS brings sshd; get the rest with: brew install rsync tmux screen zstd git" >&2
	# systemd runs on Linux alone: its unit is checked there.
	[ "${packages[*]}" = systemd ] && exit 0
	exit 2
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "Missing: ${packages[*]}" >&2
	echo "This computer has no apt-get: install them with its own package manager, then try again." >&2
	exit 2
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "Missing: ${packages[*]}, and there is no sudo." >&2
		echo "As root: apt-get install ${packages[*]}" >&2
		exit 2
	fi
	sudo=(sudo)
fi
echo "Installing ${packages[*]}"
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
# --no-install-recommends and no start of services: sshd is run by kedge, on a loopback port of its own.
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
