#!/usr/bin/env bash
# Installs Debian packages as root; no server is started or enabled, and cloud-init stays off.
set -euo pipefail

# kedge needs only sshd's program, and runs it on its own loopback address. The package's service would open port 22 on
# every address, at the next boot at the latest. A server that was installed before is the user's, and isn't touched.
# The same for the daemons of Slurm, which tests start themselves.
declare -A servers=([openssh-server]="ssh.service ssh.socket" [rsync]="rsync.service"
	[munge]="munge.service" [slurmctld]="slurmctld.service" [slurmd]="slurmd.service")
closed=()
for package in "$@"; do
	if [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
		read -r -a units <<<"${servers[$package]:-}"
		closed+=("${units[@]}")
	fi
done

# Presets decide which services of a package Debian enables: deb-systemd-helper(1p), systemd.preset(5).
preset=/run/systemd/system-preset/00-kedge.preset
denial=/usr/sbin/policy-rc.d
finish() {
	for unit in "${closed[@]}"; do
		# Older releases ignore presets; so does a package that was removed before and is installed again.
		systemctl --quiet is-enabled "$unit" >/dev/null 2>&1 && systemctl --quiet disable "$unit"
		[ -d /run/systemd/system ] && systemctl --quiet stop "$unit" 2>/dev/null
	done
	rm -f "$preset"
	[ -z "$denial" ] || rm -f "$denial"
}
# Also after an interrupt: services that a partial installation has enabled are disabled again.
trap finish EXIT

if [ "${#closed[@]}" -gt 0 ]; then
	mkdir -p "${preset%/*}"
	printf 'disable %s\n' "${closed[@]}" >"$preset"
fi
if [ -e "$denial" ]; then
	denial=
else
	printf '#!/bin/sh\nexit 101\n' >"$denial"
	chmod 755 "$denial"
fi

# cloud-init is for the machines that tests boot. On this computer it would run at the next boot as if that were the
# first one in a cloud: set passwords and host keys, rename the computer. If it was installed before, it stays as it is.
# The tests' machines are overlays on this computer; tests/cloudbox/nspawn/seed.py hides the file in them.
if [[ " $* " == *" cloud-init "* ]]; then
	mkdir -p /etc/cloud
	echo "made by kedge's set-up: it installed cloud-init for tests alone" >/etc/cloud/cloud-init.disabled
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@" >/dev/null
