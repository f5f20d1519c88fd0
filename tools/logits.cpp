// Logits of a sequence of token ids, as a float32 .npy file: for comparing with anything.
//
//   build/tools/logits --model M --ids 1,2,3 --out F.npy
#include <chrono>
#include <climits>
#include <cstdio>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "qwen/check.h"
#include "qwen/file.h"
#include "qwen/model.h"
#include "qwen/mtp.h"
#include "qwen/options.h"
#include "qwen/profile.h"
#include "qwen/tables.h"

using namespace qwen;

namespace {

struct Options {
  ModelOptions model;
  std::vector<int> ids, pieces;
  bool all = false, mtp = false, plain = false, check = false, profile = false;
  std::string out;
};

// The .npy format: a magic number, its version, the length of a header that is a Python
// dictionary, padded with spaces so that the data is aligned to 64 bytes.
void write_npy(const std::string& path, const Tensor2& x) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(dim(x, 0)) + ", " + std::to_string(dim(x, 1)) + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  write_file(path, [&](std::ostream& file) {
    file << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size() % 256)
         << static_cast<char>(header.size() / 256) << header;
    file.write(reinterpret_cast<const char*>(x.data()),
               static_cast<std::streamsize>(x.size() * sizeof(float)));
  });
}

// Hidden states of the last row, or of all, after reading the ids in the pieces asked for.
Tensor2 hidden_rows(const Model& model, const Ops& ops, const Options& options, bool all) {
  std::vector<int> pieces = options.pieces;
  const int count = static_cast<int>(options.ids.size());
  if (pieces.empty()) pieces = {count};
  if (std::accumulate(pieces.begin(), pieces.end(), 0LL) != count) {
    throw std::invalid_argument("--pieces must add up to the number of ids, " +
                                std::to_string(count));
  }
  State state = empty_state(model.config);
  check_tokens(model.config, options.ids, 0);
  Tensor2 rows = uninit(all ? count : 1, model.config.hidden_size);
  std::span<const int> rest = options.ids;
  for (const int piece : pieces) {
    const Share<State> alone{&state, piece};
    const Tensor2 hidden = hidden_states(model, ops, rest.first(piece), {&alone, 1});
    rest = rest.subspan(piece);
    const int kept = all ? piece : 1;
    std::copy_n(row(hidden, piece - kept), kept * dim(hidden, 1),
                row(rows, all ? state.position - piece : 0));
  }
  return rows;
}

// Row p from the model's state at p and the id at p + 1: what it expects at p + 2.
Tensor2 mtp_logits(const Model& model, const Mtp& mtp, const Ops& ops, const Options& options) {
  const int count = static_cast<int>(options.ids.size());
  if (count < 2) throw std::invalid_argument("--mtp needs at least 2 ids");
  const Tensor2 hidden = slice(hidden_rows(model, ops, options, true), 0, count - 1);
  LayerState memory = empty_mtp_memory();
  const std::span<const int> next_ids = std::span(options.ids).subspan(1);
  return head(model, ops, mtp_forward(model, ops, mtp, hidden, next_ids, memory));
}

// The rows of logits asked for.
Tensor2 logits_of(const Model& model, const std::optional<Mtp>& mtp, const Ops& ops,
                  const Options& options) {
  if (mtp) return mtp_logits(model, *mtp, ops, options);
  return head(model, ops, hidden_rows(model, ops, options, options.all));
}

void run(const Options& options) {
  const Model model = open_model(options.model);
  std::optional<Mtp> mtp;
  if (options.mtp) {
    mtp = load_mtp(model.config, open_checkpoint(options.model.model), chosen_dtype(options.model));
  }
  Profile profile;
  Ops ops = options.plain ? plain_ops() : fast_ops();
  if (options.profile) ops = timed_ops(ops, profile);
  if (options.check) ops = checked_ops(ops, plain_ops());

  const auto start = std::chrono::steady_clock::now();
  const Tensor2 logits = logits_of(model, mtp, ops, options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (options.profile) std::printf("%s", report(profile, seconds.count()).c_str());
  if (options.check) std::printf("every operator agrees with its plain version\n");
  if (!options.out.empty()) write_npy(options.out, logits);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Logits of a sequence of token ids");
  Options options;
  add_model_options(app, options.model);
  add_integers(app, "--ids", options.ids, 0, INT_MAX, "token ids, separated by commas")->required();
  add_integers(app, "--pieces", options.pieces, 1, INT_MAX,
               "read the ids in pieces of these sizes");
  app.add_flag("--all", options.all, "logits of every row, not only of the last");
  app.add_flag("--mtp", options.mtp,
               "the MTP layer's logits: row p, of all but the last, drafts the token at p + 2");
  app.add_flag("--plain", options.plain, "compute with the plain operators");
  app.add_flag("--check", options.check, "compare every operator with its plain version");
  app.add_flag("--profile", options.profile, "print the time by operator");
  app.add_option("--out", options.out, "write a float32 .npy file");
  return run_program(app, argc, argv, [&] { run(options); });
}
