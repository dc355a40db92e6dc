"""`python -m oncewire`: the command `oncewire` of this Python, also where PATH has none."""

from oncewire.cli.main import main

if __name__ == "__main__":
    main()
