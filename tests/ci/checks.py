"""What the Python scripts of this folder share: checks that are counted, and the line that they end with."""

passed = failed = 0


def check(holds, what, detail=""):
    """Counts a check; says what failed, with its details, if it does not hold.  Returns whether it holds."""
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print("failed: %s%s" % (what, "\n" + detail if detail else ""))
    return bool(holds)


def summary():
    """Prints "N passed, N failed"; returns the exit status."""
    print("%d passed, %d failed" % (passed, failed))
    return int(failed != 0)
