#!/bin/sh
# Fetches Prometheus and promtool for the tests of deploy/: fetch_prometheus.sh FOLDER puts both programs there, out of
# Debian's package. The package is unpacked and not installed: installed, it would start a service on this machine.
# What is on PATH is used instead, and what is there already is not fetched again.
set -eu

command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0
[ -x "$1/prometheus" ] && [ -x "$1/promtool" ] && exit 0
command -v apt-get >/dev/null || { echo "no apt-get here: put prometheus and promtool on PATH" >&2; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(cd "$folder" && apt-get -o APT::Sandbox::User="$(id -un)" download -qq prometheus) || {
    echo "Debian's package prometheus cannot be downloaded (sudo apt-get update, then again)" >&2
    exit 1
}
dpkg-deb -x "$folder"/prometheus_*.deb "$folder/unpacked"
mkdir -p "$1"
mv "$folder/unpacked/usr/bin/prometheus" "$folder/unpacked/usr/bin/promtool" "$1/"
