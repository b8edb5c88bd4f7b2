"""`python -m texpr` is `texpr`."""

from texpr.cli import main

if __name__ == "__main__":
    main()
