# kedge's completion for bash: commands, flags, runs, jobs and modes.
#
# To have it in every shell (with the package bash-completion):
#   mkdir -p ~/.local/share/bash-completion/completions
#   kedge completion bash >~/.local/share/bash-completion/completions/kedge
# Without that package, put this line into ~/.bashrc:
#   source <(kedge completion bash)
#
# Names come from files that others may have written: they are quoted, and nothing evaluates them.

_kedge() {
	local kind='' name
	COMPREPLY=()
	{
		IFS= read -r kind
		while IFS=$'\t' read -r name _; do
			printf -v name %q "$name"
			COMPREPLY+=("$name")
		done
	} < <(command kedge __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	# bash 3.2, which macOS has, knows no compopt: there, file names are written out.
	if [ "$kind" = files ] && type compopt >/dev/null 2>&1; then
		compopt -o default
	fi
}
complete -F _kedge kedge
