"""The shells that completion supports."""

SHELLS = ("bash", "zsh", "fish")
