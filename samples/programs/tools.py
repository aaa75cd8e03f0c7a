"""Tool use: the model calls Python functions, reads what they gave, and answers. One of them draws a picture.

python samples/programs/tools.py "What is the weather in Oslo?"
python samples/programs/tools.py "Draw a red fox in the snow." --output fox.png
"""

import argparse
from pathlib import Path

import hemiola as hm

WEATHER = {"Oslo": ("cloudy", 12), "Rome": ("sunny", 27), "Bergen": ("rainy", 8)}


@hm.tool
def get_weather(city: str) -> dict[str, str | int]:
    """Get the weather in a city."""
    if city not in WEATHER:
        raise LookupError(f"nothing is known of {city}")  # the model reads this too
    weather, temperature = WEATHER[city]
    return {"city": city, "weather": weather, "temperature": temperature}


@hm.program
def assistant(s: hm.State, question: str, steps: int | None = None) -> None:
    """As many rounds of calls as the model wants, four at most; calls of one answer run at once.

    A tool may add to the program that it is called by: here a picture, which is drawn while the model goes on.
    """

    @hm.tool
    def generate_image(prompt: str) -> str:
        """Generate an image."""
        s.add(hm.gen_image("picture", prompt, steps=steps, seed=1))  # begins now; nobody waits for it here
        return "The image is being made."

    s += hm.user(question)
    s += hm.assistant(hm.gen("answer", tools=[get_weather, generate_image], max_tokens=80))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", nargs="?", default="What is the weather in Oslo?")
    parser.add_argument("--output", type=Path, default=Path("picture.png"))
    args = parser.parse_args()
    with hm.Engine("demo") as engine:
        run = assistant.on(engine).run(args.question)
    for message in run.messages():
        print(f"{message['role']:>9}: {message['content']}")
        for call in message.get("tool_calls", ()):
            print(f"{'calls':>9}: {call['function']['name']}({call['function']['arguments']})")
    if "picture" in run:
        print(run["picture"].save(args.output))


if __name__ == "__main__":
    main()
