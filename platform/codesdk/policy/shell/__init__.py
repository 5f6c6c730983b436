"""Reading shell commands for policy: two views of one line, patterns over them, and options that no `...` may carry."""
