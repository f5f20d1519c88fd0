"""The multi-token prediction module of Qwen3.5, which transformers leaves out.

At position p it sees the hidden state h_p after the final norm and the token at p + 1, and predicts
the token at p + 2 with the model's own head. Feeding its output back in drafts further tokens.
"""

import torch
from torch import nn
from transformers.masking_utils import create_causal_mask
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm


class Mtp(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.config = config
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(size, eps=eps)
        self.fc = nn.Linear(2 * size, size, bias=False)
        full_attention = config.layer_types.index("full_attention")
        self.layers = nn.ModuleList([Qwen3_5DecoderLayer(config, full_attention)])
        self.norm = Qwen3_5RMSNorm(size, eps=eps)

    def forward(self, model, hidden, next_ids):
        """hidden [B, T, H] after the final norm, next_ids [B, T] the tokens one further on
        -> [B, T, H], the head's input for the tokens two further on."""
        embedded = model.model.embed_tokens(next_ids)
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded),  # the embedding's half first
                               self.pre_fc_norm_hidden(hidden)], dim=-1))
        positions = torch.arange(x.shape[1], device=x.device)[None]
        mask = create_causal_mask(config=self.config, inputs_embeds=x, attention_mask=None,
                                  cache=None, position_ids=positions)
        x = self.layers[0](x, position_embeddings=model.model.rotary_emb(x, positions),
                           attention_mask=mask, position_ids=positions)
        return self.norm(x)
