#!/usr/bin/env python3
"""ch13_batch from outside: files, pipes, Ctrl-C, exit statuses. tests/batch_program.py BUILD_DIR

The model is the small random one: what it says makes no sense, but it is the same every time.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 60


RANDOM = ROOT / "tests/data/checkpoints/tiny"


def command(*arguments, model=RANDOM):
    program = Path(sys.argv[1]).resolve() / "ch13_batch"
    return [str(program), "--model", str(model), "--threads", "1", *arguments]


def environment():
    return {key: value for key, value in os.environ.items() if not key.startswith("QWEN")}


class Run:
    """A run with its output: a JSON object for each line of stdout."""

    def __init__(self, *arguments, prompts="", model=RANDOM):
        done = subprocess.run(command(*arguments, model=model), timeout=SECONDS, input=prompts.encode(),
                              capture_output=True, env=environment(), check=False)
        self.status = done.returncode
        self.out = done.stdout.decode()  # strict: valid UTF-8
        self.remarks = done.stderr.decode()

    def answers(self):
        return [json.loads(line) for line in self.out.splitlines()]


def line(prompt, **fields):
    return json.dumps({"prompt": prompt, **fields}) + "\n"


SAMPLED = {"temperature": 0.9, "top_p": 0.95}


class Batch(unittest.TestCase):
    def test_the_same_bytes_alone_and_together_from_a_file_and_from_stdin(self):
        prompts = "".join(line("abc " * (i % 7 + 1), max_new=i % 11, seed=i, **SAMPLED)
                          for i in range(30))
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write(prompts)
            file.flush()
            runs = [Run(file.name), Run("-", prompts=prompts),
                    Run("--sequences", "1", "--rows", "1", file.name),
                    Run("--sequences", "5", "--rows", "9", "--memory", "0.2", file.name),
                    Run("/dev/stdin", prompts=prompts)]
        for run in runs:
            self.assertEqual(run.status, 0, run.remarks)
            self.assertEqual(run.out, runs[0].out)
        self.assertEqual([answer["line"] for answer in runs[0].answers()], list(range(1, 31)))
        self.assertIn("30 of 30 answered", runs[0].remarks)

    def test_wrong_lines_have_their_errors_and_the_others_their_answers(self):
        prompts = (line("abc", max_new=3) + "nothing\n\n" + line("abc", max_tokens=3) +
                   "[" * 100_000 + "\n" + line("x" * 600) + line("the end", max_new=2))
        run = Run("-", prompts=prompts)
        answers = run.answers()
        self.assertEqual(run.status, 1)
        self.assertEqual([answer["line"] for answer in answers], [1, 2, 4, 5, 6, 7])
        self.assertEqual(["error" in answer for answer in answers],
                         [False, True, True, True, True, False])
        remarks = run.remarks.splitlines()
        for answer in answers[1:5]:
            self.assertTrue(answer["error"].startswith(f"stdin:{answer['line']}: "))
            self.assertIn(answer["error"], remarks)
        self.assertTrue(remarks[-2].startswith("2 of 6 answered, "), remarks)
        self.assertEqual(remarks[-1], "4 of 6 prompts could not be answered")

    def test_a_line_with_penalties_beyond_all_bounds_holds_up_nobody(self):
        prompts = (line("abc", repetition_penalty=1e-40) + line("abc", frequency_penalty=-3e38) +
                   line("abc", max_new=3))
        answers = Run("-", prompts=prompts).answers()
        self.assertIn("repetition_penalty is 1e-40, expected", answers[0]["error"])
        self.assertIn("frequency_penalty is -3e+38, expected", answers[1]["error"])
        self.assertEqual(answers[2]["tokens"], 3)

    def test_answers_end_where_the_tokenizer_says_when_the_config_does_not(self):
        prompts = "".join(line("abc", max_new=300, temperature=9, seed=seed) for seed in range(20))
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            shutil.copytree(RANDOM, model)
            (model / "generation_config.json").unlink()
            config = json.loads((model / "config.json").read_text())
            del config["eos_token_id"]
            (model / "config.json").write_text(json.dumps(config))
            run = Run("-", prompts=prompts, model=model)
        self.assertEqual(run.out, Run("-", prompts=prompts).out)
        self.assertIn("end_token", [answer["ended"] for answer in run.answers()])

    def test_one_that_never_fits_says_what_to_do(self):
        run = Run("--memory", "0.02", "-", prompts=line("a", max_new=2) + line("a" * 200))
        self.assertEqual(run.status, 1)
        self.assertIn("text", run.answers()[0])
        self.assertIn("ask for fewer tokens or allow more memory", run.answers()[1]["error"])

    def test_after_control_c_the_first_lines_are_there_and_whole(self):
        prompts = "".join(line("abc", max_new=200, seed=i, **SAMPLED) for i in range(20_000))
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write(prompts)
            file.flush()
            process = subprocess.Popen(command(file.name), stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=environment())
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, remarks = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"interrupted: the first ", remarks)
        self.assertTrue((first + rest).endswith(b"\n"))
        answers = [json.loads(one) for one in (first + rest).splitlines()]
        self.assertLess(len(answers), 20_000)
        self.assertEqual([answer["line"] for answer in answers], list(range(1, len(answers) + 1)))

    def test_exit_statuses(self):
        self.assertEqual(Run("-", "--rows", "4").status, 2)
        self.assertEqual(Run("-", "--temperature", "-1").status, 2)
        self.assertEqual(Run("-", "--memory", "nan").status, 2)
        self.assertEqual(Run("-", "--speed").status, 2)  # of the demonstration
        self.assertEqual(Run("--max-new", "5").status, 2)  # of a file
        self.assertEqual(Run("-", "--rows", "1,,2").status, 2)
        self.assertEqual(Run("--help").status, 0)
        nowhere = Run("nowhere.jsonl")
        self.assertEqual(nowhere.status, 1)
        self.assertEqual(len(nowhere.remarks.splitlines()), 1)
        self.assertIn("nowhere.jsonl", nowhere.remarks)
        empty = Run("-", prompts="\n \n")
        self.assertEqual((empty.status, empty.out), (0, ""))

    def test_an_input_that_cannot_be_read_is_a_failure(self):
        folder = os.open(ROOT, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        done = subprocess.run(command("-"), stdin=folder, capture_output=True, timeout=SECONDS,
                              env=environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, b"cannot read stdin: Is a directory\n")

    @unittest.skipUnless(Path("/dev/full").exists(), "no /dev/full here")
    def test_an_output_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command("-"), input=line("abc").encode(), stdout=full,
                                  stderr=subprocess.PIPE, env=environment(), timeout=SECONDS,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"the output cannot be written", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
