#!/bin/sh
# Builds the Toxiproxy server from its Go module: install_toxiproxy.sh FOLDER puts FOLDER/toxiproxy-server there.
# What $TOXIPROXY_SERVER names, or what is on PATH, is used instead, and then nothing is built.
# FOLDER/.. is a virtual environment, such as .venv: see go.sh.
set -eu
VERSION=v2.12.0
MODULE=github.com/Shopify/toxiproxy/v2/cmd/server
OLDEST_GO=23 # of Go 1: what the module's go.mod asks for

[ -z "${TOXIPROXY_SERVER:-}" ] || { [ -x "$TOXIPROXY_SERVER" ] && exit 0; }
command -v toxiproxy-server >/dev/null && exit 0
[ -x "$1/toxiproxy-server" ] && exit 0

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "$(dirname "$0")/go.sh"

# The module's program is called `server`.
GOBIN=$folder go install -ldflags "-X ${MODULE%/cmd/server}.Version=${VERSION#v}" "$MODULE@$VERSION"
mv "$folder/server" "$1/toxiproxy-server"
