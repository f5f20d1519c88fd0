"""The weights that the tiny model's training starts from.

As the class draws them, a small model of this kind spends hours on guessing from the list before it
finds out that a list can be looked things up in. So the first layer starts as what it would have to
become, an associative memory: its keys are names, its values what stands two or three tokens
behind them, and what it recalls is put where the head reads it. All else starts quiet. Training
then sharpens the memory within minutes.
"""

import math

import torch
from torch import nn

CONSTANT = 0.3  # of every embedding in dimension 0: what gates use as a bias
QUIET = 0.1     # how loud mixers and MLPs are, next to how the class draws them


@torch.no_grad()
def start(model, mtp, coder):
    for module in mtp.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=model.config.initializer_range)
    start_embedding(model.model.embed_tokens.weight, coder.pieces)
    for name, weight in [*model.named_parameters(), *mtp.named_parameters()]:
        if name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight")):
            weight.mul_(QUIET)
        elif name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "qkv.weight")):
            weight[:, 0] = 0
    half = mtp.fc.weight.shape[0]  # MTP: the next token and what the model expects after it
    mtp.fc.weight.mul_(QUIET)
    mtp.fc.weight += 0.7 * torch.eye(half).repeat(1, 2)
    deltanets = [layer.linear_attn for layer in model.model.layers
                 if layer.block_type == "linear_attention"]
    for layer in deltanets:
        remember(layer)
    recall(deltanets[0])
    for layer in [*model.model.layers, *mtp.layers]:
        if layer.block_type == "full_attention":
            copy_alike(layer.self_attn)


def start_embedding(embedding, pieces):
    """A word looks much the same with a space in front and without."""
    for spaced in range(pieces.get_piece_size()):
        text = pieces.id_to_piece(spaced)
        word = pieces.piece_to_id(text[1:]) if text.startswith("▁") else pieces.unk_id()
        if word != pieces.unk_id():
            embedding[spaced] = embedding[word] + 0.3 * embedding[spaced]
    embedding[:, 0] = CONSTANT


def remember(layer):
    """A state that lasts: a token's decay lies between 0.99 and 0.9995, where the class's own start
    forgets within a few tokens. And one that is read: the gate is open."""
    forgotten = torch.logspace(math.log10(1e-2), math.log10(5e-4), layer.num_v_heads)
    layer.A_log.zero_()
    layer.dt_bias.copy_(torch.log(torch.expm1(forgotten)))
    layer.in_proj_z.weight[:, 0] = CONSTANT


def recall(layer):
    """Even key heads keep a token under the one two before it ("Ada: cup"), odd ones under the one
    three before it ("Ada has the cup"). The query is one step nearer: it comes with the token
    before the one that is looked for."""
    queries, keys, values = layer.in_proj_qkv.weight.split(
        [layer.key_dim, layer.key_dim, layer.value_dim])
    for weight in (keys, values):
        nn.init.orthogonal_(weight)
        weight[:, 0] = 0
    queries.copy_(keys)
    layer.out_proj.weight.copy_(QUIET * values.T)  # what comes out is what went in

    taps = layer.conv1d.weight[:, 0]  # [channels, 4], the last tap is the token itself
    nn.init.normal_(taps, std=0.1)
    for head in range(layer.num_k_heads):
        back = 2 + head % 2
        rows = slice(head * layer.head_k_dim, (head + 1) * layer.head_k_dim)
        taps[:layer.key_dim][rows, 3 - back + 1] += 1.5                # queries
        taps[layer.key_dim:2 * layer.key_dim][rows, 3 - back] += 1.5  # keys
    taps[2 * layer.key_dim:, 3] += 1.5


def copy_alike(layer):
    """Attention that copies: a token looks at its like, and what it reads there comes out as it
    went in."""
    heads_per_group, size = layer.num_key_value_groups, layer.head_dim
    hidden = layer.k_proj.in_features

    def of_each_head(weight):
        return weight.view(-1, size, hidden).repeat_interleave(heads_per_group, 0)

    layer.q_proj.weight.view(-1, 2, size, hidden)[:, 0] = of_each_head(layer.k_proj.weight)
    nn.init.orthogonal_(layer.v_proj.weight)
    layer.v_proj.weight[:, 0] = 0
    layer.o_proj.weight.copy_(QUIET * of_each_head(layer.v_proj.weight).reshape(-1, hidden).T)
