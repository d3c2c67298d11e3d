# kedge's completion for fish: commands, flags, runs, jobs and modes.
#
# To have it in every shell:
#   mkdir -p ~/.config/fish/completions
#   kedge completion fish >~/.config/fish/completions/kedge.fish
#
# Names come from files that others may have written: fish quotes them, and nothing evaluates them.

function __kedge_complete
    set -l current (commandline --current-token)
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l found (command kedge __complete $words[2..-1] "$current" 2>/dev/null)
    if test "$found[1]" = files
        __fish_complete_path "$current"
    else if test (count $found) -gt 1
        printf '%s\n' $found[2..-1]
    end
end
complete --command kedge --no-files --arguments '(__kedge_complete)'
