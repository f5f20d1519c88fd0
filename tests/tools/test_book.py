"""tools/book: a small repository in a temporary folder, and pages that are right or wrong."""

import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
loader = importlib.machinery.SourceFileLoader("book", str(TOOLS / "book"))
sys.dont_write_bytecode = True
book = importlib.util.module_from_spec(importlib.util.spec_from_loader("book", loader))
loader.exec_module(book)

CMAKE = """\
# 01 and table.h
qwen_module(file)
# 02
qwen_module(late)
qwen_chapter(ch01_file file)
qwen_chapter(ch02_late late)
"""
PROGRAM = """#!/bin/sh
[ "$1" != fail ] || { echo "what went wrong" >&2; exit 1; }
echo "the same everywhere $QWEN_MODEL"
echo "~ 2 threads  12.5 ms on [a CPU]"
echo "~ 4 threads   7.5 ms on [a CPU]"
"""
SECTIONS = "".join(f"## {section}\n" for section in book.SECTIONS)


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, text in {
            "CMakeLists.txt": CMAKE,
            "qwen/file.cpp": "// Nothing.\nvoid nothing() {}\n\nint one = 1;\n",
            "qwen/late.cpp": "int late = 1;\n",
            "build/ch01_file": PROGRAM,
            "build/ch02_late": PROGRAM,
        }.items():
            path = self.root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def process(self, text, update=False, name="ch01_file.md", outputs="all"):
        path = self.root / name
        path.write_text(text + SECTIONS)
        page = book.Page(path, book.Source(self.root, self.root / "build", outputs))
        new = "\n".join(page.process(update)).removesuffix(SECTIONS)
        return new, [f"{line}: {problem}" for line, problem in page.problems]

    def problems(self, text, name="ch01_file.md"):
        new, problems = self.process(text, name=name)
        self.assertEqual(new, text)
        return problems

    def test_code_that_is_the_same_is_fine(self):
        self.assertEqual(self.problems(
            "<!-- code: qwen/file.cpp#nothing -->\n```cpp\n// Nothing.\nvoid nothing() {}\n```\n"), [])

    def test_code_that_differs_is_reported_with_its_line(self):
        self.assertEqual(
            self.problems("<!-- code: qwen/file.cpp#one -->\n```cpp\nint one = 2;\n```\n"),
            ["3: qwen/file.cpp#one: the page has `int one = 2;`, it is `int one = 1;`"])

    def test_missing_files_and_names_are_reported(self):
        self.assertEqual(self.problems("<!-- code: qwen/no.cpp#one -->\n```cpp\n```\n"),
                         ["1: qwen/no.cpp: no such file"])
        self.assertEqual(self.problems("<!-- code: qwen/file.cpp#two -->\n```cpp\n```\n"),
                         ["1: qwen/file.cpp: no definition of two"])

    def test_a_later_chapter_is_out_of_reach(self):
        page = "<!-- code: qwen/late.cpp#late -->\n```cpp\nint late = 1;\n```\n"
        self.assertEqual(self.problems(page),
                         ["1: qwen/late.cpp belongs to chapter 2, this page to chapter 1"])
        self.assertEqual(self.problems(page, name="ch02_late.md"), [])
        self.assertEqual(
            self.problems("<!-- output: ch02_late -->\n```text\n```\n"),
            ["1: chapters/ch02_late.cpp belongs to chapter 2, this page to chapter 1"])

    def test_machine_dependent_lines_are_compared_in_shape(self):
        page = ("<!-- output: ch01_file -->\n```text\nthe same everywhere \n"
                "~ 1 threads 120.25 ms on [another CPU]\n```\n")
        self.assertEqual(self.problems(page), [])
        self.assertEqual(
            self.problems(page.replace("ms on", "s on")),
            ["4: ch01_file: the page has `~ # threads # s on []`, it is `~ # threads # ms on []`"])

    def test_output_that_differs_is_reported_with_its_line(self):
        self.assertEqual(
            self.problems("<!-- output: ch01_file -->\n```text\nthe same\n~ 1 threads 1 ms on []\n```\n"),
            ["3: ch01_file: the page has `the same`, it is `the same everywhere `"])

    def test_output_that_ends_early_is_reported(self):
        self.assertEqual(
            self.problems("<!-- output: ch01_file -->\n```text\nthe same everywhere \n```\n"),
            ["3: ch01_file: the page has nothing, it is `~ # threads # ms on []`"])

    def test_a_program_that_fails_is_reported(self):
        self.assertEqual(self.problems("<!-- output: ch01_file fail -->\n```text\n```\n"),
                         ["1: ch01_file fail: exit status 1: what went wrong"])

    def test_update_writes_blocks_and_leaves_what_is_right(self):
        new, problems = self.process(
            "<!-- code: qwen/file.cpp#one -->\n\nSome text.\n"
            "<!-- output: ch01_file -->\n```text\nold\n```\n", update=True)
        self.assertEqual(problems, [])
        self.assertEqual(
            new, "<!-- code: qwen/file.cpp#one -->\n\n```cpp\nint one = 1;\n```\n\nSome text.\n"
            "<!-- output: ch01_file -->\n```text\nthe same everywhere \n"
            "~ 2 threads  12.5 ms on [a CPU]\n~ 4 threads   7.5 ms on [a CPU]\n```\n")
        self.assertEqual(self.process(new, update=True), (new, []))

    def test_a_measurement_is_shown_once_and_not_repeated(self):
        empty, filled = ("<!-- measured: ch01_file -->\n```text\n```\n",
                         "<!-- measured: ch01_file -->\n```text\nof another day\n```\n")
        self.assertEqual(self.problems(filled), [])
        self.assertEqual(self.process(filled, update=True), (filled, []))
        self.assertEqual(self.problems(empty),
                         ["2: ch01_file: measured, but nothing is shown"])
        new, problems = self.process(empty, update=True)
        self.assertEqual(problems, [])
        self.assertIn("the same everywhere", new)

    def test_long_and_quick_outputs_are_all_of_them(self):
        page = ("<!-- output: ch01_file -->\n```text\nold\n```\n"
                "<!-- output: ch01_file --speed -->\n```text\nold\n```\n")
        quick = "3: ch01_file: the page has `old`, it is `the same everywhere `"
        long = "7: ch01_file --speed: the page has `old`, it is `the same everywhere `"
        for outputs, expected in {"quick": [quick], "long": [long], "all": [quick, long]}.items():
            self.assertEqual(self.process(page, outputs=outputs)[1], expected)

    def test_markers_and_blocks_belong_together(self):
        self.assertEqual(self.problems("<!-- code: qwen/file.cpp#one -->\n"),
                         ["1: no fenced block follows this marker"])
        self.assertEqual(self.problems("```cpp\nint x;\n```\n"),
                         ["1: C++ that nothing checks; put a code marker above it"])
        self.assertEqual(self.problems("<!-- sketch -->\n```cpp\nint x;\n```\n"), [])
        self.assertEqual(self.problems("<!-- code qwen/file.cpp -->\n"),
                         ["1: not a marker of tools/book: <!-- code qwen/file.cpp -->"])

    def test_a_chapter_has_its_sections_in_order(self):
        page = book.Page(self.root / "CMakeLists.txt", None)
        page.chapter, page.lines = 1, SECTIONS.replace("## Shapes\n", "").split("\n")
        page.process(False)
        self.assertIn("no section `## Shapes`", page.problems[0][1])


if __name__ == "__main__":
    unittest.main()
