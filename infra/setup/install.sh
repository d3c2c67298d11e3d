#!/usr/bin/env bash
# Installs Debian packages, as root, without starting any service and without letting cloud-init loose.
set -euo pipefail

# sshd is run by kedge, on a loopback address of its own; a service would take port 22 of every address.
if [ ! -e /usr/sbin/policy-rc.d ]; then
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
fi

# cloud-init is for the machines that tests boot. On this computer it would run at the next boot, as if that were the
# first one in a cloud: set passwords and host keys, rename the computer. Where it was before us, it isn't asked for,
# and stays as it is. The tests' machines are overlays on this computer, in which tests/cloudbox/seed.py hides the file.
if [[ " $* " == *" cloud-init "* ]]; then
	mkdir -p /etc/cloud
	echo "made by kedge's set-up: it installed cloud-init for tests alone" >/etc/cloud/cloud-init.disabled
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@" >/dev/null
