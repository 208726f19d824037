"""The subcommands of `responses-proxy`, one file each: `add_arguments(parser)` and `run(args) -> exit code`."""
