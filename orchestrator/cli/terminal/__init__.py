"""The terminal: streams, console, colours, questions, signals. It knows no command."""
