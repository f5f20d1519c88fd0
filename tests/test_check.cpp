#include <cmath>
#include <sstream>

#include "qwen/attention.h"
#include "qwen/check.h"
#include "qwen/deltanet.h"
#include "qwen/linear.h"
#include "qwen/mlp.h"
#include "qwen/norm.h"
#include "qwen/profile.h"
#include "qwen/rope.h"
#include "qwen/tables.h"
#include "tests/comparisons.h"

using namespace qwen;

namespace {

// 13 tokens, one more, and 50 at once: with a state and without.
void run(const SmallModel& small, const Ops& ops) {
  logits_of(small.model, ops, std::span(small.ids).first(64), {13, 1, 50});
}

// What --check says of a table that is fast except for what `spoil` has done to it.
void check_named(const SmallModel& small, const std::function<void(Ops&)>& spoil,
                 const std::string& part) {
  Ops wrong = fast_ops();
  spoil(wrong);
  check_throws_with([&] { run(small, checked_ops(wrong, plain_ops())); }, part);
}

}  // namespace

TEST_CASE("check: the fast operators agree with the plain ones in every variant, in every type") {
  const Ops checked = checked_ops(fast_ops(), plain_ops());
  for (const std::string& name : small_models()) {
    CHECK_NOTHROW(run(small_model(name), checked));
    CHECK_NOTHROW(run(small_model(name, DType::BF16), checked));
  }
}

TEST_CASE("check: the result is that of the operators under test") {
  const SmallModel tiny = small_model("tiny");
  const std::span<const int> ids = std::span(tiny.ids).first(20);
  check_same_bits("checked",
                  logits_of(tiny.model, checked_ops(fast_ops(), plain_ops()), ids, {13, 7}),
                  logits_of(tiny.model, fast_ops(), ids, {13, 7}));
}

TEST_CASE("check: a wrong entry is named with layer, operator, place and both values") {
  const SmallModel tiny = small_model("tiny");
  // One number of layer 2's second call is off by 1: in its MLP, behind the first product.
  int calls = 0;
  Ops wrong = fast_ops();
  wrong.products = one_by_one([&](const Tensor2& x, const Weight& w) {
    Tensor2 y = fast::linear(x, w);
    if (w.name == "model.layers.2.mlp.up_proj.weight" && ++calls == 2) y(0, 7) = 100;
    return y;
  });
  const Ops checked = checked_ops(wrong, plain_ops());
  std::string message;
  try {
    run(tiny, checked);
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  CHECK(message.find("[check] layer 2, linear model.layers.2.mlp.up_proj.weight: row 0, column 7 "
                     "is 100, the plain version gives ") == 0);
  CHECK(message.find("(they may differ by ") != std::string::npos);
}

TEST_CASE("check: every entry of the table is compared, and what it changes in place") {
  const SmallModel tiny = small_model("tiny");
  const auto off = [](auto& x) { x.data()[x.size() - 1] += 1; };
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.rms_norm = [=](auto& x, auto& w, float eps) {
          Tensor2 y = fast::rms_norm(x, w, eps);
          off(y);
          return y;
        };
      },
      "[check] layer 0, rms_norm: row 12, column 51 is ");
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.gated_rms_norm = [=](auto& x, auto& z, auto& w, float eps) {
          Tensor2 y = fast::gated_rms_norm(x, z, w, eps);
          off(y);
          return y;
        };
      },
      "[check] layer 0, gated_rms_norm: row 38, column 17 is ");
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.swiglu = [=](auto& gate, auto& up) {
          Tensor2 y = fast::swiglu(gate, up);
          off(y);
          return y;
        };
      },
      "[check] layer 0, swiglu: row 12, column 108 is ");
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.rope = [=](auto& x, auto& cos, auto& sin) {
          fast::rope(x, cos, sin);
          off(x);
        };
      },
      "[check] layer 3, rope: row 12, column 119 is ");
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.attention = [=](auto& q, auto& keys, auto& values, int position) {
          Tensor2 y = fast::attention(q, keys, values, position);
          off(y);
          return y;
        };
      },
      "[check] layer 3, attention: row 12, column 119 is ");
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.sigmoid_gate = [=](auto& x, auto& gate) {
          Tensor2 y = fast::sigmoid_gate(x, gate);
          off(y);
          return y;
        };
      },
      "[check] layer 3, sigmoid_gate: row 12, column 119 is ");
  struct Part {
    Tensor3 Qkv::*part;
    std::string named;
  };
  for (const Part& part : {Part{&Qkv::q, "conv_qkv q: row 12, column 41"},
                           Part{&Qkv::k, "conv_qkv k: row 12, column 41"},
                           Part{&Qkv::v, "conv_qkv v: row 12, column 53"}}) {
    check_named(
        tiny,
        [&](Ops& ops) {
          ops.conv_qkv = [=](auto& in, auto& kernel, auto& heads, auto& tail) {
            Qkv y = fast::conv_qkv(in, kernel, heads, tail);
            off(y.*part.part);
            return y;
          };
        },
        "[check] layer 0, " + part.named);
  }
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.conv_qkv = [=](auto& in, auto& kernel, auto& heads, auto& tail) {
          Qkv y = fast::conv_qkv(in, kernel, heads, tail);
          off(tail);
          return y;
        };
      },
      "[check] layer 0, conv_qkv tail: row 2, column 137 is ");
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.delta_rule = [=](auto& qkv, auto& g, auto& beta, auto& key_head, auto& S) {
          Tensor3 y = fast::delta_rule(qkv, g, beta, key_head, S);
          off(y);
          return y;
        };
      },
      "[check] layer 0, delta_rule: row 12, column 53 is ");
  check_named(
      tiny,
      [&](Ops& ops) {
        ops.delta_rule = [=](auto& qkv, auto& g, auto& beta, auto& key_head, auto& S) {
          Tensor3 y = fast::delta_rule(qkv, g, beta, key_head, S);
          off(S);
          return y;
        };
      },
      "[check] layer 0, delta_rule S: row 2, column 251 is ");
}

TEST_CASE("check: the head is named, NaN is noticed, and so is another shape") {
  const SmallModel tiny = small_model("tiny");
  const auto spoil_head = [](const std::function<void(Tensor2&)>& how) {
    return [how](Ops& ops) {
      ops.products = one_by_one([how](const Tensor2& x, const Weight& w) {
        Tensor2 y = fast::linear(x, w);
        if (w.name == "model.embed_tokens.weight") how(y);
        return y;
      });
    };
  };
  const std::string head = "[check] final norm and head, linear model.embed_tokens.weight: ";
  check_named(tiny, spoil_head([](Tensor2& y) { y(1, 2) = NAN; }), head + "row 1, column 2 is nan");
  check_named(tiny, spoil_head([](Tensor2& y) { y = slice(y, 0, 1); }), head + "another shape");
}

namespace {

template <class... Size>
auto waves(Size... size) {
  auto x = uninit(size...);
  for (std::size_t i = 0; i < x.size(); ++i) x.data()[i] = std::sin(1.0f + i);
  return x;
}

// As much as rounding may do in so many additions, times `share`.
template <std::size_t Rank>
void add_error(Tensor<Rank>& x, int additions, double share) {
  double largest = 0;
  for (const float value : x) largest = std::max<double>(largest, std::abs(value));
  x.data()[0] +=
      static_cast<float>(share * 16 * std::ldexp(1, -24) * std::sqrt(additions) * largest);
}

// An operator, and a call of it in which one result has such an error.
struct Bounded {
  std::string name;
  std::function<void(Ops& wrong, double share)> spoil;
  std::function<void(const Ops&)> call;
};

constexpr int kFunctions = 16;  // what a few functions of a number count for

std::vector<Bounded> bounded_elementwise() {
  const Tensor2 x = waves(3, 7), z = waves(3, 7), cos = waves(3, 2), sin = waves(3, 2);
  const Tensor1 weight = waves(7);
  return {{"rms_norm",
           [](Ops& wrong, double share) {
             wrong.rms_norm = [=](auto& in, auto& w, float eps) {
               Tensor2 y = plain::rms_norm(in, w, eps);
               add_error(y, 7 + kFunctions, share);
               return y;
             };
           },
           [=](const Ops& ops) { ops.rms_norm(x, weight, 1e-6f); }},
          {"gated_rms_norm",
           [](Ops& wrong, double share) {
             wrong.gated_rms_norm = [=](auto& in, auto& gate, auto& w, float eps) {
               Tensor2 y = plain::gated_rms_norm(in, gate, w, eps);
               add_error(y, 7 + kFunctions, share);
               return y;
             };
           },
           [=](const Ops& ops) { ops.gated_rms_norm(x, z, weight, 1e-6f); }},
          {"swiglu",
           [](Ops& wrong, double share) {
             wrong.swiglu = [=](auto& gate, auto& up) {
               Tensor2 y = plain::swiglu(gate, up);
               add_error(y, kFunctions, share);
               return y;
             };
           },
           [=](const Ops& ops) { ops.swiglu(x, z); }},
          {"sigmoid_gate",
           [](Ops& wrong, double share) {
             wrong.sigmoid_gate = [=](auto& in, auto& gate) {
               Tensor2 y = plain::sigmoid_gate(in, gate);
               add_error(y, kFunctions, share);
               return y;
             };
           },
           [=](const Ops& ops) { ops.sigmoid_gate(x, z); }},
          {"rope",
           [](Ops& wrong, double share) {
             wrong.rope = [=](auto& in, auto& c, auto& s) {
               plain::rope(in, c, s);
               add_error(in, 2, share);
             };
           },
           [=](const Ops& ops) {
             Tensor3 heads = waves(3, 4, 6);
             ops.rope(heads, cos, sin);
           }}};
}

std::vector<Bounded> bounded_sums() {
  const Tensor2 x = waves(3, 7);
  const auto numbers = std::make_shared<const Tensor2>(waves(5, 7));
  Weight w;
  w.rows = 5;
  w.cols = 7;
  w.data = reinterpret_cast<const std::byte*>(numbers->data());
  w.owner = numbers;
  return {
      {"linear",
       [](Ops& wrong, double share) {
         wrong.products = one_by_one([=](const Tensor2& in, const Weight& matrix) {
           Tensor2 y = plain::linear(in, matrix);
           add_error(y, 7, share);
           return y;
         });
       },
       [=](const Ops& ops) { ops.linear(x, w); }},
      {"attention",
       [](Ops& wrong, double share) {
         wrong.attention = [=](auto& q, auto& keys, auto& values, int position) {
           Tensor2 y = plain::attention(q, keys, values, position);
           add_error(y, 5 + 6 + kFunctions, share);
           return y;
         };
       },
       [](const Ops& ops) { ops.attention(waves(3, 4, 6), waves(5, 2, 6), waves(5, 2, 6), 2); }}};
}

// Three tokens, a kernel of 4, one key head of 6 and two value heads of 5: 22 channels.
std::vector<Bounded> bounded_deltanet() {
  const auto call_conv = [](const Ops& ops) {
    Tensor2 tail = waves(3, 22);
    ops.conv_qkv(waves(3, 22), waves(4, 22), {1, 6, 2, 5}, tail);
  };
  const auto conv = [=](const char* name, Tensor3 Qkv::*part) {
    const auto spoil = [=](Ops& wrong, double share) {
      wrong.conv_qkv = [=](auto& in, auto& kernel, auto& heads, auto& tail) {
        Qkv y = plain::conv_qkv(in, kernel, heads, tail);
        add_error(y.*part, 4 + 6 + kFunctions, share);
        return y;
      };
    };
    return Bounded{name, spoil, call_conv};
  };
  const auto rule = [](const char* name, bool in_S) {
    const auto spoil = [=](Ops& wrong, double share) {
      wrong.delta_rule = [=](auto& qkv, auto& g, auto& beta, auto& key_head, auto& S) {
        Tensor3 y = plain::delta_rule(qkv, g, beta, key_head, S);
        add_error(in_S ? S : y, 4 * 6 + 3 + kFunctions, share);
        return y;
      };
    };
    return Bounded{name, spoil, [](const Ops& ops) {
                     Tensor3 S = waves(2, 6, 5);
                     const Tensor2 g = waves(3, 2) - 1.0f;
                     ops.delta_rule({waves(3, 1, 6), waves(3, 1, 6), waves(3, 2, 5)}, g,
                                    waves(3, 2), {0, 0}, S);
                   }};
  };
  return {conv("conv_qkv q", &Qkv::q), conv("conv_qkv k", &Qkv::k), conv("conv_qkv v", &Qkv::v),
          rule("delta_rule", false), rule("delta_rule S", true)};
}

}  // namespace

TEST_CASE("check: an error just below an operator's bound passes, one just above does not") {
  for (const auto& list : {bounded_elementwise(), bounded_sums(), bounded_deltanet()}) {
    for (const Bounded& bounded : list) {
      CAPTURE(bounded.name);
      const auto run_with = [&](double share) {
        Ops wrong = plain_ops();
        bounded.spoil(wrong, share);
        bounded.call(checked_ops(wrong, plain_ops()));
      };
      CHECK_NOTHROW(run_with(0.95));
      check_throws_with([&] { run_with(1.05); }, "[check] layer 0, " + bounded.name);
    }
  }
}

TEST_CASE("check: what the convolution keeps for the next call must be the same to the bit") {
  Ops wrong = plain_ops();
  wrong.conv_qkv = [](auto& in, auto& kernel, auto& heads, auto& tail) {
    Qkv y = plain::conv_qkv(in, kernel, heads, tail);
    tail(0, 0) = std::nextafter(tail(0, 0), 2.0f);
    return y;
  };
  Tensor2 tail = waves(3, 22);
  check_throws_with(
      [&] {
        checked_ops(wrong, plain_ops()).conv_qkv(waves(3, 22), waves(4, 22), {1, 6, 2, 5}, tail);
      },
      "[check] layer 0, conv_qkv tail: row 0, column 0");
}

TEST_CASE("profile: every call is counted, with what it reads; the results are the same") {
  const SmallModel tiny = small_model("tiny");
  const std::span<const int> ids = std::span(tiny.ids).first(14);
  Profile profile;
  const Ops timed = timed_ops(fast_ops(), profile);
  check_same_bits("timed", logits_of(tiny.model, timed, ids, {13, 1}),
                  logits_of(tiny.model, fast_ops(), ids, {13, 1}));
  const auto calls = [&](const std::string& name) { return profile.entries.at(name).calls; };
  // Two calls of three DeltaNet layers and one of attention.
  CHECK(calls("rms_norm") == 2 * (4 * 2 + 1 + 2));
  CHECK(calls("gated_rms_norm") == 2 * 3);
  CHECK(calls("swiglu") == 2 * 4);
  CHECK(calls("rope") == 2 * 2);
  CHECK(calls("attention") == 2);
  CHECK(calls("sigmoid_gate") == 2);
  CHECK(calls("conv_qkv") == 2 * 3);
  CHECK(calls("delta_rule") == 2 * 3);
  CHECK(calls("linear mlp.gate_proj +1") == 2 * 4);
  CHECK(calls("linear linear_attn.in_proj_qkv +3") == 2 * 3);
  CHECK(calls("linear self_attn.q_proj +2") == 2);
  CHECK(calls("linear embed_tokens") == 2);
  CHECK(profile.entries.size() == 8 + 2 + 2 + 2 + 1);
  const Profile::Entry& both = profile.entries.at("linear mlp.gate_proj +1");
  CHECK(both.bytes == 2.0 * 4 * (2 * 109) * 52 * 4);
  CHECK(both.additions == 14.0 * 4 * (2 * 109) * 52);
  CHECK(profile.entries.at("delta_rule").bytes == 2.0 * 3 * 2 * (3 * 14 * 18) * 4);
}

TEST_CASE("profile: the lines of a report add up to the total") {
  const SmallModel tiny = small_model("tiny");
  Profile profile;
  run(tiny, timed_ops(fast_ops(), profile));
  double sum = 0;
  for (const auto& [name, entry] : profile.entries) sum += entry.seconds;
  CHECK(sum > 0);
  std::istringstream lines(report(profile, 2 * sum));
  std::string line, last;
  double milliseconds = 0, percent = 0, previous = INFINITY;
  std::getline(lines, line);  // the heading
  while (std::getline(lines, line)) {
    const bool rest = line.starts_with("between operators");
    std::istringstream numbers(line.substr(rest ? 41 : 34));  // behind the name
    long calls = 0;
    double ms = 0, share = 0;
    if (!rest) numbers >> calls;
    numbers >> ms >> share;
    milliseconds += ms;
    percent += share;
    if (!rest) {
      CHECK(calls == profile.entries.at(line.substr(0, line.find("  "))).calls);
      CHECK(ms <= previous);
      previous = ms;
    }
    last = line;
  }
  CHECK(last.starts_with("between operators"));
  // Each of 16 lines is rounded: to 0.5 microseconds, and to 0.05 percent.
  CHECK(std::abs(milliseconds - 2e3 * sum) <= 16 * 0.0005);
  CHECK(std::abs(percent - 100) <= 16 * 0.05);
}
