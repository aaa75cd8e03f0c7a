"""Pieces of wordings shared by the abilities: ways to ask, to wish and to name."""

DO = "(|||can you |could you |would you |will you |please |I want you to |I need you to |I'd like you to |your task is to |try to |help me: |go ahead and |let's )"
"""In front of a verb: '(can you )write ...'."""

WANT = "(give me|tell me|show me|I want|I need|I'd like|I'd love|let me have|may I have|can I have|could I get|can you give me|could you tell me|write|write down|please give me|what is|do you know|I'm looking for|state|name|say)"
"""In front of a noun phrase: '(tell me) the opposite of ...'."""

KNOW = "(do you know|can you tell me|could you tell me|tell me|I wonder|I want to know|I'd like to know|I was wondering|please tell me|explain|any idea|let me know|could you say)"
"""In front of an indirect question: '(do you know) what ... means'."""

HERE = "(|here is the text|text|the text is|input|read this|this is the text|given)"
