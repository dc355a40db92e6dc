#!/bin/sh
# Prints a Python that can make the project's virtual environment, or says on stderr how to get one and fails.
# $PYTHON, where set, is the only one that is tried.

usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if usable "$candidate"; then
        command -v "$candidate"
        exit 0
    fi
done

echo "error: no Python was found that can set up Oncewire" >&2
if [ -n "$PYTHON" ]; then
    echo "why: PYTHON=$PYTHON is missing, older than 3.11, or lacks the modules venv and ensurepip" >&2
else
    found=$(python3 --version 2>/dev/null || echo "no python3")
    echo "why: Python 3.11 or newer with the modules venv and ensurepip is needed; PATH has $found" >&2
fi
echo "what to do: sudo apt-get install -y make python3-venv (Debian 12 or newer), or name another one: make PYTHON=/path/to/python3" >&2
exit 2
