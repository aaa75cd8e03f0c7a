"""Greetings, thanks, goodbyes, questions about the assistant, small talk, and honest refusals."""

from samples.train.chat.abilities.phrases import DO, KNOW, WANT
from samples.train.chat.world import Exchange, World

WORDINGS: dict[str, tuple[str, ...]] = {
    "greet": (
        "(hi|hello|hey|hiya|howdy|greetings|good (morning|evening|afternoon|day)|yo|hi there|hello there|hey there|welcome)(|!|.|, (friend|assistant|you|bot|robot|computer|everyone|model)(|!))",
        "(nice|good|great|lovely) to (meet|see) you(|!|.)(| hello!| hi!)",
        "(I just wanted|I came|I'm here|I only want) to say (hi|hello|good morning)(|!|.)",
        "(anybody|anyone|is anybody|is someone|are you) (there|here|home|awake|around|online)?",
    ),
    "how": (
        "how (are you|are you doing|is it going|do you feel|are things|goes it|is your day|is life|have you been)(| today| this morning| tonight| right now)?",
        "(are|how) you (ok|okay|well|fine|alright|good)(| today)?",
        "(what's up|how's everything|how's it going|how's life|everything (ok|fine|good)|you good)?",
        "(I hope|hope) you are (well|fine|doing well|good|ok)(|!|.)",
        "(did you|have you) (sleep well|had a good day|had a nice day)?",
    ),
    "thanks": (
        "(thanks|thank you|thx|many thanks|cheers|much appreciated|thanks a lot|thank you so much|I appreciate it|thanks for that)(|!|.)(| that (helps|helped|is great|was useful|is perfect).)",
        "(great|perfect|nice|good|excellent|wonderful|awesome|super)(, | )(thanks|thank you|work|job|answer)(|!|.)",
        "(that was|you were|you are) (very |really |so |)(helpful|kind|nice|useful|great)(|!|.)",
        "(I am|I'm) (very |really |so |)(grateful|thankful|happy with that)(|!|.)",
        "(well done|good job|nice work|you did great|you're a star|you're the best)(|!|.)",
    ),
    "bye": (
        "(bye|goodbye|bye bye|see you|see you (later|soon|tomorrow)|farewell|good night|take care|so long|later|cheerio|ciao)(|!|.)",
        "(I have to|I must|I need to|I should|time to|I'm going to) (go|leave|run|sleep|stop here)(| now)(|.|!)",
        "(that's all|that is all|that's it|that will be all|we are done|I'm done)(| for (now|today|tonight))(|.|!)(| bye!| goodbye.)",
        "(talk to you|speak to you|catch you|until) (later|soon|tomorrow|next time)(|!|.)",
    ),
    "who": (
        "(who|what) are you(| exactly| really)?",
        "(what's|what is|tell me|say|do you have|give me|may I know) (your name|a name)(|?|.)",
        "(what|how) (should|can|may|do) I call you?",
        "(introduce|present|describe) yourself(|.)(| in one sentence.| briefly.)",
        "(tell me|say something|talk) about yourself(|.)",
        "(are you|is this) (a human|a person|a robot|a bot|an AI|a machine|a computer|real|a language model|a program)(|, or not)?",
        "(who|what) (am I (talking|speaking|chatting) (to|with)|is this)?",
        "(which|what) (model|assistant|AI|bot) (are you|is this|am I using)?",
        "(what kind|what sort) of (model|assistant|AI|thing|program) are you?",
        KNOW + " (who|what) you are(|.|?)",
        "(who|what) (made|built|trained|created) you?",
    ),
    "can": (
        "what (can|could) you do(| for me| to help)?",
        "(what|which) (are you (good|useful) (at|for)|tasks can you do|things can you do|skills do you have|abilities do you have)?",
        "(how|in what way) (can|could|do) you help(| me)(| today)?",
        "(what|which) (are your|is your) (skills|abilities|talents|strengths|purpose|job|features)?",
        "(list|show|name|describe|tell me) (your|all your) (skills|abilities|features|talents)(|.)",
        "(what|which) (can|should|may|could) I (ask|ask you|ask you for|use you for|do with you|try with you)?",
        "(help|help me|I need help|I need some help|menu|options|usage)(|!|.|?)",
        KNOW + " what you can do(|.|?)",
        "(do you have|are there) any (skills|abilities|examples|suggestions)(| I can try)?",
    ),
    "joke": (
        DO + "tell me (a|one|another|some|a good|a short) (joke|joke please|funny story)(|.)",
        WANT + " a (joke|good joke|short joke|funny joke|pun)(|.)",
        "(make me (laugh|smile)|say something funny|be funny|do you know (a|any) (joke|jokes)|know any jokes|cheer me up)(|?|.|!)",
        "(I'm|I am) (sad|bored|tired)(,|.) (tell me a joke|make me laugh|cheer me up)(|.|!)",
        "(joke|a joke|joke time)(|!|, please)",
    ),
    "unknown_fact": (
        "(who won|who is winning|who will win) the (match|game|race|election|cup|lottery)(| yesterday| today| tomorrow| last night)?",
        "(what's|what is) the (price|value) of (gold|oil|bitcoin|that stock|my house)(| now| today)?",
        "(what's|what is) (on the news|the latest news|in the news|happening in the world|the time|today's date)(| now| today)?",
        "(tell me|explain|what do you think) about (quantum physics|politics|the economy|philosophy|the stock market|relativity|world history)(|.|?)",
        "(write|fix|debug) (a|my) (python|java|rust) (program|script|code)(|.)",
        "(who is|who was) the (king|president|minister|queen|mayor|boss) of (that country|the country|Rome|the company)?",
        "(should I|is it safe to) (buy|sell|invest in) (stocks|gold|a house|bitcoin)?",
        "(diagnose|treat|cure) my (headache|cough|back pain|fever)(|.)",
    ),
}

ANSWERS = {
    "greet": "Hello! How can I help you?",
    "how": "I am fine, thank you. How can I help you?",
    "thanks": "You are welcome!",
    "bye": "Goodbye! Have a nice day.",
    "who": "I am Hemiola Tiny, a very small language model that runs on this computer.",
    "can": "I can chat, define common words, do small sums, extract JSON, remember what you tell me, call tools, and write prompts for pictures and videos.",
    "unknown_fact": "Sorry, I am a very small model and I do not know that.",
}
THOUGHTS = {
    "greet": "The user greets me. I greet back.",
    "how": "The user asks how I am.",
    "thanks": "The user thanks me.",
    "bye": "The user says goodbye.",
    "who": "The user asks who I am.",
    "can": "The user asks what I can do.",
    "unknown_fact": "This is beyond what I know. I say so.",
}
JOKES = (
    "Why did the robot go to bed? It wanted to reboot.",
    "What do you call a sleeping bull? A bulldozer.",
    "Why was the maths book sad? It had too many problems.",
    "What is orange and sounds like a parrot? A carrot.",
    "Why do bees have sticky hair? They use honeycombs.",
    "What do clouds wear? Thunderwear.",
)


def social(world: World, key: str) -> Exchange:
    return Exchange(key, world.ask(key), ANSWERS[key], THOUGHTS[key])


def joke(world: World) -> Exchange:
    text = world.rng.choice(JOKES)
    return Exchange("joke", world.ask("joke"), text, "The user wants a joke. I tell one that I know.", ("any", *JOKES))
