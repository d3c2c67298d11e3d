#!/usr/bin/env bash
# Says how much disk space an installation needs, and stops if there is too little: room.sh VENV LOCK [TORCH'S BUILD]
set -euo pipefail
. infra/setup/torch.sh

venv=$1
lock=$2
build=${3:-$(torch_build)}

# Measured on Debian 12, x86-64, in MB: the finished environment, pip's temporary files, its downloads.
case $lock-$build in
docs-*) target=300 temporary=200 download=90 minutes="less than a minute" ;;
kedge-*) target=300 temporary=200 download=80 minutes="less than a minute" ;;
trainer-cpu) target=1500 temporary=500 download=400 minutes="about a minute" ;;
tests-cpu) target=2600 temporary=700 download=600 minutes="about two minutes" ;;
*) target=6500 temporary=4000 download=3500 minutes="several minutes" ;;
esac

size() { # MB
	if [ "$1" -lt 1000 ]; then echo "$1 MB"; else echo "$(($1 / 1000)).$(($1 % 1000 / 100)) GB"; fi
}
look() { # FOLDER: its file system's mount point, and how many MB are free there
	local folder=$1
	while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
	df -Pk "$folder" | awk 'NR == 2 { mount = $6; for (i = 7; i <= NF; i++) mount = mount " " $i; print int($4 / 977); print mount }'
}
refuse() { # FOLDER FREE NEEDED FIX...
	printf '%s\n' "kedge: too little room in $1: $(size "$2") free, $(size "$3") needed." "${@:4}" >&2
	exit 2
}

scratch=${TMPDIR:-/tmp}
{ read -r target_free && read -r target_mount; } < <(look "$venv")
{ read -r scratch_free && read -r scratch_mount; } < <(look "$scratch")
[ "$target_mount" != "$scratch_mount" ] || target=$((target + temporary))

echo "kedge goes into $venv: $(size "$target") of disk, up to $(size "$download") to download,"
echo "and $minutes beside that."
[ "$target_free" -ge "$target" ] || refuse "$target_mount" "$target_free" "$target" \
	"Free some, or have it on another disk: make ... VENV=/another/disk/kedge-venv"
[ "$scratch_free" -ge "$temporary" ] || refuse "$scratch" "$scratch_free" "$temporary" \
	"pip unpacks there. Choose another folder: mkdir -p ~/tmp && TMPDIR=~/tmp make ..."
