"""The command `oncewire`: finds its sub-commands by the entry-point group `oncewire.commands`."""
