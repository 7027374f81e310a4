"""Little stories for the demo model to learn from: who, where, twelve plots, and questions about them.

Everything comes from a random.Random, so a seed gives the same story again."""

GIRLS = "Mia Anna Lily Ella Ruth Nora Zoe Ida Rosa Eva".split()
BOYS = "Tom Ben Max Leo Sam Finn Otto Jack Paul Hugo".split()
PETS = "Pip Coco Nut Dot Bruno Fern Moss Pepper Luna Biscuit".split()
ANIMALS = "fox rabbit bear mouse owl cat dog frog duck hedgehog squirrel turtle bird pony lamb pig".split()
TRAITS = "little young small brave shy clever curious cheerful kind quiet".split()
COLOURS = "red blue green yellow white black brown pink orange purple".split()
THINGS = "ball kite hat book drum boat lamp key bell cup doll scarf coin whistle bucket basket".split()
FOODS = "bread soup cake pie honey cheese milk jam porridge salad".split()
FRUITS = "apple pear plum cherry berry nut carrot pumpkin bean tomato".split()
ADULTS = [("Mum", "she", "her", "her"), ("Dad", "he", "him", "his"), ("Grandma", "she", "her", "her"),
          ("Grandpa", "he", "him", "his"), ("the teacher", "she", "her", "her"), ("the baker", "he", "him", "his"),
          ("the old miller", "he", "him", "his"), ("the gardener", "she", "her", "her")]
PLACES = [("in", "the forest"), ("by", "the river"), ("on", "the hill"), ("in", "the garden"), ("in", "the village"),
          ("near", "the old mill"), ("by", "the sea"), ("in", "the park"), ("at", "the farm"), ("near", "the bridge"),
          ("by", "the lake"), ("in", "the valley")]
SPOTS = [
    "under the bed", "behind the door", "in the tall grass", "under a big tree", "on the roof", "behind the barn",
    "next to the well", "in an old box", "under the bridge", "between two stones", "in the hay", "on the stairs"
]
FEARS = [("the dark", "go down into the dark cellar"), ("deep water", "swim across the pond"),
         ("thunder", "sit at the window during the storm"), ("high places", "climb the tall tree"),
         ("the big slide", "go down the big slide"), ("loud noises", "beat the loud drum"),
         ("singing in public", "sing in front of everyone")]
GAMES = [
    "play hide and seek", "fly a kite", "swim in the lake", "have a picnic", "build a tree house", "ride a bike",
    "look for shells", "play ball"
]
INSIDE = ["read a book", "bake a cake", "build a tent of blankets", "paint a picture", "sing songs", "tell stories"]
NOISES = [("a scratching", "the cat at the door"), ("a knocking", "a branch at the window"),
          ("a squeaking", "a tiny mouse in the cupboard"), ("a rustling", "a hedgehog in the leaves"),
          ("a humming", "Grandpa, who sang in the kitchen"), ("a dripping", "the old tap")]
LESSONS = [
    "A friend who helps is the best treasure.", "It is good to share.", "It is good to tell the truth.",
    "Small ones can do big things.", "Together everything is easier.", "Whoever waits will see things grow.",
    "Being brave means trying even when you are afraid.", "Kind words cost nothing."
]


def pick(r, items):
    return items[int(r.random() * len(items))]


def below(r, n):
    return int(r.random() * n)


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def upper(text):
    return text[0].upper() + text[1:]


def joined(items):
    return ", ".join(items[:-1]) + " and " + items[-1]


# ---- stories ------------------------------------------------------------------------------------------------


class Cast:
    """Who a name stands for: he or she, and what kind of being."""

    def __init__(self, name, kind, she, trait):
        self.name, self.kind, self.trait = name, kind, trait
        self.he, self.him, self.his = ("she", "her", "her") if she else ("he", "him", "his")

    @property
    def he_(self):
        return upper(self.he)

    @property
    def his_(self):
        return upper(self.his)


def child(r, without=()):
    while True:
        she = r.random() < 0.5
        name = pick(r, GIRLS if she else BOYS)
        if name not in without:
            return Cast(name, "girl" if she else "boy", she, pick(r, TRAITS))


def animal(r, without=(), kinds=()):
    while True:
        name, kind = pick(r, PETS), pick(r, ANIMALS)
        if name not in without and kind not in kinds:
            return Cast(name, kind, r.random() < 0.5, pick(r, TRAITS))


def opening(r, hero, place):
    where = "%s %s" % place
    who = "%s %s named %s" % (article(hero.trait), hero.kind, hero.name)
    return pick(r, [
        "Once upon a time, there was %s. %s lived %s." % (who, hero.he_, where),
        "Once upon a time, there was %s who lived %s." % (who, where),
        "There once was %s. %s lived in a small house %s." % (who, hero.he_, where),
        "%s was %s %s who lived %s." % (hero.name, article(hero.trait), hero.kind, where),
        "Once there lived %s %s." % (who, where)
    ])


def day(r):
    return pick(
        r, ["One day", "One morning", "One sunny day", "One afternoon", "One cold morning", "On a warm summer day"])


def glad(r, hero):
    return pick(r, [
        "%s was very happy." % hero.name,
        "%s laughed with joy." % hero.name,
        "%s smiled from ear to ear." % hero.name,
        "%s jumped up and down." % hero.name,
        "%s danced around the room." % hero.name,
        "%s was proud and happy." % hero.name
    ])


def closing(r, hero, lesson):
    end = pick(r, [
        "That night, %s slept very well." % hero.name,
        "From that day on, %s was never alone." % hero.name,
        "%s never forgot that day." % hero.name, "And so the day ended well.",
        "In the evening, %s told the whole story at home." % hero.name
    ])
    return pick(r, [end, lesson, end + " " + lesson, lesson + " " + end])


def thanks(r, hero, helper):
    return pick(r, [
        '"Thank you, %s!" said %s.' % (helper, hero.name),
        '"You are a true friend, %s," said %s.' % (helper, hero.name),
        '%s hugged %s and said, "Thank you!"' % (hero.name, helper)
    ])


def plot_lost(r, hero):
    colour, thing, friend = pick(r, COLOURS), pick(r, THINGS), animal(r, (hero.name, ), (hero.kind, ))
    wrong, right = r.sample(SPOTS, 2)
    told = [
        "%s had %s %s. %s loved it more than anything." % (hero.name, article(colour), thing, hero.he_),
        "%s, the %s %s was gone. %s was very sad." % (day(r), colour, thing, hero.name),
        pick(r, [
            "%s looked %s, but it was not there." % (hero.he_, wrong),
            "First %s looked %s. Nothing!" % (hero.he, wrong)
        ]),
        "Then %s met %s %s named %s." % (hero.he, article(friend.trait), friend.kind, friend.name),
        pick(r, [
            '"Why are you sad?" asked %s. "I lost my %s %s," said %s.' % (friend.name, colour, thing, hero.name),
            '"What is wrong?" asked %s. "My %s is gone," said %s.' % (friend.name, thing, hero.name)
        ]),
        pick(r, ['"Let us look together," said %s.' % friend.name,
                 '"I will help you," said %s.' % friend.name]),
        pick(r, [
            "They looked and looked, and at last they found the %s %s." % (thing, right),
            "%s had good eyes. There it was, %s!" % (friend.name, right)
        ]),
        glad(r, hero),
        thanks(r, hero, friend.name),
        closing(r, hero, LESSONS[0])
    ]
    return told, thing, [("What did %s lose?" % hero.name, "The %s %s." % (colour, thing)),
                         ("Who helped %s?" % hero.name, friend.name + "."),
                         ("What colour was the %s?" % thing, upper(colour) + "."),
                         ("Where was the %s?" % thing, upper(right) + ".")]


def plot_share(r, hero):
    other = child(r, (hero.name, )) if hero.kind in ("girl", "boy") else animal(r, (hero.name, ), (hero.kind, ))
    colour, thing = pick(r, COLOURS), pick(r, THINGS)
    told = [
        "%s, %s found %s %s %s." % (day(r), hero.name, article(colour), thing, pick(r, SPOTS)),
        "%s wanted to have it too. %s" %
        (other.name, pick(r, ['"Give it to me!" said %s.' % other.name,
                              '"It is mine!" said %s.' % other.name])),
        pick(r, ["They pulled and shouted, and soon both were angry.", "They began to quarrel, and nobody had fun."]),
        pick(r, ["Then %s stopped and thought. " % hero.name,
                 "Then %s took a deep breath. " % hero.name]) + pick(r, [
                     '"You can have it in the morning, and I will have it in the evening," %s said.' % hero.he,
                     '"Let us play with it together," %s said.' % hero.he
                 ]),
        pick(r, ['"That is a good idea," said %s.' % other.name,
                 '"I am sorry that I shouted," said %s.' % other.name]),
        pick(r, [
            "So they shared the %s and played all day." % thing,
            "So the %s belonged to both of them, and it was twice as much fun." % thing
        ]),
        closing(r, hero, LESSONS[1])
    ]
    return told, thing, [("What did %s find?" % hero.name, upper(article(colour)) + " %s." % thing),
                         ("Who wanted the %s too?" % thing, other.name + "."),
                         ("What colour was the %s?" % thing, upper(colour) + ".")]


def plot_rescue(r, hero):
    friend = animal(r, (hero.name, ), (hero.kind, ))
    trouble, cure = pick(r, [("was stuck between two stones", "pushed the stone away"),
                             ("had a thorn in the foot", "pulled out the thorn"),
                             ("could not get down from the tree", "brought a long ladder"),
                             ("had fallen into a hole", "let down a rope"),
                             ("was lost and cold", "gave the poor animal a warm blanket"),
                             ("was very hungry", "shared some bread")])
    told = [
        "%s, %s went for a walk %s %s." % (day(r), hero.name, *pick(r, PLACES)),
        pick(r, ["Suddenly %s heard a small voice. " % hero.he,
                 "Then %s heard someone cry. " % hero.he]) + '"Help! Please help me!"',
        "It was %s named %s, who %s." % (article(friend.kind), friend.name, trouble),
        pick(r, [
            '"Do not be afraid," said %s. "I will help you."' % hero.name,
            '"Wait, I am coming!" said %s.' % hero.name
        ]),
        "%s %s." % (hero.name, cure),
        pick(
            r,
            ['"Thank you," said %s. "I will never forget it."' % friend.name,
             '"You saved me!" said %s.' % friend.name]),
        pick(r, [
            "From then on they met every day.",
            "After that, %s and %s were the best of friends." % (hero.name, friend.name)
        ]),
        closing(r, hero, LESSONS[7])
    ]
    return told, friend.kind, [("Who needed help?", friend.name + "."),
                               ("What kind of animal was %s?" % friend.name, upper(article(friend.kind)) + "."),
                               ("Who helped %s?" % friend.name, hero.name + ".")]


def plot_rain(r, hero):
    other = child(r, (hero.name, )) if hero.kind in ("girl", "boy") else animal(r, (hero.name, ), (hero.kind, ))
    game, inside = pick(r, GAMES), pick(r, INSIDE)
    told = [
        "%s, %s and %s wanted to %s." % (day(r), hero.name, other.name, game),
        pick(
            r,
            ["But dark clouds came, and it began to rain.", "But then it rained and rained, and the wind was strong."]),
        pick(r, [
            '"Oh no," said %s. "Now we must stay inside."' % hero.name,
            '"Now the day is spoiled," said %s.' % hero.name
        ]),
        pick(r, [
            'But %s had an idea. "Let us %s!"' % (other.name, inside),
            '"We could %s," said %s.' % (inside, other.name)
        ]),
        pick(r, [
            "So they stayed warm and dry, and they had so much fun that they forgot the rain.",
            "That was even better than %s had hoped." % hero.he
        ]),
        pick(r, [
            "In the evening the sun came out, and they saw a rainbow.",
            "When the rain was over, they ran outside and jumped into every puddle."
        ]),
        closing(r, hero, LESSONS[4])
    ]
    return told, "rain", [("What did they want to do?", upper(game) + "."),
                          ("Why did they stay inside?", "Because it rained."),
                          ("What did they do inside?", upper(inside) + "."),
                          ("Who had the idea?" if "had an idea" in told[3] else "Who was with %s?" % hero.name,
                           other.name + ".")]


def plot_bake(r, hero):
    adult = pick(r, ADULTS)[0]
    food, missing, neighbour = pick(r, ["cake", "pie", "bread", "soup"]), pick(
        r, ["flour", "sugar", "milk", "butter", "salt"]), pick(r, [a for a in ADULTS if a[0] != adult])[0]
    verb = "cook" if food == "soup" else "bake"
    told = [
        "%s, %s and %s wanted to %s a %s." %
        (day(r), hero.name, adult, verb, food) if food not in ("bread",
                                                               "soup") else "%s, %s and %s wanted to %s some %s." %
        (day(r), hero.name, adult, verb, food),
        pick(r, [
            "But there was no %s left in the house." % missing,
            "But when they opened the cupboard, the %s was gone." % missing
        ]),
        pick(r, ['"What shall we do?" asked %s.' % hero.name,
                 '"We need %s," said %s.' % (missing, adult)]),
        "%s ran to %s and asked for some %s." % (hero.name, neighbour, missing),
        pick(r,
             ['"Of course," said %s. "Take as much as you need."' % neighbour,
              '"Here you are," said %s.' % neighbour]),
        pick(r, [
            "Soon the whole house smelled wonderful.",
            "They mixed and stirred, and after an hour the %s was ready." % food
        ]),
        "They gave the first piece to %s." % neighbour if food != "soup" else "They gave the first bowl to %s." %
        neighbour,
        pick(r, ['"That is the best %s in the world!" said %s.' %
                 (food, neighbour), glad(r, hero)]),
        closing(r, hero, LESSONS[1])
    ]
    return told, food, [("What was missing?", "The %s." % missing),
                        ("Who gave them some %s?" % missing, upper(neighbour) + "."),
                        ("What did they %s?" % verb, upper(food if food in ("bread", "soup") else article(food)) + ".")]


def plot_brave(r, hero):
    fear, deed = pick(r, FEARS)
    helper = pick(r, ADULTS)[0] if r.random() < 0.5 else animal(r, (hero.name, ), (hero.kind, )).name
    told = [
        "%s was afraid of %s." % (hero.name, fear),
        pick(r,
             ["%s, the others laughed, and that made %s sad." % (day(r), hero.him), "Nobody was allowed to know it."]),
        pick(r, [
            '"I was afraid too, once," said %s. "Take my hand."' % helper,
            '"You do not have to be alone," said %s. "I will stay with you."' % helper
        ]),
        pick(r, [
            "%s's heart beat fast, but %s tried." % (hero.name, hero.he),
            "%s closed %s eyes and counted to three." % (hero.name, hero.his)
        ]),
        "And then it happened: %s could %s!" % (hero.name, deed),
        pick(r, ['"I did it!" shouted %s.' % hero.name,
                 '"That was easy!" said %s.' % hero.name]),
        glad(r, hero),
        closing(r, hero, LESSONS[6])
    ]
    return told, fear, [("What was %s afraid of?" % hero.name, upper(fear) + "."),
                        ("Who helped %s?" % hero.name, upper(helper) + ".")]


def plot_broken(r, hero):
    adult = pick(r, ADULTS)[0]
    colour, thing = pick(r, COLOURS), pick(r, ["cup", "lamp", "bell", "drum", "boat", "basket"])
    told = [
        "%s had a fine %s %s." % (upper(adult), colour, thing),
        "%s, %s ran through the room and broke it by accident." % (day(r), hero.name),
        pick(r, [
            "%s was scared and hid %s." % (hero.name, pick(r, ["under the bed", "behind the door"])),
            "%s did not know what to do." % hero.name
        ]),
        pick(r, ["But hiding did not feel good.",
                 "%s stomach hurt, and %s could not play." % (hero.his_, hero.he)]),
        'So %s went to %s and said, "%s"' %
        (hero.he, adult, pick(r, ["I broke your %s. I am so sorry." % thing,
                                  "It was me. I broke the %s." % thing])),
        pick(r, [
            '"Thank you for telling me the truth," said %s.' % adult,
            '"Everyone breaks something once," said %s.' % adult
        ]),
        pick(r, [
            "They glued the %s together, and it looked almost new." % thing,
            "Together they repaired the %s, piece by piece." % thing
        ]),
        closing(r, hero, LESSONS[2])
    ]
    return told, thing, [("What did %s break?" % hero.name, "The %s %s." % (colour, thing)),
                         ("Whose %s was it?" % thing, upper(adult) + "'s."), ("Who told the truth?", hero.name + ".")]


def plot_journey(r, hero):
    goal = pick(r, PLACES)[1]
    kinds = r.sample([k for k in ANIMALS if k != hero.kind], 3)
    gifts = r.sample(["a rope", "a warm scarf", "a small lamp", "some bread", "a long stick", "a jar of honey"], 3)
    told = ["%s, %s set out to see %s." % (day(r), hero.name, goal)]
    for number, (kind, gift) in enumerate(zip(kinds, gifts)):
        told.append(
            "%s %s met %s. %s" %
            (["First", "Then", "At last"][number], hero.he, article(kind),
             pick(r, ['"Take %s with you," said the %s.' % (gift, kind),
                      'The %s gave %s %s.' % (kind, hero.him, gift)])))
    told += [
        pick(r,
             ["It was a long way, but %s did not give up." % hero.name, "The way was steep, and the night was cold."]),
        "%s had %s, and so %s came to %s." % (hero.name, joined(gifts), hero.he, goal),
        pick(r, [
            "It was more beautiful than %s had dreamed." % hero.he,
            "There %s sat down and looked at the stars." % hero.he
        ]),
        closing(r, hero, LESSONS[3])
    ]
    return told, goal, [("Who gave %s %s?" % (hero.name, gifts[n]), "The %s." % kinds[n])
                        for n in range(3)] + [("Where did %s go?" % hero.name, "To %s." % goal),
                                              ("Who did %s meet first?" % hero.name, "The %s." % kinds[0])]


def plot_race(r, hero):
    rival = animal(r, (hero.name, ), (hero.kind, ))
    cause, effect = pick(r, [("lay down to sleep under a tree", "slept too long"),
                             ("stopped to eat berries", "forgot the time"), ("ran the wrong way", "got lost"),
                             ("looked back and laughed", "fell into a puddle")])
    told = [
        "%s, %s the %s wanted to race %s." % (day(r), rival.name, rival.kind, hero.name),
        pick(r, [
            '"I am the fastest of all," said %s. "You will lose."' % rival.name,
            '"Nobody is as fast as I am," said %s.' % rival.name
        ]),
        pick(r, ['"We will see," said %s.' % hero.name,
                 '"I will do my best," said %s.' % hero.name]),
        "They ran from %s to %s." % tuple(p[1] for p in r.sample(PLACES, 2)),
        "%s was far ahead. But then %s %s and %s." % (rival.name, rival.he, cause, effect),
        pick(r, [
            "%s went on, step by step, and came in first." % hero.name,
            "%s did not stop once, and so %s won." % (hero.name, hero.he)
        ]),
        pick(r, [
            '"Well done," said %s. "I will not boast again."' % rival.name,
            '%s was ashamed, but %s said, "Let us be friends."' % (rival.name, hero.name)
        ]),
        closing(r, hero, LESSONS[3])
    ]
    return told, "race", [("Who won the race?", hero.name + "."), ("Who lost the race?", rival.name + "."),
                          ("Why did %s lose?" % rival.name, "Because %s %s." % (rival.he, cause))]


def plot_gift(r, hero):
    adult, _, him, _ = pick(r, ADULTS)
    colour, thing = pick(r, COLOURS), pick(r, ["hat", "scarf", "basket", "boat", "picture", "kite"])
    told = [
        "It was %s birthday. %s wanted to give %s a present, but had no money." % (adult + "'s", hero.name, him),
        pick(r, ["%s thought for a long time." % hero.name,
                 "%s looked at the shop window and sighed." % hero.name]),
        '"I will make something myself," said %s.' % hero.name,
        "All day long %s worked, and in the evening %s %s was ready." % (hero.he, article(colour), thing),
        pick(r, ["%s opened the present with big eyes." % upper(adult),
                 "%s unpacked it slowly." % upper(adult)]),
        '"%s" said %s.' %
        (pick(r, ["This is the best present of all!", "You made it yourself? How wonderful!"]), adult),
        glad(r, hero),
        closing(r, hero, LESSONS[7])
    ]
    return told, thing, [("What did %s make?" % hero.name, upper(article(colour)) + " %s." % thing),
                         ("Whose birthday was it?", upper(adult) + "'s."),
                         ("What colour was the %s?" % thing, upper(colour) + ".")]


def plot_noise(r, hero):
    noise, truth = pick(r, NOISES)
    told = [
        "One night, %s woke up. There was %s noise." % (hero.name, noise),
        pick(r, [
            '"Is that a monster?" thought %s.' % hero.name,
            "%s pulled the blanket over %s head." % (hero.name, hero.his)
        ]),
        pick(r, ["The noise came again, and it was louder.", "Everything was dark, and the noise did not stop."]),
        pick(r, [
            "At last %s took a lamp and went to look." % hero.name,
            "Step by step, %s went towards the noise." % hero.name
        ]),
        "It was only %s!" % truth,
        pick(r,
             ["%s had to laugh." % hero.name, '"Oh, it is you!" said %s.' % hero.name]),
        pick(r, ["Then %s went back to bed and slept until morning." % hero.he,
                 closing(r, hero, LESSONS[6])])
    ]
    return told, "noise", [("What did %s hear?" % hero.name, upper(noise) + " noise."),
                           ("What was the noise?", "It was %s." % truth)]


def plot_garden(r, hero):
    fruit, helper = pick(r, ["pumpkin", "bean", "carrot", "tomato", "sunflower"]), pick(r, ADULTS)[0]
    told = [
        "%s, %s gave %s a tiny seed. \"%s,\" said %s." %
        (day(r), helper, hero.name, pick(r, ["Put it into the earth and wait", "Give it water every day"]), helper),
        pick(r, ["%s dug a hole and put the seed into it." % hero.name,
                 "%s planted it in the garden." % hero.name]),
        pick(r, [
            "The first day, nothing happened. The second day, nothing happened.",
            "%s looked every morning, but there was only earth." % hero.he_
        ]),
        pick(r, [
            '"It does not grow!" said %s. "Be patient," said %s.' % (hero.name, helper),
            '%s was sad, but went on giving it water.' % hero.name
        ]), "Then one morning there was a small green leaf.",
        "It grew and grew, and in the end there was a big %s." % fruit,
        pick(r, [
            "%s invited all the friends to see it." % hero.name,
            "%s was so proud that %s showed it to everyone." % (hero.name, hero.he)
        ]),
        closing(r, hero, LESSONS[5])
    ]
    return told, fruit, [("What grew in the garden?", upper(article(fruit)) + "."),
                         ("Who gave %s the seed?" % hero.name, upper(helper) + ".")]


PLOTS = [
    plot_lost, plot_share, plot_rescue, plot_rain, plot_bake, plot_brave, plot_broken, plot_journey, plot_race,
    plot_gift, plot_noise, plot_garden
]


def story(r):
    """(text, hero, what it is about, questions with answers)."""
    hero = child(r) if r.random() < 0.5 else animal(r)
    place = pick(r, PLACES)
    told, about, questions = pick(r, PLOTS)(r, hero)
    questions = questions + [("Where did %s live?" % hero.name, upper("%s %s." % place))]
    text = opening(r, hero, place) + (" " if r.random() < 0.7 else "\n")
    half = 2 + below(r, 3)
    text += " ".join(told[:half]) + (" " if r.random() < 0.7 else "\n") + " ".join(told[half:])
    return text, hero, about, questions
