"""A few hundred random calls, in a process of their own: what reads memory that is not its own is seen as a crash of that one."""

import pathlib
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).with_name("random_calls.py")


def test_random_calls_give_what_numpy_gives_or_raise():
    asked = [sys.executable, PROGRAM, "--seed", "1", "--cases", "400", "--seconds", "4"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    gave = int(done.stdout.split("calls: ")[1].split()[0])
    assert gave > 20, done.stdout
