"""`cse` and `python -m cse_cli`."""

from cse_cli.cli.group import guarded


def main() -> None:
    """Run the command line; leaves by SystemExit with the command's exit code."""
    import sys

    def run() -> None:
        from cse_cli.cli.app import app

        app()

    try:
        code = guarded(run)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    sys.exit(code)


if __name__ == "__main__":
    main()
