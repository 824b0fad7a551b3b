#!/usr/bin/env python3
"""Replays a routing trace (`setun run MODEL --trace FILE`) against caches of experts of any capacity.

Rules, by the expert that they replace: lru, the one that was used longest ago; lfu, the one that the fewest tokens used;
score, the one with the lowest score = 0.999 score + 0.001 selected, for each token; next, the one whose next use is expected
last, by its score and by how many layers lie before its own; setun, that of lru, score or next, whichever had the most hits
recently, as src/placement/expert_policy.c decides; belady, the one that is needed again last, which no rule that does not know the
future can surpass. What a layer needs in one pass stays until it has been computed.

Prints the exponent s of the experts' use by rank, with which it fits Zipf's law best, and the hit rate of each rule by
capacity; --svg draws them, --json prints them for programs."""
import argparse
import heapq
import json
import math
import sys

RULES = ("lru", "lfu", "score", "next", "setun", "belady")
KEPT = 0.999
EVEN_TOKENS = 100
NEVER = 1 << 60


class TraceError(Exception):
    pass


def read_trace(path):
    """The numbers of layers, of experts in each and of those that a token uses, and the demands: (begins a pass, tokens, [(expert, tokens of it)])."""
    demands, last, counts = [], None, {}
    with open(path, encoding="utf-8") as file:
        head = file.readline().split()
        if head[:2] != ["setun-experts", "1"]:
            raise TraceError(f"{path}: expected a trace of experts, version 1, found {' '.join(head)[:40]!r}")
        facts = dict(word.split("=") for word in head[2:])
        layers, experts, of_token = (int(facts[name]) for name in ("layers", "experts", "used"))
        for number, line in enumerate(file, 2):
            layer, tokens, *wanted = line.split()
            layer, used = int(layer), []
            for word in wanted:
                expert, _, count = word.partition(":")
                if not (0 <= layer < layers and 0 <= int(expert) < experts):
                    raise TraceError(f"{path}: line {number}: expected layers below {layers} and experts below {experts}")
                used.append((layer * experts + int(expert), int(count or 1)))
            demands.append((last is None or layer <= last, int(tokens), used))
            last = layer
            row = counts.setdefault(layer, [0] * experts)
            for expert, count in used:
                row[expert % experts] += count
    return layers, experts, of_token, demands, counts


def zipf_exponent(counts, used):
    """The s with which experts are used by Zipf's law: by maximum likelihood over all layers, the experts of each ranked
    by their use. A token takes `used` distinct ones of a layer, with chances that fall as 1 / rank^s: that of rank r with
    a probability of about 1 - exp(-a / r^s), where a is such that these add up to `used`."""
    rows = [sorted(row, reverse=True) for row in counts.values()]
    n = len(rows[0])
    tokens = [sum(row) / used for row in rows]
    sums, most = [sum(row[rank] for row in rows) for rank in range(n)], sum(tokens)

    def pace(weights):
        low, high = 0.0, 64.0 / min(weights)
        for _ in range(60):
            middle = (low + high) / 2
            if sum(1 - math.exp(-middle * w) for w in weights) < used:
                low = middle
            else:
                high = middle
        return high

    def likelihood(s):
        weights = [(rank + 1) ** -s for rank in range(n)]
        a, total = pace(weights), 0.0
        for weight, count in zip(weights, sums):
            p = min(max(1 - math.exp(-a * weight), 1e-12), 1 - 1e-12)
            total += count * math.log(p) + (most - count) * math.log(1 - p)
        return total

    low, high = 0.0, 4.0
    for _ in range(40):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if likelihood(a) < likelihood(b) else (low, b)
    return (low + high) / 2


def next_uses(demands):
    """For each demand, the index of the next demand for the same expert."""
    after, seen = [None] * len(demands), {}
    for place in range(len(demands) - 1, -1, -1):
        after[place] = [seen.get(expert, NEVER) for expert, _ in demands[place][2]]
        for expert, _ in demands[place][2]:
            seen[expert] = place
    return after


class Cache:
    """Ranked experts, the lowest of which is replaced first; an expert's rank changes only when it is used."""

    def __init__(self, capacity):
        self.capacity, self.cached, self.heap, self.hits, self.wanted = capacity, {}, [], 0, 0

    def use(self, expert, rank, pinned):
        self.wanted += 1
        hit = expert in self.cached
        self.hits += hit
        if not hit and len(self.cached) >= self.capacity:
            aside = []
            while self.heap:
                item = heapq.heappop(self.heap)
                if self.cached.get(item[1]) != item[0]:
                    continue  # its rank has changed
                if item[1] in pinned:
                    aside.append(item)
                    continue
                del self.cached[item[1]]
                break
            for item in aside:
                heapq.heappush(self.heap, item)
            if len(self.cached) >= self.capacity:
                return False  # all are needed now: it is read and not kept
        self.cached[expert] = rank
        heapq.heappush(self.heap, (rank, expert))
        return hit


class Scores:
    """How often experts are used, with older tokens counting less, and when each is expected to be used again."""

    def __init__(self, layers, experts, of_token):
        self.layers, self.experts, self.scale, self.seen, self.each, self.passes = layers, experts, 1.0, 0.0, 0.0, 0
        self.even = (1 - KEPT) * EVEN_TOKENS * of_token / experts
        self.scores, self.due = [0.0] * (layers * experts), [layers + layer for layer in range(layers)]

    def begin(self, tokens):
        faded = KEPT ** tokens
        self.scale, self.seen, self.passes = self.scale / faded, 1 - (1 - self.seen) * faded, self.passes + 1
        if self.scale > 1e200:
            self.scores, self.scale = [s / self.scale for s in self.scores], 1.0
        self.each = self.scale * (1 - faded) / max(tokens, 1)

    def reach(self, layer):
        self.due[layer] = (self.passes + 1) * self.layers + layer

    def add(self, expert, selected):
        self.scores[expert] += self.each * selected

    def next_use(self, expert):
        share = self.scale * (self.seen + (1 - KEPT) * EVEN_TOKENS) / (self.scores[expert] + self.scale * self.even)
        return self.due[expert // self.experts] + self.layers * share


class Ordered:
    """A cache whose ranks change at any time: `first` returns the one of some experts that is replaced first."""

    def __init__(self, capacity):
        self.capacity, self.used, self.hits, self.wanted = capacity, {}, 0, 0

    def use(self, expert, clock, pinned, first):
        self.wanted += 1
        if expert in self.used:
            self.hits += 1
        elif len(self.used) >= self.capacity:
            free = [e for e in self.used if e not in pinned]
            if not free:
                return
            del self.used[first(free, self.used)]
        self.used[expert] = clock


def replay(layers, experts, of_token, demands, after, capacity):
    """The hit rate by rule."""
    n = layers * experts
    caches = {rule: Cache(capacity) for rule in ("lru", "lfu", "belady")}
    counts, clock, scores = [0] * n, 0, Scores(layers, experts, of_token)
    rules = {"lru": lambda free, used: min(free, key=used.get),
             "score": lambda free, used: min(free, key=lambda e: (scores.scores[e], used[e])),
             "next": lambda free, used: max(free, key=lambda e: (scores.next_use(e), -used[e]))}
    ordered, choice = {rule: Ordered(capacity) for rule in ("score", "next", "setun")}, Choice(n)
    for place, (begins, tokens, used) in enumerate(demands):
        pinned = {expert for expert, _ in used}
        if begins:
            scores.begin(tokens)
        if used:
            scores.reach(used[0][0] // experts)
        for (expert, selected), later in zip(used, after[place]):
            clock += 1
            counts[expert] += selected
            caches["lru"].use(expert, (clock,), pinned)
            caches["lfu"].use(expert, (counts[expert], clock), pinned)
            caches["belady"].use(expert, (-later,), pinned)
            for rule, cache in ordered.items():
                cache.use(expert, clock, pinned, rules[choice.rule if rule == "setun" else rule])
            scores.add(expert, selected)
            choice.count({"lru": caches["lru"].hits, "score": ordered["score"].hits, "next": ordered["next"].hits})
    rates = {rule: cache.hits / max(cache.wanted, 1) for rule, cache in (caches | ordered).items()}
    return {rule: rates[rule] for rule in RULES}


class Choice:
    """The one of three rules that recently had the most hits."""

    def __init__(self, n):
        self.fade, self.rule = 1 - 1 / (16 * n + 2000), "next"
        self.late, self.before = dict.fromkeys(("lru", "score", "next"), 0.0), dict.fromkeys(("lru", "score", "next"), 0)

    def count(self, hits):
        for rule in self.late:
            self.late[rule] = self.late[rule] * self.fade + (hits[rule] - self.before[rule])
        self.before = hits
        best = max(self.late, key=self.late.get)
        if self.late[best] > self.late[self.rule] * 1.005 + 1:
            self.rule = best


COLORS = {"lru": "#1f77b4", "lfu": "#2ca02c", "score": "#ff7f0e", "next": "#9467bd", "setun": "#d62728", "belady": "#7f7f7f"}


def draw(path, n, results):
    """Lines of hit rates in percent over the capacity in percent of all experts."""
    left, top, width, height = 50, 20, 480, 300
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 110}" height="{top + height + 50}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for tick in range(0, 101, 20):
        x, y = left + width * tick / 100, top + height * (1 - tick / 100)
        out.append(f'<line x1="{left}" y1="{y}" x2="{left + width}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{tick}</text>')
        out.append(f'<text x="{x}" y="{top + height + 16}" text-anchor="middle">{tick}</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 36}" text-anchor="middle">experts in the cache, % of {n}</text>')
    out.append(f'<text x="{left}" y="{top - 6}">hits, %</text>')
    for index, rule in enumerate(RULES):
        points = " ".join(f"{left + width * c / n:.1f},{top + height * (1 - r[rule]):.1f}" for c, r in results)
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[rule]}" stroke-width="2"/>')
        y = top + 14 + 18 * index
        out.append(f'<line x1="{left + width + 10}" y1="{y - 4}" x2="{left + width + 30}" y2="{y - 4}" stroke="{COLORS[rule]}" stroke-width="2"/>')
        out.append(f'<text x="{left + width + 36}" y="{y}">{rule}</text>')
    out.append("</svg>\n")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--capacity", type=int, action="append", help="experts in the cache (default: each tenth of all); may be given several times")
    parser.add_argument("--svg", metavar="FILE", help="draw the hit rates")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    layers, experts, of_token, demands, counts = read_trace(options.trace)
    n = layers * experts
    exponent = zipf_exponent(counts, of_token) if counts and 0 < of_token < experts else None
    after = next_uses(demands)
    capacities = sorted(set(options.capacity or (max(1, n * tenth // 10) for tenth in range(1, 11))))
    results = [(capacity, replay(layers, experts, of_token, demands, after, capacity)) for capacity in capacities]
    if options.svg:
        draw(options.svg, n, results)
    if options.json:
        print(json.dumps({"experts": n, "zipf_exponent": exponent, "hit_rates": [{"capacity": c, **r} for c, r in results]}))
        return
    if exponent is not None:
        print(f"use by rank: Zipf's law with s = {exponent:.2f}")
    print("capacity  " + "  ".join(f"{rule:>7}" for rule in RULES))
    for capacity, rates in results:
        print(f"{capacity:8d}  " + "  ".join(f"{100 * rates[rule]:6.2f}%" for rule in RULES))


if __name__ == "__main__":
    try:
        main()
    except (TraceError, OSError) as problem:
        sys.exit(f"replay_experts.py: {problem}")
