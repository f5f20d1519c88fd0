"""tools/run: what it does before it builds, with stand-ins for the programs it calls."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class BeforeTheBuild(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tools").mkdir()
        for name in ["tools/run", "tools/common.sh", "CMakeLists.txt"]:
            shutil.copy(ROOT / name, self.root / name)
        self.calls = self.root / "calls"
        self.stand_in("apt-get", f'echo "$*" >>{self.calls}')
        self.stand_in("sudo", '[ "$1" != -n ] || shift; exec "$@"')
        self.stand_in("dpkg-query", "echo installed")
        self.stand_in("cmake", "echo cmake version 3.25.1")

    def stand_in(self, name, script):
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run_tool(self, **environment):
        """Its status, and what it says; nothing of it goes to stdout."""
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run([self.root / "tools/run", "ch01_weights"], check=False,
                              env={**os.environ, "PATH": path, **environment},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(done.stdout, "")
        return done.returncode, done.stderr

    def installed(self):
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line.split("--no-install-recommends ")[1] for line in lines if "install" in line]

    def test_what_is_no_compilers_name_never_reaches_apt(self):
        # apt-get removes what "-" follows.
        for name in ["g++-", "clang++-", "g++-13-", "g++-13+", "--purge", "-o", "g++-*", "libc6",
                     "/no/such/clang++", "clang++-19/", "no-such-compiler"]:
            self.assertEqual(self.run_tool(CXX=name),
                             (1, f"tools/run: CXX={name}: no such compiler\n"))
            self.assertEqual(self.installed(), [])

    def test_a_compiler_is_installed_by_its_package(self):
        for name, package in {"g++-98": "g++-98", "clang++-98 -O0": "clang-98"}.items():
            status, said = self.run_tool(CXX=name)
            self.assertEqual(self.installed().pop(), package)
            self.assertEqual((status, said.splitlines()), (1, [
                f"tools/run: installing with apt-get: {package}",
                f"tools/run: CXX={name}: no such compiler"]))

    def test_an_old_cmake_is_told_which_is_needed(self):
        for version in ["2.8.12", "3.9.6", "3.22.1"]:
            self.stand_in("cmake", f"echo cmake version {version}")
            status, said = self.run_tool()
            self.assertEqual(status, 1)
            self.assertRegex(said, rf"\Atools/run: cmake {version} is too old, 3.25 is needed; .*\n\Z")
        for version in ["3.25.0", "3.100.1", "4.0.2-rc1"]:
            self.stand_in("cmake", f'[ "$1" = --version ] || exit 1; echo cmake version {version}')
            self.assertRegex(self.run_tool()[1], "configuring build")


class Configuring(unittest.TestCase):
    def test_sentencepiece_is_found_whatever_pkg_config_says(self):
        # Ubuntu 24.04 and Debian 13 describe it by a library that their package does not ask for.
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "sentencepiece.pc").write_text(
                "Name: sentencepiece\nDescription: x\nVersion: 0.2.0\nLibs: -lsentencepiece\n"
                "Requires.private: no-such-library\n")
            generator = ["-G", "Ninja"] if shutil.which("ninja") else []
            done = subprocess.run(["cmake", "-S", ROOT, "-B", f"{folder}/build", "-DQWEN_ARCH=",
                                   *generator],
                                  env={**os.environ, "PKG_CONFIG_PATH": folder},
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
