"""`python -m texpr` is `texpr`."""

try:
    from texpr.entry import main
except KeyboardInterrupt:
    raise SystemExit(130) from None

if __name__ == "__main__":
    main()
