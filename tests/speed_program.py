#!/usr/bin/env python3
"""ch15_speed from outside: its files, the processes it starts. tests/speed_program.py BUILD_DIR

The model is the small random one, the task a few tokens: what is measured does not matter here.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RANDOM = ROOT / "tests/data/checkpoints/tiny"
SECONDS = 60
TASK = ("--threads", "1", "--prompt", "4", "--steps", "2", "--runs", "0")


def command(*arguments):
    return [str(Path(sys.argv[1]).resolve() / "ch15_speed"), *arguments]


def environment(**more):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("QWEN")}, **more}


def run(*arguments, **more):
    return subprocess.run(command(*arguments), capture_output=True, timeout=SECONDS, check=False,
                          env=environment(**more))


def children_of(process):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True,
                            check=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, parent in pairs if int(parent) == process]


def is_running(process):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True,
                           text=True, check=False).stdout.strip()
    return state != "" and not state.startswith("Z")


class Speed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def comes_true(self, condition):
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            if found := condition():
                return found
            time.sleep(0.02)
        return self.fail("it never came true")

    def test_options_that_would_change_nothing_are_wrong_usage(self):
        file = self.folder / "none.json"
        done = run("--counts", "--model", str(RANDOM), "--json", str(file))
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertFalse(file.exists())

    def test_results_of_an_earlier_run_stay_until_there_are_others(self):
        file = self.folder / "a.json"
        file.write_text("earlier")
        for prompt, report in (("5000", "a.html"), ("4", "no/a.html")):
            done = run("--part", "task", "--model", str(RANDOM), "--threads", "1", "--prompt", prompt,
                       "--steps", "2", "--json", str(file), "--report", str(self.folder / report))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(file.read_text(), "earlier")

    def test_a_model_whose_name_is_no_utf8_is_measured_and_known_again(self):
        model, file = os.path.join(os.fsencode(self.folder), b"a\xffb"), self.folder / "a.json"
        shutil.copytree(os.fsencode(RANDOM), model)
        matrix = ("--part", "matrix", "--model", model, "--dtype", "f32", *TASK, "--json", file)
        for _ in range(2):
            done = run(*matrix)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count(b"process "), 3 if _ == 0 else 0)
        rows = json.loads(file.read_text())["rows"]
        self.assertEqual([row["metric"] for row in rows], ["prefill", "decode"])
        self.assertEqual(rows[0]["model"], "a\ufffdb")
        self.assertEqual(sorted(path.name for path in self.folder.glob("*.json*")), ["a.json"])

    def test_a_process_ends_with_the_matrix_that_has_started_it(self):
        scratch = self.folder / "scratch"
        scratch.mkdir()
        slow = ("--part", "matrix", "--model", str(RANDOM), "--dtype", "f32", "--threads", "1",
                "--prompt", "100", "--steps", "100", "--runs", "10000")
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            with subprocess.Popen(command(*slow), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL,
                                  env=environment(TMPDIR=str(scratch))) as matrix:
                child, = self.comes_true(lambda: children_of(matrix.pid))
                matrix.send_signal(ending)
                matrix.wait(SECONDS)
            self.comes_true(lambda: not is_running(child))
            self.assertEqual(list(scratch.iterdir()), [])

    def test_a_missing_folder_for_temporary_files_is_named(self):
        nowhere = str(self.folder / "none")
        done = run("--part", "matrix", "--model", str(RANDOM), *TASK, TMPDIR=nowhere)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"cannot write to {nowhere}, the folder for temporary files".encode(),
                      done.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
