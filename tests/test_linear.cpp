#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "qwen/linear.h"
#include "qwen/parallel.h"
#include "qwen/segment.h"
#include "qwen/simd.h"
#include "tests/support.h"

using namespace qwen;

namespace {

using Linear = std::function<Tensor2(const Tensor2&, const Weight&)>;

struct Version {
  std::string name;
  Linear linear;
};
// The fast one takes that order of reading W which this machine likes better; it must not matter.
Linear in_order(fast::Reading reading) {
  return [=](const Tensor2& x, const Weight& w) { return fast::linear_in_order(x, w, reading); };
}
const Version kVersions[] = {{"plain", plain::linear},
                             {"fast", fast::linear},
                             {"adjacent", in_order(fast::Reading::adjacent)},
                             {"apart", in_order(fast::Reading::apart)},
                             {"apart, ahead", in_order(fast::Reading::apart_ahead)}};

constexpr DType kTypes[] = {DType::F32, DType::F16, DType::BF16};
// Shorter than a vector, just below and above one or several, and longer than a block of K.
constexpr int kColumns[] = {1, 2, 7, 16, 31, 33, 515, 1027, 2053};

Tensor2 random_rows(int T, int K, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor2 x = uninit(T, K);
  for (float& value : x) value = normal(random);
  return x;
}

// A matrix of its own memory, which ends where its last row does.
Weight stored(const Tensor2& values, DType dtype) {
  const std::size_t size = stored_bytes(dtype, values.size());
  const std::shared_ptr<std::byte[]> memory(new std::byte[size]);
  from_float(values.data(), values.size(), dtype, memory.get());
  return {dtype, dim(values, 0), dim(values, 1), memory.get(), nullptr, memory, "w"};
}

Weight random_weight(int N, int K, DType dtype) {
  return stored(random_rows(N, K, 1000 * N + K), dtype);
}

// The numbers that a stored matrix holds.
Tensor2 values_of(const Weight& w) {
  Tensor2 values = uninit(w.rows, w.cols);
  for (int n = 0; n < w.rows; ++n) to_float(w.dtype, row(w, n), w.cols, row(values, n));
  return values;
}

std::string described(const Version& v, const Weight& w, int T) {
  return v.name + " " + format(w.dtype).name + " [" + std::to_string(w.rows) + ", " +
         std::to_string(w.cols) + "], T " + std::to_string(T);
}

// Sums of K products off by at most 6e-8 of what has been added up so far; errors of both signs
// grow like the root of K. Twice that is allowed, and never less than a few roundings.
double tolerance(int K) {
  return 4e-7 + 1.2e-7 * std::sqrt(static_cast<double>(K));
}

// The threads of the team as they were before, at the end of a test.
struct KeepThreads {
  int before = thread_count();
  ~KeepThreads() { set_thread_count(before); }
};

// Where a row's bits depend on anything but that row and w: on how many rows come with it, on its
// place among them, or on the number of threads. Empty if they do not.
std::string order_disagreement(const Linear& linear, DType dtype, int K) {
  const KeepThreads keep;
  set_thread_count(1);
  const Weight w = random_weight(301, K, dtype);  // enough for several threads even with one row
  constexpr int kRows = 217;                      // more than are taken at once
  const Tensor2 x = random_rows(kRows, K, 7);
  const Tensor2 all = linear(x, w);
  for (const int threads : {1, 2, 3, 5}) {
    set_thread_count(threads);
    for (const int T : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 24, 25, 33, kRows}) {
      const int first = kRows - T;
      const std::string found =
          bit_difference("T " + std::to_string(T) + ", threads " + std::to_string(threads),
                         linear(slice(x, first, T), w), slice(all, first, T));
      if (!found.empty()) return found;
    }
  }
  return "";
}

}  // namespace

TEST_CASE("linear: y[t, n] is the product of row t of x and row n of w") {
  const Tensor2 x{{1, 2, 3}, {-1, 0, 0.5f}};
  const Tensor2 w{{1, 1, 1}, {4, 0, -2}, {0, 0, 0}, {0, 0.5f, 2}};
  const Tensor2 expected{{6, -2, 0, 7}, {-0.5f, -5, 0, 1}};
  for (const Version& v : kVersions) {
    for (const DType dtype : kTypes) {
      check_same_bits(v.name, v.linear(x, stored(w, dtype)), expected);
    }
  }
}

TEST_CASE("linear: equal to sums in float64, for any rows, columns and type") {
  for (const DType dtype : kTypes) {
    for (const int K : kColumns) {
      for (const int N : {1, 5, 6, 7, 29}) {
        const Weight w = random_weight(N, K, dtype);
        const Tensor2 values = values_of(w);
        for (const int T : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 24, 25, 33}) {
          const Tensor2 x = random_rows(T, K, 3);
          Tensor2 expected = uninit(T, N);
          for (int t = 0; t < T; ++t) {
            for (int n = 0; n < N; ++n) {
              double sum = 0;
              for (int k = 0; k < K; ++k) {
                const float x_tk =
                    dtype == DType::BF16 ? bf16_to_float(float_to_bf16(x(t, k))) : x(t, k);
                sum += static_cast<double>(x_tk) * values(n, k);
              }
              expected(t, n) = static_cast<float>(sum);
            }
          }
          for (const Version& v : kVersions) {
            check_close(described(v, w, T), v.linear(x, w), expected, tolerance(K));
          }
        }
      }
    }
  }
}

TEST_CASE("linear: more rows than are taken at once, more work than one thread's") {
  const Weight w = random_weight(301, 1027, DType::F32);
  const Tensor2 x = random_rows(217, 1027, 5);
  check_close("fast", fast::linear(x, w), plain::linear(x, w), tolerance(1027));
}

TEST_CASE("linear: with bf16 weights x is rounded to bf16, to nearest and ties to even") {
  // A bf16 has 8 bits: 257 lies between 256 and 258, 259 between 258 and 260; f32 and f16 weights
  // leave x as it is.
  const Tensor2 x{{257}, {259}, {-257}, {257.01f}}, one{{1}};
  for (const Version& v : kVersions) {
    check_same_bits(v.name, v.linear(x, stored(one, DType::BF16)),
                    Tensor2{{256}, {260}, {-256}, {258}});
    check_same_bits(v.name, v.linear(x, stored(one, DType::F16)), x);
    check_same_bits(v.name, v.linear(x, stored(one, DType::F32)), x);
  }
}

TEST_CASE("linear: of a pair of bf16 products the odd one is added first") {
  // Lane 0 meets elements 0 and 1, and one vector of pairs later two more: 2^24, then 1 and -2^24.
  // 2^24 + 1 is 2^24 in float32, so that nothing is left; -2^24 first would leave the 1.
  constexpr int kNext = 2 * simd::kLanes;
  Tensor2 x = zeros(1, kNext + 2), ones = zeros(1, kNext + 2);
  ones.fill(1.0f);
  x(0, 0) = 0x1p24f;
  x(0, kNext) = -0x1p24f;
  x(0, kNext + 1) = 1;
  CHECK(fast::linear(x, stored(ones, DType::BF16))(0, 0) == 0);
  std::swap(x(0, kNext), x(0, kNext + 1));
  CHECK(fast::linear(x, stored(ones, DType::BF16))(0, 0) == 1);
}

TEST_CASE("linear: the bits of a row depend on that row and on w alone") {
  for (const Version& v : kVersions) {
    for (const DType dtype : kTypes) {
      for (const int K : kColumns) {
        const std::string found = order_disagreement(v.linear, dtype, K);
        CHECK_MESSAGE(found.empty(), v.name << " " << format(dtype).name << ": " << found);
      }
    }
  }
}

TEST_CASE("linear: the test before this one notices a K that is split, for one row or by threads") {
  const auto split = [](const Tensor2& x, const Weight& w, int parts) {
    const Tensor2 values = values_of(w);
    Tensor2 y = zeros(dim(x, 0), w.rows);
    for (int part = 0; part < parts; ++part) {
      const int begin = w.cols * part / parts, count = w.cols * (part + 1) / parts - begin;
      for (int t = 0; t < dim(x, 0); ++t) {
        for (int n = 0; n < w.rows; ++n) {
          y(t, n) += simd::dot(row(x, t) + begin, row(values, n) + begin, count);
        }
      }
    }
    return y;
  };
  const Linear for_one_row = [&](const Tensor2& x, const Weight& w) {
    return split(x, w, dim(x, 0) == 1 ? 2 : 1);
  };
  const Linear by_threads = [&](const Tensor2& x, const Weight& w) {
    return split(x, w, thread_count());
  };
  const Linear never = [&](const Tensor2& x, const Weight& w) { return split(x, w, 2); };
  CHECK_FALSE(order_disagreement(for_one_row, DType::F32, 515).empty());
  CHECK_FALSE(order_disagreement(by_threads, DType::F32, 515).empty());
  CHECK(order_disagreement(never, DType::F32, 515).empty());
}

TEST_CASE("linear: rows of w are read in the order given") {
  const Tensor2 x = random_rows(3, 33, 4);
  const auto order =
      std::make_shared<const std::vector<int>>(std::vector<int>{4, 0, 3, 1, 6, 5, 2});
  for (const Version& v : kVersions) {
    for (const DType dtype : kTypes) {
      Weight w = random_weight(7, 33, dtype);
      const Tensor2 in_place = v.linear(x, w);
      w.order = order;
      const Tensor2 y = v.linear(x, w);
      Tensor2 expected = uninit(3, 7);
      for (int t = 0; t < 3; ++t) {
        for (int n = 0; n < 7; ++n) expected(t, n) = in_place(t, (*order)[n]);
      }
      check_same_bits(v.name, y, expected);
      check_same_bits(v.name + " converted", v.linear(x, convert(w, DType::F32)),
                      v.linear(x, stored(values_of(w), DType::F32)));
    }
  }
}

TEST_CASE("linear: any address of w gives the same bits") {
  const Tensor2 x = random_rows(9, 515, 6);
  for (const Version& v : kVersions) {
    for (const DType dtype : kTypes) {
      const Weight w = random_weight(7, 515, dtype);
      const Tensor2 expected = v.linear(x, w), alone = v.linear(slice(x, 0, 1), w);
      for (int shift = 1; shift < 8; ++shift) {
        std::vector<std::byte> memory(shift + bytes(w));
        std::copy_n(w.data, bytes(w), memory.data() + shift);
        Weight moved = w;
        moved.data = memory.data() + shift;
        check_same_bits(v.name, v.linear(x, moved), expected);
        check_same_bits(v.name, v.linear(slice(x, 0, 1), moved), alone);
      }
    }
  }
}

TEST_CASE("linear: what stands behind a row, of w or of x, does not count, not even a NaN") {
  for (const DType dtype : kTypes) {
    for (const int K : kColumns) {
      Tensor2 w = random_rows(8, K, 8), x = random_rows(6, K, 9);
      std::vector<Tensor2> expected;
      for (const Version& v : kVersions) expected.push_back(v.linear(x, stored(w, dtype)));
      // Every second row becomes NaN; of what is left, all bits stay.
      for (int n = 1; n < 8; n += 2) std::fill_n(row(w, n), K, NAN);
      for (int t = 1; t < 6; t += 2) std::fill_n(row(x, t), K, NAN);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Tensor2 y = kVersions[i].linear(x, stored(w, dtype));
        for (int t = 0; t < 6; ++t) {
          for (int n = 0; n < 8; ++n) {
            if (t % 2 == 0 && n % 2 == 0) {
              CHECK(y(t, n) == expected[i](t, n));
            } else {
              CHECK(std::isnan(y(t, n)));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("linear: an infinity or NaN in the last columns is not lost") {
  for (const Version& v : kVersions) {
    for (const DType dtype : kTypes) {
      for (const int K : kColumns) {
        Tensor2 w = random_rows(2, K, 8);
        const Tensor2 x = random_rows(1, K, 9);
        w(0, K - 1) = INFINITY;
        w(1, K - 1) = NAN;
        const Tensor2 y = v.linear(x, stored(w, dtype));
        CHECK(std::isinf(y(0, 0)));
        CHECK(std::isnan(y(0, 1)));
      }
    }
  }
}

TEST_CASE("linear: in each order of reading W the bits are those of the product") {
  for (const DType dtype : kTypes) {
    for (const int K : kColumns) {
      const Weight w = random_weight(29, K, dtype);
      for (const int T : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33}) {
        const Tensor2 x = random_rows(T, K, 3), expected = fast::linear(x, w);
        for (const fast::Reading reading : fast::kReadings) {
          check_same_bits(format(dtype).name, fast::linear_in_order(x, w, reading), expected);
        }
      }
    }
  }
}

TEST_CASE("linear: the order of reading is measured, and what is fastest is taken") {
  for (const DType dtype : kTypes) {
    const fast::ReadingSpeeds& speeds = fast::reading_speeds(dtype);
    int rows = 0;
    for (const auto& sample : speeds.samples) {
      CHECK(sample.rows > rows);
      rows = sample.rows;
      for (std::size_t i = 0; i < fast::kReadings.size(); ++i) {
        CHECK(sample.speed[i] > 0);
        CHECK(sample.speed[i] <= sample.speed[static_cast<int>(sample.fastest())]);
      }
      CHECK(speeds.fastest(rows) == sample.fastest());
    }
    CHECK(speeds.samples[0].rows == 1);
    CHECK(speeds.fastest(2) == speeds.samples[1].fastest());
    CHECK(speeds.fastest(100) == speeds.samples.back().fastest());
    CHECK(&fast::reading_speeds(dtype) == &speeds);  // once
  }
}

TEST_CASE("linear: block formats are read as float32 by the plain version, and need a conversion") {
  // One block of q8_0: the scale 0.5 as f16, then 32 integers.
  std::vector<std::byte> block(34);
  block[1] = std::byte{0x38};
  for (int i = 0; i < 32; ++i) block[2 + i] = static_cast<std::byte>(i - 16);
  const Weight w{DType::Q8_0, 1, 32, block.data(), nullptr, nullptr, "w"};
  const Tensor2 x = random_rows(2, 32, 2);
  Tensor2 values = uninit(1, 32);
  for (int i = 0; i < 32; ++i) values(0, i) = 0.5f * static_cast<float>(i - 16);
  check_same_bits("plain", plain::linear(x, w), plain::linear(x, stored(values, DType::F32)));
  check_throws_with([&] { fast::linear(x, w); },
                    "[linear] w is q8_0, expected f32, f16 or bf16: convert it first");
  const Weight f32 = convert(w, DType::F32);
  check_throws_with(
      [&] {
        fast::products(x, std::vector<const Weight*>{&f32, &w});
      },
      "[linear] w is q8_0, expected f32, f16 or bf16: convert it first");
}

TEST_CASE("linear: matrices that meet the same x together give the bits they give alone") {
  const int threads = thread_count();
  set_thread_count(3);
  // Fewer rows than a tile has, one more than whole tiles have, one row, and enough for threads.
  constexpr int K = 515, kSizes[] = {3, 13, 1, 2402, 16};
  for (const int T : {1, 7}) {
    const Tensor2 x = random_rows(T, K, 4);
    for (const std::vector<DType>& types : {std::vector{DType::F32}, std::vector{DType::BF16},
                                            std::vector{DType::F16, DType::F32, DType::BF16}}) {
      std::vector<Weight> weights;
      for (const int N : kSizes) {
        weights.push_back(random_weight(N, K, types[weights.size() % types.size()]));
      }
      std::vector<const Weight*> together;
      for (const Weight& w : weights) together.push_back(&w);
      const std::vector<Tensor2> ys = fast::products(x, together);
      REQUIRE(ys.size() == weights.size());
      for (std::size_t i = 0; i < ys.size(); ++i) {
        check_same_bits(std::to_string(i), ys[i], fast::linear(x, weights[i]));
        check_close(std::to_string(i), ys[i], plain::linear(x, weights[i]), tolerance(K));
      }
    }
  }
  set_thread_count(threads);
  CHECK(fast::products(zeros(2, K), {}).empty());
}

TEST_CASE("linear: columns that do not agree are named") {
  for (const Version& v : kVersions) {
    check_throws_with([&] { v.linear(zeros(2, 5), random_weight(3, 4, DType::F32)); },
                      "[linear] x has 5 columns, w is [3, 4]: the last axes must agree");
  }
}
