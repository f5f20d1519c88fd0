"""tools/compare_peers.py without the peers: who follows whom, what counts as agreeing, the table."""

import json
import stat
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    import numpy  # noqa: F401
    import compare_peers
    from peer_worker import choice, follow, time_task, write
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"the Python package {error.name} is missing") from error

DATA = TOOLS.parent / "tests/data"


def options(*arguments):
    return compare_peers.options_of(["--model", str(DATA / "checkpoints/tiny"), *arguments])


class CountingPeer:
    """Its next token is the last one it read plus one; it keeps what it read."""

    def __init__(self, size=10):
        self.size, self.resets, self.seen = size, 0, []

    def reset(self):
        self.resets += 1

    def read(self, ids):
        self.seen.append(list(ids))
        logits = numpy.zeros(self.size)
        logits[(ids[-1] + 1) % self.size] = 4
        logits[0] += 1
        return logits

    def best(self, logits):
        return int(logits.argmax())

    def floats(self, logits):
        return logits


class Worker(unittest.TestCase):
    def test_greedy_tokens_are_fed_back(self):
        peer = CountingPeer()
        self.assertEqual(write(peer, {"prompt": [5, 1], "steps": 3}), [2, 3, 4])
        self.assertEqual(peer.seen, [[5, 1], [2], [3]])

    def test_following_reads_the_expected_tokens_not_the_own(self):
        peer = CountingPeer()
        choices = follow(peer, {"prompt": [1], "tokens": [2, 7, 8]})
        self.assertEqual(peer.seen, [[1], [2], [7]])
        self.assertEqual([token for token, _ in choices], [2, 3, 8])
        self.assertEqual([margin for _, margin in choices], [0, 1, 0])  # 4 - 0, of 4

    def test_a_margin_is_a_share_of_the_largest_logit(self):
        self.assertEqual(choice(numpy.array([1.0, -8.0, 3.0]), 0), [2, 0.25])

    def test_every_run_starts_anew_and_all_are_reported(self):
        peer = CountingPeer()
        times = time_task(peer, {"prompt": [1, 2], "steps": 5, "runs": 3})
        self.assertEqual(peer.resets, 4)
        self.assertEqual([len(times["prefill"]), len(times["decode"])], [4, 4])
        self.assertEqual(len(peer.seen), 4 * 6)


class Agreement(unittest.TestCase):
    def test_differences_count_with_their_largest_margin(self):
        found = compare_peers.agreement([[2, 0.0], [3, 0.01], [5, 0.002]], [2, 4, 6])
        self.assertEqual(found, {"same": 1, "of": 3, "margin": 0.01})

    def test_only_a_large_margin_fails(self):
        small = {"peer": "a", "dtype": "f32", "same": 1, "of": 2, "margin": 1e-4}
        large = {"peer": "b", "dtype": "f32", "same": 1, "of": 2, "margin": 1e-2}
        bf16 = large | {"dtype": "bf16"}
        self.assertEqual(compare_peers.disagreements([small, large, bf16]), [large])
        text = compare_peers.agreement_text("transformers", [small])
        self.assertIn("1 of 2, others ahead by at most 1.0e-04 of the largest logit, 0.001 is", text)

    def test_a_peer_that_disagrees_ends_it_before_anything_is_timed(self):
        peers = mock.Mock()
        peers.return_value.worker.return_value = [1, 2]
        peers.return_value.choices.return_value = [[1, 0.0], [7, 0.5]]
        with mock.patch.object(compare_peers, "Peers", peers), mock.patch("builtins.print"):
            with self.assertRaisesRegex(compare_peers.Failure, "ours in f32 prefers another token"):
                compare_peers.compare(options("--check", "2"))
        peers.return_value.times.assert_not_called()


class Timing(unittest.TestCase):
    def test_every_configuration_runs_in_three_processes_between_the_others(self):
        all_jobs = list(compare_peers.jobs(options("--threads", "1,2")))
        self.assertEqual(len(all_jobs), 3 * 3 * 2 * 2)
        orders = set()
        for process in range(3):
            turn = all_jobs[12 * process:12 * process + 12]
            self.assertEqual(len(set(turn)), 12)
            self.assertEqual({p for _, p in turn}, {process})
            orders.add(tuple(configuration for configuration, _ in turn))
        self.assertEqual(len(orders), 3)

    def test_run_0_is_apart(self):
        processes = [{"decode": [9.0, 2.0, 4.0]}, {"decode": [7.0, 3.0]}, {"decode": [8.0]}]
        row = compare_peers.row(("ours", "f32", 2), "decode", processes, 12)
        self.assertEqual((row["value"], row["min"], row["median"], row["first"], row["runs"]),
                         (4, 2000, 3000, 8000, 3))

    def test_rows_of_the_speed_program_are_read(self):
        rows = [{"metric": "bandwidth", "times": [[1.0]]},
                {"metric": "decode", "times": [[3000.0, 1500.0]]},
                {"metric": "prefill", "times": [[500.0, 250.0]]}]
        self.assertEqual(compare_peers.times_of_rows(rows),
                         {"decode": [3.0, 1.5], "prefill": [0.5, 0.25]})

    def test_the_table_has_each_peers_best_team_and_our_ratio(self):
        found = {("ours", "f32", 2): [{"prefill": [9, 1.0], "decode": [9, 2.0]}],
                 ("llama.cpp", "f32", 1): [{"prefill": [9, 1.5], "decode": [9, 9.0]}],
                 ("llama.cpp", "f32", 2): [{"prefill": [9, 2.0], "decode": [9, 5.0]}]}
        chosen = options("--peers", "ours,llama.cpp", "--dtypes", "f32", "--prompt", "30",
                         "--steps", "20")
        text = compare_peers.table(compare_peers.rows(found, chosen), chosen).splitlines()
        self.assertEqual(text[1].split(), ["f32", "prefill", "30.0", "(2)", "20.0", "(1)", "1.50"])
        self.assertEqual(text[2].split(), ["f32", "decode", "10.0", "(2)", "4.0", "(2)", "2.50"])

    def test_what_an_interruption_left_out_is_a_dash(self):
        chosen = options("--dtypes", "f32")
        found = {("ours", "f32", 2): [{"prefill": [9, 1.0], "decode": [9, 2.0]}]}
        text = compare_peers.table(compare_peers.rows(found, chosen), chosen).splitlines()
        self.assertEqual(text[1].split()[2:], ["203.0", "(2)", "-", "-", "-", "-"])

    def test_ctrl_c_keeps_what_is_finished(self):
        peers = mock.Mock()
        peers.times.side_effect = [{"prefill": [1], "decode": [1]}, KeyboardInterrupt]
        with mock.patch.object(compare_peers, "note"):
            found = compare_peers.measure(peers, options())
        self.assertEqual(sum(map(len, found.values())), 1)

    def test_ids_are_those_of_the_speed_program(self):
        self.assertEqual(compare_peers.sample_ids(248320, 3), [153470, 58620, 212090])


class Failures(unittest.TestCase):
    def test_a_program_that_fails_is_named_with_its_last_line(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "logits"
            program.write_text("#!/bin/sh\necho first >&2\necho the reason >&2\nexit 1\n")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            with self.assertRaisesRegex(compare_peers.Failure, "logits --model: the reason"):
                compare_peers.output_of([str(program), "--model"])

    def test_a_model_that_is_no_folder_is_refused(self):
        with self.assertRaisesRegex(compare_peers.Failure, "no config.json there"):
            compare_peers.options_of(["--model", "no/such/folder"])

    def test_without_a_peer_there_is_no_reference(self):
        with self.assertRaisesRegex(compare_peers.Failure, "whose tokens the others follow"):
            compare_peers.check_agreement(None, options("--peers", "ours"))


class Gguf(unittest.TestCase):
    def test_a_checkpoint_is_rewritten_once_without_its_mtp_layer(self):
        try:
            import gguf
            import torch  # noqa: F401
        except ModuleNotFoundError as error:
            self.skipTest(f"the Python package {error.name} is missing")
        with tempfile.TemporaryDirectory() as folder:
            model = DATA / "checkpoints/untied"
            path = compare_peers.gguf_of(model, "bf16", Path(folder))
            tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
            self.assertEqual(tensors["token_embd.weight"].tensor_type.name, "BF16")
            self.assertEqual(tensors["blk.0.attn_norm.weight"].tensor_type.name, "F32")
            self.assertFalse([name for name in tensors if "nextn" in name])
            written = path.stat().st_mtime_ns
            self.assertEqual(compare_peers.gguf_of(model, "bf16", Path(folder)), path)
            self.assertEqual(path.stat().st_mtime_ns, written)


if __name__ == "__main__":
    unittest.main()
