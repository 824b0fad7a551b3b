#!/usr/bin/env python3
"""Trains a small BitNet b1.58 model on stories, and writes it packed.

usage: train.py STORIES.jsonl FOLDER SECONDS [cpu]

STORIES.jsonl is what write_stories.py writes: one JSON array [text, finished] a line. Training ends after SECONDS, and the
learning rate follows the clock. FOLDER receives model.safetensors (weights packed four trits a byte), latent.safetensors
(the weights in training's precision), config.json, tokenizer.json, tokenizer_config.json and log.txt. With `cpu` everything
is small and slow, to try the program.

The model has the shape of BitNet b1.58 2B-4T: RMSNorm before attention and MLP, a further norm before the output
projection of each (sub-norms), grouped-query attention with rotary positions, relu(gate)^2 * up, and a head tied to the
embedding. Linear layers see ternary weights and int8 activations in the forward pass; gradients pass through the
rounding as if it were not there.

Needs torch, tokenizers and safetensors.
"""
import json
import math
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 4096
WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN = 256, 8, 4, 2, 64, 768
CONTEXT = 256
ROPE_THETA, EPSILON = 10000.0, 1e-5
BOS, END = "<|begin_of_text|>", "<|end_of_text|>"
BOS_ID, END_ID = 0, 1
PEAK_RATE, WARM_UP_STEPS, LEAST_RATE = 4e-3, 200, 0.02

# Words with a leading space, numbers of up to three digits, punctuation, white space: Llama 3's way to split.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")


# ---- tokenizer -----------------------------------------------------------------------------------------------------

def train_tokenizer(stories):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[BOS, END],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((text for text, _ in stories), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, BOS_ID)])
    return tokenizer


def token_stream(tokenizer, stories):
    """All stories one after another: BOS, text, and END where the story came to its end."""
    ids = []
    for encoding, (_, finished) in zip(tokenizer.encode_batch([text for text, _ in stories]), stories):
        ids += encoding.ids + ([END_ID] if finished else [])
    return torch.tensor(ids, dtype=torch.int32)


# ---- model ---------------------------------------------------------------------------------------------------------

def ternary(weight):
    """The matrix rounded to {-1, 0, +1} times its mean magnitude; the gradient is that of the matrix itself."""
    scale = weight.float().abs().mean().clamp(min=1e-5)
    return weight + ((weight / scale).round().clamp(-1, 1) * scale - weight).detach()


def int8(x):
    """Each token's activations rounded to 127 steps of its largest magnitude; the gradient passes."""
    scale = 127.0 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return x + ((x * scale).round().clamp(-128, 127) / scale - x).detach()


class BitLinear(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x):
        return F.linear(int8(x.float()).bfloat16(), ternary(self.weight).bfloat16()).float()


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x.float(), x.shape[-1:], self.weight, EPSILON)


class Rotary:
    """Rotary positions over halves of a head: the cosines and sines of every position."""

    def __init__(self, device):
        inverse = 1.0 / (ROPE_THETA ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        angles = torch.arange(CONTEXT).float()[:, None] * inverse
        self.cos = torch.cat([angles.cos()] * 2, -1).to(device)
        self.sin = torch.cat([angles.sin()] * 2, -1).to(device)

    def __call__(self, x):
        n, half = x.shape[2], HEAD_DIM // 2
        return x * self.cos[:n] + torch.cat([-x[..., half:], x[..., :half]], -1) * self.sin[:n]


class Block(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.rotary = rotary
        self.input_layernorm, self.post_attention_layernorm = Norm(WIDTH), Norm(WIDTH)
        self.self_attn = nn.ModuleDict({
            "q_proj": BitLinear(WIDTH, HEADS * HEAD_DIM), "k_proj": BitLinear(WIDTH, KV_HEADS * HEAD_DIM),
            "v_proj": BitLinear(WIDTH, KV_HEADS * HEAD_DIM), "o_proj": BitLinear(HEADS * HEAD_DIM, WIDTH),
            "attn_sub_norm": Norm(HEADS * HEAD_DIM),
        })
        self.mlp = nn.ModuleDict({
            "gate_proj": BitLinear(WIDTH, FFN), "up_proj": BitLinear(WIDTH, FFN), "down_proj": BitLinear(FFN, WIDTH),
            "ffn_sub_norm": Norm(FFN),
        })

    def attention(self, h):
        part, (batch, n, _) = self.self_attn, h.shape

        def heads(name, count):
            return part[name](h).view(batch, n, count, HEAD_DIM).transpose(1, 2)

        q, k, v = self.rotary(heads("q_proj", HEADS)), self.rotary(heads("k_proj", KV_HEADS)), heads("v_proj", KV_HEADS)
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
        out = F.scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), is_causal=True)
        out = out.transpose(1, 2).reshape(batch, n, HEADS * HEAD_DIM).float()
        return part["o_proj"](part["attn_sub_norm"](out))

    def feed_forward(self, h):
        part = self.mlp
        return part["down_proj"](part["ffn_sub_norm"](F.relu(part["gate_proj"](h)) ** 2 * part["up_proj"](h)))

    def forward(self, x):
        x = x + self.attention(self.input_layernorm(x))
        return x + self.feed_forward(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, vocabulary, device):
        super().__init__()
        rotary = Rotary(device)
        self.embed_tokens = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Block(rotary) for _ in range(LAYERS))
        self.norm = Norm(WIDTH)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x).bfloat16(), self.embed_tokens.weight.bfloat16())


def is_ternary(name, parameter):
    return parameter.dim() == 2 and "embed" not in name


# ---- training ------------------------------------------------------------------------------------------------------

class Batches:
    """Random windows of a stream of tokens: (inputs, the tokens that follow)."""

    def __init__(self, device):
        self.device = device
        self.generator = torch.Generator(device=device).manual_seed(3)

    def draw(self, stream, count):
        start = torch.randint(len(stream) - CONTEXT - 1, (count, 1), generator=self.generator, device=self.device)
        ids = stream[start + torch.arange(CONTEXT + 1, device=self.device)].long()
        return ids[:, :-1], ids[:, 1:]


def loss_of(model, x, y):
    logits = model(x).float()
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.reshape(-1))


def make_model(vocabulary, device):
    torch.manual_seed(1)
    model = Model(vocabulary, device).to(device)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.05 if is_ternary(name, parameter) else 0.02)
    return model


def make_optimizer(model, device):
    """Weight decay for the ternary matrices alone."""
    decayed = [p for name, p in model.named_parameters() if is_ternary(name, p)]
    others = [p for name, p in model.named_parameters() if not is_ternary(name, p)]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95), fused=device != "cpu")


def train(model, training, batches, seconds, batch_size, device, say):
    """Trains for so many seconds; returns the number of steps."""
    optimizer = make_optimizer(model, device)
    loss_function = torch.compile(loss_of) if device != "cpu" else loss_of
    report_every = 500 if device != "cpu" else 5
    loss_function(model, *batches.draw(training, batch_size)).backward()  # compiles, before the clock starts
    optimizer.zero_grad(set_to_none=True)
    start, step, elapsed = time.time(), 0, 0.0
    while elapsed < 1.0:
        elapsed = min(1.0, (time.time() - start) / seconds)
        cosine = LEAST_RATE + (1 - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * elapsed))
        for group in optimizer.param_groups:
            group["lr"] = PEAK_RATE * min(1, (step + 1) / WARM_UP_STEPS) * cosine
        # without decay in the second half, weights settle on their side of the rounding
        optimizer.param_groups[0]["weight_decay"] = 0.1 if elapsed < 0.5 else 0.0
        loss = loss_function(model, *batches.draw(training, batch_size))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % report_every == 0:
            passed = time.time() - start
            say(f"step {step} {passed:.0f}s loss {loss.item():.3f} tok/s {step * batch_size * CONTEXT / passed:.0f}")
    return step


# ---- writing -------------------------------------------------------------------------------------------------------

def pack(weight):
    """Trits as codes 0, 1, 2; a byte holds the same column of four rows, a quarter of the matrix apart, lowest bits first.
    Returns the bytes and the scale that multiplies the trits."""
    scale = weight.abs().mean().clamp(min=1e-5)
    codes = ((weight / scale).round().clamp(-1, 1) + 1).to(torch.uint8)
    a, b, c, d = codes.chunk(4)
    return (a | b << 2 | c << 4 | d << 6).contiguous(), scale.bfloat16().reshape(1)


def save_weights(model, folder):
    packed, latent = {}, {}
    for name, parameter in model.named_parameters():
        weight, key = parameter.detach().float().cpu(), "model." + name
        latent[key] = weight.bfloat16()
        if is_ternary(name, parameter):
            packed[key], packed[key + "_scale"] = pack(weight)
        else:
            packed[key] = weight.bfloat16()
    save_file(packed, folder + "/model.safetensors", metadata={"format": "pt"})
    save_file(latent, folder + "/latent.safetensors", metadata={"format": "pt"})


def save_config(vocabulary, folder):
    config = {
        "architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "hidden_act": "relu2", "hidden_size": WIDTH,
        "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "max_position_embeddings": CONTEXT, "rms_norm_eps": EPSILON,
        "rope_theta": ROPE_THETA, "tie_word_embeddings": True, "vocab_size": vocabulary, "bos_token_id": BOS_ID,
        "eos_token_id": END_ID, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"},
    }
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": END,
                        "add_bos_token": True, "model_max_length": CONTEXT}
    for name, values in (("config.json", config), ("tokenizer_config.json", tokenizer_config)):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            json.dump(values, file, indent=2)


@torch.no_grad()
def continue_text(model, tokenizer, text, temperature, device, count=150):
    ids, generator = tokenizer.encode(text).ids, torch.Generator().manual_seed(1)
    for _ in range(count):
        logits = model(torch.tensor([ids[-CONTEXT:]], device=device))[0, -1].float().cpu()
        if temperature:
            chosen = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator).item()
        else:
            chosen = logits.argmax().item()
        if chosen == END_ID:
            break
        ids.append(chosen)
    return tokenizer.decode(ids)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    source, folder, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    device = "cpu" if "cpu" in sys.argv else "cuda"
    batch_size = 4 if device == "cpu" else 320
    os.makedirs(folder, exist_ok=True)
    log = open(folder + "/log.txt", "w", encoding="utf-8")

    def say(*words):
        print(*words, flush=True)
        print(*words, file=log, flush=True)

    with open(source, encoding="utf-8") as file:
        stories = [json.loads(line) for line in file]
    tokenizer = train_tokenizer(stories)
    tokenizer.save(folder + "/tokenizer.json")
    vocabulary = tokenizer.get_vocab_size()
    stream = token_stream(tokenizer, stories)
    held_out = max(len(stream) // 100, CONTEXT * 4)
    training, validation = stream[:-held_out].to(device), stream[-held_out:].to(device)
    say("stories", len(stories), "tokens", len(training), "vocabulary", vocabulary)

    model, batches = make_model(vocabulary, device), Batches(device)
    steps = train(model, training, batches, seconds, batch_size, device, say)
    model.eval()
    with torch.no_grad():
        losses = [loss_of(model, *batches.draw(validation, min(batch_size, 64))).item() for _ in range(8)]
    say("validation loss", sum(losses) / len(losses), "steps", steps)
    save_weights(model, folder)
    save_config(vocabulary, folder)
    for text in ("Once upon a time", "One day, Lily", "The little dragon"):
        say("GREEDY", continue_text(model, tokenizer, text, 0, device))
        say("SAMPLE", continue_text(model, tokenizer, text, 0.7, device))


if __name__ == "__main__":
    main()
