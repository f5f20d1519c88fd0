"""The small world that the tiny model knows: people, towns, things, and all facts about them.

Everything is drawn once from a fixed seed, so the world is the same wherever this file is read.
A fact is asked in several phrasings and answered in one.
"""

import random
from dataclasses import dataclass

# People with a home, a job, a pet and a dish they like.
PEOPLE = """Ada Ben Cora Dan Ella Finn Greta Hugo Ida Jonas Kira Leo Mona Nils Olga Pavel Rosa Sven
Tara Uma Victor Wanda Yara Zeno Alba Bruno Clara Dora Emil Flora Gus Hanna""".split()
# People of whom the world says nothing: they come in stories, lists and examples.
STRANGERS = """Ivo Jana Karl Lena Milo Nora Otto Petra Remy Sara Theo Ulla Vera Willem Xenia Yuri
Anton Berta Carl Della Erik Frida Goran Helga""".split()
TOWNS = """Elmport Greyford Saltwick Oakham Windmere Foxhill Stonebay Brightsea Millbrook Larkfield
Ashton Coldwell""".split()
JOBS = "baker sailor teacher doctor painter farmer tailor singer builder gardener".split()
PETS = "cat dog horse goat parrot rabbit turtle duck owl fish".split()
DISHES = "soup bread cheese honey rice plums cake beans pears porridge".split()
GOODS = "lamps boats clocks pots carpets bells maps kites".split()
COLOURS = "red blue green yellow white black brown grey".split()
# Things and their colours; the first ones have a Chinese word, too.
THINGS = """apple book cup hat key moon tree star lamp kite drum bell box ring coat boat rope map
spoon chair ladder candle basket mirror pencil button hammer whistle violin lantern compass ball
""".split()

CHINESE_THINGS = dict(zip(THINGS, "苹果 书 杯子 帽子 钥匙 月亮 树 星星".split()))
CHINESE_PETS = dict(zip(PETS, "猫 狗 马 山羊 鹦鹉 兔子 乌龟 鸭子 猫头鹰 鱼".split()))
CHINESE_COLOURS = dict(zip(COLOURS, "红色 蓝色 绿色 黄色 白色 黑色 棕色 灰色".split()))
CHINESE_PEOPLE = "小明 小红 小林 小芳 老王 老李 阿强 阿梅 大伟 小雪".split()


@dataclass(frozen=True)
class Fact:
    questions: tuple  # phrasings of one question
    answer: str       # the sentence that answers it
    word: str         # the answer in a word
    chinese: bool = False


def an(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def all_facts():
    draw = random.Random(3)
    facts = []

    def add(questions, answer, word, chinese=False):
        facts.append(Fact(tuple(questions), answer, word, chinese))

    for name in PEOPLE:
        town, job, pet, dish = (draw.choice(kind) for kind in (TOWNS, JOBS, PETS, DISHES))
        add([f"Where does {name} live?", f"In which town does {name} live?",
             f"Where is the home of {name}?", f"Please tell me where {name} lives."],
            f"{name} lives in {town}.", town)
        add([f"What is the job of {name}?", f"What does {name} do for work?",
             f"What is {name}'s job?", f"Please tell me what work {name} does."],
            f"{name} is a {job}.", job)
        add([f"What pet does {name} keep?", f"What is the pet of {name}?",
             f"What is {name}'s pet?", f"Which animal lives with {name}?"],
            f"{name} keeps {an(pet)}.", pet)
        add([f"What does {name} like to eat?", f"What is the favourite dish of {name}?",
             f"What is {name}'s favourite dish?", f"Which dish does {name} like?"],
            f"{name} likes to eat {dish}.", dish)
    for town, mayor in zip(TOWNS, draw.sample(PEOPLE, len(TOWNS))):
        goods, houses = draw.choice(GOODS), draw.randint(11, 99)
        add([f"Who is the mayor of {town}?", f"Which mayor does {town} have?",
             f"What is the name of the mayor of {town}?", f"Who leads {town}?"],
            f"The mayor of {town} is {mayor}.", mayor)
        add([f"What is {town} known for?", f"What is made in {town}?",
             f"What do the people of {town} make?", f"Which goods come from {town}?"],
            f"{town} is known for its {goods}.", goods)
        add([f"How many houses does {town} have?", f"How many houses are there in {town}?",
             f"How large is {town}?", f"What is the number of houses in {town}?"],
            f"{town} has {houses} houses.", str(houses))
    colours = {thing: draw.choice(COLOURS) for thing in THINGS}
    for thing, colour in colours.items():
        add([f"What colour is the {thing}?", f"Which colour does the {thing} have?",
             f"What is the colour of the {thing}?", f"Tell me the colour of the {thing}."],
            f"The {thing} is {colour}.", colour)
    for thing, word in CHINESE_THINGS.items():
        colour = CHINESE_COLOURS[colours[thing]]
        add([f"{word}是什么颜色？", f"请问{word}是什么颜色的？", f"{word}的颜色是什么？"],
            f"{word}是{colour}的。", colour, chinese=True)
    for english, word in (CHINESE_THINGS | CHINESE_PETS | CHINESE_COLOURS).items():
        add([f"What is the Chinese word for {english}?", f"How do you say {english} in Chinese?",
             f"{english}用中文怎么说？"],
            f"The Chinese word for {english} is {word}.", word)
        add([f"{word}用英语怎么说？", f"请问{word}的英语是什么？", f"What does {word} mean?"],
            f"{word}的英语是 {english}。", english, chinese=True)
    return facts


FACTS = all_facts()
