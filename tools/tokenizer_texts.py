"""Texts that tokenizers get wrong, and ordinary ones of many scripts."""

import unicodedata

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Hello, world! How are you today?",
    "It's what we've said: they'll go, I'd stay, you're late, I'm not, he doesn't.",
    "IT'S WHAT WE'VE SAID: THEY'LL GO, I'D STAY, YOU'RE LATE, I'M NOT.",
    "Żółw wspiął się na wysokie drzewo, żeby zobaczyć morze.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Größere Übungen für ältere Äpfel, weiß und süß; ẞ und ß.",
    "L'œuvre naïve d'un garçon où l'été s'achève à l'aube.",
    "¿Dónde está el pingüino? ¡Mañana por la mañana!",
    "Não há pão à mesa; amanhã haverá maçãs.",
    "İstanbul'da ılık bir akşam, çocuklar gülüyor, ağaçlar eğiliyor.",
    "Þetta er ágæt íslensk setning með ð og þ.",
    "Cửa sổ nhìn ra một khu vườn rộng ở Việt Nam.",
    "Tā ir laba diena, ļoti laba ķēķa grīda.",
    "Eesti õhtu öö äär üle.",
    "Sinä yönä järven jää oli hyvin ohutta.",
    "Árvíztűrő tükörfúrógép.",
    "Nhóm em bé đang chơi ở ngoài sân.",
    "Съешь же ещё этих мягких французских булок да выпей чаю.",
    "Їжак із ґанку з'їв п'ять яблук.",
    "Ђаци и њихов учитељ иду у школу.",
    "Η γρήγορη αλεπού πηδά πάνω από το τεμπέλικο σκυλί.",
    "ᾍδης καὶ Ὀδυσσεὺς ἐν τῷ οἴκῳ.",
    "Արեւը ծագում է արեւելքից։",
    "მზე ამოდის აღმოსავლეთიდან.",
    "השמש זורחת במזרח, וְהַיָּם שָׁקֵט.",
    "الشمس تشرق من الشرق، والقَمَرُ جميلٌ.",
    "خورشید از شرق می‌تابد و ۱۲۳ ستاره.",
    "سورج مشرق سے نکلتا ہے۔",
    "सूरज पूरब से निकलता है; क्षेत्र, ज्ञान, श्री।",
    "সূর্য পূর্ব দিকে ওঠে, ক্ষুদ্র জ্ঞান।",
    "ਸੂਰਜ ਪੂਰਬ ਤੋਂ ਨਿਕਲਦਾ ਹੈ।",
    "સૂર્ય પૂર્વમાંથી ઊગે છે.",
    "ସୂର୍ଯ୍ୟ ପୂର୍ବ ଦିଗରୁ ଉଠେ।",
    "சூரியன் கிழக்கில் உதிக்கிறது.",
    "సూర్యుడు తూర్పున ఉదయిస్తాడు.",
    "ಸೂರ್ಯ ಪೂರ್ವದಲ್ಲಿ ಹುಟ್ಟುತ್ತಾನೆ.",
    "സൂര്യൻ കിഴക്ക് ഉദിക്കുന്നു.",
    "හිරු නැගෙනහිරින් උදාවේ.",
    "ดวงอาทิตย์ขึ้นทางทิศตะวันออก น้ำใจ",
    "ຕາເວັນຂຶ້ນທາງທິດຕາເວັນອອກ.",
    "နေသည် အရှေ့ဘက်မှ ထွက်သည်။",
    "ព្រះអាទិត្យរះនៅទិសខាងកើត។",
    "ཉི་མ་ཤར་ཕྱོགས་ནས་ཤར།",
    "ፀሐይ በምሥራቅ ትወጣለች።",
    "太阳从东方升起，我们在河边散步。",
    "太陽從東方升起，學生們讀書。",
    "太陽は東から昇り、カメラで写真を撮る。ｶﾀｶﾅ ガギグ",
    "해는 동쪽에서 뜨고 아이들은 학교에 간다.",
    "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
    "ᐃᓄᒃᑎᑐᑦ",
    "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ",
    "𐌰𐌹𐌽𐍃 𐍄𐍅𐌰𐌹 (Gothic)",
    "𓀀𓀁𓂀 and 𒀀𒁀",
    "𝒜𝓁𝓅𝒽𝒶 𝔅𝔢𝔱𝔞 𝟙𝟚𝟛",
    "ﬁne oﬃce ﬂow ℌ ℵ Ⅷ ⅷ",
    "Tamaziɣt ⵜⴰⵎⴰⵣⵉⵖⵜ",
    "ߒߞߏ ߊ߬ ߣߌ߫",
]

NUMBERS = [
    "0", "7", "42", "1234567890", "3.14159", "1,000,000.00", "-17", "1e-9", "0x1F", "2024-02-29",
    "12:34:56", "1½", "½", "x²+y³", "№ 5", "٣٤٥", "۱۲۳۴", "१२३", "๑๒๓", "一二三", "Ⅻ", "①②③",
    "𝟘𝟙", "1 2  3   4", "v2.0.1-rc3", "a1b2c3", "100%", "$5.99", "5€", "H₂O", "10⁻⁹",
]

SPACES = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\r", "\r\n", "\r\n\r\n", " \n", "\n ", " \n ", "\t\t",
    "a b", "a  b", "a   b", "a b ", "a  ", " a", "  a", "   a", "a\nb", "a\n\nb", "a \nb", "a\n b",
    "a   \n  b", "a\t\tb", "a\r\nb", "a \r\n\r\n  b", "!\n", "!\n\n", "! \n", "!\r\n\r\n x",
    "a.\n\n\n    b", "    def f():\n        return 1\n", "\u00a0\u00a0x", "x \u00a0 y",
    "\n\n\n   \n\n x", "end   ", "end \n ", " \u3000 ", "\u2028\u2029", "a\u200bb", "\ufefftext",
]
SPACE_LIKE = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\u00a0\u1680\u180e\u2000\u2009\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"

MARKS = [
    "\u0301", "\u0301\u0302\u0303", "a\u0301", "a\u0301\u0323", "a\u0323\u0301", "1\u0301", " \u0301",
    "!\u0301x", "\u0301abc", "e\u0301e\u0300e\u0308", "q\u0307\u0323", "q\u0323\u0307", "\u1e0b\u0323",
    "\u0344", "\u0958", "\u212b \u2126 \u212a", "\uac00\u11a8", "\u1100\u1161\u11a8", "x\u20dd",
    "\u0915\u093c", "\u05e9\u05bc\u05c1", "\u0f71\u0f72\u0f74", "\u2adc", "\ufb1d", "o\u0308\u0304",
    "z\u0335\u0328\u0301\u0347!", "\u0301\n\u0301", "A\u030a", "\u1e9b\u0323", "\u00e9\u0301",
]

APOSTROPHES = [
    "it's", "It'S", "'s", "s'", "''s", "it's's", "it'\u017fx", "it'\u017f", "they'LL", "they'Ll",
    "we'Re", "I'M", "he'D", "you'Ve", "don't", "DON'T", "it’s", "rock'n'roll", "'tis", " 's", "a 't b",
    "'sam", "'re-do", "x'y'z", "l'l'l", "\u212a's", "'\u212a",
]

EMOJI = [
    "🙂", "🙂🙂", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "1️⃣", "😶‍🌫️", "🚀🚀🚀 go", "a🙂b", "🙂\n🙂", "☃ ☃︎ ☃️",
    "👨🏿‍💻", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🫠🫨", "™ © ®",
]

CODE = [
    "int main() {\n    return 0;\n}\n",
    "for (size_t i = 0; i < n; ++i) sum += x[i] * w[i];",
    "def f(x):\n\tif x > 0:\n\t\treturn x**2\n\treturn -x\n",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;",
    "<div class=\"a\"><p>text &amp; more</p></div>",
    "{\"key\": [1, 2.5, null, true], \"other\": {\"a\": \"b\"}}",
    "std::vector<std::pair<int, float>> v{{1, 2.f}};",
    "$ ls -la | grep '^d' > /dev/null 2>&1",
    "https://example.org/path?query=1&x=%20#part",
    "user@example.org", "C:\\Users\\name\\file.txt", "snake_case camelCase PascalCase kebab-case",
    "x = y == z != w <= v && !u || t", "// comment\n/* block\n * comment\n */",
    "\\begin{equation} e^{i\\pi} + 1 = 0 \\end{equation}", "#include <stdio.h>", "!!!???...", "--- *** ___",
    "(((((())))))", "a,b;c:d.e!f?g", "`code` **bold** _it_", "[link](url)", "@#$%^&*()_+{}|:\"<>?~",
    "«quoted» „so“ “or” ‘so’", "—–-−", "lambda x: x+1", "if(a&&b){c();}else{d();}",
]

MARKERS = [
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>", "<|im_end|", "|im_end|>",
    "<|im_end|><|im_end|>", "a<|im_end|>b", " <|im_end|> ", "<|IM_END|>", "<|endoftext|>", "< |im_end|>",
    "<think>\n\n</think>\n\n", "<think>", "</think>", "<tool_call>{\"name\": \"f\"}</tool_call>",
    "<tool_response>x</tool_response>", "<|im_start|><|im_start|>", "<<|im_start|>>", "<|im_\u0301end|>",
    "<|vision_start|><|image_pad|><|vision_end|>", "<repo_name>x", "<file_sep>", "<jupyter_code>1",
    "<m", "<m>", "<m><m", "x<m>y<my", "abc", "ab", "bc", "abcab bcab", "xabcx", "<<m>>",
    "a <left> b", "a  \n<left>b", "<left>", " <left>", "a <right> b", "a<right>  \n b", "<right> ",
    "a <both> b", "  <both>  ", "<both> <both>", "<left> <left>", "<right> <left>", "<right>\u00a0\u3000x",
    "cat", "a cat sat", "cats", "concat", "cat!", "_cat", "cat_", "cat1", "(cat)", "écat", "cat cat", "\u0301cat",
    "ё!", "е\u0308!", "ё?", "е\u0308?", "ё#", "е\u0308#", "xе\u0308!y е\u0308#z", "ё! ё# ё?",
]

LONG = ["a" * 300, " " * 300, "\n" * 200, "ab" * 150, "é" * 100, "\u0301" * 100, "7" * 150, "!" * 200,
        " \n" * 100, "🙂" * 60, "word " * 60, "字" * 100]

NEWER = ["\U00011f02\U00011f04", "\U0001e4d0\U0001e4d1", "\U00010d4a", "x\u1c8ay", "\ua7cb"]

INVALID = [bytes.fromhex(h) for h in (
    "80", "ff", "c3", "c328", "e282", "e28228", "e2ac", "f09f", "f09f99", "f09f9941", "f09f998280",
    "c080", "e08080", "eda080", "edbfbf", "f4908080", "f8888080", "fe", "61ff62", "61c3", "61e28261",
    "68656c6c6f20ff20776f726c64", "e4bda0e5a5", "f0808080", "c1bf", "e0a0", "f09f9982f09f99",
    "c3a9c3", "80808080", "0a80", "2080", "ef bf".replace(" ", ""), "3c7c696d5f656e647cff3e")]


def mixed(rng, alphabet, count, longest):
    return ["".join(rng.choices(alphabet, k=rng.randint(1, longest))) for _ in range(count)]


def texts(rng):
    """All of them, without repetition."""
    accented = [s for s in SENTENCES if unicodedata.normalize("NFD", s) != s]
    everything = "".join(SENTENCES + NUMBERS + MARKS + EMOJI + CODE)
    parts = SENTENCES + NUMBERS + SPACES + [*SPACE_LIKE] + MARKS + APOSTROPHES + EMOJI + CODE + MARKERS
    out = [
        *SENTENCES, *(unicodedata.normalize("NFD", s) for s in accented), *NUMBERS, *SPACES,
        *("!" + c for c in SPACE_LIKE), *("a" + c + c + "b" for c in SPACE_LIKE),
        *(c + "\n" + c + "1" for c in SPACE_LIKE), *MARKS, *APOSTROPHES, *EMOJI, *CODE, *MARKERS,
        *LONG, *NEWER,
        *mixed(rng, everything, 30, 20), *mixed(rng, SPACE_LIKE + "a'!1é", 30, 12),
        *mixed(rng, "abc<m>|im_end cat\u0308её!?#", 30, 16), *mixed(rng, parts, 20, 4),
    ]
    return list(dict.fromkeys(out))
