"""A scripted router that any client in any language is run against, and a verdict for each claim of the resume profile.

``python -m oncewire.testing.resume --publisher "node publish.js" --subscriber "node subscribe.js"`` starts the client's
program for each scenario, plays the router, and judges the frames that come and the lines that the program prints. What
the program has to do is on the page *The resume profile*.
"""

from oncewire.testing.resume.judging import Verdict
from oncewire.testing.resume.playing import SCENARIOS, play

__all__ = ["SCENARIOS", "Verdict", "play"]
