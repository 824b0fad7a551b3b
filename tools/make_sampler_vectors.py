#!/usr/bin/env python3
"""Writes tests/sampler/vectors.json: what a chain of sampling steps keeps, computed here with NumPy in float64.

Each step follows its definition as directly as possible (whole sorts, whole softmaxes, text compared place by place),
and shares nothing with the library. usage: make_sampler_vectors.py tests/sampler/vectors.json
"""
import json
import math
import sys

import numpy as np

F32 = np.float32
DEFAULTS = dict(penalty_last_n=64, repeat_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0,
                dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=-1,
                top_k=40, typical_p=1.0, top_p=0.95, min_p=0.05, xtc_probability=0.0, xtc_threshold=0.1,
                temperature=0.8, dynatemp_range=0.0, dynatemp_exponent=1.0, top_n_sigma=0.0,
                mirostat=0, mirostat_tau=5.0, mirostat_eta=0.1,
                order="penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature")
OFF = dict(top_k=0, top_p=1.0, min_p=0.0, temperature=1.0)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def window(text, last_n):
    return list(text) if last_n < 0 else list(text[len(text) - min(last_n, len(text)):])


def penalties(x, p, text):
    recent = window(text, p["penalty_last_n"])
    for t in set(recent):
        x[t] = x[t] / p["repeat_penalty"] if x[t] > 0 else x[t] * p["repeat_penalty"]
        x[t] -= p["presence_penalty"] + recent.count(t) * p["frequency_penalty"]


def since_text(text, pieces, breaker_texts):
    """The number of tokens after the last one in which a breaker text ends. An empty piece separates texts."""
    whole, owner = "", []
    for i, t in enumerate(text):
        piece = pieces[t] or "\0"
        whole += piece
        owner += [i] * len(piece)
    since = len(text)
    for b in breaker_texts:
        for start in range(len(whole)):
            if whole.startswith(b, start):
                since = min(since, len(text) - 1 - owner[start + len(b) - 1])
    return since


def dry(x, p, text, breakers, pieces, breaker_texts):
    text = window(text, p["dry_penalty_last_n"])
    n, best = len(text), {}
    limit = since_text(text, pieces, breaker_texts) if breaker_texts else n
    for end in range(n, 0, -1):
        if any(end >= len(b) and text[end - len(b):end] == b for b in breakers):
            limit = min(limit, n - end)
            break
    for follower in range(1, n):  # text[:follower] is compared with the whole text, from their ends
        length = 0
        while length < min(follower, limit) and text[follower - 1 - length] == text[n - 1 - length]:
            length += 1
        t = text[follower]
        held = any(b in pieces[t] for b in breaker_texts)
        if length >= p["dry_allowed_length"] and [t] not in breakers and not held:
            best[t] = max(best.get(t, 0), length)
    for t, length in best.items():
        x[t] -= min(p["dry_multiplier"] * float(p["dry_base"]) ** (length - p["dry_allowed_length"]),
                    float(np.finfo(F32).max))


def fewest(order, probabilities, mass):
    total, kept = 0.0, []
    for i in order:
        kept.append(i)
        total += probabilities[i]
        if total >= mass:
            break
    return np.sort(np.array(kept))


def falling(ids, x):
    return ids[np.lexsort((ids, -x[ids]))]


def step(name, ids, x, p, case):
    """The remaining ids; may change x, the logits of all ids."""
    if name == "penalties":
        penalties(x, p, case.get("text", []))
    if name == "dry" and p["dry_multiplier"] > 0:
        dry(x, p, case.get("text", []), case.get("breakers", []), case.get("pieces"), case.get("breaker_texts", []))
    if name == "top_n_sigma" and p["top_n_sigma"] > 0:
        return ids[x[ids] >= x[ids].max() - p["top_n_sigma"] * np.std(x[ids])]
    if name == "top_k" and p["top_k"] > 0:
        return np.sort(falling(ids, x)[:p["top_k"]])
    if name == "typ_p" and p["typical_p"] < 1:
        q = softmax(x[ids])
        surprise = -(x[ids] - x[ids].max() - np.log(np.exp(x[ids] - x[ids].max()).sum()))
        distance = np.abs(surprise - (q[q > 0] * surprise[q > 0]).sum())
        return ids[fewest(np.lexsort((ids, distance)), q, p["typical_p"])]
    if name == "top_p" and p["top_p"] < 1:
        q = softmax(x[ids])
        return ids[fewest(np.lexsort((ids, -x[ids])), q, p["top_p"])]
    if name == "min_p" and p["min_p"] > 0:
        q = softmax(x[ids])
        return ids[q >= p["min_p"] * q.max() * (1 - 1e-12)]
    if name == "xtc" and p["xtc_probability"] == 1:
        q = dict(zip(ids, softmax(x[ids])))
        top = [i for i in falling(ids, x) if q[i] >= p["xtc_threshold"]]
        return np.array([i for i in ids if i not in top[:-1]]) if len(top) > 1 else ids
    if name == "temperature":
        t = p["temperature"]
        if p["dynatemp_range"] > 0 and len(ids) > 1:
            q = softmax(x[ids])
            even = -(q[q > 0] * np.log(q[q > 0])).sum() / math.log(len(ids))
            low, high = max(0.0, t - p["dynatemp_range"]), t + p["dynatemp_range"]
            t = low + (high - low) * even ** p["dynatemp_exponent"]
        if t <= 0:
            return falling(ids, x)[:1]
        x /= t
    return ids


def mirostat(ids, x, p, mu, n_vocab):
    q = softmax(x[ids])
    if p["mirostat"] == 2:
        with np.errstate(divide="ignore"):
            kept = ids[-np.log2(q) <= mu]
        return kept if len(kept) else ids[:1]
    if len(ids) == 1:
        return ids
    logs = (x[ids] - x[ids].max())[:100]
    t = np.log((np.arange(len(logs) - 1) + 2) / (np.arange(len(logs) - 1) + 1))
    s = (t * -np.diff(logs)).sum() / (t * t).sum()
    k = ((s - 1) * 2.0 ** mu / (1 - float(n_vocab) ** (1 - s))) ** (1 / s)
    assert abs(k - round(k)) > 1e-6, "too near to a whole number to be sure of"
    return ids[:max(int(min(k, 1e9)), 1)]


def chain(case):
    """The ids that are kept, likeliest first, and their probabilities."""
    p = {k: float(F32(v)) if isinstance(v, float) else v for k, v in {**DEFAULTS, **case["params"]}.items()}
    x = np.array(logits_of(case), dtype=F32).astype(np.float64)
    n_vocab, mu = len(x), 2 * p["mirostat_tau"]
    for t, b in case.get("bias", []):
        x[t] += -math.inf if b == "-inf" else float(F32(b))
    order = [name for name in p["order"].split(";") if name]
    greedy = p["temperature"] == 0 and "temperature" in order
    if greedy:
        order = [name for name in order if name in ("penalties", "dry")]
    elif p["mirostat"]:
        order = [name for name in order if name in ("penalties", "dry", "temperature")]
        for _ in range(case.get("certain", 0)):  # draws without surprise
            mu += p["mirostat_eta"] * p["mirostat_tau"]
    ids = np.flatnonzero(x > -math.inf)
    for name in order:
        ids = step(name, ids, x, p, case)
    ids = falling(ids, x)
    if greedy:
        return [int(ids[0])], [1.0]
    if p["mirostat"]:
        ids = mirostat(ids, x, p, mu, n_vocab)
    return [int(i) for i in ids], [float(v) for v in softmax(x[ids])]


def logits_of(case):
    if "logits" in case:
        return [-math.inf if v == "-inf" else v for v in case["logits"]]
    g = case["generated"]  # multiples of 1/16, with many ties where `modulus` is small
    return [(i * g["factor"] % g["modulus"]) / 16 - g["less"] for i in range(g["n"])]


CASES = []


def add(name, logits, **rest):
    case = {"name": name, **(logits if isinstance(logits, dict) else {"logits": logits})}
    case["params"] = rest.pop("params", {})
    case.update(rest)
    CASES.append(case)


def rounded(values):
    return [float(F32(v)) for v in values]


def single_steps(r):
    peaked, flat = rounded(r.normal(0, 3, 40)), rounded(r.normal(0, 0.7, 60))
    for kind, x in ("peaked", peaked), ("flat", flat):
        for k in 1, 2, 7, 39, 40, 1000:
            add(f"top-k {k}, {kind}", x, params={**OFF, "top_k": k})
        for v in 0.0, 0.1, 0.5, 0.9, 0.999:
            add(f"top-p {v}, {kind}", x, params={**OFF, "top_p": v})
            add(f"typical {v}, {kind}", x, params={**OFF, "typical_p": v})
            add(f"min-p {v}, {kind}", x, params={**OFF, "min_p": v} if v else OFF)
        add(f"min-p 1, {kind}", x, params={**OFF, "min_p": 1.0})
        for v in 0.0, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9:
            add(f"xtc {v}, {kind}", x, params={**OFF, "xtc_probability": 1.0, "xtc_threshold": v})
        for t in 0.0, 0.01, 0.5, 1.0, 1.7, 100.0:
            add(f"temperature {t}, {kind}", x, params={**OFF, "temperature": t})
        for t, d, e in (1.0, 0.5, 1.0), (0.5, 0.5, 2.0), (0.3, 1.0, 0.5), (1.5, 1.5, 0.0):
            add(f"dynamic {t}+-{d}^{e}, {kind}", x, params={**OFF, "temperature": t, "dynatemp_range": d,
                                                            "dynatemp_exponent": e})
        add(f"all off, {kind}", x, params=OFF)
        add(f"defaults, {kind}", x)


def texts(r):
    x = rounded(r.normal(0, 2, 24))
    text = [int(t) for t in r.integers(0, 24, 100)]
    for last_n in 0, 1, 5, 64, -1:
        add(f"penalties over {last_n}", x, text=text,
            params={**OFF, "penalty_last_n": last_n, "repeat_penalty": 1.3, "presence_penalty": 0.4,
                    "frequency_penalty": 0.15})
    for key, v in ("repeat_penalty", 2.0), ("repeat_penalty", 0.5), ("presence_penalty", -1.5), ("frequency_penalty", 0.7):
        add(f"{key} {v}", x, text=text[:30], params={**OFF, key: v})
        add(f"{key} {v}, greedy", x, text=text[:30], params={**OFF, key: v, "temperature": 0.0})
    add("bias", x, bias=[[3, 2.5], [0, -100.0], [3, 1.0], [23, "-inf"], [7, 8.0]], params=OFF)
    add("bias, greedy", x, bias=[[5, 100.0]], params={"temperature": 0.0})
    add("bias before penalties", x, bias=[[4, 9.0], [5, -9.0]], text=[4, 5, 4],
        params={**OFF, "repeat_penalty": 3.0, "frequency_penalty": 1.0})

    few = [int(t) for t in r.integers(0, 3, 120)]
    phrase = [9, 1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 5, 8, 7, 3, 4, 5, 6, 1, 2, 3, 4, 5]
    dry_on = {**OFF, "dry_multiplier": 0.8}
    for name, t in ("phrase", phrase), ("three tokens", few), ("one token", [2] * 50), ("short", [1, 2]), ("none", []):
        add(f"dry, {name}", x, text=t, params=dry_on)
        add(f"dry over 20, {name}", x, text=t, params={**dry_on, "dry_penalty_last_n": 20})
        add(f"dry over none, {name}", x, text=t, params={**dry_on, "dry_penalty_last_n": 0})
        add(f"dry from 4, {name}", x, text=t, params={**dry_on, "dry_allowed_length": 4, "dry_base": 1.2})
        add(f"dry from 1, {name}", x, text=t, params={**dry_on, "dry_allowed_length": 1, "dry_base": 1.0})
        for breakers in [[3]], [[5]], [[6]], [[2, 3]], [[4, 5]], [[2, 1, 0], [1]], [[7], [1, 2, 3, 4]], [[5, 6], [0, 0]]:
            add(f"dry broken by {breakers}, {name}", x, text=t, breakers=breakers, params=dry_on)
    pieces = ["a", "b", "ab", "abc", "c", "\n", "a\nb", "", "cab", "bcabc"] + [chr(k) for k in range(65, 79)]
    for i, texts_ in enumerate((["\n"], ["abc"], ["ca"], ["cc", "bb"], ["cabcab"], ["aXYZ"], ["bca", "\n"])):
        for kinds in 4, 10:
            for last_n in -1, 10:
                add(f"dry broken by {texts_} {kinds} {last_n}", x, pieces=pieces, breaker_texts=texts_,
                    text=[int(t) for t in r.integers(0, kinds, 30 * kinds)] * 2 + [0, 8],
                    params={**dry_on, "dry_penalty_last_n": last_n, "dry_allowed_length": 1 + i % 2})
        add(f"dry broken by {texts_} or tokens", x, pieces=pieces, breaker_texts=texts_, breakers=[[3, 1], [9]],
            text=[0, 1, 4, 3, 1, 2, 4, 0, 0] * 6, params=dry_on)
    for ends in [0, 0, 0], [0, 1, 0, 1, 0, 1], [1, 0, 0, 1, 0, 0, 1, 0, 0], [0] * 9:  # repetitions that overlap themselves
        for i in range(6):
            add(f"dry, two tokens, ending in {ends} {i}", x, params=dry_on,
                text=[int(t) for t in r.integers(0, 2 + i % 2, 12 + 10 * i)] + ends)
    for middle in [2, 4], [2, 7, 4], [0, 1, 4], [0, 7, 1, 4], [7, 3], [10, 4, 7]:  # "abc", also with a control token inside
        add(f"dry broken by abc as {middle}", x, pieces=pieces, breaker_texts=["abc"], params=dry_on,
            text=[11, 12, 13, 5] + middle + [14, 15, 16, 17] + [11, 12, 13, 5] + middle + [14, 15, 16])
    add("dry beyond the largest float", x, text=[2] * 300, params={**dry_on, "dry_base": 4.0})
    add("dry, greedy", x, text=phrase, params={**dry_on, "temperature": 0.0})
    add("penalties and dry", x, text=phrase, params={**dry_on, "repeat_penalty": 1.1, "penalty_last_n": 8})


def edges():
    for name, x in (("one candidate", [-3.5]), ("two equal", [1.0, 1.0]), ("all equal", [0.25] * 30),
                    ("one above -inf", ["-inf", "-inf", 2.0, "-inf"]), ("zeros of both signs", [-0.0, 0.0, -0.0]),
                    ("far apart", [3.0e38, -3.0e38, 0.0]), ("half -inf", ["-inf", 1.0] * 20),
                    ("all negative and large", [-1.0e30, -1.0e30, -2.0e30])):
        for step in ({}, OFF, {**OFF, "typical_p": 0.5}, {**OFF, "top_p": 0.5}, {**OFF, "min_p": 0.5}, {**OFF, "top_k": 3},
                     {**OFF, "xtc_probability": 1.0}, {**OFF, "dynatemp_range": 1.0}, {"temperature": 0.0},
                     {**OFF, "temperature": 1e-30}):
            add(f"{name}, {json.dumps(step)}", x, params=step)


def chains(r):
    full = dict(repeat_penalty=1.15, presence_penalty=0.1, frequency_penalty=0.05, dry_multiplier=0.8, top_k=30,
                typical_p=0.95, top_p=0.9, min_p=0.02, xtc_probability=1.0, xtc_threshold=0.08, temperature=0.9,
                dynatemp_range=0.4, dynatemp_exponent=1.3)
    for i in range(12):
        add(f"every step {i}", rounded(r.normal(0, 1.5, 80)), params=full,
            text=[int(t) for t in r.integers(0, 80 if i % 2 else 6, 90)], breakers=[[1], [3, 4]],
            bias=[[int(r.integers(0, 80)), 1.5], [2, "-inf"]])


def orders(r):
    """Steps in other orders, and without some."""
    every = dict(repeat_penalty=1.3, presence_penalty=0.2, dry_multiplier=0.8, top_n_sigma=2.0, top_k=25, typical_p=0.95,
                 top_p=0.9, min_p=0.03, xtc_probability=1.0, xtc_threshold=0.1, temperature=0.6)
    names = DEFAULTS["order"].split(";")
    lists = [["temperature", *names[:-1]], names[::-1], names[:1], names[-1:], [], ["top_k", "penalties", "dry"],
             ["dry", "penalties", "temperature"], ["top_p", "top_k"], ["top_k", "top_p"], ["temperature", "top_p"],
             ["temperature", "min_p"], ["temperature", "typ_p"], ["temperature", "xtc"], ["temperature", "top_n_sigma"],
             ["min_p", "dry", "temperature", "penalties"], ["temperature", "dry", "top_k"], ["xtc", "top_k", "temperature"]]
    lists += [[names[i] for i in r.permutation(9)[:int(r.integers(2, 10))]] for _ in range(30)]
    for i, order in enumerate(lists):
        more = {"dynatemp_range": 0.3} if i % 3 == 2 else {}
        add(f"order {';'.join(order)}", rounded(r.normal(0, 1.5, 60)), params={**every, **more, "order": ";".join(order)},
            text=[int(t) for t in r.integers(0, 60 if i % 2 else 6, 70)], bias=[[4, 1.5], [2, "-inf"]])
        add(f"order {';'.join(order)}, greedy", rounded(r.normal(0, 1.5, 60)), text=[int(t) for t in r.integers(0, 9, 70)],
            params={**every, "temperature": 0.0, "order": ";".join([name for name in order if name != "temperature"]
                                                                   + ["temperature"] * (i % 2))})


def sigmas(r):
    for kind, x in (("peaked", r.normal(0, 3, 40)), ("flat", r.normal(0, 0.7, 60)), ("even", np.ones(9)), ("one", [2.0])):
        for n in 0.01, 0.5, 1.0, 1.7, 3.0, 100.0:
            add(f"top-n-sigma {n}, {kind}", rounded(x), params={**OFF, "top_n_sigma": n})
            add(f"top-n-sigma {n}, {kind}, hot", rounded(x), params={**OFF, "top_n_sigma": n, "temperature": 3.0})
        add(f"top-n-sigma among others, {kind}", rounded(x), params={"top_n_sigma": 1.2}, bias=[[0, "-inf"]] * (len(x) > 1))


def mirostats(r):
    for version in 1, 2:
        for kind, x in (("peaked", r.normal(0, 3, 40)), ("flat", r.normal(0, 0.7, 120)), ("one", [2.0]), ("two", [1.0, 0.0]),
                        ("Zipf", -1.1 * np.log(np.arange(1, 161))), ("steep", -4.0 * np.arange(50))):
            for tau in 0.0, 0.37, 1.0, 2.3, 5.0:
                for certain in (0, 3) if tau == 1.0 else (0,):
                    more = {"temperature": 1.0} if tau > 1 else {"temperature": 0.7, "repeat_penalty": 1.4}
                    add(f"mirostat {version}, {kind}, tau {tau} after {certain}", rounded(x), certain=certain,
                        text=[0, 0], params={"mirostat": version, "mirostat_tau": tau, "mirostat_eta": 0.2, **more})
        add(f"mirostat {version} replaces other steps", rounded(r.normal(0, 2, 50)),
            params={"mirostat": version, "mirostat_tau": 2.0, "top_k": 2, "top_p": 0.1, "typical_p": 0.1, "min_p": 0.9,
                    "xtc_probability": 1.0, "xtc_threshold": 0.0, "top_n_sigma": 0.1})
        add(f"mirostat {version}, greedy", rounded(r.normal(0, 2, 50)), params={"mirostat": version, "temperature": 0.0})
        add(f"mirostat {version} without temperature", rounded(r.normal(0, 2, 50)),
            params={"mirostat": version, "mirostat_tau": 1.9, "temperature": 0.3, "order": "top_k;penalties"})


def large():
    for n in 31, 32, 33, 5000, 49152:
        for modulus in 7, 160, 65521:
            g = {"generated": {"n": n, "factor": 40503, "modulus": modulus, "less": modulus / 32}}
            for step in ({}, {"top_k": 3}, {**OFF, "top_k": 500}, {**OFF, "top_k": 20}):
                add(f"{n} of {modulus}, {json.dumps(step)}", g, params=step)
            add(f"{n} of {modulus}, changed", g, params={"repeat_penalty": 1.5, "presence_penalty": 1.0, "top_k": 25},
                text=[0, 5, 30, 30, 17], bias=[[n - 1, 900.0], [0, 900.0], [3, "-inf"]])
    rising = {"generated": {"n": 20000, "factor": 1, "modulus": 65521, "less": 900}}
    falling = {"generated": {"n": 20000, "factor": 65520, "modulus": 65521, "less": 900}}
    for name, g in ("rising", rising), ("falling", falling):
        for step in ({}, {**OFF, "top_p": 0.9999}, {**OFF, "min_p": 0.01}, {**OFF, "typical_p": 0.8}):
            add(f"{name}, {json.dumps(step)}", g, params=step)


def gamma_tail(a, x):
    """The regularized upper incomplete gamma function, by its series or its continued fraction."""
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        k = a
        while term > total * 1e-16:
            k += 1
            term *= x / k
            total += term
        return 1 - front * total
    b, c = x + 1 - a, 1e300
    d = h = 1 / b
    for i in range(1, 1000):
        m, b = -i * (i - a), b + 2
        d, c = 1 / (m * d + b), b + m / c
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * h


def chi_square_quantile(freedom, tail):
    low, high = freedom, 20 * freedom + 200.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gamma_tail(freedom / 2, middle / 2) > tail else (low, middle)
    return high


def draws(r):
    """Cases for which many draws are counted; the bound is exceeded once in a million seeds."""
    out = []
    for name, n, spread, params in (("plain", 12, 1.0, OFF), ("defaults", 50, 1.0, {}), ("two", 2, 0.4, OFF),
                                    ("hot", 30, 1.0, {**OFF, "temperature": 2.0}),
                                    ("tail", 4, 0.0, OFF),  # the last is drawn once in 3600 times
                                    ("many", 200, 0.5, OFF),
                                    ("typical", 40, 1.0, {**OFF, "typical_p": 0.7}),
                                    ("xtc", 20, 1.0, {**OFF, "xtc_probability": 1.0, "xtc_threshold": 0.05})):
        case = {"name": name, "logits": rounded(r.normal(0, spread, n)), "params": params}
        if name == "tail":
            case["logits"] = [0.0, -0.5, -1.0, -7.5]
        case["ids"], case["probabilities"] = chain(case)
        case["draws"] = 200000
        assert min(case["probabilities"]) * case["draws"] > 20, name
        case["bound"] = chi_square_quantile(len(case["ids"]) - 1, 1e-6)
        out.append(case)
    return out


def main():
    assert abs(chi_square_quantile(10, 1e-6) - 46.863) < 0.01 and abs(chi_square_quantile(1, 1e-6) - 23.928) < 0.01
    r = np.random.default_rng(20)
    single_steps(r)
    texts(r)
    edges()
    chains(r)
    large()
    new = np.random.default_rng(23)
    orders(new)
    sigmas(new)
    mirostats(new)
    for case in CASES:
        ids, probabilities = chain(case)
        case["ids"], case["probabilities"] = ids[:600], probabilities[:600]
        case["count"] = len(ids)
    with open(sys.argv[1], "w") as f:
        lines = {"cases": CASES, "draws": draws(r)}
        f.write("{" + ",\n".join(f'"{k}": [\n' + ",\n".join(json.dumps(c) for c in v) + "\n]" for k, v in lines.items()) + "}\n")


main()
