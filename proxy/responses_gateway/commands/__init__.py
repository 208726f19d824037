"""The subcommands of `responses-gateway`, one file each: `add_arguments(parser)` and `run(args) -> exit code`."""
