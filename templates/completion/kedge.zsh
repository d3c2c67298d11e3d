#compdef kedge
# kedge's completion for zsh: commands, flags, runs, jobs and modes.
#
# To have it in every shell:
#   mkdir -p ~/.zfunc && kedge completion zsh >~/.zfunc/_kedge
# and in ~/.zshrc, before compinit where that is called already:
#   fpath+=(~/.zfunc); autoload -Uz compinit && compinit
#
# Names come from files that others may have written: compadd quotes them, and nothing evaluates them.

_kedge() {
	local line kind
	local -a lines names shown
	lines=("${(@f)$(command kedge __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
	kind=$lines[1]
	if [[ $kind == files ]]; then
		_files
		return
	fi
	for line in "${(@)lines[2,-1]}"; do
		[[ -n $line ]] || continue
		names+=("${line%%$'\t'*}")
		shown+=("${line/$'\t'/  -- }")
	done
	(($#names)) && compadd -l -d shown -a names
}

if [[ $funcstack[1] == _kedge ]]; then
	_kedge "$@"
else
	compdef _kedge kedge
fi
