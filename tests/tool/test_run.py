#!/usr/bin/env python3
"""run, chat, embed, tokenize, perplexity and bench as a user would run them, on models that others trained.

    test_run.py BUILD

The models are in MICA_TEST_DATA, or in shared/data beside the checkout; without them most of this is skipped."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from test_tool import TOOL, Base, mica, wait_until_caught
from test_models import STRING, Files, gguf, model, singles

DATA = os.environ.get("MICA_TEST_DATA") or os.path.join("..", "shared", "data")
STORIES = os.path.join(DATA, "stories260K")
STORY = os.path.join(STORIES, "stories260K-f32.gguf")
needs_data = unittest.skipUnless(os.path.exists(STORY), "there is no %s" % STORY)
BEGIN = "Once upon a time"


def read(path, mode="r"):
    with open(path, mode, encoding=None if "b" in mode else "utf-8") as file:
        return file.read()


class Models(Files):
    def run_story(self, *words, name="stories260K-f32.gguf", **more):
        """What `mica run` prints of a story; statistics are checked and left out."""
        status, out, err = mica("run", "-m", os.path.join(STORIES, name), *words, **more)
        self.assertEqual(status, 0, err)
        return out

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)


class Inside(Models):
    """Without --model it is the one that the tool carries."""

    def test_run(self):
        status, out, err = mica("run", "-n", "20", "--seed", "1")
        self.assertEqual(status, 0, err)
        self.assertTrue(out.startswith(BEGIN))
        self.assertRegex(err, r"(?m)^text +20 tokens")

    def test_it_adds(self):
        status, out, _ = mica("run", "-p", "123 + 456 =", "--temp", "0", "-q", "-r", "\\n")
        self.assertEqual((status, out), (0, "123 + 456 = 579.\n"))

    def test_other_commands(self):
        self.assertEqual(len(self.works("tokenize", "-p", "42", "--ids").split()), 2)
        self.assertEqual(len(self.works("embed", "-p", "a cat").split()), 256)
        status, out, err = mica("chat", "-q", "--temp", "0", input="What is 12 + 30?\n")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("42", out)


@needs_data
class Greedy(Models):
    WORDS = ("-p", BEGIN, "-n", "100", "--temp", "0")

    def test_every_form(self):
        wanted = read(os.path.join(STORIES, "expected-greedy.txt"))
        for name in ("f32", "f16", "as-moe-4x2-f32"):
            with self.subTest(name):
                self.assertEqual(self.run_story(*self.WORDS, name="stories260K-%s.gguf" % name), wanted)

    def test_eight_bits(self):
        """Activations of 8 bits move logits by 0.07, and later tokens of the text are 0.05 apart; the first 16 are 0.9 and more."""
        out = self.run_story("-p", BEGIN, "-n", "16", "--temp", "0", name="stories260K-h256-Q8_0.gguf")
        self.assertEqual(out, BEGIN + ", there was a little girl named Lily. She loved to play\n")

    def test_batches_and_threads(self):
        wanted = read(os.path.join(STORIES, "expected-greedy.txt"))
        for batch in ("1", "7", "512"):
            for threads in ("1", "2"):
                self.assertEqual(self.run_story(*self.WORDS, "-b", batch, "-t", threads), wanted)

    def test_ways_to_read_the_file(self):
        wanted = read(os.path.join(STORIES, "expected-greedy.txt"))
        for flag in ("--no-mmap", "--no-repack", "--mlock"):
            self.assertEqual(self.run_story(*self.WORDS, flag), wanted)
        for kind in ("f32", "bf16", "q8_0", "F16"):
            if kind != "q8_0":  # heads of 8 do not divide into blocks of 32
                self.assertTrue(self.run_story(*self.WORDS, "-ctk", kind, "-ctv", kind).startswith(BEGIN + ", there was"))

    def test_spellings(self):
        wanted = self.run_story("--prompt=" + BEGIN, "--n-predict", "9", "--temperature=0")
        self.assertEqual(self.run_story("-p", BEGIN, "--predict=9", "--temp", "0"), wanted)

    def test_prompt_from_a_file(self):
        path = self.write("prompt.txt", BEGIN + "\n")
        wanted = self.run_story("-p", BEGIN, "-n", "9", "--temp", "0")
        self.assertEqual(self.run_story("-f", path, "-n", "9", "--temp", "0"), wanted)
        self.assertEqual(self.run_story("-f", "-", "-n", "9", "--temp", "0", input=BEGIN + "\n"), wanted)

    def test_only_what_the_model_writes(self):
        whole = self.run_story(*self.WORDS)
        self.assertEqual(BEGIN + self.run_story(*self.WORDS, "--no-display-prompt"), whole)

    def test_escapes(self):
        self.assertTrue(self.run_story("-p", "a\\nb\\x41\\\\", "-n", "0").startswith("a\nbA\\\n"))
        self.assertTrue(self.run_story("-p", "a\\nb", "-n", "0", "--no-escape").startswith("a\\nb\n"))

    def test_nothing_to_write(self):
        self.assertEqual(self.run_story("-p", BEGIN, "-n", "0"), BEGIN + "\n")

    def test_no_prompt_text(self):
        out = self.run_story("-p", "", "-n", "20", "--temp", "0")
        self.assertRegex(out, r"\A[A-Z]")  # no blank in front

    def test_ends_by_itself(self):
        status, out, err = mica("run", "-m", STORY, *self.WORDS[:2], "--temp", "0")
        self.assertEqual(status, 0, err)
        self.assertLess(len(out), 3000)


@needs_data
class Statistics(Models):
    def test_report(self):
        status, out, err = mica("run", "-m", STORY, "-p", BEGIN, "-n", "20", "--seed", "7")
        self.assertEqual(status, 0)
        self.assertRegex(err, r"(?m)^prompt +5 tokens, [\d.]+ tokens/s$")
        self.assertRegex(err, r"(?m)^text +20 tokens, [\d.]+ tokens/s, first after [\d.]+ ms$")
        self.assertRegex(err, r"(?m)^memory +[\d.]+ MiB resident at most; cpu: [\d.]+ \w+ owned at most, [\d.]+ \w+ mapped$")
        self.assertRegex(err, r"(?m)^seed +7$")
        self.assertNotIn("tokens/s", out)

    def test_quiet(self):
        for flag in ("-q", "--quiet", "--no-perf"):
            self.assertEqual(mica("run", "-m", STORY, "-p", BEGIN, "-n", "3", flag)[2], "")

    def test_logprobs(self):
        err = mica("run", "-m", STORY, "-p", BEGIN, "-n", "4", "--temp", "0", "--logprobs", "3", "-q")[2]
        rows = [re.findall(r'(\d+) "[^"]*" (-?[\d.]+)', line) for line in err.splitlines()]
        self.assertEqual([len(row) for row in rows], [4] * 4)
        for row in rows:
            self.assertEqual(row[0], row[1])  # greedy: the chosen one is the likeliest
            self.assertGreaterEqual(float(row[1][1]), float(row[2][1]))
            self.assertLessEqual(float(row[1][1]), 0)

    def test_full_context(self):
        status, out, err = mica("run", "-m", STORY, "-p", BEGIN, "-c", "32", "--ignore-eos")
        self.assertEqual(status, 0)
        self.assertRegex(err, r"(?m)^stopped +the context of 32 tokens is full")
        out = self.run_story("-p", BEGIN, "-c", "32", "--ignore-eos", "-n", "100", "--context-shift", "--keep", "-1")
        self.assertGreater(len(out), 100)


@needs_data
class Sampling(Models):
    def test_seeds(self):
        def story(*words):
            return self.run_story("-p", BEGIN, "-n", "60", *words)
        self.assertEqual(story("-s", "5"), story("--seed", "5"))
        self.assertEqual(len({story("--seed", str(seed)) for seed in range(5)}), 5)
        self.assertNotEqual(story(), story())

    def test_options_change_the_text(self):
        plain = self.run_story("-p", BEGIN, "-n", "80", "--seed", "3")
        for words in (("--top-k", "1"), ("--top-p", "0.1"), ("--min-p", "0.9"), ("--temp", "3"), ("--typical", "0.2"),
                      ("--repeat-penalty", "2"), ("--presence-penalty", "5"), ("--frequency-penalty", "3"),
                      ("--dry-multiplier", "5", "--dry-allowed-length", "1"), ("--mirostat", "2", "--mirostat-ent", "1"),
                      ("--xtc-probability", "1", "--xtc-threshold", "0.01"), ("--logit-bias", "383-inf")):
            with self.subTest(words):
                self.assertNotEqual(self.run_story("-p", BEGIN, "-n", "80", "--seed", "3", *words), plain)

    def test_top_k_1_is_greedy(self):
        self.assertEqual(self.run_story("-p", BEGIN, "-n", "50", "--top-k", "1", "--seed", "9"),
                         self.run_story("-p", BEGIN, "-n", "50", "--temp", "0"))

    def test_bias_forbids(self):
        free = self.run_story("-p", BEGIN, "-n", "40", "--temp", "0")
        self.assertIn(", there", free)
        bound = self.run_story("-p", BEGIN, "-n", "40", "--temp", "0", "-l", "383-inf", "-l", "432-inf")
        self.assertNotIn(", there", bound)

    def test_stop_texts(self):
        whole = self.run_story("-p", BEGIN, "-n", "100", "--temp", "0")
        for stop in ("to the park", "girl named", "ily lo", ".", "a t"):  # the last one is in the prompt alone
            with self.subTest(stop):
                out = self.run_story("-p", BEGIN, "-n", "100", "--temp", "0", "-r", stop)
                place = whole.find(stop, len(BEGIN))
                self.assertEqual(out, whole if place < 0 else whole[:place] + "\n")
        out = self.run_story("-p", BEGIN, "-n", "100", "--temp", "0", "-r", "never", "-r", "park", "-r", "girl named L")
        self.assertEqual(out, whole[:whole.index("girl named L")] + "\n")

    def test_beginning_of_a_stop_text_is_shown_at_the_end(self):
        out = self.run_story("-p", BEGIN, "-n", "2", "--temp", "0", "-r", ", there were")
        self.assertEqual(out, BEGIN + ", there\n")


@needs_data
class Grammar(Models):
    def test_grammar(self):
        rule = 'root ::= " " [a-z]+ (" " [a-z]+){1,3} "."'
        for words in (("--grammar", rule), ("--grammar-file", self.write("g.gbnf", rule))):
            for seed in range(4):
                out = self.run_story("-p", "Once", "--no-display-prompt", "-n", "300", "--seed", str(seed), *words)
                self.assertRegex(out, r"\A [a-z]+( [a-z]+){1,3}\.\n\Z")

    def test_schema(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"},
                                                   "is": {"enum": ["a", "b", None]}, "list": {
                                                       "type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
                  "required": ["name", "age", "is", "list"], "additionalProperties": False}
        for words in (("-j", json.dumps(schema)), ("--json-schema-file", self.write("s.json", json.dumps(schema)))):
            for seed in range(4):
                out = self.run_story("-p", "Once", "--no-display-prompt", "-c", "512", "--seed", str(seed), *words)
                value = json.loads(out)
                self.assertEqual(set(value), set(schema["required"]))
                self.assertIsInstance(value["age"], int)
                self.assertLessEqual(len(value["name"]), 9)
                self.assertIn(value["is"], ["a", "b", None])

    def test_bad_grammars(self):
        self.refused(1, "--grammar", "run", "-m", STORY, "-p", "a", "--grammar", "root ::= (")
        self.refused(1, "--json-schema", "run", "-m", STORY, "-p", "a", "-j", "{]")
        self.refused(1, "cannot be opened", "run", "-m", STORY, "-p", "a", "--grammar-file", self.path("none"))
        self.refused(2, "both", "run", "-m", STORY, "-p", "a", "--grammar", 'root ::= "a"', "-j", "{}")


@needs_data
class Signals(Models):
    ENDLESS = ("-p", BEGIN, "--ignore-eos", "--context-shift")

    def start(self, *words, **more):
        return subprocess.Popen([TOOL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def stop(self, run, number=signal.SIGINT):
        began = time.monotonic()
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, 2)
        return out.decode("utf-8"), err.decode("utf-8")  # whole characters

    def test_while_it_writes(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run = self.start("run", "-m", STORY, *self.ENDLESS)
            head = os.read(run.stdout.fileno(), 100)
            time.sleep(0.3)
            drain = os.read(run.stdout.fileno(), 1 << 20)
            out, err = self.stop(run, number)
            self.assertEqual(run.returncode, 128 + number, err)
            self.assertRegex(err, r"(?m)^text +\d+ tokens, ")
            self.assertIn("by a signal", err)
            self.assertTrue((head + drain).decode("utf-8", "ignore").startswith(BEGIN))
            self.assertTrue(out.endswith("\n"))

    def test_while_it_reads(self):
        path = self.write("long.txt", (BEGIN + " ") * 12000)
        run = self.start("run", "-m", STORY, "-f", path, "-c", "80000", "--no-display-prompt", "-n", "1")
        wait_until_caught(run)
        time.sleep(0.5)
        self.assertIsNone(run.poll(), "the prompt was too short for this machine")
        out, err = self.stop(run)
        self.assertEqual((run.returncode, out), (130, "\n"))
        self.assertRegex(err, r"(?m)^text +0 tokens$")

    def test_chat_in_a_pipe(self):
        run = self.start("chat", "-m", STORY, *self.ENDLESS[2:], stdin=subprocess.PIPE)
        run.stdin.write(b"One day\n/stats\n")
        run.stdin.flush()
        os.read(run.stdout.fileno(), 10)
        run.send_signal(signal.SIGINT)  # ends the answer
        while b"by a signal" not in (line := run.stderr.readline()):
            self.assertNotEqual(line, b"")
        _, err = self.stop(run)  # waiting for a line
        self.assertEqual(run.returncode, 130, err)

    def test_other_commands(self):
        text = self.write("text.txt", (BEGIN + " ") * 30000)
        for words in (("perplexity", "-m", STORY, "-f", text, "-c", "60000"), ("bench", "-m", STORY, "-p", "65536")):
            run = self.start(*words)
            time.sleep(1)
            out, err = self.stop(run)
            self.assertEqual((run.returncode, out), (-signal.SIGINT, ""), err)

    def test_closed_pipe(self):
        run = self.start("run", "-m", STORY, *self.ENDLESS)
        os.read(run.stdout.fileno(), 50)
        run.stdout.close()
        self.assertEqual(run.wait(timeout=60), -signal.SIGPIPE)
        run.stderr.close()

    def test_closed_pipe_without_the_signal(self):
        run = self.start("run", "-m", STORY, *self.ENDLESS, restore_signals=False)
        os.read(run.stdout.fileno(), 50)
        run.stdout.close()
        self.assertEqual(run.wait(timeout=60), 1)
        run.stderr.close()

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs a full device")
    def test_full_disk(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([TOOL, "run", "-m", STORY, *self.ENDLESS, "-q"], stdout=full, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(run.returncode, 1)


class Bad(Models):
    def test_usage(self):
        self.refused(2, "-x", "run", "-x")
        self.refused(2, "--temp", "run", "-m", "a", "-p", "b", "--temp", "hot")
        self.refused(2, "--temp", "run", "-m", "a", "-p", "b", "--temp", "-1")
        self.refused(2, "--top-p", "run", "-m", "a", "-p", "b", "--top-p", "1.5")
        self.refused(2, "-n needs", "run", "-n")
        self.refused(2, "--n-predict", "run", "-n", "-2")
        self.refused(2, "--n-predict", "run", "-n", "1.5")
        self.refused(2, "--mirostat", "run", "-p", "b", "--mirostat", "1")
        self.refused(2, "--cache-type-k", "run", "-p", "b", "-ctk", "q4_k")
        self.refused(2, "no text", "run", "-m", "a")
        self.refused(2, "both", "run", "-m", "a", "-p", "b", "-f", "c")
        self.refused(2, "no text", "tokenize", "-m", "a")
        self.refused(2, "no text", "embed", "-m", "a")
        self.refused(2, "no text", "perplexity", "-m", "a")
        self.refused(2, "--n-prompt", "bench", "-m", "a", "-p", "1,x")
        self.refused(2, "--n-gen", "bench", "-m", "a", "-n", "")
        self.refused(2, "--threads", "bench", "-m", "a", "-t", "1,")
        self.refused(2, "nothing to measure", "bench", "-m", "a", "-p", "0,0", "-n", "0")
        self.refused(2, "to 16777216", "run", "a", "-c", "1000000000")
        self.refused(2, "to 9000000000000000000", "run", "a", "-s", "99999999999999999999")
        self.refused(2, "goes behind --", "run", "-5 + 3 =")
        self.refused(2, "--device", "run", "a", "-ngl", "99")
        self.refused(2, "mica chat", "run", "a", "-cnv")
        self.refused(2, "both", "bench", "ops", "-m", "a")
        self.refused(2, "both", "run", "-m", "a", "-p", "b", "c")
        self.refused(2, "too many", "run", "-m", "a", "b", "c")

    def test_no_file(self):
        for command in ("run", "tokenize", "embed"):
            self.refused(1, "none", command, "-m", self.path("none"), "-p", "a")
        self.refused(1, "none", "bench", "-m", self.path("none"))
        self.refused(1, "cannot be opened", "run", "-m", "a", "-f", self.path("none"))

    def test_unknown_family(self):
        path = gguf(self.path("m.gguf"), [("general.architecture", STRING, "rwkv99")], [("a", "f32", (4,), singles([1] * 4))])
        self.refused(1, "rwkv99", "run", "-m", path, "-p", "a")
        self.refused(1, "qwen3moe", "run", "-m", path, "-p", "a")

    def test_missing_tensor(self):
        self.refused(1, '"blk.0.ffn_norm.weight" is missing', "run", "-m", model(self.path("m.gguf")), "-p", "a")

    def test_no_device(self):
        self.refused(1, "cuda:7", "run", "-m", "a", "-p", "b", "--device", "cuda:7")

    @needs_data
    def test_no_tokenizer(self):
        self.refused(1, "tokenizer", "run", "-m", os.path.join(STORIES, "hf"), "-p", "a")
        self.refused(1, "tokenizer", "tokenize", "-m", os.path.join(STORIES, "hf"), "-p", "a")
        self.refused(1, "tokenizer", "chat", "-m", os.path.join(STORIES, "hf"), input="")

    @needs_data
    def test_long_prompt(self):
        self.refused(1, "the context holds 64", "run", "-m", STORY, "-p", "word " * 100, "-c", "64")

    @needs_data
    def test_bias(self):
        for bias in ("x", "1", "1+", "1+x", "+1", "1+nan", "1+inf"):
            self.refused(2, "--logit-bias", "run", "-m", STORY, "-p", "a", "--logit-bias", bias)
        self.refused(2, "512", "run", "-m", STORY, "-p", "a", "--logit-bias", "512+1")
        self.refused(2, "empty", "run", "-m", STORY, "-p", "a", "-r", "")

    def test_bytes_that_are_no_text(self):
        if os.path.exists(STORY):
            status, out, _ = mica("run", "-m", STORY, "-f", "-", "-n", "5", input="a\udcff\udcfeb", errors="surrogateescape")
            self.assertEqual(status, 0)
            self.assertTrue(out.startswith("a\udcff\udcfeb"))


@needs_data
class Chat(Models):
    TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"

    def chat(self, lines, *words):
        """(answers and the rest of stdout, stderr)"""
        status, out, err = mica("chat", "-m", STORY, "--chat-template", self.write("t.jinja", self.TEMPLATE), "-n", "12", *words,
                                input=lines)
        self.assertEqual(status, 0, err)
        self.assertNotIn("> ", out)
        self.assertNotIn("\033", out + err)
        return out, err

    def test_two_turns(self):
        out, err = self.chat("One day\nA girl\n", "--temp", "0", "-r", "\n")
        self.assertEqual(out.count("\n"), 2)
        again, _ = self.chat("One day\nA girl\n", "--temp", "0", "-r", "\n")
        self.assertEqual(out, again)
        first, second = out.splitlines()
        self.assertRegex(err, r"(?m)^prompt +\d+ tokens, [\d.]+ tokens/s, \d+ more were in the cache$")
        # the same conversation as one prompt
        for turns, wanted in ((["user: One day"], first),
                              (["user: One day", "assistant: " + first, "user: A girl"], second)):
            prompt = "".join(turn + "\n" for turn in turns) + "assistant:"
            text = self.run_story("-p", prompt, "-n", "12", "--temp", "0", "--no-display-prompt", "-r", "\n", "--no-escape")
            self.assertEqual(text.strip(), wanted.strip())

    def test_slash_commands(self):
        path = self.path("talk.json")
        out, err = self.chat("/system Be \"good\".\nOne day\\\na cat\n/stats\n/temp 0.5\n/regen\n/save %s\n/help\n/exit\nno\n" % path,
                             "--seed", "4")
        self.assertGreaterEqual(out.count("\n"), 2)
        self.assertIn("/regen", err)
        talk = json.loads(read(path))
        self.assertEqual([turn["role"] for turn in talk], ["system", "user", "assistant"])
        self.assertEqual(talk[0]["content"], "Be \"good\".")
        self.assertEqual(talk[1]["content"], "One day\na cat")
        back = self.path("back.json")
        self.chat("/load %s\n/save %s\n" % (path, back))
        self.assertEqual(json.loads(read(back)), talk)
        self.chat("/load %s\n/clear\n/save %s\n" % (path, back))
        self.assertEqual(json.loads(read(back)), talk[:1])

    def test_another_answer_differs(self):
        out, _ = self.chat("One day\n/regen\n/regen\n", "--seed", "4", "--temp", "2")
        self.assertGreater(len(set(out.splitlines())), 1)

    def test_load_reads_json(self):
        path, back = self.path("talk.json"), self.path("back.json")
        talk = [{"content": "a\u00e4\u20ac\U0001f600\n\t\"\\/", "role": "user"}, {"role": "assistant", "content": ""}]
        for text in (json.dumps(talk), json.dumps(talk, ensure_ascii=False, indent=3), "[]"):
            self.write("talk.json", text)
            self.chat("/load %s\n/save %s\n" % (path, back))
            self.assertEqual(json.loads(read(back)), json.loads(text))
        for text in ("", "{}", "[", "[1]", '[{"role": "user"}]', '[{"role": "user", "content": 1}]', "[]]", '["a"]',
                     '[{"role": "a", "role": "b"}]', '[{"role": "a", "content": "\\x"}]', '[{"role": "a", "content": "b"},]'):
            self.write("talk.json", text)
            status, _, err = mica("chat", "-m", STORY, input="/load %s\n" % path)
            self.assertEqual(status, 1, text)
            self.assertIn("no list of messages", err)

    def test_failures(self):
        for lines, word in (("/fly\n", "/fly"), ("/regen\n", "no answer"), ("/temp x\n", "/temp"), ("/save\n", "needs"),
                            ("/stats\n", "no answer"), ("word " * 600 + "\n", "the context holds 512")):
            status, out, err = mica("chat", "-m", STORY, "--chat-template", "chatml", input=lines)
            self.assertEqual((status, out), (1, ""), lines)
            self.assertIn(word, err)
        bad = self.write("bad.jinja", "{% for %}")
        self.refused(1, "bad.jinja", "chat", "-m", STORY, "--chat-template", bad, input="a\n")

    def test_known_templates(self):
        for name in ("chatml", "llama3", "gemma"):
            status, out, err = mica("chat", "-m", STORY, "--chat-template", name, "-n", "3", input="hi\n")
            self.assertEqual(status, 0, err)
        self.assertIn("chatml", mica("chat", "-m", STORY, "-n", "3", input="hi\n")[2])

    def test_shift_forgets_the_oldest(self):
        _, err = self.chat("word " * 18 + "\n" + "cat " * 18 + "\n" + "dog " * 18 + "\n", "-c", "96", "--context-shift")
        self.assertNotIn("mica:", err)


@needs_data
class Tokens(Models):
    def test_ids_of_others(self):
        folder = os.path.join(DATA, "tokenizers")
        for name in ("llama-spm", "gpt-2", "llama-bpe", "qwen2", "bert-bge"):
            texts = read(os.path.join(folder, name + ".inp"), "rb").decode().split("\n__ggml_vocab_test__\n")
            wanted = read(os.path.join(folder, name + ".out")).split("\n")
            for number in range(0, len(texts), 3):  # the library's own test takes them all
                with tempfile.NamedTemporaryFile(dir=self.folder) as file:
                    file.write(texts[number].encode())
                    file.flush()
                    out = self.works("tokenize", "-m", os.path.join(folder, name + ".gguf"), "-f", file.name, "--ids")
                self.assertEqual(out.count("\n"), 1)
                self.assertEqual(out.split(), wanted[number].split(), (name, texts[number]))

    def test_special(self):
        self.assertEqual(self.works("tokenize", "-m", STORY, "-p", BEGIN, "--ids", "--special"),
                         "1 " + self.works("tokenize", "-m", STORY, "-p", BEGIN, "--ids"))
        self.assertEqual(self.works("tokenize", "-m", STORY, "-p", "<s>", "--ids", "--special").split()[:2], ["1", "1"])
        self.assertEqual(self.works("tokenize", "-m", STORY, "-p", "", "--ids"), "\n")

    def test_lines(self):
        out = self.works("tokenize", "-m", STORY, "-p", BEGIN)
        ids = self.works("tokenize", "-m", STORY, "-p", BEGIN, "--ids").split()
        self.assertEqual(re.findall(r"(?m)^ *(\d+)  ", out), ids)
        self.assertIn("\u2581upon", out)


@needs_data
class Vectors(Models):
    def test_lines(self):
        path = self.write("lines.txt", "a cat\na dog\nthe park")
        rows = [[float(word) for word in line.split()] for line in self.works("embed", "-m", STORY, "-f", path).splitlines()]
        self.assertEqual([len(row) for row in rows], [64] * 3)
        for row in rows:
            self.assertAlmostEqual(sum(x * x for x in row), 1, 4)
        alone = self.works("embed", "-m", STORY, "-p", "a dog")
        self.assertEqual([float(word) for word in alone.split()], rows[1])

    def test_json_and_pooling(self):
        seen = set()
        for pooling in ("mean", "cls", "last"):
            facts = json.loads(self.works("embed", "-m", STORY, "-p", "a cat", "-p", "x", "--pooling", pooling, "--json"))
            self.assertEqual((facts["width"], [item["text"] for item in facts["embeddings"]]), (64, ["a cat", "x"]))
            self.assertEqual(len(facts["embeddings"][0]["embedding"]), 64)
            seen.add(tuple(facts["embeddings"][0]["embedding"]))
        self.assertEqual(len(seen), 3)
        long = [float(word) for word in self.works("embed", "-m", STORY, "-p", "a cat", "--no-normalize").split()]
        self.assertNotAlmostEqual(sum(x * x for x in long), 1, 2)

    def test_too_long(self):
        self.refused(1, "tokens", "embed", "-m", STORY, "-p", "word " * 100, "-c", "64")


@needs_data
class Perplexity(Models):
    def setUp(self):
        super().setUp()
        self.text = self.write("text.txt", self.run_story("-p", BEGIN, "-n", "900", "--seed", "1", "--ignore-eos",
                                                          "--context-shift"))

    def value(self, *words):
        status, out, err = mica("perplexity", "-m", STORY, "-f", self.text, "-c", "64", "--json", *words)
        self.assertEqual(status, 0, err)
        return json.loads(out), err

    def test_definition(self):
        facts, err = self.value()
        self.assertGreater(facts["perplexity"], 1)
        self.assertLess(facts["perplexity"], 50)
        self.assertEqual(facts["chunks"], facts["tokens"] // 64)
        self.assertEqual(facts["scored"], facts["chunks"] * 31)
        running = re.findall(r"\[(\d+)\]([\d.]+),", err)
        self.assertEqual([int(number) for number, _ in running], list(range(1, facts["chunks"] + 1)))
        self.assertAlmostEqual(float(running[-1][1]), facts["perplexity"], 3)

    def test_batches_and_chunks(self):
        whole, _ = self.value()
        for words in (("-b", "1"), ("-b", "7"), ("-t", "1")):
            self.assertEqual(self.value(*words)[0], whole)
        self.assertEqual(self.value("--chunks", "2")[0]["chunks"], 2)

    def test_text_form(self):
        status, out, _ = mica("perplexity", "-m", STORY, "-f", self.text, "-c", "64")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"\APPL = [\d.]+ \+/- [\d.]+\n\Z")

    def test_short_text(self):
        self.refused(1, "two chunks need 1024", "perplexity", "-m", STORY, "-f", self.write("short.txt", BEGIN))


@needs_data
class Speed(Models):
    WORDS = ("bench", "-m", STORY, "-p", "16,32", "-n", "4", "-d", "0,8", "-r", "2", "-t", "1")
    TESTS = ["pp16", "pp32", "tg4", "pp16 @ d8", "pp32 @ d8", "tg4 @ d8"]

    def test_table(self):
        lines = self.works(*self.WORDS).splitlines()
        self.assertEqual(lines[0].split(), ["model", "size", "params", "backend", "threads", "test", "t/s"])
        rows = [re.fullmatch(r"llama f32 +1015\.8 KiB +260\.03 K +cpu +1  (.*?) +([\d.]+) ± ([\d.]+)", line) for line in lines[1:]]
        self.assertEqual([row.group(1) for row in rows], self.TESTS)

    def test_markdown(self):
        lines = self.works(*self.WORDS, "--md").splitlines()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        self.assertEqual({len(row) for row in cells}, {7})
        self.assertEqual([row[5] for row in cells[2:]], self.TESTS)

    def test_json(self):
        rows = json.loads(self.works("bench", "-m", STORY + "," + STORY, "-p", "0", "-n", "4", "-r", "3", "-t", "1,2", "--json"))
        self.assertEqual([(row["n_threads"], row["n_prompt"], row["n_gen"]) for row in rows], [(1, 0, 4), (2, 0, 4)] * 2)
        for row in rows:
            self.assertEqual(len(row["samples_ts"]), 3)
            self.assertGreater(min(row["open_seconds"], row["load_seconds"], row["first_seconds"]), 0)
            self.assertAlmostEqual(row["avg_ts"], sum(row["samples_ts"]) / 3, delta=row["avg_ts"] * 1e-4)


if __name__ == "__main__":
    unittest.main()
