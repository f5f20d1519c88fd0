"""tools/definitions.py: definitions are found by name, with the comment above them."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from definitions import NotFound, find  # noqa: E402

TEXT = r'''
#include "x.h"

namespace book {
namespace {

// Not part of the comment below.

// How many. "}" and '{' in a comment do not count.
constexpr int kCount = 1'000;  // a brace: }
                               // and another line
const char* const kBraces = "}{" R"(}")" "\"}";

enum class Kind { plain, fast };

}  // namespace

struct Table {
  // Adds one.
  std::function<int(int, int)> add;

  int a, b = 2;  // two
  Table(int x) : a{x}, b(x) {}
  bool operator<(const Table& other) const { return a < other.a; }
};

int twice(int x);

namespace plain {
/* Twice
   as much. */
template <class T = std::vector<int>>
int twice(int x) {
  if (x > 0) { return '}'; }
  return 2 * x;
}
}  // namespace plain

namespace fast {
int twice(int x) { return x + x; }
}  // namespace fast

Table::Table(int x) : a{x}, b{x} { a = 1; }

using Row = std::array<float, 4>;
typedef float Vec __attribute__((vector_size(16)));
bool operator==(const Table&, const Table&) = default;

TEST_CASE("twice: of two is four") { CHECK(twice(2) == 4); }

}  // namespace book
'''


class Find(unittest.TestCase):
    def test_a_constant_comes_with_the_comments_above_and_beside_it(self):
        self.assertEqual(find(TEXT, "kCount"), """\
// How many. "}" and '{' in a comment do not count.
constexpr int kCount = 1'000;  // a brace: }
                               // and another line""")

    def test_brackets_in_strings_do_not_count(self):
        self.assertEqual(find(TEXT, "kBraces"),
                         r'''const char* const kBraces = "}{" R"(}")" "\"}";''')

    def test_a_function_by_its_namespace(self):
        self.assertEqual(find(TEXT, "plain::twice"), """\
/* Twice
   as much. */
template <class T = std::vector<int>>
int twice(int x) {
  if (x > 0) { return '}'; }
  return 2 * x;
}""")
        self.assertEqual(find(TEXT, "fast::twice"), "int twice(int x) { return x + x; }")

    def test_a_name_that_is_defined_twice_is_refused(self):
        with self.assertRaisesRegex(NotFound, "ambiguous: book::plain::twice, book::fast::twice"):
            find(TEXT, "twice")

    def test_a_name_that_is_nowhere_is_refused(self):
        with self.assertRaisesRegex(NotFound, "no definition of thrice"):
            find(TEXT, "thrice")

    def test_a_struct_and_an_enum(self):
        table = find(TEXT, "Table")
        self.assertTrue(table.startswith("struct Table {\n  // Adds one."))
        self.assertTrue(table.endswith("other.a; }\n};"))
        self.assertEqual(find(TEXT, "Kind"), "enum class Kind { plain, fast };")

    def test_a_member_needs_the_name_of_its_struct(self):
        self.assertEqual(find(TEXT, "Table::add"),
                         "// Adds one.\nstd::function<int(int, int)> add;")
        self.assertEqual(find(TEXT, "Table::b"), "int a, b = 2;  // two")
        with self.assertRaisesRegex(NotFound, "no definition of add"):
            find(TEXT, "add")

    def test_aliases(self):
        self.assertEqual(find(TEXT, "Row"), "using Row = std::array<float, 4>;")
        self.assertEqual(find(TEXT, "Vec"), "typedef float Vec __attribute__((vector_size(16)));")

    def test_a_test_case_by_its_sentence(self):
        self.assertEqual(find(TEXT, "twice: of two is four"),
                         'TEST_CASE("twice: of two is four") { CHECK(twice(2) == 4); }')

    def test_a_declaration_where_there_is_no_definition(self):
        self.assertEqual(find("// Once.\nint once(int x);\n", "once"), "// Once.\nint once(int x);")


if __name__ == "__main__":
    unittest.main()
