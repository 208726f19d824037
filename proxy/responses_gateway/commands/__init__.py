"""The subcommands of `responses-gateway`, one file each: `add_arguments(parser)` and `run(args) -> exit code`."""


class Unusable(Exception):
    """A command cannot do its work, for want of a gateway, say, or of a file. The text says what to do about it, which the
    command line prints; `status` is the exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def fits_header(text: str) -> bool:
    """Tell whether a header can have a text, such as a key."""
    return text.isascii() and text.isprintable()


def printable(text: str) -> str:
    """Replace control characters, by which a server could control the terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
