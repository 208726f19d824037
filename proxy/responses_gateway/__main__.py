"""The program `responses-gateway`, which is also `python -m responses_gateway`."""

import signal


def main() -> int:
    """Run the command line. Ctrl-C while its modules are imported ends the process at once, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from responses_gateway.cli import main as run  # noqa: PLC0415  (what takes time)

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
