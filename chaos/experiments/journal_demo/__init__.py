"""`oncewire demo-journal`: a journal of topics and its readers on real data, with kills everywhere, and its verdict.

The flights are published, each to the topic of its carrier; edges keep all of these topics in one journal. One reader
is away for a third of the run, one comes late and starts at the first message, one keeps its position itself and reads
everything twice. Meanwhile routers, edges and readers are killed. The verdict holds the journal against the rows, and
what each reader has read against the journal.
"""

MIN_MESSAGES = 1_000
"""With fewer the second pass of the reader that replays is over before it can be killed."""
MIN_KILLS = 6
"""Two of each kind."""
