"""tap: what test scripts share. Standard library only.

A script calls ok(name, condition, note) for each thing it proves, skip(name, why) for what cannot be tried here, and
ends with done(). Cases that may raise go through case(name): the exception becomes `not ok`.
"""
import contextlib
import sys
import traceback

_count = 0
_failed = 0


def ok(name, condition, note=""):
    global _count, _failed
    _count += 1
    _failed += not condition
    print(f"{'ok' if condition else 'not ok'} {_count} - {name}", flush=True)
    if not condition and note != "":
        for line in str(note).splitlines()[-40:]:
            print(f"# {line}", flush=True)
    return bool(condition)


def skip(name, why):
    global _count
    _count += 1
    print(f"ok {_count} - {name} # SKIP {why}", flush=True)


@contextlib.contextmanager
def case(name):
    """One test: passes when the block ends, fails when it raises."""
    try:
        yield
    except Exception:  # every failure of a case is a result, not an end of the script
        ok(name, False, traceback.format_exc())
    else:
        ok(name, True)


def done():
    print(f"1..{_count}", flush=True)
    sys.exit(1 if _failed else 0)
