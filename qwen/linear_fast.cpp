// y = x W^T by the tiles of linear_tiles.h: which shape they have, and how threads share the work.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "qwen/caches.h"
#include "qwen/linear.h"
#include "qwen/linear_tiles.h"

namespace qwen {

void check_linear(const Tensor2& x, const Weight& w);  // linear.cpp

namespace fast {
namespace {

// ---- the tile's shape ----
// kRows of x and kCols of W are met at a time. Few and some rows of x walk, kRows of them along a
// piece of kStripsAtOnce strips or more before the next do. Of many, as many as L2 has room for
// meet each strip.

// Many rows. 24 sums, 6 vectors of W and one of x are 31 of the 32 registers of AVX-512 and NEON;
// with 16 registers (AVX2, SSE) it is 8 + 4 + 1. A multiply-add takes 4 cycles and two start in
// each, so 8 sums keep the units busy.
//
// As many rows of x meet a strip before the next as fill half of L2 (rows_at_once), 8 tiles or
// more, since only the first waits for W, and 52 at most, since their sums are in L2 as well
// (80 KB). 8 strips read x from L2 together.
struct Many {
  static constexpr bool kWalk = false;
  static constexpr int kRows = simd::kRegisters == 32 ? 4 : 2;  // of x
  static constexpr int kCols = simd::kRegisters == 32 ? 6 : 4;  // of y: rows of W
  static constexpr int kLeastAtOnce = 8 * kRows, kMostAtOnce = 52 * kRows, kStripsAtOnce = 8;
};

// Some rows wait for memory as well: half as many rows of W as of Many, each read once for twice as
// many rows of x. The next of these follow after 32 strips: enough to be worth bringing kRows of x
// into L1, and what W they have, 0.1 to 0.7 MB in bf16, is in L2 or L3.
struct Some {
  static constexpr bool kWalk = true;
  static constexpr int kRows = 2 * Many::kRows, kCols = Many::kCols / 2, kStripsAtOnce = 32;
};
constexpr int kSomeRows = 3 * Some::kRows;  // of x; more are faster in the tiles of Many

// Few rows wait only for memory: four rows of W keep more reads under way than two or three.
struct Few {
  static constexpr bool kWalk = true;
  static constexpr int kRows = Many::kRows, kCols = 4, kStripsAtOnce = 32;
};

// ---- the product of one matrix ----

// sums[(i * rows + t) * C + c] = x[first + t] · w[row c of strip i], lane by lane.
template <class Format, class Shape, int C>
void multiply(const Inputs& x, int first, int rows, const Weight& w, const Strips& strips,
              Vec* sums) {
  if constexpr (Shape::kWalk) {
    simd::with_rows<Shape::kRows>(rows,
                                  [&](auto r) { walk<Format, r, C>(x, first, w, strips, sums); });
  } else {
    for (int i = 0; i < strips.count; ++i) {
      meet<Format, Shape::kRows, C>(x, first, rows, w, strips.first + i * strips.step,
                                    sums + i * rows * C);
    }
  }
}

// Near is where the hardware reads ahead by itself and only needs a hint; far is as much as is read
// while memory answers.
constexpr int kAhead = 256, kFarAhead = 1024;  // bytes

// `count` strips of C rows of W from row `first` on.
Strips strips_in(Reading reading, int first, int count, int C) {
  if (reading == Reading::adjacent) return {first, count, C, 1, 0};
  return {first, count, 1, count, reading == Reading::apart ? kAhead : kFarAhead};
}

template <class Shape>
constexpr int kMostAtOnce = Shape::kWalk ? Shape::kRows : Many::kMostAtOnce;

// What strips begin … end - 1 give to `rows` rows of x: strip by strip, and only then into y, whose
// rows lie so far apart that the few columns of a strip would touch a page of memory in each.
template <class Format, class Shape>
void columns(const Inputs& x, int first, int rows, const Weight& w, int begin, int end,
             Reading reading, Tensor2& y) {
  constexpr int C = Shape::kCols;
  // Sums that are worth adding up together: of a single row of x those of 12 strips.
  constexpr int kWorthAdding = 48;
  const int n = begin * C, stop = std::min(end * C, w.rows);
  const int whole = (stop - n) / C, rest = (stop - n) % C;
  Tensor1 totals = uninit(rows * (stop - n) + kLanes);
  float* to_totals = totals.data();
  Vec sums[std::max(kWorthAdding, kMostAtOnce<Shape> * C) + kLanes];
  const auto add_strips = [&]<int Cols>(std::integral_constant<int, Cols>, const Strips& all) {
    const int together = std::max(1, kWorthAdding / (rows * Cols));
    for (int i = 0; i < all.count; i += together) {
      const int some = std::min(together, all.count - i);
      multiply<Format, Shape, Cols>(
          x, first, rows, w, {all.first + i * all.step, some, all.step, all.apart, all.ahead},
          sums);
      add_up(sums, some * rows * Cols, to_totals);
      to_totals += some * rows * Cols;
    }
  };
  const Strips strips = strips_in(reading, n, whole, C);
  add_strips(std::integral_constant<int, C>{}, strips);
  add_strips(std::integral_constant<int, 1>{}, {stop - rest, rest, 1, 0, kAhead});
  const float* from = totals.data();
  for (int i = 0; i < whole; ++i) {
    for (int t = 0; t < rows; ++t, from += C) {
      float* to = row(y, first + t) + n + i * strips.step;
      for (int c = 0; c < C; ++c) to[c * strips.apart] = from[c];
    }
  }
  for (int i = stop - rest; i < stop; ++i) {
    for (int t = 0; t < rows; ++t) row(y, first + t)[i] = *from++;
  }
}

// ---- all matrices that meet the same x, shared by the threads ----

// Strips in a piece: so many that they are 256 K multiply-adds or more (from 3 to 60 microseconds
// on), so that starting it costs little, and as a rule at_once or more. A product too small for
// that is shared by as many threads as get 64 K each. If possible there are as many pieces for
// every thread, so that all end together.
int strips_in_piece(double multiply_adds, int at_once, int strips) {
  constexpr double kPiece = 256 * 1024, kWorthAThread = 64 * 1024;
  const int threads = thread_count();
  const double shared = std::min<double>(multiply_adds / kWorthAThread, threads);
  const double usual = std::min<double>(multiply_adds / kPiece, strips / at_once);
  const int pieces = static_cast<int>(std::min<double>(std::max(shared, usual), strips));
  if (pieces <= 1) return std::max(strips, 1);
  const int even = pieces < threads ? pieces : (pieces + threads - 1) / threads * threads;
  return (strips + even - 1) / even;
}

// Bytes; the system is asked once.
std::size_t half_of_l2() {
  static const std::size_t half = second_level_cache(caches()) / 2;
  return half;
}

// Rows of x that meet a strip together. Many do so in turns of equal size, whole tiles.
template <class Shape>
int rows_at_once(int T, int K) {
  if (Shape::kWalk) return Shape::kRows;
  const std::size_t fit = half_of_l2() / (std::max(K, 1) * sizeof(float));
  const int most =
      static_cast<int>(std::clamp<std::size_t>(fit, Many::kLeastAtOnce, Many::kMostAtOnce));
  const int turns = std::max(1, (T + most - 1) / most);
  const int tiles = (T + Shape::kRows - 1) / Shape::kRows;
  return (tiles + turns - 1) / turns * Shape::kRows;
}

template <class Format, class Shape>
std::vector<Tensor2> products_in_tiles(const Tensor2& x, std::span<const Weight* const> ws,
                                       Reading reading) {
  constexpr int C = Shape::kCols;
  const int T = dim(x, 0), K = dim(x, 1);
  const Inputs inputs = prepare<Format>(x);
  const auto strips_of = [](const Weight& w) { return (w.rows + C - 1) / C; };
  std::vector<Tensor2> ys;
  int strips = 0;
  for (const Weight* w : ws) {
    ys.push_back(uninit(T, w->rows));
    strips += strips_of(*w);
  }
  const int at_once = rows_at_once<Shape>(T, K);
  const int grain = strips_in_piece(1.0 * T * K * C * strips, Shape::kStripsAtOnce, strips);
  parallel_for(strips, grain, [&](int begin, int end) {
    int first = 0;  // strip of ws[i]
    for (std::size_t i = 0; i < ws.size() && first < end; first += strips_of(*ws[i]), ++i) {
      const int from = std::max(begin - first, 0), to = std::min(end - first, strips_of(*ws[i]));
      if (from >= to) continue;
      for (int t = 0; t < T; t += at_once) {
        columns<Format, Shape>(inputs, t, std::min(at_once, T - t), *ws[i], from, to, reading,
                               ys[i]);
      }
    }
  });
  return ys;
}

// f(F32{}), f(F16{}) or f(BF16{}); `name` of a matrix of another type is told.
template <class F>
decltype(auto) with_format(DType dtype, const std::string& name, F f) {
  switch (dtype) {
    case DType::F32:
      return f(F32{});
    case DType::F16:
      return f(F16{});
    case DType::BF16:
      return f(BF16{});
    default:
      throw std::invalid_argument("[linear] " + (name.empty() ? "w" : name) + " is " +
                                  format(dtype).name +
                                  ", expected f32, f16 or bf16: convert it first");
  }
}

// ---- in which order few rows read W ----

// Each run reads other memory, 108 MB together, which was written past the caches.
ReadingSpeeds measure_reading(DType dtype) {
  constexpr int K = 1024, kRuns = 3;
  constexpr std::size_t kBytes = 4 << 20;
  ReadingSpeeds speeds{{{1}, {Few::kRows}, {Some::kRows}}};
  const std::size_t size = kReadings.size() * kRuns * speeds.samples.size() * kBytes;
  const auto memory = lasting_block(size);
  parallel_for(static_cast<int>(size / kBytes), 1, [&](int begin, int end) {
    auto* floats = reinterpret_cast<float*>(memory.get());
    for (std::size_t i = begin * kBytes / 4; i < end * kBytes / 4; i += kLanes) {
      simd::store_past_caches(floats + i, Vec{});
    }
  });

  Weight w{dtype, 0, K, memory.get(), nullptr, memory, "w"};
  w.rows = static_cast<int>(kBytes / row_bytes(w));
  const auto measure = [&](const Tensor2& x, Reading reading, double& fastest) {
    const auto start = std::chrono::steady_clock::now();
    linear_in_order(x, w, reading);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fastest = std::max(fastest, kBytes / seconds.count());
    w.data += kBytes;
  };
  for (ReadingSpeeds::Sample& sample : speeds.samples) {
    const Tensor2 x = zeros(sample.rows, K);
    for (int run = 0; run < kRuns; ++run) {
      for (std::size_t i = 0; i < kReadings.size(); ++i) measure(x, kReadings[i], sample.speed[i]);
    }
  }
  return speeds;
}

// Matrices that are smaller stay in a cache, where the order does not matter.
constexpr std::size_t kFromMemory = 512 * 1024;

Reading reading_of(int T, std::span<const Weight* const> ws) {
  std::size_t size = 0;
  for (const Weight* w : ws) size += bytes(*w);
  return size < kFromMemory ? Reading::adjacent : reading_speeds(ws[0]->dtype).fastest(T);
}

// x [T, K], T up to kSomeRows
template <class Format>
std::vector<Tensor2> walk_along(const Tensor2& x, std::span<const Weight* const> ws,
                                Reading reading) {
  return dim(x, 0) <= Few::kRows ? products_in_tiles<Format, Few>(x, ws, reading)
                                 : products_in_tiles<Format, Some>(x, ws, reading);
}

}  // namespace

std::vector<Tensor2> products(const Tensor2& x, std::span<const Weight* const> ws) {
  for (const Weight* w : ws) check_linear(x, *w);
  const auto same_type = [&](const Weight* w) { return w->dtype == ws[0]->dtype; };
  std::vector<Tensor2> ys;
  if (ws.empty()) return ys;
  if (!std::ranges::all_of(ws, same_type)) {
    for (const Weight* w : ws) ys.push_back(linear(x, *w));
    return ys;
  }
  return with_format(ws[0]->dtype, ws[0]->name, [&]<class Format>(Format) {
    const int T = dim(x, 0);
    if (T > kSomeRows) return products_in_tiles<Format, Many>(x, ws, Reading::adjacent);
    return walk_along<Format>(x, ws, reading_of(T, ws));
  });
}

Tensor2 linear(const Tensor2& x, const Weight& w) {
  const Weight* const only = &w;
  return std::move(products(x, {&only, 1})[0]);
}

Tensor2 linear_in_order(const Tensor2& x, const Weight& w, Reading reading) {
  check_linear(x, w);
  const Weight* const only = &w;
  return with_format(w.dtype, w.name, [&]<class Format>(Format) {
    return std::move(walk_along<Format>(x, {&only, 1}, reading)[0]);
  });
}

Reading ReadingSpeeds::fastest(int rows) const {
  const auto enough = [=](const Sample& sample) { return sample.rows >= rows; };
  const auto found = std::ranges::find_if(samples, enough);
  return (found == samples.end() ? samples.back() : *found).fastest();
}

const ReadingSpeeds& reading_speeds(DType dtype) {
  return with_format(dtype, "", [&]<class Format>(Format) -> const ReadingSpeeds& {
    static const ReadingSpeeds measured = measure_reading(dtype);
    return measured;
  });
}

const char* linear_kernel() {
  return kLinearKernel;
}

}  // namespace fast
}  // namespace qwen
