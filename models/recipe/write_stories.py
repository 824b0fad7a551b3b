#!/usr/bin/env python3
"""Writes short children's stories with SmolLM2-135M-Instruct (Apache-2.0), many at a time.

usage: write_stories.py MODEL.gguf STORIES.jsonl SECONDS BATCH [cpu]

Each line of STORIES.jsonl is a JSON array [text, finished]; `finished` says that the model ended the story by itself, and
was not cut at the length that fits. Stories that are too short, repeat themselves or carry markup are dropped. $SEED
(default 7) chooses the prompts.

The weights are read with transformers; the forward pass is written out below, because decoding hundreds of stories at once
with one shared cache is many times faster that way.

Needs torch, transformers and gguf.
"""
import json
import os
import random
import sys
import time

import torch
import torch.nn.functional as F
import transformers

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM = 30, 576, 9, 3, 64
ROPE_THETA, EPSILON = 100000.0, 1e-5
LENGTH = 290  # tokens of prompt and story together
MASKED = -1e4
TEMPERATURE, TOP_K, TOP_P = 0.85, 40, 0.95
SHORTEST, LEAST_VARIETY = 200, 0.86  # characters; share of different word triples

NAMES = """Lily Tom Max Anna Ben Mia Sam Zoe Leo Ella Jack Rosie Finn Clara Otto Nina Hugo Ivy Noah Ruby Oscar Maya Theo Alice
Felix Emma Milo Sara Toby Grace Luca Nora Pip Daisy Bruno Hazel Kim Amir Yuki Omar Leila Ravi Chen Sofia Anton Wanda Boris
Katya Juan Marta""".split()
HEROES = ("a little girl,a little boy,a small cat,a brown dog,a shy rabbit,a young fox,an old turtle,a tiny mouse,"
          "a clever crow,a friendly bear,a lost duckling,a baby elephant,a hungry squirrel,a kind farmer,a baker,"
          "a small robot,a green frog,a brave knight,a lonely dragon,a fisherman,a gardener,a pony,a hedgehog,an owl,"
          "a sailor,a bee,a snail,a lamb,a wolf cub,a penguin").split(",")
THINGS = ("a red ball,a big box,a golden key,a broken bridge,a warm blanket,an apple tree,a paper boat,a new friend,"
          "a wooden chair,a bright star,a heavy stone,a blue bird,a storm,a birthday cake,a lost toy,a deep well,"
          "a quiet lake,a long road,a hat,a kite,a mountain,a garden,a lantern,a song,a river,a snowman,a pot of soup,"
          "a treasure map,a small house,a rainbow,a bell,a mirror,a train,a book,a pair of shoes,a clock,a drum,"
          "a pumpkin,a shell,a feather").split(",")
PLOTS = ("learns to share,helps someone,is afraid but tries anyway,tells the truth,gets lost and finds the way home,"
         "makes a mistake and fixes it,learns to be patient,finds something surprising,works hard,says sorry,"
         "makes a wish,keeps a promise,plays all day,goes on a trip,wants to fly,cannot sleep,plants a seed,"
         "builds something,shares a meal,looks for the moon").split(",")
OPENINGS = ["Once upon a time", "Once upon a time,", "One day", "One day,", "There was once", None, "One morning", "Long ago",
            "In a small village", "", ""]  # None: the hero's name
SYSTEM = "You write very short stories for small children, with simple words and short sentences."


def make_prompt(chance):
    """A request for one story, in the model's chat format, with the first words of the answer."""
    name = chance.choice(NAMES)
    hero, thing, plot = chance.choice(HEROES), chance.choice(THINGS), chance.choice(PLOTS)
    opening = chance.choice(OPENINGS)
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\nWrite a short story about {hero} named {name} and "
            f"{thing}. In the story, {name} {plot}. Use easy words. Write one or two paragraphs.<|im_end|>\n"
            f"<|im_start|>assistant\n" + (name if opening is None else opening))


class Writer:
    """The model with a KV cache for `batch` sequences, which are aligned at their right ends."""

    def __init__(self, path, batch, device):
        folder, file = os.path.split(os.path.abspath(path))
        self.device, self.kind = device, torch.float32 if device == "cpu" else torch.bfloat16
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
        self.weights = {name: tensor.to(device, self.kind) for name, tensor in model.state_dict().items()}
        self.end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        inverse = 1.0 / (ROPE_THETA ** (torch.arange(0, HEAD_DIM, 2, device=device).float() / HEAD_DIM))
        angles = torch.arange(LENGTH, device=device).float()[:, None] * inverse
        self.cos = torch.cat([angles.cos()] * 2, -1).to(self.kind)
        self.sin = torch.cat([angles.sin()] * 2, -1).to(self.kind)
        shape = (batch, KV_HEADS, LENGTH, HEAD_DIM)
        self.keys = [torch.zeros(shape, device=device, dtype=self.kind) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(cache) for cache in self.keys]

    def rotate(self, x, positions):
        half = HEAD_DIM // 2
        return x * self.cos[positions] + torch.cat([-x[..., half:], x[..., :half]], -1) * self.sin[positions]

    def attend(self, q, keys, values, mask, n):
        """`mask` is added to the scores of columns that hold padding."""
        group = HEADS // KV_HEADS
        if n == 1:  # plain products: the query heads that share a key head go together
            scores = torch.matmul(q.view(-1, KV_HEADS, group, HEAD_DIM), keys.transpose(2, 3)) / 8
            scores = scores + mask[:, None, None, :keys.shape[2]]
            return torch.matmul(torch.softmax(scores.float(), -1).to(self.kind), values).reshape(-1, 1, WIDTH)
        causal = torch.full((n, n), MASKED, device=self.device, dtype=self.kind).triu(1)
        out = F.scaled_dot_product_attention(q, keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1),
                                             attn_mask=mask[:, None, None, :n] + causal)
        return out.transpose(1, 2).reshape(-1, n, WIDTH)

    @torch.no_grad()
    def step(self, ids, position, mask):
        """Logits after the last of the ids [batch, n], whose first one stands at `position`."""
        n, weights = ids.shape[1], self.weights
        x = weights["model.embed_tokens.weight"][ids]
        positions = torch.arange(position, position + n, device=self.device)
        for i in range(LAYERS):
            def linear(name, h):
                return F.linear(h, weights[f"model.layers.{i}.{name}.weight"])

            def norm(name, h):
                return F.rms_norm(h, (WIDTH,), weights[f"model.layers.{i}.{name}.weight"], EPSILON)

            def heads(name, count):
                return linear("self_attn." + name, h).view(-1, n, count, HEAD_DIM).transpose(1, 2)

            h = norm("input_layernorm", x)
            q = self.rotate(heads("q_proj", HEADS), positions)
            self.keys[i][:, :, position:position + n] = self.rotate(heads("k_proj", KV_HEADS), positions)
            self.values[i][:, :, position:position + n] = heads("v_proj", KV_HEADS)
            keys, values = self.keys[i][:, :, :position + n], self.values[i][:, :, :position + n]
            x = x + linear("self_attn.o_proj", self.attend(q, keys, values, mask, n))
            h = norm("post_attention_layernorm", x)
            x = x + linear("mlp.down_proj", F.silu(linear("mlp.gate_proj", h)) * linear("mlp.up_proj", h))
        last = F.rms_norm(x[:, -1], (WIDTH,), weights["model.norm.weight"], EPSILON)
        return F.linear(last, weights["model.embed_tokens.weight"]).float()

    def write(self, prompts):
        """One row of new ids for each prompt, until nearly all have ended."""
        ids = [self.tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
        longest = max(map(len, ids))
        padding = [longest - len(row) for row in ids]
        tokens = torch.tensor([[0] * pad + row for pad, row in zip(padding, ids)], device=self.device)
        mask = torch.zeros(len(prompts), LENGTH, device=self.device, dtype=self.kind)
        columns, first = torch.arange(longest, device=self.device)[None], torch.tensor(padding, device=self.device)[:, None]
        mask[:, :longest] = torch.where(columns < first, MASKED, 0.0).to(self.kind)
        new = [sample(self.step(tokens, 0, mask))]
        done = new[0] == self.end
        for position in range(longest, LENGTH - 1):
            new.append(sample(self.step(new[-1], position, mask)))
            done = done | (new[-1] == self.end)
            if position % 16 == 0 and done.float().mean() > 0.97:
                break
        return torch.cat(new, 1).tolist()


def sample(logits):
    best, ids = (logits / TEMPERATURE).topk(TOP_K, -1)
    chances = torch.softmax(best, -1)
    chances = chances * (chances.cumsum(-1) - chances < TOP_P)
    return ids.gather(1, torch.multinomial(chances, 1))


def finish(text, ended):
    """The story without the half sentence at its end."""
    text = text.strip()
    if ended:
        return text
    return text[:max(text.rfind(mark) for mark in (". ", ".\n", '!" ', '." ')) + 1]


def is_good(text):
    words = text.lower().split()
    variety = len(set(zip(words, words[1:], words[2:]))) / max(1, len(words) - 2)
    return len(text) >= SHORTEST and variety >= LEAST_VARIETY and not any(mark in text for mark in ("<|", "**", "Title"))


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    path, target, seconds, batch = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    writer = Writer(path, batch, "cpu" if "cpu" in sys.argv else "cuda")
    chance = random.Random(int(os.environ.get("SEED", 7)))
    written = unfinished = dropped = 0
    start = time.time()
    with open(target, "w", encoding="utf-8") as out:
        while time.time() - start < seconds:
            prompts = [make_prompt(chance) for _ in range(batch)]
            for prompt, ids in zip(prompts, writer.write(prompts)):
                ended = writer.end in ids
                unfinished += not ended
                new = writer.tokenizer.decode(ids[:ids.index(writer.end)] if ended else ids)
                text = finish(prompt.split("assistant\n")[-1] + new, ended)
                if not is_good(text):
                    dropped += 1
                    continue
                out.write(json.dumps([text, ended], ensure_ascii=False) + "\n")
                written += 1
            print(f"{time.time() - start:.0f}s stories {written} unfinished {unfinished} dropped {dropped} "
                  f"bytes {out.tell()}", flush=True)


if __name__ == "__main__":
    main()
