#!/usr/bin/env python3
"""Does the checker see what is wrong?  Runs it on a stand-in for raia with one fault at a time."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


def check(fault, *match):
    """The checker's exit code and output over the few tests whose names match."""
    more = [part for text in match for part in ("--match", text)]
    command = [sys.executable, HERE / "compare.py", HERE / "fake_raia.py", *more]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "FAKE_FAULT": fault})
    return done.returncode, done.stdout + done.stderr


class Compare(unittest.TestCase):
    def test_a_right_program_passes_each_quick_test(self):
        code, text = check("")
        self.assertEqual(code, 0, text)
        plan = int(text.split("\n")[0].removeprefix("1.."))
        self.assertEqual(len([line for line in text.split("\n") if line.startswith("ok ")]), plan)
        self.assertNotIn("SKIP", text)

    def test_each_fault_is_seen_and_named(self):
        said = {
            "loss": "loss step 2", "grad_norm": "grad_norm step 2", "norm": "norms model.",
            "delta": "delta_norms model.", "name": "tensors missing", "hole": "a hole", "lr": "lr differs",
            "nan": "no JSON", "garbage": "is no JSON object", "short": "steps reported",
            "status": "the end event says", "exit": "exit code 1",
        }
        for fault, words in said.items():
            with self.subTest(fault):
                code, text = check(fault, "llama3 f32 W=2")
                self.assertEqual(code, 1, text)
                self.assertIn("not ok 1", text)
                self.assertIn(words, text)

    def test_low_precision_further_off_than_torch_fails_alone_and_on_the_whole(self):
        code, text = check("far", "mixed")
        self.assertEqual(code, 1, text)
        self.assertIn("not ok 1 ", text)
        self.assertRegex(text, r"not ok \d+ - mixed, all runs: loss")

    def test_more_ranks_than_samples_must_be_refused(self):
        self.assertEqual(check("", "refused")[0], 0)
        self.assertEqual(check("accepts", "refused")[0], 1)

    def test_runs_that_differ_in_one_bit_are_seen(self):
        code, text = check("bits", "twice", "f32")
        self.assertEqual(code, 1, text)
        self.assertIn("weights differ", text)

    def test_a_program_that_is_not_there_fails(self):
        command = [sys.executable, HERE / "compare.py", HERE / "no-such-raia", "--match", "llama3 f32 W=2"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("can't start", done.stdout)


if __name__ == "__main__":
    unittest.main()
