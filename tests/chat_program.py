#!/usr/bin/env python3
"""ch12_chat from outside: pipes, a terminal, Ctrl-C, exit statuses. tests/chat_program.py BUILD_DIR

The model is the small random one: what it says makes no sense, but it is the same every time.
"""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RANDOM = ROOT / "tests/data/checkpoints/tiny"
SECONDS = 60


def program():
    return str(Path(sys.argv[1]).resolve() / "ch12_chat")


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("QWEN", "HF_"))}
    return {**kept, "HF_HOME": "nowhere", **more}


class Run:
    """A run with its output."""

    def __init__(self, *arguments, lines=(), model=RANDOM):
        done = subprocess.run(
            [program(), "--model", str(model), "--threads", "1", *arguments], timeout=SECONDS,
            input=b"".join(os.fsencode(line) + b"\n" for line in lines), capture_output=True,
            env=environment(), check=False)
        self.status = done.returncode
        self.out = done.stdout.decode()  # strict: valid UTF-8
        self.remarks = done.stderr.decode()


class Chat(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def with_context(self, tokens):
        """The random model with another context."""
        model = self.folder / f"context{tokens}"
        shutil.copytree(RANDOM, model)
        config = json.loads((model / "config.json").read_text())
        config["max_position_embeddings"] = tokens
        (model / "config.json").write_text(json.dumps(config))
        return model

    def write(self, name, value):
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)

    def test_prints_the_answer_alone(self):
        run = Run("--prompt", "Hello", "--greedy", "--max-new", "20")
        self.assertEqual(run.status, 0)
        self.assertTrue(run.out.endswith("\n"))
        self.assertEqual(run.out, Run("--prompt", "Hello", "--greedy", "--max-new", "20").out)
        self.assertNotIn(run.out.strip(), run.remarks)
        piped = Run("--greedy", "--max-new", "20", lines=["Hello"])
        self.assertEqual(piped.out, run.out)

    def test_every_limit_leaves_valid_text(self):
        for limit in range(1, 25):
            run = Run("--prompt", "🙂 é", "--seed", str(limit), "--temperature", "3", "--max-new",
                      str(limit))
            self.assertEqual(run.status, 0, run.remarks)

    def test_print_prompt(self):
        run = Run("--prompt", "<|im_end|>", "--print-prompt", "--no-think")
        self.assertEqual(run.status, 0)
        prompt = json.loads(run.out)
        self.assertEqual(prompt["text"], "<|im_start|>user\n<|im_end|><|im_end|>\n"
                                         "<|im_start|>assistant\n<think>\n\n</think>\n\n")
        self.assertEqual(prompt["ids"].count(1), 1)  # the id of <|im_end|>
        messages = self.write("m.json", [{"role": "user", "content": "<|im_end|>"}])
        self.assertEqual(Run("--messages", messages, "--print-prompt").out, run.out)
        thinking = Run("--prompt", "a", "--print-prompt", "--think")
        self.assertTrue(json.loads(thinking.out)["text"].endswith("assistant\n<think>\n"))

    def test_wrong_usage_is_2(self):
        for arguments in (["--print-prompt"], ["--temperature", "nan", "--prompt", "a"], ["--what"],
                          ["--think", "--no-think"], ["--max-new", "-1"], ["--messages", ""]):
            run = Run(*arguments)
            self.assertEqual(run.status, 2, arguments)
            self.assertEqual(run.out, "")
            self.assertEqual(run.remarks.count("\n"), 1)

    def test_failures_are_1_and_one_line(self):
        nested = self.write("nested.json", "[" * 100_000 + "]" * 100_000)
        image = self.write("image.json", [{"role": "user", "content": [{"type": "image"}]}])
        empty = self.write("empty.json", [])
        for path, part in ((nested, "nested more than 100 deep"), (image, "not supported"),
                           (empty, "there are no messages"), ("none.json", "none.json")):
            run = Run("--messages", path, "--print-prompt")
            self.assertEqual(run.status, 1, path)
            self.assertIn(part, run.remarks)
            self.assertEqual(run.remarks.count("\n"), 1, run.remarks)
        run = Run(lines=["/load none.json", "Hello"])
        self.assertEqual(run.status, 1)
        unanswerable = self.write("begun.json", [{"role": "assistant", "content": "b"}])
        run = Run("--messages", unanswerable)
        self.assertEqual(run.status, 1)
        self.assertEqual(run.remarks, "[chat template] no message of a user that asks something\n")

    def test_thinking_is_refused_where_the_template_knows_none(self):
        model = self.with_context(512)
        (model / "chat_template.jinja").write_text("another")
        run = Run("--think", "--prompt", "a", model=model)
        self.assertEqual(run.status, 1)
        self.assertTrue(run.remarks.endswith("--think: this model's chat template knows no thinking\n"))

    def test_lines_that_cannot_be_done_are_a_failure_and_hold_up_nobody(self):
        run = Run("--max-new", "1", lines=["/nothing", "/SAVE x", "Hello"])
        self.assertEqual(run.status, 1)
        self.assertEqual(run.remarks.splitlines(),
                         ['there is no command "/nothing"; /help lists them',
                          'there is no command "/SAVE"; /help lists them',
                          "stopped after 1 token (--max-new)", "2 lines could not be done"])
        self.assertEqual(run.out, Run("--max-new", "1", "--prompt", "Hello").out)

    def test_a_path_is_a_message(self):
        text = "/etc/hosts what is it?"
        run = Run("--max-new", "9", lines=[text])
        self.assertEqual((run.status, run.out), (0, Run("--max-new", "9", "--prompt", text).out))

    @unittest.skipUnless(Path("/dev/full").exists(), "no /dev/full here")
    def test_an_output_that_cannot_be_written_is_a_failure(self):
        for arguments in (["--help"], ["--prompt", "a", "--print-prompt"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([program(), "--model", str(RANDOM), *arguments], stdout=full,
                                      stderr=subprocess.PIPE, timeout=SECONDS, check=False,
                                      env=environment())
            self.assertEqual(done.returncode, 1, arguments)
            self.assertEqual(done.stderr, b"the output cannot be written\n")

    def test_an_input_that_cannot_be_read_is_a_failure(self):
        folder = os.open(ROOT, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        done = subprocess.run([program(), "--model", str(RANDOM), "--threads", "1"], stdin=folder,
                              capture_output=True, timeout=SECONDS, env=environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, b"stdin cannot be read\n")

    def test_a_model_that_is_cut_while_it_is_used_ends_the_program_with_a_line(self):
        model = self.folder / "cut"
        shutil.copytree(RANDOM, model)
        weights = model / "model.safetensors"
        with subprocess.Popen(
                [program(), "--model", str(model), "--threads", "1", "--greedy", "--max-new", "4"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment()) as chat:
            chat.stdin.write(b"Hello\n")
            chat.stdin.flush()
            self.assertNotEqual(chat.stdout.read(1), b"")
            os.truncate(weights, 0)
            remarks = chat.communicate(b"Hello\n" * 3, timeout=SECONDS)[1].decode()
        self.assertEqual(chat.returncode, 1)
        self.assertEqual(remarks.splitlines()[-1],
                         f"cannot read {weights}: it became shorter while it was in use")

    def test_a_full_context_ends_the_answer_and_not_the_program(self):
        model = self.with_context(100)
        run = Run("--prompt", "Hello", "--max-new", "500", "--loop-stop", "0", "--seed", "3",
                  "--temperature", "2", "--stats", model=model)
        self.assertEqual(run.status, 0)
        self.assertIn("the context of 100 tokens is full", run.remarks)
        lines = ["x" * 70, "y" * 70, "/reset", "Hello"]
        run = Run("--greedy", "--max-new", "500", lines=lines, model=model)
        self.assertEqual(run.status, 1)
        self.assertIn("the model's context is 100: say less, or /reset", run.remarks)
        self.assertTrue(run.remarks.endswith("\n2 lines could not be done\n"), run.remarks)
        self.assertTrue(run.out.endswith(
            Run("--greedy", "--max-new", "500", lines=["Hello"], model=model).out))

    def test_saved_loaded_by_a_new_process_and_continued(self):
        file = str(self.folder / "chat.json")
        settings = ["--temperature", "1", "--top-k", "40", "--seed", "9", "--max-new", "30"]
        whole = Run(*settings, lines=["Hello", "Who?", f"/save {file}", "And now?"])
        again = Run("--greedy", "--max-new", "30", lines=[f"/load {file}", "And now?"])
        self.assertEqual((whole.status, again.status), (0, 0), whole.remarks + again.remarks)
        tail = whole.out.partition(f"saved to {file}\n")[2]
        self.assertTrue(tail)
        self.assertEqual(again.out, "4 messages\n" + tail)

    def test_a_begun_answer_is_continued(self):
        messages = self.write("m.json", [{"role": "user", "content": "a"},
                                         {"role": "assistant", "content": "One,"}])
        run = Run("--messages", messages, "--greedy", "--max-new", "8")
        self.assertEqual(run.status, 0)
        self.assertIn("it is continued\n", run.remarks)
        for more in ([], ["--print-prompt"]):
            run = Run("--messages", messages, "--think", "--max-new", "8", *more)
            self.assertIn("it is continued, and --think changes nothing\n", run.remarks)

    def test_messages_come_from_a_pipe_or_stdin_as_from_a_file(self):
        messages = [{"role": "user", "content": "a"}]
        expected = Run("--messages", self.write("m.json", messages), "--max-new", "8").out
        for name in ("-", "/dev/stdin"):
            run = Run("--messages", name, "--max-new", "8", lines=[json.dumps(messages)])
            self.assertEqual((run.status, run.out), (0, expected), run.remarks)
        run = Run("--messages", "-", lines=["{", "}}"])
        self.assertEqual(run.remarks, "stdin: not valid JSON, see line 2 (byte 4)\n")

    def test_a_name_that_is_not_utf8_is_given_back_as_it_came(self):
        file = os.fsencode(self.folder) + b"/\xff.json"
        done = subprocess.run([program(), "--model", str(RANDOM)], input=b"/save " + file + b"\n",
                              capture_output=True, timeout=SECONDS, env=environment(), check=False)
        self.assertEqual((done.returncode, done.stdout), (0, b"saved to " + file + b"\n"))
        self.assertTrue(os.path.exists(file))

    def endless(self):
        return [program(), "--model", str(self.with_context(100_000)), "--threads", "1",
                "--temperature", "1", "--loop-stop", "0", "--max-new", "90000", "--seed", "1"]

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        running = subprocess.Popen(self.endless(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        for _ in range(8):  # a short answer may end by itself
            running.stdin.write(b"Hello\n")
            running.stdin.flush()
            self.assertTrue(select.select([running.stdout], [], [], SECONDS)[0])
            os.read(running.stdout.fileno(), 1)
            running.send_signal(signal.SIGINT)
            time.sleep(0.2)
        out, remarks = running.communicate(b"/stats\n", timeout=SECONDS)
        self.assertEqual(running.returncode, 0, remarks)
        self.assertIn(b"stopped\n", remarks)
        self.assertIn(b"of 100000; memory", out)

    def test_a_cpu_without_an_instruction_is_one_line(self):
        running = subprocess.Popen([program(), "--model", str(RANDOM), "--threads", "1"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        running.stdin.write(b"/help\n")
        running.stdin.flush()
        self.assertTrue(running.stdout.readline())
        running.send_signal(signal.SIGILL)
        _, remarks = running.communicate(timeout=SECONDS)
        self.assertEqual(running.returncode, 1)
        self.assertRegex(remarks, rb"\Athis program was built for another CPU: .*\n\Z")
    def test_ctrl_c_without_a_conversation_ends_the_program(self):
        running = subprocess.Popen([*self.endless(), "--prompt", "Hello", "--prompt", "Hello"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment())
        self.assertTrue(select.select([running.stdout], [], [], SECONDS)[0])
        running.send_signal(signal.SIGINT)
        out, remarks = running.communicate(timeout=SECONDS)
        self.assertEqual(running.returncode, 1)
        self.assertTrue(remarks.endswith(b"interrupted: the answer is not complete\n"), remarks)
        self.assertTrue(out.endswith(b"\n"))

    def test_a_terminal_is_left_as_it_was_by_signals(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            terminal, end = pty.openpty()
            before = termios.tcgetattr(end)
            running = subprocess.Popen([program(), "--model", str(RANDOM), "--threads", "1"],
                                       stdin=end, stdout=end, stderr=end,
                                       env=environment(TERM="vt100"))
            shown = b""
            while b"> " not in shown:
                self.assertTrue(select.select([terminal], [], [], SECONDS)[0], shown)
                shown += os.read(terminal, 4096)
            running.send_signal(number)
            self.assertEqual(running.wait(timeout=SECONDS), -number)
            self.assertEqual(termios.tcgetattr(end), before)
            os.close(terminal)
            os.close(end)

    def test_on_a_terminal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.clear()
            os.environ.update(environment(TERM="vt100", LC_ALL="C"))
            os.execv(program(), [program(), "--model", str(RANDOM), "--threads", "1", "--greedy",
                                 "--max-new", "5"])
        shown = b""

        def wait_for(what):
            nonlocal shown
            until = time.monotonic() + SECONDS
            while what not in shown:
                self.assertLess(time.monotonic(), until, shown)
                if select.select([terminal], [], [], 0.1)[0]:
                    shown += os.read(terminal, 4096)
            at = shown.index(what) + len(what)
            seen, shown = shown[:at], shown[at:]
            return seen

        wait_for(b"> ")
        os.write(terminal, b"not this\x03")  # Ctrl-C gives the line up
        wait_for(b"> ")
        os.write(terminal, b"/stats\n")
        wait_for(b"nothing has been answered yet")
        wait_for(b"> ")
        os.write(terminal, "Hello 🙂 é\n".encode())
        wait_for(b"stopped after 5 tokens")
        wait_for(b"> ")
        os.write(terminal, f"/save {self.folder}/chat.json\n".encode())
        wait_for(b"saved to")
        saved = json.loads((self.folder / "chat.json").read_text())
        self.assertEqual(saved["messages"][0]["content"], "Hello 🙂 é")
        time.sleep(0.5)  # the threads fall asleep
        used = self.cpu(pid)
        time.sleep(1)
        self.assertLessEqual(self.cpu(pid) - used, 0.02)
        os.write(terminal, b"\x04")  # Ctrl-D
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        os.close(terminal)

    @staticmethod
    def cpu(pid):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists():
            return 0.0
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_takes_what_the_hub_has_and_says_so(self):
        snapshot = self.folder / "hub/models--Qwen--Qwen3.5-0.8B/snapshots/abc"
        shutil.copytree(RANDOM, snapshot)

        def remarks(**more):
            done = subprocess.run([program(), "--prompt", "a", "--print-prompt"], check=True,
                                  capture_output=True, env=environment(**more))
            return done.stderr.decode()

        self.assertIn(f"model: {snapshot}\n", remarks(HF_HOME=str(self.folder)))
        self.assertIn("model: ", remarks())
        self.assertNotIn("model: ", remarks(HF_HOME=str(self.folder), QWEN_MODEL=str(RANDOM)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
