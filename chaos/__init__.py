"""The fault side: data sets, load, journals of events, the checker that judges them, and the demo."""
