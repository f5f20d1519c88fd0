#include "qwen/tables.h"

#include "qwen/attention.h"
#include "qwen/deltanet.h"
#include "qwen/linear.h"
#include "qwen/mlp.h"
#include "qwen/norm.h"
#include "qwen/rope.h"

namespace qwen {

Ops plain_ops() {
  Ops ops;
  ops.rms_norm = plain::rms_norm;
  ops.gated_rms_norm = plain::gated_rms_norm;
  ops.products = one_by_one(plain::linear);
  ops.swiglu = plain::swiglu;
  ops.rope = plain::rope;
  ops.attention = plain::attention;
  ops.sigmoid_gate = plain::sigmoid_gate;
  ops.conv_qkv = plain::conv_qkv;
  ops.delta_rule = plain::delta_rule;
  return ops;
}

Ops fast_ops() {
  Ops ops;
  ops.rms_norm = fast::rms_norm;
  ops.gated_rms_norm = fast::gated_rms_norm;
  ops.products = fast::products;
  ops.swiglu = fast::swiglu;
  ops.rope = fast::rope;
  ops.attention = fast::attention;
  ops.sigmoid_gate = fast::sigmoid_gate;
  ops.conv_qkv = fast::conv_qkv;
  ops.delta_rule = fast::delta_rule;
  return ops;
}

}  // namespace qwen
