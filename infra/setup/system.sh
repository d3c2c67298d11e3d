#!/usr/bin/env bash
# Installs missing programs that kedge runs on this computer; with `tests`, also those of its tests.
set -euo pipefail

packages=()
need() { # PROGRAM PACKAGE
	PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || packages+=("$2")
}
need_package() {
	[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] || packages+=("$1")
}
refuse() { # LINE...
	printf '%s\n' "$@" >&2
	exit 2
}

need sshd openssh-server
need ssh openssh-client
need rsync rsync
need tmux tmux
need screen screen
need zstd zstd
need git git
# systemd runs only on Linux: its unit is checked there.
[ "$(uname -s)" = Darwin ] || need systemd-analyze systemd
if [ "${1:-}" = tests ]; then
	need shellcheck shellcheck
	# Their completion is tested.
	need zsh zsh
	need fish fish
fi

root=no
sudo=()
if [ "$(id -u)" -eq 0 ]; then
	root=yes
elif command -v sudo >/dev/null 2>&1; then
	root=yes
	sudo=(sudo)
fi

# Machines in the tests' boxes are containers of systemd: they need Linux, root and Debian's packages, and tests
# that use them are skipped elsewhere. torch.compile on the CPU needs a C++ compiler. Exported jobs run on a Slurm.
if [ "${1:-}" = tests ] && [ "$(uname -s)" = Linux ] && [ "$root" = yes ] && command -v apt-get >/dev/null 2>&1; then
	for package in ca-certificates cloud-init curl dbus debootstrap e2fsprogs g++ iproute2 libpam-systemd nftables \
		munge openssh-client openssh-server slurm-client slurmctld slurmd sudo systemd systemd-container systemd-sysv \
		tmux util-linux; do
		need_package "$package"
	done
fi

[ "${#packages[@]}" -eq 0 ] && exit 0

if [ "$(uname -s)" = Darwin ]; then
	refuse "Missing: ${packages[*]}" \
		"macOS brings sshd; get the rest with: brew install rsync tmux screen zstd git shellcheck fish"
fi
command -v apt-get >/dev/null 2>&1 || refuse "Missing: ${packages[*]}" \
	"This computer has no apt-get: install them with its own package manager, then try again."
[ "$root" = yes ] || refuse "Missing: ${packages[*]}, and there is no sudo." \
	"As root: apt-get install ${packages[*]}"
echo "Installing ${packages[*]}"
"${sudo[@]}" bash "$(dirname "$0")/install.sh" "${packages[@]}"
