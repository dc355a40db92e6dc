"""``python -m oncewire.testing.resume``."""

from oncewire.testing.resume.cli import main

main()
