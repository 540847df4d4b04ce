"""bert.py PROGRAMS OUT: examples/models/bert.c against transformers, with small models of random weights that are made here,
and its tokenizer against tokenizers.  PROGRAMS has bert and pieces, which models.sh builds; files go to OUT.

Logits of words and of classes, vectors of sentences and their cosines, texts of different lengths in a batch and alone; f64,
f32, bf16 and f16; files with and without "bert.", with old names, untied; names that are missing or too many; every character
of Unicode but for most of the Chinese and Korean ones, and texts of such characters."""
import copy, json, os, random, re, subprocess, sys, unicodedata

from checks import check, summary

PROGRAMS, OUT = sys.argv[1], sys.argv[2]
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["The tensor [MASK] a gradient, and the [MASK] of it.", "Backward [MASK].",
         "Na\u00efve caf\u00e9 \u4f60\u597d: its strides are bytes"]
CLASSES = {0: "none", 1: "person", 2: "place"}


# ---- the tokenizer ----

def tokenizer(vocabulary, old=False, **options):
    t = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(**options)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.add_special_tokens(SPECIAL)
    ends = ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    t.post_processor = processors.BertProcessing(*ends) if old else processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=list(ends))
    return t


def trained(text):
    """The vocabulary of a tokenizer that was trained on a text."""
    t = tokenizer({name: i for i, name in enumerate(SPECIAL)})
    trainer = trainers.WordPieceTrainer(vocab_size=1000, special_tokens=SPECIAL, show_progress=False)
    t.train_from_iterator(text.split("\n"), trainer)
    return t.get_vocab()


def compare(folder, reference, cases, what):
    path = os.path.join(folder, "texts")
    with open(path, "wb") as file:
        file.write(b"".join(case.encode() + b"\0" for case in cases))
    for special in (False, True):
        result = subprocess.run([os.path.join(PROGRAMS, "pieces"), folder, path] + ["special"] * special, stdout=subprocess.PIPE)
        lines = result.stdout.decode().split("\n")
        check(result.returncode == 0 and len(lines) == len(cases) + 1, "%s: %d texts" % (what, len(cases)))
        wanted = [" ".join(map(str, reference.encode(case, add_special_tokens=special).ids)) for case in cases]
        wrong = [i for i in range(len(cases)) if lines[i:i + 1] != [wanted[i] + " " * bool(wanted[i])]]
        check(not wrong, "%s: %d of %d texts have other tokens" % (what, len(wrong), len(cases)), "\n".join(
            "%r\n%s\n%s" % (cases[i], "".join(lines[i:i + 1]), wanted[i]) for i in wrong[:5]))


def characters():
    """Characters of Unicode as Python knows it, few of the many Chinese and Korean ones, and some private ones."""
    few = [(0x3400, 0x4DB0), (0x4E00, 0x9FF0), (0xAC00, 0xD7A0), (0x17000, 0x18D00), (0x20010, 0x2A6D0), (0x2A700, 0x2EBD0),
           (0x30000, 0x110000), (0xE000, 0xF900)]
    skipped = set()
    for first, last in few:
        skipped.update(c for c in range(first, last) if c % 97)
    return [chr(c) for c in range(1, 0x110000) if c not in skipped and unicodedata.category(chr(c)) not in ("Cn", "Cs")]


def check_tokenizers(text):
    random.seed(1)
    letters = characters()
    bytes_ = ["a%sb" % c for c in letters]
    mixed = ["".join(random.choice(letters if random.random() < 0.2 else text[:2000]) for _ in range(60)) for _ in range(100)]
    mixed += ["", " ", "x" * 100, "x" * 101, "\u00e9" * 100 + " x", "[MASK][CLS] [mask] [MA SK]", text[1000:3000]]
    forms = ({}, {"lowercase": False}, {"lowercase": False, "strip_accents": True}, {"strip_accents": False},
             {"clean_text": False, "handle_chinese_chars": False})
    for i, options in enumerate(forms):
        # every character that a text can become is a token, at the beginning of a word and within
        normalizer = normalizers.BertNormalizer(**options)
        left = sorted(set("".join(normalizer.normalize_str(c) for c in letters)) | set("ab"))
        names = SPECIAL + left + ["##" + c for c in left] + ["##ab", "the", "##ing"]
        vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
        t = tokenizer(vocabulary, old=i == 0, **options)
        folder = os.path.join(OUT, "pieces-%d" % i)
        os.makedirs(folder, exist_ok=True)
        if i == 2:  # one as it is, and two that are normalized first
            t.add_tokens([AddedToken("<t>", normalized=False), AddedToken("Caf\u00c9", normalized=True),
                          AddedToken("cafe au", normalized=True)])
            mixed = mixed + ["Un caf\u00e9 au <t>lait, CAFE Cafe<t><T>", "[MASK]Cafe"]
        t.save(os.path.join(folder, "tokenizer.json"))
        compare(folder, t, bytes_ + mixed, "tokenizer of %s" % options)
        if i in (0, 1):  # and as vocab.txt, the file of before
            folder += "-old"
            os.makedirs(folder, exist_ok=True)
            kept = [name for name in vocabulary if not name.isspace() and "\n" not in name and "\r" not in name]
            with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf8", newline="\r\n" if i else "\n") as file:
                file.write("\n".join(kept) + "\n" * i)
            with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
                json.dump({"do_lower_case": i == 0, "strip_accents": None}, file)
            reference = tokenizer({name: i for i, name in enumerate(kept)}, **options)
            compare(folder, reference, bytes_ + mixed, "vocab.txt of %s" % options)
    for change, said in (({"model": {"type": "BPE", "vocab": {"a": 0}}}, "model 'BPE'"),
                         ({"normalizer": {"type": "NFKC"}}, "normalizer 'NFKC'"),
                         ({"pre_tokenizer": {"type": "Whitespace"}}, "pre-tokenizer 'Whitespace'"),
                         ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "unknown token '[UNK]'"),
                         ({"model": None}, "no tokenizer was read"),
                         ({"added_tokens": [{"id": 0, "content": "a", "single_word": True}]}, "single word 'a'")):
        folder = os.path.join(OUT, "wrong")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(OUT, "pieces-0", "tokenizer.json"), encoding="utf8") as file:
            saved = dict(json.load(file), **change)
        with open(os.path.join(folder, "tokenizer.json"), "w") as file:
            json.dump(saved, file)
        result = subprocess.run([os.path.join(PROGRAMS, "pieces"), folder, os.path.join(OUT, "pieces-0", "texts")],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(result.returncode == 1 and said in result.stderr.decode(), "refused: %s" % said, result.stderr.decode())


# ---- the model ----

def made(cls, **options):
    torch.manual_seed(5)
    config = transformers.BertConfig(**dict(dict(
        vocab_size=len(VOCABULARY), hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80,
        max_position_embeddings=64, initializer_range=0.2, pad_token_id=0, id2label=CLASSES), **options))
    model = getattr(transformers, cls)(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def saved(model, name):
    folder = os.path.join(OUT, name)
    model.save_pretrained(folder)
    TOKENIZER.save(os.path.join(folder, "tokenizer.json"))
    return folder


def run(folder, texts, *options):
    """(exit status, lines, what it said on stderr, the tensor it saved)"""
    path = os.path.join(folder, "saved.safetensors")
    if os.path.exists(path):
        os.remove(path)
    result = subprocess.run([os.path.join(PROGRAMS, "bert"), folder, "--threads", "1", "--save", path] + list(options) + texts,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tensors = list(load_file(path).values()) if os.path.exists(path) else [None]
    return result.returncode, result.stdout.decode().split("\n"), result.stderr.decode(), tensors[0]


def means(hidden):
    """The vector of one text, all of whose tokens count."""
    mean = (hidden if hidden.dtype == torch.float64 else hidden.float())[0].mean(0)
    return torch.nn.functional.normalize(mean, dim=0)


def result_of(model, ids, what):
    with torch.no_grad():
        out = model(torch.tensor([ids]))
    return means(out.last_hidden_state) if what == "--vectors" else out.logits[0]


def check_model(name, cls, what=None, **options):
    ids = [TOKENIZER.encode(text).ids for text in TEXTS]
    check(len(set(map(len, ids))) == 3, "the texts have other lengths")
    for dtype, bound in ((torch.float64, 1e-10), (torch.float32, 1e-4), (torch.bfloat16, None), (torch.float16, None)):
        model = made(cls, **options).to(dtype)
        exact = copy.deepcopy(model).double() if bound is None else made(cls, **options)
        folder = saved(model, "%s-%s" % (name, str(dtype)[6:]))
        arguments = [what] * bool(what)
        status, lines, said, together = run(folder, TEXTS, *arguments)
        check(status == 0 and said == "" and together is not None, "%s %s: a batch" % (name, dtype), said)
        # twice the error of transformers, and a rounding of the largest number, which either may have and not the other
        exacts = [result_of(exact, i, what) for i in ids]
        most = bound or (2 * max(float((result_of(model, i, what) - x).abs().max()) for i, x in zip(ids, exacts)) +
                         torch.finfo(dtype).eps / 2 * max(float(x.abs().max()) for x in exacts))
        for row, right in enumerate(ids):
            wanted = result_of(exact, right, what)
            alone = run(folder, TEXTS[row:row + 1], *arguments)[3]
            if together is None or not check(alone is not None, "%s %s: alone" % (name, dtype)):
                continue
            in_batch = together[row][:len(right)] if together.dim() == 3 else together[row]
            for got, how in ((alone[0], "alone"), (in_batch, "in a batch")):
                worst = float((got.double() - wanted).abs().max()) if got.shape == wanted.shape else float("inf")
                check(worst <= most, "%s %s: %s" % (name, dtype, how), "%s: %g > %g" % (tuple(got.shape), worst, most))
        if dtype == torch.float64:
            check_lines(name, exact, what, ids, lines)
    return folder


def check_lines(name, model, what, ids, lines):
    """What is printed is what transformers says."""
    wanted = []
    for text, right in zip(TEXTS, ids):
        result = result_of(model, right, what)
        if what == "--vectors":
            wanted.append(" ".join("%7.4f" % float(result @ result_of(model, other, what)) for other in ids) + "  " + text)
        elif what == "--classify":
            for at, row in enumerate(result if result.dim() == 2 else [result]):
                best = row.softmax(-1).max(-1)
                wanted.append("%s %.4f  %s" % (CLASSES[int(best.indices)], best.values,
                                               text if result.dim() == 1 else TOKENIZER.id_to_token(right[at])))
        else:
            wanted.append(text)
            for at in (i for i, id_ in enumerate(right) if id_ == VOCABULARY["[MASK]"]):
                best = result[at].softmax(-1).topk(5)
                pairs = zip(best.indices.tolist(), best.values)
                wanted.append("".join("  %s %.4f" % (TOKENIZER.id_to_token(id_), p) for id_, p in pairs))
    check(lines == wanted + [""], "%s: what is printed" % name, "%s\n%s" % ("\n".join(lines), "\n".join(wanted)))


def check_names():
    """Other names for the same weights give the same; those that are missing or too many are named."""
    folder, alike = os.path.join(OUT, "words-float32"), os.path.join(OUT, "alike")
    right = run(folder, TEXTS)[3]
    weights = load_file(os.path.join(folder, "model.safetensors"))
    saved(made("BertForMaskedLM").float(), "alike")

    def with_names(names):
        save_file({name: tensor.clone() for name, tensor in names.items()}, os.path.join(alike, "model.safetensors"))
        return run(alike, TEXTS)

    old = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
           for k, v in weights.items()}
    old["bert.embeddings.position_ids"] = torch.arange(64)[None]
    check(any("gamma" in k for k in old), "there are old names")
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"]
    bare = {re.sub("^bert[.]", "", k): v for k, v in weights.items()}
    for names, what in ((old, "old names"), (bare, "names without bert.")):
        status, _, said, got = with_names(names)
        check(status == 0 and said == "" and torch.equal(got, right), "%s give the same" % what, said)
    said = with_names(dict(weights, other=torch.zeros(2)))[2]
    check(said == "unexpected: other\n", "a name too many is named", said)
    for gone in ("encoder.layer.1.output.LayerNorm.bias", "cls.predictions.transform.dense.weight", "cls.predictions.bias"):
        status, _, said, _ = with_names({k: v for k, v in weights.items() if not k.endswith(gone)})
        check(status == 1 and said == "missing: %s\n" % gone, "a missing name is named", said)
    status, _, said, got = run(os.path.join(OUT, "vectors-float32"), TEXTS)
    check(status == 1 and "missing: cls.predictions.bias\n" in said and got is None, "no words without their weights", said)
    status, _, said, _ = run(folder, ["the " * 63])
    check(status == 1 and said == "65 tokens are more than the model's 64\n", "a text that is too long", said)
    status, _, said, _ = run(folder, ["[MASK]"], "--top-k", "5000")
    check(status == 1 and "tg_topk" in said, "more words than there are", said)
    shards = os.path.join(OUT, "shards")
    made("BertForMaskedLM").float().save_pretrained(shards, max_shard_size="60KB")
    TOKENIZER.save(os.path.join(shards, "tokenizer.json"))
    check(os.path.exists(os.path.join(shards, "model.safetensors.index.json")), "there are shards")
    check(torch.equal(run(shards, TEXTS)[3], right), "shards give the same logits")
    for change in ({"model_type": "roberta"}, {"hidden_act": "silu"}, {"position_embedding_type": "relative_key"},
                   {"is_decoder": True}):
        with open(os.path.join(folder, "config.json")) as file:
            config = dict(json.load(file), **change)
        with open(os.path.join(alike, "config.json"), "w") as file:
            json.dump(config, file)
        status, _, said, _ = run(alike, TEXTS)
        check(status == 1 and "config.json is not" in said, "%s is refused" % change, said)


with open("tensorgrad.h", encoding="utf8") as header:
    SOURCE = header.read(200000)
VOCABULARY = trained(SOURCE)
TOKENIZER = tokenizer(VOCABULARY)
check_tokenizers(SOURCE)
check_model("words", "BertForMaskedLM")
check_model("words-tanh", "BertForMaskedLM", hidden_act="gelu_new", tie_word_embeddings=False, layer_norm_eps=1e-5)
check_model("words-relu", "BertForMaskedLM", hidden_act="relu")
check_model("vectors", "BertModel", "--vectors")
check_model("classes", "BertForSequenceClassification", "--classify")
check_model("tokens", "BertForTokenClassification", "--classify")
check_names()
sys.exit(summary())
