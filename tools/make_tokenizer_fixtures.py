#!/usr/bin/env python3
"""Trains small tokenizers of every kind that Setun reads, and writes them with the reference's ids to tests/tok.

usage: make_tokenizer_fixtures.py [tests/tok]

Needs the PyPI packages tokenizers and sentencepiece, whose results are the reference. Each NAME.json or NAME.model gets
a NAME.ids.json: {"ids": [...], "special": [...], "text": [...]}, one entry for each string of strings.json: ids with
control tokens as plain text, ids with control tokens recognized, and what decoding the latter gives. (SentencePiece
recognizes none: its "special" equals its "ids".) Strings that hold the spelling of <unk> are left out for Unigram: the
reference makes the unknown token of them even as plain text, which Setun does not.
"""
import json, os, random, sys, tempfile
from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models, normalizers as N, pre_tokenizers as P
from tokenizers import processors, trainers
import sentencepiece

OUT = sys.argv[1] if len(sys.argv) > 1 else 'tests/tok'
TALES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../models/setun-tales-7m/tokenizer.json')
WORDS = """the a of and to in that was he she it his her with as had for you not but they said all on at be have this
from one were when there which their so would an if been no who will more out then up them time only into some could
little house garden river mountain winter summer morning evening yesterday tomorrow don't I'll we've it's they're
return void static const int char size_t struct while if else for (i = 0; i < n; i++) printf("%d\\n", x); 1234 42 3.14
été château naïve Straße Größe über ñandú мир война человек который сказал время дом город Ελλάδα καλημέρα κόσμε
日本語 中文 的 一 是 不 了 人 我 在 有 他 한국어 안녕하세요 العربية في من हिन्दी में है 😀 👩‍👩‍👧 🇫🇷""".split()
PIECES = ['a', ' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', '\u0085', '\u00a0', '\u180e', '\u200b', '\u3000', '\u2028', '\ufeff',
          '▁', '▁▁', "'s", "'T", "'ſ", "'LL", "don't", '<s>', '</s>', '<unk>', '<sep>', '<0x0A>', '<|im_end|>', 'Hello', 'fooBar',
          'é', 'e\u0301', 'ﬁ', 'Å', '½', '²', 'Ⅷ', '٣', 'İ', 'ß', 'ǅ', '한국어', '日本語', '。', '😀', '👩‍👩‍👧', '🇫🇷', '\u0323\u0301',
          '123', '1234567', '$', '|', '~', '_', '--', '...', '`', '\\', '/', '\x01', '\x1c', 'HELLO', 'the', ' the', ' Größe', 'мир', '%d;']


def corpus(lines):
    r = random.Random(5)
    return [' '.join(r.choice(WORDS) for _ in range(r.randrange(4, 14))) + r.choice(['.', '\n', '!', '  ', '']) for _ in range(lines)]


def strings(count, seed):
    """Hostile strings: random pieces, runs of one character, and characters from all of Unicode 14."""
    r = random.Random(seed)
    out = ['', *PIECES]
    assigned = [c for c in [*range(0x20, 0x3100), *range(0xA000, 0xD7A4), *range(0x1F300, 0x1F650)] if known(c)]
    while len(out) < count:
        kind = r.random()
        if kind < 0.6: out.append(''.join(r.choice(PIECES) for _ in range(r.randrange(2, 12))))
        elif kind < 0.75: out.append(' '.join(r.choice(WORDS) for _ in range(r.randrange(2, 9))))
        elif kind < 0.9: out.append(''.join(chr(r.choice(assigned)) for _ in range(r.randrange(1, 9))))
        else: out.append(r.choice(PIECES) * r.randrange(2, 50) + r.choice(['', 'x', ' x']))
    return out[:count]


def known(c):
    """Excludes characters that later versions of Unicode changed or added: they would test the libraries' versions."""
    import unicodedata
    return unicodedata.ucd_3_2_0.category(chr(c)) not in ('Cn', 'Cs', 'Co') and unicodedata.category(chr(c)) == unicodedata.ucd_3_2_0.category(chr(c))


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = LLAMA3.replace('{1,3}', '')
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)


def split(pattern, behavior='isolated', invert=False): return P.Split(Regex(pattern), behavior, invert)
def bytes_only(): return P.ByteLevel(add_prefix_space=False, use_regex=False)


def add_tokens(t):
    t.add_special_tokens([AddedToken('<s>', normalized=False), AddedToken('</s>', normalized=False),
                          AddedToken('<|im_end|>', normalized=False, lstrip=True)])
    t.add_tokens([AddedToken('<sep>', normalized=False, rstrip=True), AddedToken('fooBar', single_word=True, normalized=False),
                  AddedToken('Hello', normalized=True, lstrip=True)])


def byte_level(pre, normalizer=None, ignore_merges=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer, t.decoder = pre, D.ByteLevel()
    if normalizer: t.normalizer = normalizer
    t.train_from_iterator(corpus(1500), trainers.BpeTrainer(vocab_size=420, show_progress=False, special_tokens=['<unk>'],
                                                            initial_alphabet=sorted(P.ByteLevel.alphabet())))
    add_tokens(t)
    t.post_processor = processors.TemplateProcessing(single='<s> $A', special_tokens=[('<s>', t.token_to_id('<s>'))])
    return t


def characters(pre, normalizer, decoder, byte_fallback=False, fuse=True):
    t = Tokenizer(models.BPE(byte_fallback=byte_fallback, fuse_unk=fuse, unk_token='<unk>'))
    t.decoder = decoder
    if normalizer: t.normalizer = normalizer
    t.pre_tokenizer = pre or P.Split('▁', 'merged_with_next')  # training needs words
    special = ['<unk>'] + ['<0x%02X>' % b for b in range(256) if byte_fallback]
    t.train_from_iterator(corpus(1500), trainers.BpeTrainer(vocab_size=320 + len(special), show_progress=False, special_tokens=special,
                                                            limit_alphabet=90))
    return refit(t, lambda j: (pre or j.update(pre_tokenizer=None)))


def unigram(normalizer, scheme, byte_fallback=False):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer, t.decoder = P.Metaspace(prepend_scheme=scheme), D.Metaspace(prepend_scheme=scheme)
    if normalizer: t.normalizer = normalizer
    special = ['<unk>'] + ['<0x%02X>' % b for b in range(256) if byte_fallback]
    t.train_from_iterator(corpus(1500), trainers.UnigramTrainer(vocab_size=300 + len(special), show_progress=False, unk_token='<unk>',
                                                                special_tokens=special))
    if not byte_fallback: return refit(t, lambda j: None)
    t.decoder = LLAMA_DECODER
    return refit(t, lambda j: j['model'].update(byte_fallback=True))


def refit(t, change):
    """Byte tokens are ordinary tokens of the model, not added ones."""
    j = json.loads(t.to_str())
    j['added_tokens'] = [a for a in j['added_tokens'] if not a['content'].startswith('<0x')]
    change(j)
    t = Tokenizer.from_str(json.dumps(j))
    add_tokens(t)
    return t


LLAMA_DECODER = D.Sequence([D.Replace('▁', ' '), D.ByteFallback(), D.Fuse(), D.Strip(' ', 1, 0)])
KINDS = {
    'gpt2': lambda: byte_level(P.ByteLevel(add_prefix_space=False, use_regex=True)),
    'llama3': lambda: byte_level(P.Sequence([split(LLAMA3), bytes_only()]), ignore_merges=True),
    'qwen2': lambda: byte_level(P.Sequence([split(QWEN2), bytes_only()]), N.NFC()),
    'gpt4o': lambda: byte_level(P.Sequence([split(GPT4O), bytes_only()]), ignore_merges=True),
    'smollm': lambda: byte_level(P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False, use_regex=True)])),
    'falcon': lambda: byte_level(P.Sequence([P.Punctuation('contiguous'), P.ByteLevel(add_prefix_space=True, use_regex=True),
                                             P.Digits(individual_digits=False), split('[0-9][0-9][0-9]')])),
    'splits': lambda: byte_level(P.Sequence([split(r'\s|[.,]', 'merged_with_previous'), split('[aeiou]', 'merged_with_next'),
                                             split(r'\w+', 'contiguous', True), P.Split('~', 'removed'), bytes_only()])),
    'llama2': lambda: characters(None, N.Sequence([N.Prepend('▁'), N.Replace(' ', '▁')]), LLAMA_DECODER, True),
    'nofuse': lambda: characters(None, N.Sequence([N.Prepend('▁'), N.Replace(' ', '▁')]), LLAMA_DECODER, fuse=False),
    'metaspace': lambda: characters(P.Metaspace(prepend_scheme='first'), N.Sequence([N.NFKD(), N.Lowercase(), N.Strip()]),
                                    D.Metaspace(prepend_scheme='first')),
    'whitespace': lambda: characters(P.Sequence([P.Whitespace(), P.Punctuation()]), N.Replace(Regex(r'\s+'), ' '), D.Fuse()),
    'unigram': lambda: unigram(N.NFKC(), 'always'),
    'unigram_bytes': lambda: unigram(None, 'first', True),
}
SENTENCEPIECE = {
    'sp_bpe': dict(model_type='bpe', vocab_size=620, byte_fallback=True, normalization_rule_name='identity', remove_extra_whitespaces=False),
    'sp_bpe_user': dict(model_type='bpe', vocab_size=360, rules=True, user_defined_symbols=['<sep>', '\u2581\u2581', 'the']),
    'sp_unigram': dict(model_type='unigram', vocab_size=360, rules=True, user_defined_symbols=['<sep>', 'ing']),
    'sp_unigram_bytes': dict(model_type='unigram', vocab_size=620, byte_fallback=True, normalization_rule_name='identity', add_dummy_prefix=False),
}


RULES = '''FB01\t66 69
212B\tC5
BD\t31 2044 32
2167\t56 49 49 49
65 301\tE9
A0\t20
3000\t20
A\t20
D A\t20
9\t20
FEFF\t
'''


def dump(path, value):
    with open(path, 'w', encoding='utf8') as f: f.write(json.dumps(value, ensure_ascii=True, separators=(',', ':')).replace('],[', '],\n[') + '\n')


def reference(name, texts, path=None):
    """Ids and texts by the reference for NAME.json or NAME.model in OUT, or for the tokenizer.json at `path`."""
    if name in SENTENCEPIECE:
        s = sentencepiece.SentencePieceProcessor(model_file=f'{OUT}/{name}.model')
        ids = s.encode(texts)
        return dict(ids=ids, special=ids, text=[s.decode(i) for i in ids])
    t = Tokenizer.from_file(path or f'{OUT}/{name}.json')
    result = {}
    for key, plain in (('ids', True), ('special', False)):
        t.encode_special_tokens = plain
        result[key] = [e.ids for e in t.encode_batch(texts, add_special_tokens=False)]
    return dict(**result, text=t.decode_batch(result['special'], skip_special_tokens=False))


def make_sentencepiece(name, options):
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + '/text', 'w', encoding='utf8') as f: f.write('\n'.join(c.replace('\n', ' ') for c in corpus(3000)))
        if options.get('rules'):  # a small character map: those of NFKC take a quarter of a megabyte
            with open(folder + '/rules', 'w') as f: f.write(RULES)
            options = dict(options, normalization_rule_tsv=folder + '/rules')
            del options['rules']
        sentencepiece.SentencePieceTrainer.train(input=folder + '/text', model_prefix=folder + '/m', num_threads=1, minloglevel=2,
                                                 character_coverage=0.98, hard_vocab_limit=False, **options)
        data = open(folder + '/m.model', 'rb').read()
    with open(f'{OUT}/{name}.model', 'wb') as f: f.write(data)


def main():
    os.makedirs(OUT, exist_ok=True)
    texts = strings(200, 11)
    dump(f'{OUT}/strings.json', {'strings': texts})
    for name, make in KINDS.items(): make().save(f'{OUT}/{name}.json', pretty=False)
    for name, options in SENTENCEPIECE.items(): make_sentencepiece(name, options)
    for name in [*KINDS, *SENTENCEPIECE]: dump(f'{OUT}/{name}.ids.json', reference(name, texts))
    dump(f'{OUT}/tales.ids.json', reference('tales', texts, TALES))


if __name__ == '__main__': main()
