#include <cmath>
#include <cstring>

#include "qwen/tables.h"
#include "tests/checkpoints.h"
#include "tests/comparisons.h"

using namespace qwen;

namespace {

struct Version {
  std::string name;
  Ops ops;
};
const Version kVersions[] = {{"plain", plain_ops()}, {"fast", fast_ops()}};

// The logits of every row of the first `count` ids.
Tensor2 logits_of(const Model& model, const Ops& ops, const SmallModel& small, int count) {
  return logits_of(model, ops, std::span(small.ids).first(count), {count});
}

// The logits after the reference's first ids, for checkpoints that are not to give any.
void run(const CheckpointParts& parts, const std::vector<int>& ids = {5, 3, 8, 1, 2, 40}) {
  const TempDir folder;
  const Model model = load_model(write_checkpoint(folder, parts));
  State state = empty_state(model.config);
  forward(model, fast_ops(), ids, state);
}

// checkpoints/NAME with one change.
CheckpointParts changed(const std::string& name,
                        const std::function<void(CheckpointParts&)>& change) {
  CheckpointParts parts = take_apart(name);
  change(parts);
  return parts;
}

}  // namespace

// ---- against the reference ----

TEST_CASE("forward: logits equal to the reference for every variant and length") {
  for (const std::string& name : small_models()) {
    const SmallModel small = small_model(name, DType::F32);
    for (const Version& v : kVersions) {
      const std::string found = logits_complaint(small, v.ops);
      CHECK_MESSAGE(found.empty(), v.name << " " << found);
    }
  }
}

TEST_CASE("forward: logits equal to the reference after several pieces") {
  for (const Version& v : kVersions) {
    const std::string found =
        comparison("logits after several pieces").complaint([&](auto&) { return v.ops; });
    CHECK_MESSAGE(found.empty(), v.name << " " << found);
  }
}

TEST_CASE("head: logits of all rows equal to the reference") {
  for (const std::string& name : small_models()) {
    const SmallModel small = small_model(name, DType::F32);
    for (const Version& v : kVersions) {
      check_close(v.name + " " + name, logits_of(small.model, v.ops, small, 3),
                  small.goldens.tensor<2>("all_logits.3"), 5e-5);
    }
  }
}

TEST_CASE("forward: weights stored as f16 are as good as the same in f32") {
  const SmallModel small = small_model("f16");
  CHECK(small.model.embed_tokens.dtype == DType::F16);
  for (const Version& v : kVersions) {
    const std::string found = logits_complaint(small, v.ops);
    CHECK_MESSAGE(found.empty(), v.name << " " << found);
  }
}

TEST_CASE("forward: with weights stored as bf16 x is rounded too, and the best token stays") {
  const SmallModel small = small_model("bf16");
  CHECK(small.model.embed_tokens.dtype == DType::BF16);
  for (const Version& v : kVersions) {
    // x is off by up to 2^-9 of itself before each of the 29 products of four layers; small sums of
    // large terms make it several times that.
    const std::string found = logits_complaint(small, v.ops, 0.1);
    CHECK_MESSAGE(found.empty(), v.name << " " << found);
  }
}

TEST_CASE("argmax: the largest, of equals the lowest id") {
  CHECK(argmax(Tensor2{{1, 5, 2}}) == 1);
  CHECK(argmax(Tensor2{{-3, 7, 7, 7}}) == 1);
  CHECK(argmax(Tensor2{{-0.0f, 0.0f}}) == 0);
  CHECK(argmax(Tensor2{{-INFINITY, -5}}) == 1);
}

// ---- other files, other types ----

TEST_CASE("load_model: GGUF files of llama and qwen3 give the bits of their safetensors twins") {
  for (const char* name : {"llama", "qwen3"}) {
    const SmallModel small = small_model(name);
    const Model twin = load_model(std::string("gguf/") + name + ".gguf");
    for (const Version& v : kVersions) {
      check_same_bits(v.name + " " + name, logits_of(twin, v.ops, small, 130),
                      logits_of(small.model, v.ops, small, 130));
    }
  }
}

TEST_CASE("load_model: GGUF files of qwen35 give the logits of their safetensors twins") {
  struct Twin {
    std::string gguf, name;
  };
  for (const Twin& twin : {Twin{"grouped", "grouped"}, Twin{"wild", "grouped"},
                           Twin{"wrapper", "wrapper"}, Twin{"bf16", "bf16"}}) {
    const SmallModel small = small_model(twin.name, DType::F32);
    const Model model = load_model("gguf/" + twin.gguf + ".gguf", DType::F32);
    for (const Version& v : kVersions) {
      const std::string name = v.name + " " + twin.gguf;
      check_close(name, logits_of(model, v.ops, small, 203),
                  logits_of(small.model, v.ops, small, 203), 5e-5);
      check_close(name, logits_of(model, v.ops, small, 3), small.goldens.tensor<2>("all_logits.3"),
                  5e-5);
    }
  }
}

TEST_CASE("load_model: matrices stay in the file as stored, or are converted; vectors are floats") {
  for (const char* name : {"tiny", "bf16", "f16"}) {
    const SmallModel stored = small_model(name);
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      const Model model = load_model(std::string("checkpoints/") + name, dtype);
      const auto& mixer = std::get<DeltaNet>(model.layers[0].mixer);
      for (const Weight* w : {&model.embed_tokens, &model.lm_head, &mixer.in_proj_a,
                              &mixer.out_proj, &model.layers[0].mlp.down_proj}) {
        CHECK(w->dtype == dtype);
      }
      const auto& original = std::get<DeltaNet>(stored.model.layers[0].mixer);
      check_same_bits(name, model.norm, stored.model.norm);
      check_same_bits(name, mixer.A, original.A);
      check_same_bits(name, mixer.conv1d, original.conv1d);
      CHECK(model.lm_head.data == model.embed_tokens.data);  // tied, and converted once
    }
  }
}

TEST_CASE("load_model: a conversion gives the bits of a file that was stored so") {
  const SmallModel small = small_model("tiny");
  for (const auto& [dtype, written] : {std::pair{DType::F16, "F16"}, {DType::BF16, "BF16"}}) {
    CheckpointParts parts = take_apart("tiny");
    for (CheckpointParts::Part& part : parts.tensors) {
      if (part.shape.size() != 2) continue;
      std::vector<float> values(part.bytes.size() / sizeof(float));
      std::memcpy(values.data(), part.bytes.data(), part.bytes.size());
      part.dtype = written;
      part.bytes.resize(part.bytes.size() / 2);
      from_float(values.data(), values.size(), dtype,
                 reinterpret_cast<std::byte*>(part.bytes.data()));
    }
    const TempDir folder;
    const Model stored = load_model(write_checkpoint(folder, parts));
    CHECK(stored.embed_tokens.dtype == dtype);
    for (const Version& v : kVersions) {
      check_same_bits(v.name + " " + written,
                      logits_of(load_model("checkpoints/tiny", dtype), v.ops, small, 65),
                      logits_of(stored, v.ops, small, 65));
    }
  }
}

TEST_CASE("load_model: the file decides whether the head is tied, a conflict is remarked") {
  const CheckpointParts parts = changed("tiny", [](CheckpointParts& tiny) {
    CheckpointParts::Part head = tiny.at("model.embed_tokens.weight");
    head.name = "lm_head.weight";
    std::swap_ranges(head.bytes.begin(), head.bytes.begin() + 52 * 4, head.bytes.begin() + 52 * 4);
    tiny.tensors.push_back(head);
  });
  const TempDir folder;
  const Model model = load_model(write_checkpoint(folder, parts));
  REQUIRE(model.remarks.size() == 1);
  CHECK(model.remarks[0].find("lm_head.weight: it is used") != std::string::npos);
  const SmallModel small = small_model("tiny");
  const Tensor2 own = logits_of(model, fast_ops(), small, 3);
  const Tensor2 tied = logits_of(small.model, fast_ops(), small, 3);
  CHECK(own(2, 0) == tied(2, 1));
  CHECK(own(2, 1) == tied(2, 0));
  CHECK(own(2, 2) == tied(2, 2));
}

TEST_CASE("load_model: what text does not need is passed over, by name") {
  const auto with = [](const std::string& name) {
    return changed("wrapper", [&](CheckpointParts& parts) {
      parts.tensors.push_back({name, "F32", {1}, std::string(4, '\0')});
    });
  };
  run(with("model.visual.anything"));
  run(with("mtp.anything"));
  check_throws_with([&] { run(with("model.visuals")); }, "tensor \"model.visuals\" has no place");
}

// ---- checkpoints that are not what their config says ----

TEST_CASE("load_model: a missing tensor is named, whichever it is") {
  const CheckpointParts parts = take_apart("untied");
  for (const CheckpointParts::Part& part : parts.tensors) {
    CheckpointParts without = parts;
    without.erase(part.name);
    if (part.name == "lm_head.weight") {
      run(without);  // a tied head
    } else {
      check_throws_with([&] { run(without); }, "tensor " + part.name + " is missing");
    }
  }
}

TEST_CASE("load_model: a tensor of another shape is named, with what was expected") {
  const std::string layer = "model.layers.0.mlp.down_proj.weight";
  check_throws_with(
      [&] {
        run(changed("tiny", [&](auto& tiny) { tiny.at(layer).shape = {109, 52}; }));
      },
      layer + " is [109, 52], expected [52, 109]");
  check_throws_with(
      [&] {
        run(changed("tiny", [&](auto& tiny) {
          auto& norm = tiny.at("model.norm.weight");
          norm.shape = {51};
          norm.bytes.resize(51 * 4);
        }));
      },
      "model.norm.weight is [51], expected [52]");
  // As many elements in another order are another tensor.
  check_throws_with(
      [&] {
        run(changed("tiny", [&](auto& tiny) {
          tiny.at("model.layers.0.linear_attn.conv1d.weight").shape = {4, 1, 138};
        }));
      },
      "conv1d.weight is [4, 1, 138], expected [138, 1, 4]");
  // One number of the config moves many shapes; the first that does not fit is named.
  check_throws_with(
      [&] {
        run(changed("tiny", [](auto& tiny) {
          tiny.replace_in_config("\"vocab_size\": 263", "\"vocab_size\": 264");
        }));
      },
      "model.embed_tokens.weight is [263, 52], expected [264, 52]");
}

TEST_CASE("load_model: a tensor that is left over is named") {
  check_throws_with(
      [] {
        run(changed("tiny", [](auto& tiny) {
          tiny.tensors.push_back(
              {"model.layers.0.mlp.gate_proj.bias", "F32", {1}, std::string(4, '\0')});
        }));
      },
      "tensor \"model.layers.0.mlp.gate_proj.bias\" has no place in a model of type "
      "qwen3_5_text; is the config the one that belongs to this file?");
  // A layer more than the config counts.
  check_throws_with(
      [] {
        run(changed("qwen3", [](auto& qwen3) {
          qwen3.tensors.push_back(
              {"model.layers.3.input_layernorm.weight", "F32", {1}, std::string(4, '\0')});
        }));
      },
      "tensor \"model.layers.3.input_layernorm.weight\" has no place");
}

TEST_CASE("load_model: a type of model that we do not run is named") {
  check_throws_with(
      [] {
        run(changed("tiny",
                    [](auto& tiny) { tiny.replace_in_config("\"qwen3_5_text\"", "\"mamba\""); }));
      },
      "mamba");
  check_throws_with([] { load_model("checkpoints/nowhere"); }, "checkpoints/nowhere");
}

// ---- numbers that are not finite ----

TEST_CASE("forward: a weight that is NaN or infinite stops it, with the place named") {
  struct Place {
    std::string checkpoint, tensor;
    std::size_t index;
    std::string named;
  };
  // Row 7 of a head that is tied is also an embedding: of a token that is not read here.
  for (const Place& place :
       {Place{"untied", "lm_head.weight", 7 * 35 + 3, "the head: row 0, column 7 is "},
        Place{"tiny", "model.embed_tokens.weight", 7 * 52, "the head: row 0, column 7 is "},
        Place{"tiny", "model.embed_tokens.weight", 8 * 52 + 51,
              "embed_tokens: row 2, column 51 is "},
        Place{"tiny", "model.layers.2.mlp.down_proj.weight", 9 * 109,
              "layer 2: row 0, column 9 is "},
        Place{"llama", "model.layers.1.self_attn.v_proj.weight", 0, "layer 1: "}}) {
    for (const float value : {NAN, INFINITY}) {
      const auto broken = changed(place.checkpoint, [&](CheckpointParts& parts) {
        parts.set(place.tensor, place.index, value);
      });
      CAPTURE(place.tensor);
      check_throws_with([&] { run(broken); }, "[forward] " + place.named);
    }
  }
}

TEST_CASE("load_model: a small parameter that is NaN or infinite is named") {
  // An infinite gate would pass unseen: it forgets everything, and the logits stay finite.
  for (const std::string name :
       {"model.norm.weight", "model.layers.3.self_attn.k_norm.weight",
        "model.layers.0.linear_attn.dt_bias", "model.layers.1.linear_attn.A_log",
        "model.layers.1.linear_attn.norm.weight", "model.layers.2.linear_attn.conv1d.weight",
        "model.layers.2.linear_attn.in_proj_a.weight",
        "model.layers.0.linear_attn.in_proj_b.weight"}) {
    for (const float value : {NAN, INFINITY}) {
      const auto broken =
          changed("tiny", [&](CheckpointParts& parts) { parts.set(name, 1, value); });
      check_throws_with([&] { run(broken); }, "tensor " + name + " holds ");
    }
  }
}

TEST_CASE("forward: a head of nothing but NaN stops it") {
  check_throws_with(
      [] {
        run(changed("untied", [](auto& parts) {
          for (std::size_t i = 0; i < 257 * 35; ++i) {
            parts.set("lm_head.weight", i, NAN);
          }
        }));
      },
      "[forward] the head: row 0, column 0 is nan; a weight is not finite, or a value "
      "has overflowed");
}

TEST_CASE("forward: a weight past the range of f16 is not taken for another") {
  const auto large =
      changed("tiny", [](auto& tiny) { tiny.set("model.layers.1.mlp.up_proj.weight", 0, 1e5f); });
  run(large);
  const TempDir folder;
  const Model model = load_model(write_checkpoint(folder, large), DType::F16);
  State state = empty_state(model.config);
  check_throws_with([&] { forward(model, fast_ops(), std::vector<int>{5}, state); },
                    "[forward] layer 1: ");
}

// ---- calls that cannot be ----

TEST_CASE("forward: a call that cannot be is refused before any state is touched") {
  const SmallModel tiny = small_model("tiny");
  const std::span<const int> ids = tiny.ids;
  const Ops ops = fast_ops();
  State a = empty_state(tiny.model.config), b = a;
  forward(tiny.model, ops, ids.first(5), a);
  forward(tiny.model, ops, ids.first(9), b);
  const State a_before = a, b_before = b;

  const auto refused = [&](const std::vector<int>& new_ids, int rows_a, int rows_b,
                           const std::string& part) {
    const std::vector<Share<State>> shares{{&a, rows_a}, {&b, rows_b}};
    check_throws_with([&] { forward(tiny.model, ops, new_ids, shares); }, part);
    CHECK(state_difference(a, a_before) == "");
    CHECK(state_difference(b, b_before) == "");
  };
  refused({}, 0, 0, "[forward] no tokens: at least 1 is needed");
  refused({1, 2}, 2, 0, "[forward] no tokens");
  refused({1, 263}, 1, 1,
          "[forward] token id 263 at position 9 is not one of 0 to vocab_size - 1 = 262");
  refused({1, 2, -1}, 2, 1, "[forward] token id -1 at position 9");
  refused({1, 2, 3}, 1, 1, "[forward] 3 ids for 2 rows of 2 sequences");
  refused({1}, 2, -1, "[forward] 1 ids for 2 rows");
  refused(std::vector<int>(505, 1), 1, 504,
          "[forward] 504 more tokens after 9 do not fit into the model's context of 512 "
          "(max_position_embeddings)");
  check_throws_with([&] { forward(tiny.model, ops, ids.first(1), {}); },
                    "[forward] 1 ids for 0 rows of 0 sequences");

  State c = a_before;
  check_same_bits("what follows", forward(tiny.model, ops, ids.subspan(5, 8), a),
                  forward(tiny.model, ops, ids.subspan(5, 8), c));
}

TEST_CASE("forward: a context is filled to its last token") {
  const SmallModel tiny = small_model("tiny");
  State state = empty_state(tiny.model.config);
  forward(tiny.model, fast_ops(), std::vector<int>(511, 3), state);
  forward(tiny.model, fast_ops(), std::vector<int>{4}, state);
  CHECK(state.position == 512);
  check_throws_with([&] { forward(tiny.model, fast_ops(), std::vector<int>{4}, state); },
                    "[forward] 1 more tokens after 512 do not fit");
}

// ---- numbers that are hard ----

TEST_CASE("forward: keys that repeat without fading, and decays that leave nothing") {
  const SmallModel tiny = small_model("tiny");
  std::vector<int> same(200, 7), in_turn(200);
  for (int t = 0; t < 200; ++t) in_turn[t] = 7 + t % 2;
  // exp(A_log) * softplus(…) from 1e-44 (no decay at all) over 26 (6.5e-12 a token) to 1e34.
  for (const float A_log : {-100.0f, -20.0f, 3.2488f, 80.0f}) {
    const TempDir folder;
    const Model model = load_model(write_checkpoint(
        folder, changed("tiny", [&](auto& parts) {
          for (int layer = 0; layer < 3; ++layer) {
            const std::string at = "model.layers." + std::to_string(layer) + ".linear_attn.";
            for (std::size_t h = 0; h < 3; ++h) {
              parts.set(at + "A_log", h, A_log);
              parts.set(at + "dt_bias", h, 0.5413f);
              for (std::size_t i = 0; i < 52; ++i) {
                parts.set(at + "in_proj_a.weight", 52 * h + i, 0);
                parts.set(at + "in_proj_b.weight", 52 * h + i, 0.1f);
              }
            }
          }
        })));
    for (const std::vector<int>& ids : {same, in_turn, tiny.ids}) {
      const std::vector<int> one_go = {static_cast<int>(ids.size())};
      const Tensor2 expected = logits_of(model, plain_ops(), ids, one_go);
      check_close("fast", logits_of(model, fast_ops(), ids, one_go), expected, 5e-5);
      check_close("chunks", logits_of(model, chunk_ops(), ids, one_go), expected, 5e-5);
    }
  }
}
