"""The language that the demo model learns: little stories (demo_stories.py), small skills and short
conversations, all written here.

A document is a list of parts: a plain string, or one of the marks USER and ASSISTANT and END that become special
tokens. Everything comes from a random.Random, so a seed gives the same text again. Problems whose key falls into the
held-out share are never in the text to learn from: the tests draw from these alone.

Knows nothing of tokens, networks or files."""
import zlib

from demo_stories import (ANIMALS, BOYS, COLOURS, FOODS, FRUITS, GIRLS, THINGS, TRAITS, article, below, pick, story,
                          upper)

USER, ASSISTANT, END = object(), object(), object()
HELD_OUT_SHARE = 40  # one problem of this many is held out
OPPOSITES = [("hot", "cold"), ("big", "small"), ("fast", "slow"), ("happy", "sad"), ("day", "night"), ("up", "down"),
             ("left", "right"), ("open", "closed"), ("full", "empty"), ("hard", "soft"), ("old", "new"),
             ("light", "dark"), ("long", "short"), ("high", "low"), ("near", "far"), ("wet", "dry"), ("loud", "quiet"),
             ("early", "late"), ("rich", "poor"), ("strong", "weak"), ("thick", "thin"), ("wide", "narrow"),
             ("clean", "dirty"), ("first", "last"), ("good", "bad"), ("true", "false"), ("inside", "outside"),
             ("sweet", "sour"), ("deep", "shallow"), ("always", "never"), ("above", "below"), ("before", "after"),
             ("push", "pull"), ("win", "lose"), ("buy", "sell"), ("give", "take"), ("laugh", "cry"), ("begin", "end"),
             ("friend", "enemy"), ("summer", "winter"), ("sick", "healthy"), ("brave", "afraid"), ("smooth", "rough"),
             ("sharp", "blunt"), ("hello", "goodbye"), ("yes", "no"), ("north", "south"), ("east", "west")]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PLAIN_WORDS = (
    "house water bread stone cloud river table chair window garden school friend mother father sister "
    "brother morning evening summer winter spring autumn flower forest mountain street letter number story "
    "answer question paper pencil silver golden market orange yellow purple kitchen dinner spoon plate "
    "butter sugar horse chicken monkey tiger zebra lion wolf whale shark snake spider rocket planet star moon "
    "sun wind rain snow storm thunder island ocean beach sand ship train wagon wheel music dance song drum "
    "piano guitar trumpet castle queen king prince dragon wizard magic dream sleep jump walk climb throw "
    "catch build paint write read listen speak think learn teach help thank please sorry welcome").split()
REAL_WORDS = sorted(
    set(PLAIN_WORDS + ANIMALS + THINGS + COLOURS + FOODS + FRUITS + TRAITS + [w for pair in OPPOSITES for w in pair]))
ONSETS = "b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl fr gl gr pl pr qu sh sl sn sp st th tr tw wh".split()
VOWELS = "a e i o u a e i o u ai ea ee oo ou y".split()
CODAS = [
    "", "", "", "b", "d", "g", "l", "m", "n", "p", "r", "s", "t", "x", "ck", "ll", "nd", "ng", "nt", "rk", "st", "sh"
]


def held_out(*key):
    return zlib.crc32(repr(key).encode()) % HELD_OUT_SHARE == 0


# ---- skills -------------------------------------------------------------------------------------------------
# A skill gives (key, prompt, answer, [questions for a conversation], its answer): the prompt goes on with the answer.


def number(r):
    return below(r, (10, 100, 100, 1000, 1000, 1000)[below(r, 6)])


def add(r):
    a, b = number(r), number(r)
    said = "%d + %d" % (a, b)
    return (min(a, b), max(a, b)), said + " =", " %d." % (a + b), [
        "What is %s?" % said, said, said + " = ?",
        "How much is %d plus %d?" % (a, b),
        "Add %d and %d." % (a, b)
    ], said + " = %d." % (a + b)


def subtract(r):
    a, b = sorted((number(r), number(r)), reverse=True)
    said = "%d - %d" % (a, b)
    return (a, b), said + " =", " %d." % (a - b), [
        "What is %s?" % said, said, said + " = ?",
        "How much is %d minus %d?" % (a, b),
        "Take %d from %d." % (b, a)
    ], said + " = %d." % (a - b)


def word(r):
    if r.random() < 0.3:
        return pick(r, REAL_WORDS)
    made = pick(r, REAL_WORDS)[:2 + below(r, 5)] if r.random() < 0.3 else ""
    for _ in range(1 + below(r, 2) + (not made)):
        made += pick(r, ONSETS) + pick(r, VOWELS) + pick(r, CODAS)
    return made[:9]


def spell(r):
    w = word(r)
    said = "The word %s is spelled" % w
    return (w, ), said, " %s." % "-".join(w), [
        "How do you spell %s?" % w,
        "Spell %s." % w, "Spell the word %s." % w,
        "Can you spell %s?" % w
    ], said + " %s." % "-".join(w)


def reverse(r):
    """Spelled first, then turned around: what a small network can do step by step."""
    w = word(r)
    said, told = "The word %s backwards:" % w, " %s, %s." % ("-".join(w), "-".join(w[::-1]))
    return (w, ), said, told, ["Spell %s backwards." % w, "What is %s backwards?" % w], said + told


def length(r):
    w = word(r)
    said, told = "The letters of %s:" % w, " %s, %d letters." % ("-".join(w), len(w))
    return (w, ), said, told, ["How many letters are in %s?" % w, "How long is the word %s?" % w], said + told


def count(r):
    a = below(r, 200)
    b = a + 2 + below(r, 8)
    if r.random() < 0.3:
        a, b = b, a
    told = ", ".join(str(n) for n in (range(a, b + 1) if a < b else range(a, b - 1, -1)))
    return (a, b), "Count from %d to %d:" % (a, b), " %s." % told, [
        "Count from %d to %d." % (a, b), "Please count from %d to %d." % (a, b)
    ], told + "."


def alphabet(r):
    a, b = sorted(r.sample(range(26), 2))
    told = ", ".join(LETTERS[a:b + 1])
    said = "The letters from %s to %s are" % (LETTERS[a], LETTERS[b])
    return (a, b), said, " %s." % told, [
        "Say the letters from %s to %s." % (LETTERS[a], LETTERS[b]),
        "Which letters are from %s to %s?" % (LETTERS[a], LETTERS[b])
    ], told + "."


def compare(r):
    a, b = number(r), number(r)
    if a == b:
        b += 1
    how = pick(r, ["larger", "smaller"])
    best, rest = (max(a, b), min(a, b)) if how == "larger" else (min(a, b), max(a, b))
    return (min(a, b), max(a, b)), "Which is %s, %d or %d?" % (how, a, b), " %d." % best, [
        "Which is %s, %d or %d?" % (how, a, b),
        "Which number is %s, %d or %d?" % (how, a, b)
    ], "%d is %s than %d." % (best, how, rest)


def sort(r):
    items = r.sample(range(100), 3 + below(r, 3))
    said = ", ".join(map(str, items))
    told = ", ".join(map(str, sorted(items)))
    return tuple(items), "Sort %s:" % said, " %s." % told, ["Sort %s." % said, "Put %s in order." % said], told + "."


def after(r):
    a = below(r, 1000)
    how, b = ("after", a + 1) if a == 0 or r.random() < 0.5 else ("before", a - 1)
    said = "The number %s %d is" % (how, a)
    return (how, a), said, " %d." % b, ["What number comes %s %d?" % (how, a),
                                        "Which number is %s %d?" % (how, a)], said + " %d." % b


def opposite(r):
    a, b = pick(r, OPPOSITES)
    if r.random() < 0.5:
        a, b = b, a
    said = "The opposite of %s is" % a
    return None, said, " %s." % b, ["What is the opposite of %s?" % a, "Say the opposite of %s." % a], said + " %s." % b


def facts(r):
    """Who has what, in which colour: the answer is in the text."""
    names = r.sample(GIRLS + BOYS, 2 + below(r, 2))
    things, colours = r.sample(THINGS, len(names)), r.sample(COLOURS, len(names))
    told = " ".join("%s has %s %s." % (n, article(c), t) for n, c, t in zip(names, colours, things))
    i = below(r, len(names))
    question, short, full = pick(
        r, [("What colour is the %s?" % things[i], upper(colours[i]), "The %s is %s." % (things[i], colours[i])),
            ("Who has the %s?" % things[i], names[i], "%s has the %s." % (names[i], things[i])),
            ("What does %s have?" % names[i], upper(article(colours[i])) + " " + things[i], "%s has %s %s." %
             (names[i], article(colours[i]), things[i]))])
    return tuple(sorted(zip(names, colours,
                            things))), told + " " + question, " %s." % short, [told + " " + question], full


SKILLS = {
    "add": add, "subtract": subtract, "spell": spell, "reverse": reverse, "length": length, "count": count,
    "alphabet": alphabet, "compare": compare, "sort": sort, "after": after, "opposite": opposite, "facts": facts
}
# How often a skill is practised: what is hard, more often.
PRACTICE = [
    name
    for name, share in [("add", 8), ("subtract", 8), ("spell", 4), ("reverse",
                                                                    4), ("length",
                                                                         2), ("count",
                                                                              2), ("alphabet",
                                                                                   1), ("compare",
                                                                                        2), ("sort",
                                                                                             3), ("after",
                                                                                                  1), ("opposite",
                                                                                                       1), ("facts", 4)]
    for _ in range(share)
]


def problem(r, name, test=False):
    """A problem of the skill, from the held-out ones for a test and else from the others. Facts without a key are
    learned by heart: they have no held-out part."""
    while True:
        made = SKILLS[name](r)
        if made[0] is None or held_out(name if name not in ("spell", "reverse", "length") else "word", *
                                       made[0]) == test:
            return made


# ---- conversations ------------------------------------------------------------------------------------------

GREETINGS = ["Hello", "Hi", "Good morning", "Good evening", "Hello there", "Hey"]
SELF = "I am mica's little model. I can tell stories, add numbers and spell words."
SMALL_TALK = [([
    "Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "What can you do?",
    "What can you do for me?", "How can you help me?"
], [SELF]), (["How are you?", "How are you today?", "How do you do?"], ["I am fine, thank you. How can I help you?"]),
              (["Thank you!", "Thanks!", "Thank you very much.", "Thanks a lot."], ["You are welcome!"]),
              (["Goodbye!", "Bye!", "See you later.", "Good night."], ["Goodbye! It was nice to talk to you."]),
              (["Help", "Help me.", "I need help.", "Can you help me?"], ["Gladly. " + SELF])]
UNKNOWN = "I am sorry, I do not know that. I can tell stories, add numbers and spell words."
STRANGE = [
    "What is the capital of %s?", "Who is %s?", "What is %s?", "Why is the %s %s?", "Where is %s?",
    "How does a %s work?", "When was %s born?", "Can you explain %s?", "Write a program for %s.",
    "What do you think of %s?", "Translate %s.", "How old is %s?", "Do you like %s?"
]


def ask_story(r):
    text, hero, about, _ = story(r)
    kind = article(hero.kind)
    asked = pick(r, [
        "Tell me a story about %s.", "Tell me a story about %s.", "Please tell me a story about %s.",
        "Write a story about %s.", "Can you tell me a story about %s?"
    ])
    whom = pick(r,
                [kind, kind,
                 "%s named %s" % (kind, hero.name),
                 "%s %s" % (article(hero.trait), hero.kind), hero.name])
    if r.random() < 0.15:
        return pick(
            r, ["Tell me a story.", "Tell me a story, please.", "A story, please!", "Please tell me a story."]), text
    return asked % whom, text


def turn(r):
    chance = r.random()
    if chance < 0.62:
        _, _, _, questions, answer = problem(r, pick(r, PRACTICE))
        question = pick(r, questions)
        return (pick(r, ["Please tell me: ", "", "", "", "", "", ""]) + question), answer
    if chance < 0.80:
        return ask_story(r)
    if chance < 0.86:
        return pick(r, GREETINGS) + pick(r, ["!", ".", ""]), "Hello! How can I help you?"
    if chance < 0.94:
        asked, answers = pick(r, SMALL_TALK)
        return pick(r, asked), pick(r, answers)
    asked = pick(r, STRANGE)
    return asked % tuple(upper(word(r)) if r.random() < 0.4 else word(r) for _ in range(asked.count("%s"))), UNKNOWN


def conversation(r):
    parts = []
    name = pick(r, GIRLS + BOYS)
    known = r.random() < 0.15
    if known:
        parts += [
            USER,
            pick(r, ["Hello, I am %s.", "Hi, my name is %s.", "My name is %s.", "I am %s."]) % name, ASSISTANT,
            "Hello, %s! How can I help you?" % name, END
        ]
    for _ in range(1 + (r.random() < 0.4) + (r.random() < 0.2)):
        question, answer = turn(r)
        parts += [USER, question, ASSISTANT, answer, END]
    if known and r.random() < 0.6:
        parts += [
            USER,
            pick(r, ["What is my name?", "Do you know my name?", "Who am I?"]), ASSISTANT,
            "Your name is %s." % name, END
        ]
    return parts


# ---- documents ----------------------------------------------------------------------------------------------


def practice(r):
    """Some problems, one on a line: of one skill or of several."""
    names = [pick(r, PRACTICE)] if r.random() < 0.6 else PRACTICE
    lines = []
    for _ in range(1 + below(r, 6)):
        _, prompt, answer, _, _ = problem(r, pick(r, names))
        lines.append(prompt + answer)
    return ["\n".join(lines), END]


def tale(r):
    text, _, _, questions = story(r)
    if r.random() < 0.35:
        asked = r.sample(questions, 1 + below(r, min(3, len(questions))))
        text += "\n\n" + "\n".join(q + " " + a for q, a in asked)
    return [text, END]


def document(r):
    chance = r.random()
    return tale(r) if chance < 0.25 else practice(r) if chance < 0.65 else conversation(r)


def tests(r, name, amount):
    """Held-out problems of a skill: (mode, prompt, answer), every other one as a conversation."""
    made = {}
    for n in range(amount * 20):
        _, prompt, answer, questions, full = problem(r, name, test=True)
        mode = ("text", "chat")[n % 2]
        made[(mode, prompt if mode == "text" else pick(r, questions))] = answer if mode == "text" else full
        if len(made) == amount:
            break
    return [(mode, prompt, answer) for (mode, prompt), answer in made.items()]
