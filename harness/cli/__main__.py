"""`python -m harness.cli` is the same as `bench`."""

from harness.cli.app import main

if __name__ == "__main__":
    main()
