"""tools/check_platforms: what becomes of a part that cannot be tried, or fails."""

import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

TOOLS = Path(__file__).resolve().parents[2] / "tools"
loader = importlib.machinery.SourceFileLoader("check_platforms", str(TOOLS / "check_platforms"))
sys.dont_write_bytecode = True
platforms = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("check_platforms", loader))
sys.modules["check_platforms"] = platforms
loader.exec_module(platforms)


class Results(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        change = mock.patch.multiple(platforms, ROOT=Path(folder.name), FOLDER=Path(folder.name))
        change.start()
        self.addCleanup(change.stop)
        self.system = platforms.System("debian13", "Debian 13", "trixie", "no.gpg", [])

    def how(self, part):
        with mock.patch.object(platforms, "say"):
            return [r.how for r in platforms.results_of(part, {"debian13": self.system})]

    def test_what_cannot_be_had_is_not_tried(self):
        self.assertEqual(self.how("debian13"), ["not tried"])
        self.assertFalse(self.system.path.exists())

    def test_a_command_that_fails_is_named_by_its_first_error(self):
        def run(script, title=None):
            return self.system.call(["sh", "-c", "echo a.cpp:1: error: no; echo 1 error; exit 1"],
                                    platforms.Failed)

        with mock.patch.multiple(self.system, run=run, make=lambda: None):
            self.assertEqual(self.how("debian13"), ["FAILED"])
            with self.assertRaisesRegex(platforms.Failed, r"\Aa.cpp:1: error: no \(debian13.log\)"):
                self.system.run("")

    def test_the_table_names_every_part(self):
        latest = {"macos": [{"system": "macOS", "tools": "clang", "what": "x", "how": "run"}]}
        rows = platforms.table(latest).splitlines()
        self.assertEqual(len(rows), 2 + len(platforms.PARTS))
        self.assertIn("| macOS | clang | x | run |", rows)
        self.assertEqual(sum(row.endswith("| not tried |") for row in rows),
                         len(platforms.PARTS) - 1)


if __name__ == "__main__":
    unittest.main()
