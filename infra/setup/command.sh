#!/usr/bin/env bash
# Installs the command `kedge` for this user, or removes it: command.sh install|uninstall
set -euo pipefail

venv=${XDG_DATA_HOME:-$HOME/.local/share}/kedge/venv
link=$HOME/.local/bin/kedge

if { [ -e "$link" ] || [ -L "$link" ]; } && [ "$(readlink "$link" || true)" != "$venv/bin/kedge" ]; then
	echo "kedge: $link is of another installation; nothing was changed." >&2
	echo "Remove that one first (\`uv tool list\`, \`pipx list\`), or keep it." >&2
	exit 2
fi

if [ "$1" = uninstall ]; then
	# The timer of `recover` would start a program that no longer exists.
	[ ! -x "$venv/bin/kedge" ] || "$venv/bin/kedge" recover --uninstall || true
	rm -rf "$venv" "$link"
	echo "kedge is uninstalled. Machines, results and ${XDG_STATE_HOME:-$HOME/.local/state}/kedge stay."
	exit 0
fi

bash infra/setup/room.sh "$venv" kedge
bash infra/setup/python.sh "$venv" kedge
mkdir -p "$(dirname "$link")"
ln -sfn "$venv/bin/kedge" "$link"
echo "Installed: $link. Upgrade: git pull && make install. Uninstall: make uninstall."
if [ "$(command -v kedge || true)" != "$link" ]; then
	echo "A new login finds it; this shell after:  export PATH=\"\$HOME/.local/bin:\$PATH\""
fi
