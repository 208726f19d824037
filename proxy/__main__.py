"""`python -m proxy` is `responses-gateway`."""

from proxy.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
