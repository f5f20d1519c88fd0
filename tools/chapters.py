"""Which chapter a file belongs to, as the comments in CMakeLists.txt say.

There, a line `# 05` opens chapter 5; the modules under it are introduced in it. A header that is
no module of its own, or comes chapters before its .cpp, is named on that line: `# 03 and ops.h`.
"""

import re
from pathlib import Path

SECTION = re.compile(r"# (\d\d)\b(.*)")
COMMAND = re.compile(r"qwen_(module|chapter|tool|test)\((\w+)")


class Chapters:
    """modules, headers (those named beside a chapter) and programs: name -> chapter."""

    def __init__(self, root):
        self.modules, self.headers, self.programs = {}, {}, {}
        chapter = 0
        for line in (Path(root) / "CMakeLists.txt").read_text().splitlines():
            if section := SECTION.match(line):
                chapter = int(section[1])
                for header in re.findall(r"\w+\.h\b", section[2]):
                    self.headers[header] = chapter
            elif command := COMMAND.match(line):
                kind, name = command.groups()
                if kind == "module":
                    self.modules[name] = chapter
                elif kind == "chapter":
                    self.programs[name] = int(re.match(r"ch(\d\d)_", name)[1])

    def of_file(self, path):
        """Chapter of a path relative to the repository, or None if it belongs to none. Raises
        KeyError for a file in qwen/ that no line of CMakeLists.txt accounts for."""
        path = Path(path)
        folder = path.parts[0]
        if folder == "qwen":
            if path.name in self.headers:
                return self.headers[path.name]
            return self.modules[path.stem.removesuffix("_fast")]
        if folder == "tests" and path.suffix == ".cpp":
            return self.modules.get(path.stem.removeprefix("test_"))
        return self.programs.get(path.stem)
